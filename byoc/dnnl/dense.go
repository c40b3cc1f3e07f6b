// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

const denseLimits = "float32, static shapes, data [m, k], weight [n, k]"

// denseRules offers nn.dense with each epilogue, and bare.
func denseRules() []*rule {
	var all []*rule
	for _, e := range epilogues(true) {
		name := "dnnl.dense" + e.suffix()
		anchor := relay.Named(roleAnchor, relay.Op("nn.dense",
			relay.Named(roleData, relay.Wildcard()), relay.Named(roleWeight, relay.Wildcard())))
		all = append(all, &rule{
			Pattern: byoc.Pattern{
				Composite:  name,
				Shape:      e.on(anchor),
				Limits:     func(g *relay.Graph, m *relay.Match) error { return checkDense(g, m, e) },
				LimitsText: denseLimits,
			},
			emit: func(g *relay.Graph, m *relay.Match) (*kernel, error) { return emitDense(g, m, name, e) },
			own:  e.own(),
		})
	}
	return append(all, bare("nn.dense", []string{roleData, roleWeight},
		func(g *relay.Graph, m *relay.Match) error { return checkDense(g, m, epilogue{}) }, denseLimits,
		func(g *relay.Graph, m *relay.Match) (*kernel, error) { return emitDense(g, m, "nn.dense", epilogue{}) }))
}

func checkDense(g *relay.Graph, m *relay.Match, e epilogue) error {
	for _, role := range []string{roleData, roleWeight} {
		if m.Covers(m.Named[role]) {
			return fmt.Errorf("the %s of nn.dense is made inside the pattern", role)
		}
	}
	dense, err := checkedCall(g, m.Named[roleAnchor], roleData, roleWeight)
	if err != nil {
		return err
	}
	if len(dense.in) != 2 || len(dense.in[0].Shape) != 2 || len(dense.in[1].Shape) != 2 || len(dense.out.Shape) != 2 {
		return fmt.Errorf("nn.dense has operands of other than 2 dimensions")
	}
	if dense.in[0].Shape[1] != dense.in[1].Shape[1] || dense.in[1].Shape[0] != dense.out.Shape[1] {
		return fmt.Errorf("nn.dense has data %s and weight %s; only [m, k] and [n, k] are supported",
			shapeText(dense.in[0].Shape), shapeText(dense.in[1].Shape))
	}
	if rewritten, ok := dense.node.Attrs.String("auto_scheduler_rewritten_layout"); ok && rewritten != "" {
		return fmt.Errorf("the weight of nn.dense has been laid out for TVM's auto-scheduler (%s)", rewritten)
	}
	return e.check(g, m, dense.out, 1)
}

func emitDense(g *relay.Graph, m *relay.Match, name string, e epilogue) (*kernel, error) {
	k := &kernel{name: name, inputs: []operand{{value: m.Named[roleData]}, {value: m.Named[roleWeight]}}, sum: -1}
	return e.apply(k, g, m), nil
}

const batchMatmulLimits = "float32, static shapes, three dimensions, equal batches"

// batchMatmulRules offers nn.batch_matmul. The runtime knows it by this name only, so there is no epilogue.
func batchMatmulRules() []*rule {
	return []*rule{bare("nn.batch_matmul", []string{roleData, roleWeight}, checkBatchMatmul, batchMatmulLimits,
		func(g *relay.Graph, m *relay.Match) (*kernel, error) {
			n := &g.Nodes[m.Root]
			ta, _ := n.Attrs.Bool("transpose_a")
			tb, _ := n.Attrs.Bool("transpose_b")
			return &kernel{
				name:   "nn.batch_matmul",
				inputs: []operand{{value: m.Named[roleData]}, {value: m.Named[roleWeight]}},
				attrs:  []attribute{truth("transpose_a", ta), truth("transpose_b", tb)},
				sum:    -1,
			}, nil
		})}
}

func checkBatchMatmul(g *relay.Graph, m *relay.Match) error {
	c, err := checkedCall(g, m.Root, "left side", "right side")
	if err != nil {
		return err
	}
	if len(c.in) != 2 || len(c.in[0].Shape) != 3 || len(c.in[1].Shape) != 3 || len(c.out.Shape) != 3 {
		return fmt.Errorf("nn.batch_matmul has operands of other than 3 dimensions")
	}
	if c.in[0].Shape[0] != c.in[1].Shape[0] {
		return fmt.Errorf("nn.batch_matmul has batches of %d and %d; they must be equal", c.in[0].Shape[0], c.in[1].Shape[0])
	}
	for _, name := range []string{"transpose_a", "transpose_b"} {
		if _, ok := c.node.Attrs.Bool(name); !ok {
			return fmt.Errorf("nn.batch_matmul has no usable attribute %q", name)
		}
	}
	return nil
}
