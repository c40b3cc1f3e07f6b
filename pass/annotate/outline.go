// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// outliner makes functions of groups of candidates.
type outliner struct {
	g *relay.Graph
	// set are the expressions that stand for values from outside: parameters.
	set map[relay.NodeID]*bridge.Object
	// steps are the values that are rounded for those who multiply bytes (Region.Steps), and byBytes what they read then.
	steps   map[relay.NodeID]rounding.Steps
	byBytes map[relay.NodeID]*bridge.Object
	// given are those that are rounded where they are made (Region.Given).
	given []relay.NodeID
	// shifts are what is taken off biases (Region.Shifts).
	shifts map[relay.NodeID][]float32
}

// outputs gives the expressions of the roots inside the function: calls of Composite functions for candidates that
// have one, and for the others the operators as they stand. precisions are the candidates'.
func (o *outliner) outputs(candidates []*candidate.Candidate, precisions []byoc.Precision,
	roots []relay.NodeID) ([]*bridge.Object, error) {
	inside := relay.NewRewriter(o.g)
	for id, expr := range o.set {
		inside.Set(id, expr)
	}
	for _, v := range o.given {
		steps := o.steps[v]
		inside.Wrap(v, func(expr *bridge.Object) (*bridge.Object, error) {
			return relay.NewRounded(expr, steps.Scale, steps.Zero)
		})
	}
	for k, c := range candidates {
		if len(precisions) > 0 && precisions[k] == byoc.INT8 {
			o.round(inside, c)
		}
		o.correct(inside, c)
		if c.Composite == "" || c.Bare {
			continue
		}
		function, args, err := o.composite(c, k)
		if err != nil {
			return nil, err
		}
		inside.Replace(c.Root, args, func(now []*bridge.Object) (*bridge.Object, error) {
			return callLike(function, now, o.g.Handle(c.Root))
		})
	}
	exprs := make([]*bridge.Object, len(roots))
	for i, v := range roots {
		expr, err := inside.Expr(v)
		if err != nil {
			return nil, err
		}
		exprs[i] = expr
	}
	return exprs, nil
}

// round has a candidate read what is rounded for it.
func (o *outliner) round(inside *relay.Rewriter, c *candidate.Candidate) {
	readers := c.Nodes
	if c.Composite != "" && !c.Bare {
		readers = []relay.NodeID{c.Root} // which the call of the composite stands for
	}
	for v, steps := range o.steps {
		if slices.Contains(o.given, v) {
			continue
		}
		for _, reader := range readers {
			inside.Read(reader, v, func(expr *bridge.Object) (*bridge.Object, error) {
				if o.byBytes[v] == nil {
					made, err := relay.NewRounded(expr, steps.Scale, steps.Zero)
					if err != nil {
						return nil, err
					}
					o.byBytes[v] = made
				}
				return o.byBytes[v], nil
			})
		}
	}
}

// composite makes the Composite function of a candidate, the way MergeComposite does: its parameters are what the
// pattern's wildcards matched, in the order in which they are used, constants among them; a constant of one element
// is a part of the pattern and stays inside. args are the nodes that are handed to it.
func (o *outliner) composite(c *candidate.Candidate, k int) (function *bridge.Object, args []relay.NodeID, err error) {
	inside := relay.NewRewriter(o.g)
	var params []*bridge.Object
	var pattern strings.Builder
	args = arguments(o.g, c)
	for i, in := range args {
		// MergeComposite gives them no types; those of vision.roi_align and one_hot TVM could not infer.
		made, err := param(fmt.Sprintf("FunctionVar_%d_%d", k, i), o.g.Handle(in))
		if err != nil {
			return nil, nil, err
		}
		inside.Set(in, made)
		params = append(params, made)
	}
	for _, v := range c.Nodes {
		pattern.WriteString(patternName(&o.g.Nodes[v]))
	}
	body, err := inside.Expr(c.Root)
	if err != nil {
		return nil, nil, err
	}
	function, err = relay.NewFunction(params, body, map[string]any{
		"Composite": c.Composite, "PartitionedFromPattern": pattern.String()})
	return function, args, err
}

// arguments are the values that a candidate's Composite function is called with, in order.
func arguments(g *relay.Graph, c *candidate.Candidate) []relay.NodeID {
	var args []relay.NodeID
	for _, v := range c.Nodes {
		for _, in := range g.Reads(v) {
			if _, own := slices.BinarySearch(c.Nodes, in); !own && !slices.Contains(args, in) && !embedded(g, in) {
				args = append(args, in)
			}
		}
	}
	return args
}

// embedded says that a value belongs to the pattern: the half of a GELU, the epsilon of a normalisation.
func embedded(g *relay.Graph, v relay.NodeID) bool {
	constant := g.Nodes[v].Constant
	if constant == nil {
		return false
	}
	for _, d := range constant.Shape {
		if d != 1 {
			return false
		}
	}
	return true
}

// patternName is a node's part of the name that MergeComposite gives a pattern.
func patternName(n *relay.Node) string {
	switch {
	case candidate.IsOperator(n):
		return n.Op + "_"
	case n.Kind == relay.KindTuple:
		return "Tuple_"
	case n.Kind == relay.KindTupleGetItem:
		return fmt.Sprintf("TupleGetItem%d_", n.Index)
	}
	return ""
}

// callLike makes a call that has the span of the expression that it stands for.
func callLike(callee *bridge.Object, args []*bridge.Object, like *bridge.Object) (*bridge.Object, error) {
	var span any
	if s, err := like.AttrObject("span"); err != nil {
		return nil, err
	} else if s != nil {
		defer s.Release()
		span = s
	}
	v, err := bridge.Global("relay.ir.Call", callee, args, nil, []any{}, span)
	if err != nil {
		return nil, err
	}
	return v.Object()
}

// param makes a parameter of the type of a value.
func param(name string, value *bridge.Object) (*bridge.Object, error) {
	t, err := relay.CheckedType(value)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("%s stands for a value without a type: run InferType first", name)
	}
	defer t.Release()
	return relay.NewVarOfType(name, t)
}
