// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// activation is a function of one number that can be done on the way out, as a pattern on top of a value.
type activation struct {
	name  string // its part of a composite's name, and of Elementwise.Function where that is not Relay's operator
	shape func(p relay.Pattern) relay.Pattern
	check func(g *relay.Graph, m *relay.Match) error // nil: it has no limits
	read  func(g *relay.Graph, m *relay.Match) *Elementwise
	// unnamed says that TVM's code generator and runtime for oneDNN, which go by the name, would leave it out; ours
	// that there is no other way to tell that runtime, either.
	unnamed, ours bool
}

// activations are those that are known, the ones that cover most first.
var activations = []activation{
	written("gelu", relay.Gelu),
	oursAlone(written("gelu_tanh", relay.GeluTanh)),
	written("mish", relay.Mish),
	oursAlone(written("hardswish", relay.HardSwish)),
	written("swish", relay.Swish),
	oursAlone(activation{name: "hardsigmoid", shape: relay.HardSigmoid, check: checkHardSigmoid,
		read: readHardSigmoid}),
	single("relu", "nn.relu", nil),
	{name: "leaky", shape: unary("nn.leaky_relu"), check: checkRoot(checkSlope), read: readRoot, unnamed: true},
	single("tanh", "tanh", nil),
	single("sigmoid", "sigmoid", nil),
	single("clip", "clip", checkRoot(checkClip)),
}

// activationOf is the one of that name.
func activationOf(name string) (activation, bool) {
	for _, a := range activations {
		if a.name == name {
			return a, true
		}
	}
	return activation{}, false
}

// single is an operator of Relay's.
func single(name, op string, check func(g *relay.Graph, m *relay.Match) error) activation {
	return activation{name: name, shape: unary(op), check: check, read: readRoot}
}

func unary(op string) func(p relay.Pattern) relay.Pattern {
	return func(p relay.Pattern) relay.Pattern { return relay.Op(op, p) }
}

func readRoot(g *relay.Graph, m *relay.Match) *Elementwise { return elementwise(&g.Nodes[m.Root]) }

func checkRoot(check func(n *relay.Node) error) func(g *relay.Graph, m *relay.Match) error {
	return func(g *relay.Graph, m *relay.Match) error { return check(&g.Nodes[m.Root]) }
}

// written is what front ends write with several operators, and no numbers of their own.
func written(name string, shape func(p relay.Pattern) relay.Pattern) activation {
	return activation{name: name, shape: shape, check: checkConstants,
		read: func(*relay.Graph, *relay.Match) *Elementwise {
			return &Elementwise{Function: name, Data: relay.NoNode}
		}}
}

func oursAlone(a activation) activation {
	a.unnamed, a.ours = true, true
	return a
}

func readHardSigmoid(g *relay.Graph, m *relay.Match) *Elementwise {
	alpha, beta := relay.HardSigmoidOf(g, m)
	return &Elementwise{Function: "hardsigmoid", Alpha: alpha, Beta: beta, Data: relay.NoNode}
}

func checkHardSigmoid(g *relay.Graph, m *relay.Match) error {
	alpha, beta := relay.HardSigmoidOf(g, m)
	if err := FitsFloat32("the slope of the hard sigmoid", alpha); err != nil {
		return err
	}
	if err := FitsFloat32("the offset of the hard sigmoid", beta); err != nil {
		return err
	}
	return checkConstants(g, m)
}

// checkConstants makes sure that the scalars of an activation do not widen its result's shape: a constant of
// shape [1, 1, 1, 1, 1] would.
func checkConstants(g *relay.Graph, m *relay.Match) error {
	for _, id := range m.Nodes {
		if _, err := TensorAt(g, id, "a value inside the pattern"); err != nil {
			return err
		}
		most := 0 // the rank of what is no constant
		for _, in := range g.Nodes[id].Inputs {
			if g.Nodes[in].Kind != relay.KindConstant {
				most = max(most, g.Nodes[in].Type.Rank())
			}
		}
		if g.Nodes[id].Type.Rank() > most && g.Nodes[id].Op != "reshape" {
			return fmt.Errorf("the shape of the activation is not the shape of what it is applied to")
		}
	}
	return nil
}

func checkSlope(n *relay.Node) error {
	alpha, ok := n.Attrs.Float("alpha")
	if !ok {
		return fmt.Errorf("nn.leaky_relu has no usable attribute \"alpha\"")
	}
	return FitsFloat32("the slope of nn.leaky_relu", alpha)
}

func checkClip(n *relay.Node) error {
	low, okLow := n.Attrs.Float("a_min")
	high, okHigh := n.Attrs.Float("a_max")
	if !okLow || !okHigh {
		return fmt.Errorf("clip has no bounds")
	}
	if err := FitsFloat32("the lower bound of clip", low); err != nil {
		return err
	}
	if err := FitsFloat32("the upper bound of clip", high); err != nil {
		return err
	}
	if low > high {
		return fmt.Errorf("clip has the lower bound %g above the upper bound %g", low, high)
	}
	return nil
}

// ActivationRules offers as one kernel, by themselves, the functions that front ends write with several operators.
func ActivationRules() []*Rule {
	var all []*Rule
	for _, name := range []string{"gelu", "gelu_tanh", "hardswish", "hardsigmoid"} {
		a, _ := activationOf(name)
		all = append(all, a.alone())
	}
	return all
}

func (a activation) alone() *Rule {
	return &Rule{
		Pattern: byoc.Pattern{
			Composite: "dnnl." + a.name,
			Shape:     a.shape(relay.Named(roleData, relay.Wildcard())),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				if _, err := TensorAt(g, m.Named[roleData], "the argument of "+a.name); err != nil {
					return err
				}
				return a.check(g, m)
			},
			LimitsText: elementwiseLimits,
		},
		Read: func(g *relay.Graph, m *relay.Match) (Layer, error) {
			layer := a.read(g, m)
			layer.Data = m.Named[roleData]
			return layer, nil
		},
		Own:  true,
		Ours: a.ours,
	}
}
