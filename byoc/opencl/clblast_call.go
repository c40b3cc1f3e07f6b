// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/region"
)

// callCompiler is the Compiler attribute that Python gives to the calls of CLBlast within a region
// (python/collage/device_library.py). Nobody else writes it: it is no backend's.
const callCompiler = "collage_clblast"

// makesCall is the plug-in's packed function that makes the module of a call.
const makesCall = "collage.runtime.opencl.ClblastCreate"

var registering sync.Mutex

// registerCalls has TVM make modules of the calls of CLBlast's that stand in a region.
func registerCalls() error {
	registering.Lock()
	defer registering.Unlock()
	name := "relay.ext." + callCompiler
	if f, ok := bridge.LookupGlobalFunction(name); ok {
		f.Release()
		return nil
	}
	return bridge.RegisterFunction(name, false, func(args []bridge.Value) (any, error) {
		fn, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		p, err := region.Read(fn)
		if err != nil {
			return nil, err
		}
		defer p.Graph.Release()
		line, err := callLine(p)
		if err != nil {
			return nil, p.Refused(Compiler, err)
		}
		return bridge.Global(makesCall, p.Symbol, line)
	})
}

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
