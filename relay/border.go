// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
)

// NewTensorParams makes variables for a value of that type, one a tensor, and gives the value made of them: a variable of
// that name, or a tuple of variables NAME_0, NAME_1, ... The variables are added to params. The caller owns all of them,
// those that were added before an error, too.
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

// NewResult makes the body of a function that gives the values of those nodes, which exprs are, and the body's type: the
// one value, or a tuple. The type is needed because TVM infers the types of a module's functions in no particular order,
// and a caller needs it.
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
