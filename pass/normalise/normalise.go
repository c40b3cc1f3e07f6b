// SPDX-License-Identifier: Apache-2.0

// Package normalise gives a module the form in which candidates are looked for: Normalise.
package normalise

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/fold"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// normalisePass is a pass of Relay's with its arguments.
type normalisePass struct {
	name string
	args []any
}

// steps are what is done for a pass, without those of its parts that are disabled.
func (p normalisePass) steps(disabled []string) []func(*bridge.Object) (*bridge.Object, error) {
	pass := func(name string, args ...any) func(*bridge.Object) (*bridge.Object, error) {
		return func(mod *bridge.Object) (*bridge.Object, error) { return runPass(mod, name, args...) }
	}
	switch itself := pass(p.name, p.args...); p.name {
	case "Inline":
		return []func(*bridge.Object) (*bridge.Object, error){inlineCalls}
	case "OpenDimensions":
		return []func(*bridge.Object) (*bridge.Object, error){openDimensions}
	case "Identities":
		return []func(*bridge.Object) (*bridge.Object, error){dropIdentities}
	case "QuantisedForm":
		return []func(*bridge.Object) (*bridge.Object, error){quantisedForm}
	case "SimplifyInference":
		return []func(*bridge.Object) (*bridge.Object, error){refuseOpenGroups, itself}
	case "FoldScaleAxis":
		// The pass of that name is these two with FoldConstant behind them, which has its turn later.
		steps := []func(*bridge.Object) (*bridge.Object, error){holdScales, pass("InferType")}
		for _, name := range []string{"BackwardFoldScaleAxis", "ForwardFoldScaleAxis"} {
			if !slices.Contains(disabled, name) {
				steps = append(steps, pass(name))
			}
		}
		return append(steps, releaseScales)
	case "FoldConstant":
		return []func(*bridge.Object) (*bridge.Object, error){FoldConstants, itself}
	default:
		return []func(*bridge.Object) (*bridge.Object, error){itself}
	}
}

// normalisePasses are what Normalise runs, in order. relay.build runs the same ones later; they come first here because
// candidates are looked for in what they leave: a batch normalisation becomes a scale, which is folded into the
// convolution, and an add. EliminateCommonSubexpr and SimplifyExpr are left out: one after the other they lose the
// sharing of a graph with many ways through it (NasNet-A) and grow it without end.
var normalisePasses = []normalisePass{
	{"Inline", nil}, // our own
	{"RemoveUnusedFunctions", []any{[]string{"main"}}},
	{"InferType", nil},
	{"OpenDimensions", nil}, // our own
	{"SimplifyInference", nil},
	{"FoldConstant", []any{false}},
	{"Identities", nil},      // our own
	{"QuantisedForm", nil},   // our own
	{"CanonicalizeOps", nil}, // bias_add becomes add, which scales can be folded through
	{"FoldScaleAxis", nil},
	{"FoldConstant", []any{false}},
	{"InferType", nil},
}

// Normalise gives the module the form that candidates are looked for in: types inferred, what is computed of open
// dimensions settled (symbolic.Settle), training-only operators removed, constants folded, what gives its argument again
// left out (dropIdentities), what is computed in whole numbers between scales written as float32 between quantisations
// (quantisedForm), scales folded into convolutions but for those that are computed of the data, functions put in the
// place of their calls, and those that nothing calls removed. The module that comes in is not changed.
func Normalise(mod *bridge.Object, opts Options) (*bridge.Object, error) {
	if opts.DisabledPasses == nil {
		opts.DisabledPasses = settings.DefaultDisabledPasses()
	}
	var out *bridge.Object
	err := underPassContext(3, opts.DisabledPasses, func() error {
		current := mod
		for _, p := range normalisePasses {
			if slices.Contains(opts.DisabledPasses, p.name) {
				continue
			}
			if (p.name == "RemoveUnusedFunctions" || p.name == "Inline") && !hasMain(mod) {
				continue // which functions are used is not known then
			}
			if err := bridge.CheckSignals(); err != nil {
				return err
			}
			for _, step := range p.steps(opts.DisabledPasses) {
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

// openDimensions is symbolic.Settle, with types.
func openDimensions(mod *bridge.Object) (*bridge.Object, error) {
	settled, err := symbolic.Settle(mod, nil)
	if err != nil || settled.Same(mod) {
		return settled, err
	}
	defer settled.Release()
	return runPass(settled, "InferType")
}

// refuseOpenGroups gives the module again; an error where nn.group_norm has sizes that are open, at which TVM's
// SimplifyInference ends the process.
func refuseOpenGroups(mod *bridge.Object) (*bridge.Object, error) {
	read, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer read.Release()
	for _, g := range read.Functions {
		for id := range g.Nodes {
			if n := &g.Nodes[id]; n.Op == "nn.group_norm" && slices.Contains(n.Type.Shape, relay.AnyDim) {
				where := ""
				if n.Span != (relay.Span{}) {
					where = " at " + n.Span.String()
				}
				return nil, fmt.Errorf("nn.group_norm of %s%s: TVM cannot write it out where sizes are open; write it with "+
					"reshape, mean, subtract and multiply, or fix its sizes", n.Type, where)
			}
		}
	}
	return mod.Retain()
}

// FoldConstants does what FoldConstant would do with a compiler run for each operator; what it leaves is TVM's.
func FoldConstants(mod *bridge.Object) (*bridge.Object, error) {
	out, _, err := fold.Module(mod)
	return out, err
}

func hasMain(mod *bridge.Object) bool {
	v, err := bridge.Global("ir.Module_ContainGlobalVar", mod, "main")
	if err != nil {
		return false
	}
	has, err := v.Bool()
	return err == nil && has
}

// Options says how Normalise prepares a module.
type Options struct {
	// DisabledPasses are left out; nil for DefaultDisabledPasses.
	DisabledPasses []string `json:"disabled_passes,omitempty"`
}
