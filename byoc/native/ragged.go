// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// RaggedKernel clears the padding of a batch of sequences: where(valid, data, 0), which package pass/ragged writes
// where padding would leave a network. What only leads there need not be computed for padding, so that in its region
// the rows of tokens alone are (byoc/dnnl, lowering.pack).
const RaggedKernel = "ragged"

// Padding is the layer: Valid has a truth for each row of Data.
type Padding struct{ Valid, Data relay.NodeID }

// The names that its pattern gives to arguments: the condition of where, and what it is made of.
const raggedCondition, raggedValid, raggedZero = "ragged.condition", "ragged.valid", "ragged.zero"

func raggedRules() []*onednn.Rule {
	valid := relay.Named(raggedValid, relay.Wildcard())
	condition := relay.Named(raggedCondition, relay.Or(relay.Op("expand_dims", valid), valid))
	return []*onednn.Rule{{
		Pattern: byoc.Pattern{
			Composite: "native.ragged",
			Kernel:    RaggedKernel,
			Shape: relay.Op("where", condition, relay.Named(gridData, relay.Wildcard()),
				relay.Named(raggedZero, relay.IsConstant())),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				_, err := readPadding(g, m)
				return err
			},
			LimitsText: "float32, static shapes, at most 6 dimensions, a truth for each of batch and length, the first two " +
				"dimensions, 0 elsewhere",
		},
		Read: func(g *relay.Graph, m *relay.Match) (onednn.Layer, error) { return readPadding(g, m) },
		Own:  true,
		Ours: true,
	}}
}

func readPadding(g *relay.Graph, m *relay.Match) (*Padding, error) {
	p := &Padding{Valid: m.Named[raggedValid], Data: m.Named[gridData]}
	data, err := onednn.TensorAt(g, p.Data, "the data of where")
	if err != nil {
		return nil, err
	}
	valid, condition := g.Nodes[p.Valid].Type, g.Nodes[m.Named[raggedCondition]].Type
	if valid == nil || !valid.IsTensor("bool") {
		return nil, fmt.Errorf("the kernel %s reads a condition of truths", RaggedKernel)
	}
	if g.Nodes[p.Valid].Kind == relay.KindConstant {
		return nil, fmt.Errorf("the kernel %s reads a condition that is computed", RaggedKernel)
	}
	rows := slices.Repeat([]int64{1}, len(data.Shape))
	copy(rows, data.Shape[:min(2, len(data.Shape))])
	if len(rows) < 2 || !slices.Equal(condition.Shape, rows) ||
		!slices.Equal(valid.Shape[:min(2, len(valid.Shape))], rows[:2]) {
		return nil, fmt.Errorf("the kernel %s reads a truth for each of the first two dimensions of %s, not %s", RaggedKernel,
			relay.ShapeText(data.Shape), relay.ShapeText(condition.Shape))
	}
	if c := g.Nodes[m.Named[raggedZero]].Constant; c == nil || c.Scalar != 0 {
		return nil, fmt.Errorf("the kernel %s writes zeros", RaggedKernel)
	}
	return p, nil
}
