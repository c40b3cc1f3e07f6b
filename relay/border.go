// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
)

// NewTensorParams makes variables for a value of that type, one a tensor, and gives the value made of them: a variable
// of that name, or a tuple of variables NAME_0, NAME_1, ... The variables are added to params. The caller owns all of
// them, those that were added before an error, too.
func NewTensorParams(name string, t *bridge.Object, params *[]*bridge.Object) (*bridge.Object, error) {
	if t.TypeKey() != "TupleType" {
		p, err := NewVarOfType(name, t)
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
		if fields[i], err = NewTensorParams(fmt.Sprintf("%s_%d", name, i), field, params); err != nil {
			return nil, err
		}
		field.Release()
	}
	return NewTuple(fields)
}

// NewResult makes the body of a function that gives the values of those nodes, which exprs are, and the body's type:
// the one value, or a tuple. The type is needed because TVM infers the types of a module's functions in no particular
// order, and a caller needs it.
func NewResult(g *Graph, nodes []NodeID, exprs []*bridge.Object) (body, resultType *bridge.Object, err error) {
	types := make([]*bridge.Object, len(nodes))
	for i, v := range nodes {
		if types[i], err = CheckedType(g.Handle(v)); err != nil {
			return nil, nil, err
		}
		if types[i] == nil {
			return nil, nil, fmt.Errorf("%s has no type: run InferType first", g.Line(v))
		}
	}
	if len(nodes) == 1 {
		return exprs[0], types[0], nil
	}
	if resultType, err = object("ir.TupleType", types); err != nil {
		return nil, nil, err
	}
	body, err = NewTuple(exprs)
	return body, resultType, err
}

// TupleFields is the number of a node's fields where its value is a tuple of tensors; 0 for anything else.
func TupleFields(g *Graph, v NodeID) int {
	t := g.Nodes[v].Type
	if t == nil || t.Kind != TypeTuple {
		return 0
	}
	for _, field := range t.Fields {
		if field.Kind != TypeTensor {
			return 0
		}
	}
	return len(t.Fields)
}

// NewFlatResult is NewResult, but for that where there are several nodes, one whose value is a tuple (TupleFields)
// gives each of its fields: no tuple within the tuple.
func NewFlatResult(g *Graph, nodes []NodeID, exprs []*bridge.Object) (body, resultType *bridge.Object, err error) {
	if len(nodes) == 1 {
		return NewResult(g, nodes, exprs)
	}
	var fields, types []*bridge.Object
	for i, v := range nodes {
		t, err := CheckedType(g.Handle(v))
		if err != nil {
			return nil, nil, err
		}
		if t == nil {
			return nil, nil, fmt.Errorf("%s has no type: run InferType first", g.Line(v))
		}
		n := TupleFields(g, v)
		if n == 0 {
			fields, types = append(fields, exprs[i]), append(types, t)
			continue
		}
		parts, err := objects(t, "fields")
		if err != nil {
			return nil, nil, err
		}
		types = append(types, parts...)
		for k := range n {
			field, err := NewTupleGetItem(exprs[i], k)
			if err != nil {
				return nil, nil, err
			}
			fields = append(fields, field)
		}
	}
	if resultType, err = object("ir.TupleType", types); err != nil {
		return nil, nil, err
	}
	body, err = NewTuple(fields)
	return body, resultType, err
}
