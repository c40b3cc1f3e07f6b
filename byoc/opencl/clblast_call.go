// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/device"
	"github.com/collage-tvm/collage/byoc/region"
)

// calls are the calls of CLBlast within a region.
var calls = device.Calls{Of: "clblast", Creates: "collage.runtime.opencl.ClblastCreate", Kind: kindName, Write: callLine}

// callLine writes the function of one composite as a line for byoc/runtime/opencl_clblast.cc.
func callLine(p *region.Program) (string, error) {
	if len(p.Ops) != 1 || len(p.Composites) != 1 || len(p.Outputs) != 1 {
		return "", fmt.Errorf("a call of CLBlast is one operator, and not %d", len(p.Ops))
	}
	at := slices.IndexFunc(clblastRules(), func(r clblastRule) bool { return r.composite() == p.Composites[0] })
	if at < 0 {
		return "", fmt.Errorf("the backend %s does not know the composite %q", CLBlastName, p.Composites[0])
	}
	op := &p.Ops[0]
	made, err := clblastRules()[at].read(p.Graph, op.Node)
	if err != nil {
		return "", err
	}
	words := slices.Clone(made.line)
	for _, operand := range made.operands {
		input := slices.Index(p.Inputs, op.Args[operand])
		if input < 0 {
			return "", fmt.Errorf("%s reads something that is no argument of its call", op.Name)
		}
		words = append(words, input)
	}
	return strings.TrimSpace(fmt.Sprintln(append(words, made.steps...)...)), nil
}
