// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// epilogue is what a convolution or dense layer does to its result before it stores it. The runtime reads it
// out of the composite's name (but for leaky) and applies it in this order, whatever the order of the name's
// parts: bias, residual sum, activation.
type epilogue struct {
	bias       bool
	sum        bool
	activation string // the name of one of activations, or ""
}

// suffix is the epilogue's part of a composite's name ("_bias_sum_relu").
func (e epilogue) suffix() string {
	var s strings.Builder
	if e.bias {
		s.WriteString("_bias")
	}
	if e.sum {
		s.WriteString("_sum")
	}
	if e.activation != "" {
		s.WriteString("_" + e.activation)
	}
	return s.String()
}

// on puts the epilogue's pattern on top of a call.
func (e epilogue) on(p relay.Pattern) relay.Pattern {
	if e.bias {
		bias := relay.Named(roleBias, relay.Wildcard())
		p = relay.Named(roleBiased, relay.Or(relay.Op("add", p, bias), relay.Op("nn.bias_add", p, bias)))
	}
	if e.sum {
		p = relay.Named(roleSummed, relay.Op("add", p, relay.Named(roleSum, relay.Wildcard())))
	}
	if a, ok := activationOf(e.activation); ok {
		p = a.shape(p)
	}
	return p
}

// epilogues are the combinations that are offered, those that cover most first. sums says that the primitive
// can accumulate into a residual value.
func epilogues(sums bool) []epilogue {
	var all []epilogue
	for _, bias := range []bool{true, false} {
		if sums {
			for _, activation := range []string{"relu", "clip", ""} {
				all = append(all, epilogue{bias: bias, sum: true, activation: activation})
			}
		}
		for _, a := range activations {
			all = append(all, epilogue{bias: bias, activation: a.name})
		}
		if bias {
			all = append(all, epilogue{bias: true})
		}
	}
	return all
}

// check is the limits of the epilogue of a call with that result, whose channels lie along axis channel.
func (e epilogue) check(g *relay.Graph, m *relay.Match, out *relay.Type, channel int) error {
	if e.bias {
		if err := checkBias(g, m, out, channel); err != nil {
			return err
		}
	}
	if e.sum {
		sum := m.Named[roleSum]
		if m.Covers(sum) {
			return fmt.Errorf("the residual value is made inside the pattern")
		}
		t, err := TensorAt(g, sum, "the residual value")
		if err != nil {
			return err
		}
		if !slices.Equal(t.Shape, out.Shape) {
			return fmt.Errorf("the residual value has the shape %s and the result %s; they must be equal",
				relay.ShapeText(t.Shape), relay.ShapeText(out.Shape))
		}
	}
	if a, ok := activationOf(e.activation); ok && a.check != nil {
		return a.check(g, m)
	}
	return nil
}

// checkBias makes sure that what is added is one value for each output channel: the runtime reads the bias
// as a flat list of channels, and Relay's add would broadcast a list along the last axis.
func checkBias(g *relay.Graph, m *relay.Match, out *relay.Type, channel int) error {
	bias := m.Named[roleBias]
	if m.Covers(bias) {
		return fmt.Errorf("the bias is made inside the pattern")
	}
	t, err := TensorAt(g, bias, "the bias")
	if err != nil {
		return err
	}
	channels := out.Shape[channel]
	add := &g.Nodes[m.Named[roleBiased]]
	wrong := func() error {
		return fmt.Errorf("the bias has the shape %s, which is not one value for each of the %d channels of %s",
			relay.ShapeText(t.Shape), channels, relay.ShapeText(out.Shape))
	}
	if add.Op == "nn.bias_add" {
		if add.Inputs[1] != bias {
			return fmt.Errorf("nn.bias_add adds the layer's result to something else")
		}
		axis, ok := add.Attrs.Int("axis")
		if !ok {
			axis = 1
		}
		if axis < 0 {
			axis += int64(len(out.Shape))
		}
		if axis != int64(channel) {
			return fmt.Errorf("nn.bias_add works along axis %d; the channels of the layer are axis %d", axis, channel)
		}
		if len(t.Shape) != 1 || t.Shape[0] != channels {
			return wrong()
		}
		return nil
	}
	// Broadcasting aligns the last dimensions.
	if len(t.Shape) > len(out.Shape) {
		return wrong()
	}
	offset := len(out.Shape) - len(t.Shape)
	for i, d := range t.Shape {
		want := int64(1)
		if i+offset == channel {
			want = channels
		}
		if d != want {
			return wrong()
		}
	}
	if channels != 1 && offset > channel {
		return wrong()
	}
	return nil
}

// Activation is a function on the way out ("relu"; "" for none), for kernels whose layers are not of this package.
type Activation string

func (a Activation) epilogue() epilogue { return epilogue{activation: string(a)} }

// Suffix is its part of a composite's name ("_relu").
func (a Activation) Suffix() string { return a.epilogue().suffix() }

// On puts its pattern on top of a value.
func (a Activation) On(p relay.Pattern) relay.Pattern { return a.epilogue().on(p) }

// Check is its limits.
func (a Activation) Check(g *relay.Graph, m *relay.Match) error {
	return a.epilogue().check(g, m, nil, 0)
}

// Read gives it, nil for none.
func (a Activation) Read(g *relay.Graph, m *relay.Match) *Elementwise {
	return a.epilogue().read(g, m).Activation
}

// noEpilogue is that of a bare layer.
var noEpilogue = Epilogue{Bias: relay.NoNode, Sum: relay.NoNode}

// read gives the epilogue of a match.
func (e epilogue) read(g *relay.Graph, m *relay.Match) Epilogue {
	out := noEpilogue
	if e.bias {
		out.Bias = m.Named[roleBias]
	}
	if e.sum {
		out.Sum = m.Named[roleSum]
	}
	if a, ok := activationOf(e.activation); ok {
		out.Activation = a.read(g, m)
	}
	return out
}

// own says that TVM's code generator, which goes by the name alone, would leave the activation out; ours that its
// runtime has no such activation at all.
func (e epilogue) own() bool  { a, _ := activationOf(e.activation); return a.unnamed }
func (e epilogue) ours() bool { a, _ := activationOf(e.activation); return a.ours }
