// SPDX-License-Identifier: Apache-2.0

package region

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// flattening turns the expressions of a region into the operators of a Program.
type flattening struct {
	p         *Program
	constants map[relay.NodeID]ValueID
}

// frame is one evaluation of a function body: the region's own, or a call of a composite function. A function that is
// called twice has two.
type frame struct {
	composite int
	// values are the nodes evaluated so far, the function's parameters among them.
	values map[relay.NodeID]*tree
	// outer is where the function literal stands, whose values its body may read, too.
	outer *frame
}

// find looks a node up in the frame and those around it.
func (fr *frame) find(id relay.NodeID) (*tree, bool) {
	for ; fr != nil; fr = fr.outer {
		if t, ok := fr.values[id]; ok {
			return t, true
		}
	}
	return nil, false
}

// tree is a value: a tensor, or a tuple of values.
type tree struct {
	tensor ValueID
	tuple  bool
	fields []*tree
}

// tensors appends the tensors of a value in order.
func (t *tree) tensors(to []ValueID) []ValueID {
	if !t.tuple {
		return append(to, t.tensor)
	}
	for _, field := range t.fields {
		to = field.tensors(to)
	}
	return to
}

func (f *flattening) add(v Value) ValueID {
	f.p.Values = append(f.p.Values, v)
	return ValueID(len(f.p.Values) - 1)
}

// leaves makes a value of a type, each of its tensors by the function given.
func (f *flattening) leaves(typ *relay.Type, tensor func(*relay.Type) ValueID) (*tree, error) {
	if typ == nil {
		return nil, fmt.Errorf("its type is not known; run InferType on the module first")
	}
	switch typ.Kind {
	case relay.TypeTensor:
		f.p.Open = f.p.Open || slices.Contains(typ.Shape, relay.AnyDim)
		return &tree{tensor: tensor(typ)}, nil
	case relay.TypeTuple:
		t := &tree{tuple: true}
		for _, field := range typ.Fields {
			inner, err := f.leaves(field, tensor)
			if err != nil {
				return nil, err
			}
			t.fields = append(t.fields, inner)
		}
		return t, nil
	}
	return nil, fmt.Errorf("is neither a tensor nor a tuple of tensors")
}

// value evaluates a node, and before it what it reads.
func (f *flattening) value(fr *frame, id relay.NodeID) (*tree, error) {
	if t, ok := fr.find(id); ok {
		return t, nil
	}
	t, err := f.evaluate(fr, id)
	if err != nil {
		return nil, err
	}
	fr.values[id] = t
	return t, nil
}

func (f *flattening) evaluate(fr *frame, id relay.NodeID) (*tree, error) {
	n := &f.p.Graph.Nodes[id]
	switch n.Kind {
	case relay.KindConstant:
		return f.constant(id)
	case relay.KindTuple:
		t := &tree{tuple: true}
		for _, in := range n.Inputs {
			field, err := f.value(fr, in)
			if err != nil {
				return nil, err
			}
			t.fields = append(t.fields, field)
		}
		return t, nil
	case relay.KindTupleGetItem:
		tuple, err := f.value(fr, n.Inputs[0])
		if err != nil {
			return nil, err
		}
		if !tuple.tuple || n.Index >= len(tuple.fields) {
			return nil, fmt.Errorf("%%%d takes the field %d of what has none", id, n.Index)
		}
		return tuple.fields[n.Index], nil
	case relay.KindCall:
		if n.Op != "" {
			return f.operator(fr, id, n)
		}
		return f.composite(fr, id, n)
	case relay.KindVar:
		return nil, fmt.Errorf("the variable %s is no parameter of the region", n.Name)
	}
	return nil, fmt.Errorf("%%%d is an expression that a region cannot hold (control flow, closures and references "+
		"stay with TVM)", id)
}

func (f *flattening) constant(id relay.NodeID) (*tree, error) {
	if v, ok := f.constants[id]; ok {
		return &tree{tensor: v}, nil
	}
	n := &f.p.Graph.Nodes[id]
	typ := n.Type
	if typ == nil && n.Constant != nil {
		typ = &relay.Type{Kind: relay.TypeTensor, DType: n.Constant.DType, Shape: n.Constant.Shape}
	}
	t, err := f.leaves(typ, func(typ *relay.Type) ValueID {
		return f.add(Value{Type: typ, Constant: id, Producer: -1})
	})
	if err != nil {
		return nil, fmt.Errorf("the constant %%%d: %w", id, err)
	}
	f.constants[id] = t.tensor
	return t, nil
}

func (f *flattening) operator(fr *frame, id relay.NodeID, n *relay.Node) (*tree, error) {
	op := Op{Name: n.Op, Attrs: n.Attrs, CompositeIndex: fr.composite, Node: id}
	for _, in := range n.Inputs {
		argument, err := f.value(fr, in)
		if err != nil {
			return nil, err
		}
		op.Args = argument.tensors(op.Args)
	}
	result, err := f.leaves(n.Type, func(typ *relay.Type) ValueID {
		return f.add(Value{Type: typ, Constant: relay.NoNode, Producer: len(f.p.Ops)})
	})
	if err != nil {
		return nil, fmt.Errorf("the result of %s (%%%d) %w", n.Op, id, err)
	}
	op.Results = result.tensors(nil)
	f.p.Ops = append(f.p.Ops, op)
	return result, nil
}

// composite evaluates a call of a function literal.
func (f *flattening) composite(fr *frame, id relay.NodeID, n *relay.Node) (*tree, error) {
	callee := &f.p.Graph.Nodes[n.Callee]
	if callee.Kind != relay.KindFunction {
		return nil, fmt.Errorf("%%%d calls something that is neither an operator nor a composite function", id)
	}
	if len(callee.Binds) != len(n.Inputs) {
		return nil, fmt.Errorf("%%%d calls a function of %d parameters with %d arguments", id, len(callee.Binds),
			len(n.Inputs))
	}
	inner := &frame{composite: fr.composite, values: map[relay.NodeID]*tree{}, outer: fr}
	for i, param := range callee.Binds {
		argument, err := f.value(fr, n.Inputs[i])
		if err != nil {
			return nil, err
		}
		inner.values[param] = argument
	}
	if inner.composite < 0 {
		inner.composite = len(f.p.Composites)
		f.p.Composites = append(f.p.Composites, callee.FuncAttrs["Composite"])
	}
	return f.value(inner, f.p.Graph.Scopes[callee.Nested[0]].Root)
}
