// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/region"
)

// formatLine begins the text of a region; the kind's plug-in (byoc/runtime/device_program.cc) reads it.
const formatLine = "collage-device 2\n"

// buildFunction has Python build a region's function for a device and gives the bytes of the library.
const buildFunction = "collage.host.device_library"

// emit is the region.Emitter. It writes formatLine, the kind of device and its architecture, the names of the region's
// groups, which of them read each input,
// which of them makes each output, which of them each kernel does and which node of TVM's graph that is, and the
// library; the weights are in that.
func (k *Kind) emit(p *region.Program) ([]byte, []region.ValueID, error) {
	if p.Function == nil {
		return nil, nil, errors.New("a region for a device is built from its function")
	}
	target, architecture, err := k.Target(k)
	if err != nil {
		return nil, nil, err
	}
	built, err := bridge.Global(buildFunction, p.Function, target)
	if err != nil {
		return nil, nil, err
	}
	defer built.Release()
	bytes, err := built.Bytes()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", buildFunction, err)
	}
	told, library, _ := strings.Cut(string(bytes), "\x00")
	var kernels []kernel
	if err := json.Unmarshal([]byte(told), &kernels); err != nil {
		return nil, nil, fmt.Errorf("%s: what it says of kernels is not readable: %w", buildFunction, err)
	}
	return []byte(formatLine + k.Name + " " + architecture + "\n" + head(p, kernels) + library), nil, nil
}

// kernel is one of TVM's kernels: its node in TVM's graph and the names of the operators that it does.
type kernel struct {
	node      int
	operators []string
}

// UnmarshalJSON reads [node, [name, ...]].
func (k *kernel) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&k.node, &k.operators})
}

// groupsOf says which groups each kernel does; nil where that cannot be said. Operators of one name are known by their
// order, which TVM keeps; what TVM has added (layout_transform) is nobody's, and what it has written otherwise
// (nn.contrib_conv2d_winograd_without_weight_transform) is the operator whose name it has.
func groupsOf(p *region.Program, kernels []kernel) [][]int {
	_, of := p.Groups()
	left := map[string][]int{}
	for i := range p.Ops {
		left[p.Ops[i].Name] = append(left[p.Ops[i].Name], of[i])
	}
	does := make([][]int, len(kernels))
	for i, k := range kernels {
		for _, name := range k.operators {
			if len(left[name]) == 0 {
				name = plainName(name)
			}
			if list := left[name]; len(list) > 0 {
				does[i], left[name] = append(does[i], list[0]), list[1:]
			}
		}
	}
	for _, list := range left {
		if len(list) > 0 {
			return nil
		}
	}
	return does
}

// plainName is the operator that TVM has written otherwise: "nn.conv2d" of "nn.contrib_conv2d_NCHWc".
func plainName(name string) string {
	rest, ok := strings.CutPrefix(name, "nn.contrib_")
	if !ok {
		return name
	}
	rest, _, _ = strings.Cut(rest, "_winograd")
	for _, suffix := range []string{"_NCHWc", "_pack"} {
		rest, _, _ = strings.Cut(rest, suffix)
	}
	return "nn." + rest
}

// head is the text between the kind of device and the library.
func head(p *region.Program, kernels []kernel) string {
	groups, of := p.Groups()
	readers := make([][]int, len(p.Values))
	for i := range p.Ops {
		for _, v := range p.Ops[i].Args {
			readers[v] = append(readers[v], of[i])
		}
	}
	var text strings.Builder
	text.WriteString(region.GroupsLine(groups))
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
	does := groupsOf(p, kernels)
	for _, list := range does {
		writeList(&text, list)
	}
	text.WriteByte('\n')
	for i := range does {
		writeList(&text, []int{kernels[i].node})
	}
	text.WriteByte('\n')
	return text.String()
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
