// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/region"
)

// formatLine begins the text of a region; libcollage_opencl.so (byoc/runtime/opencl_program.cc) reads it.
const formatLine = "collage-opencl 1\n"

// buildFunction has Python build a region's function for a device and gives the bytes of the library.
const buildFunction = "collage.host.device_library"

// emit is the region.Emitter. It writes formatLine, the names of the region's groups, which of them read each input,
// which of them makes each output, and the library; the weights are in that.
func emit(p *region.Program) ([]byte, []region.ValueID, error) {
	if p.Function == nil {
		return nil, nil, errors.New("a region for a device is built from its function")
	}
	built, err := bridge.Global(buildFunction, p.Function, Device)
	if err != nil {
		return nil, nil, err
	}
	defer built.Release()
	library, err := built.Bytes()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", buildFunction, err)
	}
	return append(head(p), library...), nil, nil
}

// head is the text before the library.
func head(p *region.Program) []byte {
	groups, of := p.Groups()
	readers := make([][]int, len(p.Values))
	for i := range p.Ops {
		for _, v := range p.Ops[i].Args {
			readers[v] = append(readers[v], of[i])
		}
	}
	var text strings.Builder
	text.WriteString(formatLine + region.GroupsLine(groups))
	for _, v := range p.Inputs {
		writeList(&text, readers[v])
	}
	text.WriteByte('\n')
	for _, v := range p.Outputs {
		if producer := p.Values[v].Producer; producer >= 0 {
			writeList(&text, []int{of[producer]})
		} else {
			writeList(&text, nil)
		}
	}
	text.WriteByte('\n')
	return []byte(text.String())
}

// writeList writes numbers, ascending, each once, and a space; "-" for none.
func writeList(to *strings.Builder, numbers []int) {
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	if len(numbers) == 0 {
		to.WriteString("- ")
		return
	}
	to.WriteString(strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]") + " ")
}
