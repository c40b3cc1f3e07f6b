// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

const denseLimits = "float32, static shapes, data [m, k], weight [n, k]"

// DenseRules offers nn.dense with each epilogue, and bare.
func DenseRules() []*Rule {
	var all []*Rule
	for _, e := range epilogues(true) {
		all = append(all, fusedDense("dnnl.dense", e))
	}
	return append(all, Bare("nn.dense", []string{roleData, roleWeight},
		func(g *relay.Graph, m *relay.Match) error { return checkDense(g, m, epilogue{}) }, denseLimits,
		func(g *relay.Graph, m *relay.Match) (Layer, error) { return readDense(g, m, epilogue{}), nil }))
}

// fusedDense is nn.dense with an epilogue, under a composite's name without it.
func fusedDense(composite string, e epilogue) *Rule {
	anchor := relay.Named(roleAnchor, relay.Op("nn.dense",
		relay.Named(roleData, relay.Wildcard()), relay.Named(roleWeight, relay.Wildcard())))
	return &Rule{
		Pattern: byoc.Pattern{
			Composite:  composite + e.suffix(),
			Shape:      e.on(anchor),
			Limits:     func(g *relay.Graph, m *relay.Match) error { return checkDense(g, m, e) },
			LimitsText: denseLimits,
		},
		Read: func(g *relay.Graph, m *relay.Match) (Layer, error) { return readDense(g, m, e), nil },
		Own:  e.own(),
		Ours: e.ours(),
	}
}

func checkDense(g *relay.Graph, m *relay.Match, e epilogue) error {
	for _, role := range []string{roleData, roleWeight} {
		if m.Covers(m.Named[role]) {
			return fmt.Errorf("the %s of nn.dense is made inside the pattern", role)
		}
	}
	dense, err := CheckedCall(g, m.Named[roleAnchor], roleData, roleWeight)
	if err != nil {
		return err
	}
	if len(dense.In) != 2 || len(dense.In[0].Shape) != 2 || len(dense.In[1].Shape) != 2 || len(dense.Out.Shape) != 2 {
		return fmt.Errorf("nn.dense has operands of other than 2 dimensions")
	}
	if dense.In[0].Shape[1] != dense.In[1].Shape[1] || dense.In[1].Shape[0] != dense.Out.Shape[1] {
		return fmt.Errorf("nn.dense has data %s and weight %s; only [m, k] and [n, k] are supported",
			relay.ShapeText(dense.In[0].Shape), relay.ShapeText(dense.In[1].Shape))
	}
	if rewritten, ok := dense.Node.Attrs.String("auto_scheduler_rewritten_layout"); ok && rewritten != "" {
		return fmt.Errorf("the weight of nn.dense has been laid out for TVM's auto-scheduler (%s)", rewritten)
	}
	return e.check(g, m, dense.Out, 1)
}

func readDense(g *relay.Graph, m *relay.Match, e epilogue) Layer {
	return &Product{Operator: "nn.dense", Left: m.Named[roleData], Right: m.Named[roleWeight], TransposeB: true,
		Epilogue: e.read(g, m)}
}

const batchMatmulLimits = "float32, static shapes, three dimensions, equal batches"

// BatchMatmulRules offers nn.batch_matmul.
func BatchMatmulRules() []*Rule {
	return []*Rule{Bare("nn.batch_matmul", []string{roleData, roleWeight}, checkBatchMatmul, batchMatmulLimits,
		func(g *relay.Graph, m *relay.Match) (Layer, error) {
			n := &g.Nodes[m.Root]
			l := &Product{Operator: n.Op, Left: m.Named[roleData], Right: m.Named[roleWeight], Epilogue: noEpilogue}
			l.TransposeA, _ = n.Attrs.Bool("transpose_a")
			l.TransposeB, _ = n.Attrs.Bool("transpose_b")
			return l, nil
		})}
}

func checkBatchMatmul(g *relay.Graph, m *relay.Match) error {
	c, err := CheckedCall(g, m.Root, "left side", "right side")
	if err != nil {
		return err
	}
	if len(c.In) != 2 || len(c.In[0].Shape) != 3 || len(c.In[1].Shape) != 3 || len(c.Out.Shape) != 3 {
		return fmt.Errorf("nn.batch_matmul has operands of other than 3 dimensions")
	}
	if c.In[0].Shape[0] != c.In[1].Shape[0] {
		return fmt.Errorf("nn.batch_matmul has batches of %d and %d; they must be equal", c.In[0].Shape[0],
			c.In[1].Shape[0])
	}
	for _, name := range []string{"transpose_a", "transpose_b"} {
		if _, ok := c.Node.Attrs.Bool(name); !ok {
			return fmt.Errorf("nn.batch_matmul has no usable attribute %q", name)
		}
	}
	return nil
}
