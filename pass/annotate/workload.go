// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// Workload makes a candidate a function that can be measured by itself: the region as Module would outline it if it
// held this candidate alone, or for TVM, which has no Compiler, its operators in a plain function. The parameters are
// the candidate's inputs i0, i1, ... (a tuple is taken apart into its tensors), then the constants of more than
// relay.SmallConstant bytes as c0, c1, ...; smaller ones are inside, and all of a candidate with OwnConstants. What b
// has rounded (byoc.Rounding) is, to usual steps: how long it takes does not depend on the scale.
func Workload(g *relay.Graph, c *candidate.Candidate, b byoc.Backend) (*cost.Workload, error) {
	compiler := b.Compiler()
	w := &cost.Workload{Compiler: compiler}
	o := &outliner{g: g, set: map[relay.NodeID]*bridge.Object{}, steps: map[relay.NodeID]rounding.Steps{},
		byBytes: map[relay.NodeID]*bridge.Object{}}
	for _, v := range byoc.RoundedBy(b, g, c.Nodes) {
		o.steps[v] = usual(g, v)
	}
	o.given = byoc.GivenBy(b, g, c.Nodes)
	precisions := []byoc.Precision{byoc.PrecisionOf(b)}
	var params []*bridge.Object
	for _, in := range c.Inputs {
		t, err := relay.CheckedType(g.Handle(in))
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, fmt.Errorf("%s has no type: run InferType first", g.Line(in))
		}
		expr, err := relay.NewTensorParams(fmt.Sprintf("i%d", len(params)), t, &params)
		if err != nil {
			return nil, err
		}
		o.set[in] = expr
	}
	for _, id := range c.Constants {
		constant := g.Nodes[id].Constant
		if constant == nil || constant.Bytes <= relay.SmallConstant || c.OwnConstants {
			continue
		}
		name := fmt.Sprintf("c%d", len(w.Constants))
		p, err := param(name, g.Handle(id))
		if err != nil {
			return nil, err
		}
		o.set[id] = p
		params = append(params, p)
		w.Constants = append(w.Constants, cost.ConstantParam{Name: name, Shape: constant.Shape, DType: constant.DType})
	}
	roots := c.Results()
	outputs, err := o.outputs([]*candidate.Candidate{c}, precisions, roots)
	if err != nil {
		return nil, err
	}
	body, resultType, err := relay.NewResult(g, roots, outputs)
	if err != nil {
		return nil, err
	}
	attrs := map[string]any{}
	if compiler != "" {
		attrs = map[string]any{"global_symbol": fmt.Sprintf("tvmgen_default_%s_main_0", sanitise(compiler)),
			"Primitive": 1,
			"Compiler":  compiler, "Inline": 1}
		alone := Region{Candidates: []int{0}, Nodes: c.Nodes, Outputs: roots, Precisions: precisions, Steps: o.steps,
			Given: o.given}
		if said := precisionsOf(&candidate.Set{Graph: g, Candidates: []candidate.Candidate{*c}}, &alone); said != "" {
			attrs[region.PrecisionsAttr] = said
		}
	}
	function, err := relay.NewTypedFunction(params, body, resultType, attrs)
	if err != nil {
		return nil, err
	}
	defer function.Release()
	v, err := bridge.Global("node.SaveJSON", function)
	if err != nil {
		return nil, err
	}
	w.Function, err = v.Str()
	return w, err
}

// usual are the steps for a value of random numbers: rounding.Usual, of what is rectified or clipped as much as is left
// of their reach.
func usual(g *relay.Graph, v relay.NodeID) rounding.Steps {
	low, high := -rounding.UsualReach, rounding.UsualReach
	switch n := &g.Nodes[v]; n.Op {
	case "nn.relu":
		low = 0
	case "clip":
		least, _ := n.Attrs.Float("a_min")
		most, _ := n.Attrs.Float("a_max")
		low, high = max(low, least), min(high, most)
	}
	return rounding.Reaching(low, high)
}
