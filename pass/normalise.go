// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
)

// normalisePass is a pass of Relay's with its arguments.
type normalisePass struct {
	name string
	args []any
}

// normalisePasses are what Normalise runs, in order. relay.build runs the same ones later; they come first here because
// candidates are looked for in what they leave: a batch normalisation becomes a scale, which is folded into the
// convolution, and an add. EliminateCommonSubexpr and SimplifyExpr are left out: one after the other they lose the
// sharing of a graph with many ways through it (NasNet-A) and grow it without end.
var normalisePasses = []normalisePass{
	{"RemoveUnusedFunctions", []any{[]string{"main"}}},
	{"InferType", nil},
	{"SimplifyInference", nil},
	{"FoldConstant", []any{false}},
	{"CanonicalizeOps", nil}, // bias_add becomes add, which scales can be folded through
	{"FoldScaleAxis", nil},
	{"FoldConstant", []any{false}},
	{"InferType", nil},
}

// Normalise gives the module the form that candidates are looked for in: types inferred, training-only operators
// removed, constants folded, scales folded into convolutions but for those that are computed of the data, functions that
// nothing calls removed. The module that comes in is not changed.
func Normalise(mod *bridge.Object, opts NormaliseOptions) (*bridge.Object, error) {
	if opts.DisabledPasses == nil {
		opts.DisabledPasses = DefaultDisabledPasses()
	}
	var out *bridge.Object
	err := underPassContext(3, opts.DisabledPasses, func() error {
		current := mod
		for _, p := range normalisePasses {
			if slices.Contains(opts.DisabledPasses, p.name) {
				continue
			}
			if p.name == "RemoveUnusedFunctions" && !hasMain(mod) {
				continue // which functions are used is not known then
			}
			if err := bridge.CheckSignals(); err != nil {
				return err
			}
			steps := []func(*bridge.Object) (*bridge.Object, error){
				func(m *bridge.Object) (*bridge.Object, error) { return runPass(m, p.name, p.args...) },
			}
			if p.name == "FoldScaleAxis" {
				steps = slices.Insert(append(steps, releaseScales), 0, holdScales)
			}
			for _, step := range steps {
				next, err := step(current)
				if err != nil {
					return err
				}
				if current != mod {
					current.Release()
				}
				current = next
			}
		}
		out = current
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("normalising the module: %w", err)
	}
	return out, nil
}

func hasMain(mod *bridge.Object) bool {
	v, err := bridge.Global("ir.Module_ContainGlobalVar", mod, "main")
	if err != nil {
		return false
	}
	has, err := v.Bool()
	return err == nil && has
}
