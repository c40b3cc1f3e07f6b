// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// Workload makes a candidate a function that can be measured by itself: the region as Module would outline it if it
// held this candidate alone, or for TVM (compiler "") its operators in a plain function. The parameters are the
// candidate's inputs i0, i1, ... (a tuple is taken apart into its tensors), then the constants of more than
// relay.SmallConstant bytes as c0, c1, ...; smaller ones are inside.
func Workload(g *relay.Graph, c *candidate.Candidate, compiler string) (*cost.Workload, error) {
	w := &cost.Workload{Compiler: compiler}
	o := &outliner{g: g, set: map[relay.NodeID]*bridge.Object{}}
	var params []*bridge.Object
	for _, in := range c.Inputs {
		t, err := relay.CheckedType(g.Handle(in))
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, fmt.Errorf("%s has no type: run InferType first", g.Line(in))
		}
		expr, err := tensorParams(t, &params)
		if err != nil {
			return nil, err
		}
		o.set[in] = expr
	}
	for _, id := range c.Constants {
		constant := g.Nodes[id].Constant
		if constant == nil || constant.Bytes <= relay.SmallConstant {
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
	roots := []relay.NodeID{c.Root}
	outputs, err := o.outputs([]*candidate.Candidate{c}, roots)
	if err != nil {
		return nil, err
	}
	body, resultType, err := result(g, roots, outputs)
	if err != nil {
		return nil, err
	}
	attrs := map[string]any{}
	if compiler != "" {
		attrs = map[string]any{"global_symbol": fmt.Sprintf("tvmgen_default_%s_main_0", sanitise(compiler)), "Primitive": 1,
			"Compiler": compiler, "Inline": 1}
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

// tensorParams makes the parameters for a value of that type and gives the value made of them.
func tensorParams(t *bridge.Object, params *[]*bridge.Object) (*bridge.Object, error) {
	if t.TypeKey() != "TupleType" {
		p, err := relay.NewVarOfType(fmt.Sprintf("i%d", len(*params)), t)
		if err == nil {
			*params = append(*params, p)
		}
		return p, err
	}
	list, err := t.AttrObject("fields")
	if err != nil {
		return nil, err
	}
	defer list.Release()
	types, err := list.Objects()
	if err != nil {
		return nil, err
	}
	fields := make([]*bridge.Object, len(types))
	for i, field := range types {
		if fields[i], err = tensorParams(field, params); err != nil {
			return nil, err
		}
		field.Release()
	}
	return relay.NewTuple(fields)
}
