// SPDX-License-Identifier: Apache-2.0

// Package region is what the code generators of engines share: a region function as a flat list of operators, and
// the packed function through which TVM hands regions over.
//
// What comes in: from TVM, region functions (relay.ext.<compiler>); from a backend, an Emitter. What goes out: to the
// Emitter, a Program; to TVM, the runtime module that runs what the Emitter wrote (byoc/runtime/region_module.h).
package region

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// ValueID names a tensor of a Program: its index in Program.Values.
type ValueID int32

// Program is a region as a list of operators on tensors. Composite functions are inlined; tuples and projections are
// gone; what no result depends on is left out.
type Program struct {
	// Symbol is the name under which TVM will call the region.
	Symbol string
	// Graph is the region function as it was read; it holds the constants' data.
	Graph *relay.Graph
	// Function is the region function itself, the caller's; nil where the Program was made of a Graph.
	Function *bridge.Object
	// Open says that dimensions of some tensors are known only when the region runs (relay.AnyDim).
	Open bool
	// Whole is the program with open dimensions which this one is at some sizes; nil where it is of these sizes alone.
	Whole *Program
	// Inputs are the region's parameters in order, a parameter that is a tuple as one tensor for each field.
	Inputs []ValueID
	// Ops stand in an order in which they can run.
	Ops []Op
	// Outputs are the results in order. One may be an input or a constant, and one may stand there twice.
	Outputs []ValueID
	Values  []Value
	// Composites are the names of the composite functions that were inlined, by Op.CompositeIndex.
	Composites []string
}

// IsFree says that a tensor may have another size along an axis when the region runs than it has here.
func (p *Program) IsFree(value ValueID, axis int) bool {
	return p.Whole != nil && int(value) < len(p.Whole.Values) && p.Whole.Values[value].Type.Shape[axis] == relay.AnyDim
}

// Op is one call of a primitive operator.
type Op struct {
	// Name is Relay's ("nn.conv2d").
	Name  string
	Attrs *relay.Attrs
	// Args are the tensors it reads, the fields of a tuple argument one after the other.
	Args []ValueID
	// Results are the tensors it makes; more than one where its type is a tuple (split, batch normalisation).
	Results []ValueID
	// CompositeIndex says to which composite function's call the operator belonged; -1 for none.
	CompositeIndex int
	// Node is the operator in Graph, for error messages.
	Node relay.NodeID
}

// Value is a tensor.
type Value struct {
	// Type is a tensor type with known dimensions.
	Type *relay.Type
	// Constant is the constant's node in Program.Graph; NoNode where the tensor is none.
	Constant relay.NodeID
	// Producer is the operator that makes the tensor, by its index in Program.Ops; -1 for inputs and constants.
	Producer int
	// added is the data of a tensor that AddConstant made.
	added []byte
}

// Read reads a region function, which has the attribute global_symbol. The error says which expression no engine can
// take. The caller owns the Program's Graph: it may Release it when the Program is no longer needed.
func Read(fn *bridge.Object) (*Program, error) { return read(fn, FromGraph) }

// ReadOpen is Read of what may have open dimensions.
func ReadOpen(fn *bridge.Object) (*Program, error) { return read(fn, OpenFromGraph) }

func read(fn *bridge.Object, from func(*relay.Graph, string) (*Program, error)) (*Program, error) {
	symbol, err := globalSymbol(fn)
	if err != nil {
		return nil, err
	}
	g, err := relay.ReadFunction(symbol, fn)
	if err != nil {
		return nil, err
	}
	p, err := from(g, symbol)
	if err != nil {
		g.Release()
		return nil, err
	}
	p.Function = fn
	return p, nil
}

// globalSymbol reads the name under which TVM will call the region.
func globalSymbol(fn *bridge.Object) (string, error) {
	if key := fn.TypeKey(); key != "relay.Function" {
		return "", fmt.Errorf("TypeError: a region is a relay.Function, this is a %s", key)
	}
	attrs, err := fn.AttrObject("attrs")
	if err != nil {
		return "", err
	}
	if attrs != nil {
		defer attrs.Release()
		if symbol, err := attrs.AttrString("global_symbol"); err == nil && symbol != "" {
			return symbol, nil
		}
	}
	return "", fmt.Errorf("ValueError: the region function has no attribute global_symbol")
}

// FromGraph is Read for a function that has been read already.
func FromGraph(g *relay.Graph, symbol string) (*Program, error) {
	p, err := OpenFromGraph(g, symbol)
	if err != nil || !p.Open {
		return p, err
	}
	open := func(v Value) bool { return slices.Contains(v.Type.Shape, relay.AnyDim) }
	at := slices.IndexFunc(p.Values, open)
	what := "a tensor"
	if i := slices.IndexFunc(p.Inputs, func(v ValueID) bool { return open(p.Values[v]) }); i >= 0 {
		at, what = int(p.Inputs[i]), fmt.Sprintf("parameter %d", i+1)
	}
	return nil, fmt.Errorf("ValueError: region %s: %s has the shape %s; dimensions that are known only at run time "+
		"are not supported in a region of this backend", symbol, what, relay.ShapeText(p.Values[at].Type.Shape))
}

// OpenFromGraph is FromGraph of what may have open dimensions.
func OpenFromGraph(g *relay.Graph, symbol string) (*Program, error) {
	f := &flattening{p: &Program{Symbol: symbol, Graph: g}, constants: map[relay.NodeID]ValueID{}}
	outer := &frame{composite: -1, values: map[relay.NodeID]*tree{}}
	for i, param := range g.Params {
		t, err := f.leaves(g.Nodes[param].Type, func(typ *relay.Type) ValueID {
			v := f.add(Value{Type: typ, Constant: relay.NoNode, Producer: -1})
			f.p.Inputs = append(f.p.Inputs, v)
			return v
		})
		if err != nil {
			return nil, fmt.Errorf("ValueError: region %s: parameter %d: %w", symbol, i+1, err)
		}
		outer.values[param] = t
	}
	result, err := f.value(outer, g.Root())
	if err != nil {
		return nil, fmt.Errorf("ValueError: region %s: %w", symbol, err)
	}
	f.p.Outputs = result.tensors(nil)
	return f.p, nil
}

// ConstantBytes gives a constant's elements, compact and little-endian.
func (p *Program) ConstantBytes(v ValueID) ([]byte, error) {
	data, err := p.constant(v)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return data.Bytes()
}

// AddConstant adds a tensor that the engine is to be given beside the region's own constants, and that no operator
// reads. data are its elements, compact and little-endian; it must not be empty.
func (p *Program) AddConstant(typ *relay.Type, data []byte) ValueID {
	p.Values = append(p.Values, Value{Type: typ, Constant: relay.NoNode, Producer: -1, added: data})
	return ValueID(len(p.Values) - 1)
}

// constant gives a constant's tensor; the caller releases it.
func (p *Program) constant(v ValueID) (*bridge.NDArray, error) {
	if data := p.Values[v].added; data != nil {
		return addedTensor(p.Values[v].Type, data)
	}
	node := p.Values[v].Constant
	if node == relay.NoNode {
		return nil, fmt.Errorf("region %s: the value %d is no constant", p.Symbol, v)
	}
	handle := p.Graph.Handle(node)
	if handle == nil {
		return nil, fmt.Errorf("region %s: the constant %%%d has no data, since the graph was not read from TVM",
			p.Symbol, node)
	}
	data, err := handle.Attr("data")
	if err != nil {
		return nil, err
	}
	return data.NDArray()
}

func addedTensor(typ *relay.Type, data []byte) (*bridge.NDArray, error) {
	dtype, err := bridge.ParseDataType(typ.DType)
	if err != nil {
		return nil, err
	}
	tensor, err := bridge.Empty(typ.Shape, dtype, bridge.CPU())
	if err != nil {
		return nil, err
	}
	if err := tensor.CopyFromBytes(data); err != nil {
		tensor.Release()
		return nil, err
	}
	return tensor, nil
}

// IsConstant says whether a tensor is a constant.
func (p *Program) IsConstant(v ValueID) bool { return p.Values[v].Constant != relay.NoNode }

// Readers counts for each tensor how often operators read it and the region returns it.
func (p *Program) Readers() []int {
	readers := make([]int, len(p.Values))
	for i := range p.Ops {
		for _, v := range p.Ops[i].Args {
			readers[v]++
		}
	}
	for _, v := range p.Outputs {
		readers[v]++
	}
	return readers
}
