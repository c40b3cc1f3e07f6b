// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

const elementwiseLimits = "float32, static shapes, at most 6 dimensions"

// ElementwiseRules offers the elementwise functions that oneDNN computes as TVM does. round is not among them, although
// the library has it: oneDNN rounds halves to even numbers, TVM away from zero.
func ElementwiseRules() []*Rule {
	var all []*Rule
	for _, op := range []string{"nn.relu", "nn.leaky_relu", "clip", "tanh", "sigmoid", "exp", "log", "sqrt", "abs"} {
		text := elementwiseLimits
		if op == "log" {
			text += ", finite values"
		}
		all = append(all, Bare(op, []string{roleData}, checkElementwise, text,
			func(g *relay.Graph, m *relay.Match) (Layer, error) {
				l := elementwise(&g.Nodes[m.Root])
				l.Data = m.Named[roleData]
				return l, nil
			}))
	}
	return all
}

// elementwise is the function of a call of one of the operators above.
func elementwise(n *relay.Node) *Elementwise {
	l := &Elementwise{Function: strings.TrimPrefix(n.Op, "nn."), Data: relay.NoNode}
	switch n.Op {
	case "nn.leaky_relu":
		l.Function = "relu"
		l.Alpha, _ = n.Attrs.Float("alpha")
	case "clip":
		l.Alpha, _ = n.Attrs.Float("a_min")
		l.Beta, _ = n.Attrs.Float("a_max")
	}
	return l
}

func checkElementwise(g *relay.Graph, m *relay.Match) error {
	c, err := CheckedCall(g, m.Root, "argument")
	if err != nil {
		return err
	}
	switch c.Node.Op {
	case "clip":
		return checkClip(c.Node)
	case "nn.leaky_relu":
		return checkSlope(c.Node)
	}
	return nil
}

// BinaryRules offers add and multiply of equal shapes.
func BinaryRules() []*Rule {
	var all []*Rule
	for _, op := range []string{"add", "multiply"} {
		r := Bare(op, nil, checkBinary, "float32, static and equal shapes",
			func(g *relay.Graph, m *relay.Match) (Layer, error) {
				in := g.Nodes[m.Root].Inputs
				return &Binary{Function: op, Left: in[0], Right: in[1]}, nil
			})
		r.Correct = func(g *relay.Graph, m *relay.Match) error {
			_, err := CheckedCall(g, m.Root, "left side", "right side")
			return err
		}
		all = append(all, r)
	}
	return all
}

func checkBinary(g *relay.Graph, m *relay.Match) error {
	c, err := CheckedCall(g, m.Root, "left side", "right side")
	if err != nil {
		return err
	}
	if len(c.In) != 2 || !slices.Equal(c.In[0].Shape, c.In[1].Shape) {
		return fmt.Errorf("%s has operands of different shapes, which oneDNN would run on its slow reference kernel",
			c.Node.Op)
	}
	return nil
}

// SoftmaxRules offers softmax along any one axis.
func SoftmaxRules() []*Rule {
	return []*Rule{Bare("nn.softmax", []string{roleData},
		func(g *relay.Graph, m *relay.Match) error {
			c, err := CheckedCall(g, m.Root, "argument")
			if err != nil {
				return err
			}
			rank := int64(len(c.Out.Shape))
			axis, ok := c.Node.Attrs.Int("axis")
			if !ok || axis < -rank || axis >= rank {
				return fmt.Errorf("nn.softmax works along axis %d of %d dimensions", axis, rank)
			}
			return nil
		}, elementwiseLimits+", one axis",
		func(g *relay.Graph, m *relay.Match) (Layer, error) {
			axis, _ := g.Nodes[m.Root].Attrs.Int("axis")
			if axis < 0 {
				axis += int64(g.Nodes[m.Root].Type.Rank())
			}
			return &Softmax{Data: m.Named[roleData], Axis: axis}, nil
		})}
}
