// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

const elementwiseLimits = "float32, static shapes, at most 6 dimensions"

// elementwiseRules offers the elementwise functions that the runtime knows by their Relay names. round is not
// among them, although the runtime has it: oneDNN rounds halves to even numbers, TVM away from zero.
func elementwiseRules() []*rule {
	attrs := map[string]func(n *relay.Node) []attribute{
		"clip": clipBounds,
		"nn.leaky_relu": func(n *relay.Node) []attribute {
			alpha, _ := n.Attrs.Float("alpha")
			return []attribute{number("alpha", alpha)}
		},
	}
	var all []*rule
	for _, op := range []string{"nn.relu", "nn.leaky_relu", "clip", "tanh", "sigmoid", "exp", "log", "sqrt", "abs"} {
		text := elementwiseLimits
		if op == "log" {
			text += ", finite values"
		}
		all = append(all, bare(op, []string{roleData}, checkElementwise, text,
			func(g *relay.Graph, m *relay.Match) (*kernel, error) {
				k := &kernel{name: op, inputs: []operand{{value: m.Named[roleData]}}, sum: -1}
				if f := attrs[op]; f != nil {
					k.attrs = f(&g.Nodes[m.Root])
				}
				return k, nil
			}))
	}
	return all
}

func checkElementwise(g *relay.Graph, m *relay.Match) error {
	c, err := checkedCall(g, m.Root, "argument")
	if err != nil {
		return err
	}
	switch c.node.Op {
	case "clip":
		return checkClip(c.node)
	case "nn.leaky_relu":
		return checkSlope(c.node)
	}
	return nil
}

// geluRules offers the Gaussian error linear unit as one kernel, in the forms in which front ends write it.
func geluRules() []*rule {
	return []*rule{{
		Pattern: byoc.Pattern{
			Composite: "dnnl.gelu",
			Shape:     gelu(relay.Named(roleData, relay.Wildcard())),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				if _, err := tensor(g, m.Named[roleData], "the argument of gelu"); err != nil {
					return err
				}
				return checkConstants(g, m)
			},
			LimitsText: elementwiseLimits,
		},
		emit: func(_ *relay.Graph, m *relay.Match) (*kernel, error) {
			return &kernel{name: "gelu_erf", inputs: []operand{{value: m.Named[roleData]}}, sum: -1}, nil
		},
		own: true,
	}}
}

// binaryRules offers add and multiply of equal shapes. Operands that are broadcast (a bias [c, 1, 1]) reach
// oneDNN with strides of zero, which only its reference kernel takes: 80 times slower.
func binaryRules() []*rule {
	var all []*rule
	for _, op := range []string{"add", "multiply"} {
		r := bare(op, nil, checkBinary, "float32, static and equal shapes",
			func(g *relay.Graph, m *relay.Match) (*kernel, error) {
				in := g.Nodes[m.Root].Inputs
				return &kernel{name: op, inputs: []operand{{value: in[0]}, {value: in[1]}}, sum: -1}, nil
			})
		r.correct = func(g *relay.Graph, m *relay.Match) error {
			_, err := checkedCall(g, m.Root, "left side", "right side")
			return err
		}
		all = append(all, r)
	}
	return all
}

func checkBinary(g *relay.Graph, m *relay.Match) error {
	c, err := checkedCall(g, m.Root, "left side", "right side")
	if err != nil {
		return err
	}
	if len(c.in) != 2 || !sameShape(c.in[0].Shape, c.in[1].Shape) {
		return fmt.Errorf("%s has operands of different shapes, which oneDNN would run on its slow reference kernel", c.node.Op)
	}
	return nil
}

// softmaxRules offers softmax along any one axis.
func softmaxRules() []*rule {
	return []*rule{bare("nn.softmax", []string{roleData},
		func(g *relay.Graph, m *relay.Match) error {
			c, err := checkedCall(g, m.Root, "argument")
			if err != nil {
				return err
			}
			rank := int64(len(c.out.Shape))
			axis, ok := c.node.Attrs.Int("axis")
			if !ok || axis < -rank || axis >= rank {
				return fmt.Errorf("nn.softmax works along axis %d of %d dimensions", axis, rank)
			}
			return nil
		}, elementwiseLimits+", one axis",
		func(g *relay.Graph, m *relay.Match) (*kernel, error) {
			axis, _ := g.Nodes[m.Root].Attrs.Int("axis")
			return &kernel{
				name: "nn.softmax", inputs: []operand{{value: m.Named[roleData]}},
				attrs: []attribute{ints("axis", axis)}, sum: -1,
			}, nil
		})}
}
