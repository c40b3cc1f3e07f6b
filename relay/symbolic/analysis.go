// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// Extents are a tensor's dimensions.
type Extents []Expression

// Equal says that two tensors have the same dimensions whatever the open ones are.
func (e Extents) Equal(other Extents) bool { return slices.EqualFunc(e, other, Expression.Equal) }

// String is "[1, 4*len]".
func (e Extents) String() string { return fmt.Sprint([]Expression(e)) }

// elements is of how many items a tensor is.
func (e Extents) elements() Expression {
	product := Constant(1)
	for _, extent := range e {
		product = product.Times(extent)
	}
	return product
}

// Value is what is known of a node's value: the extents of a tensor, and its items where these are few whole numbers that
// depend on the sizes of others alone; or the fields of a tuple. All are nil where nothing is known.
type Value struct {
	Shape  Extents
	Items  []Expression
	Fields []Value
	known  bool // a tensor: a scalar has a nil Shape
}

// unnamed begins the names of symbols that nobody has named, and no other's.
const unnamed = "%"

// mostItems is of how many items tensors are whose items are followed: a shape has a few.
const mostItems = 64

// Analysis is what is known of the nodes of one function.
type Analysis struct {
	g      *relay.Graph
	values []Value
	// done says which nodes have been looked at, bound what the parameters of local functions are given.
	done  []bool
	bound map[relay.NodeID]relay.NodeID
	// named are the dimensions that inputs have by themselves, by name.
	named map[string]Expression
}

// Inputs are what is known of the dimensions of a function's parameters, by the parameters' names.
type Inputs map[string][]Dimension

// Dimension is one of a parameter's. Dimensions of the same name are of the same size.
type Dimension struct {
	// Name is "" where it has a number or no name.
	Name string `json:"name"`
	// Least and Most are between which an open one is, both included; 0 where nothing is said.
	Least int64 `json:"least,omitempty"`
	Most  int64 `json:"most,omitempty"`
	// Of, where it is not empty, says what an open one is of dimensions that have these names elsewhere among the
	// parameters, and of Quotients of these: a sum of products.
	Of        []Product  `json:"of,omitempty"`
	Quotients []Quotient `json:"quotients,omitempty"`
}

// Product is a number of times the sizes of dimensions, by name, with repetition.
type Product struct {
	By    int64    `json:"by"`
	Sizes []string `json:"sizes,omitempty"`
}

// Analyse works out the dimensions of all nodes of a function that has types. What has no name in inputs, and what no
// operator tells, is a symbol of its own. An open dimension of an input is at least 1.
func Analyse(g *relay.Graph, inputs Inputs) (*Analysis, error) {
	a := &Analysis{g: g, values: make([]Value, len(g.Nodes)), done: make([]bool, len(g.Nodes)), bound: bindings(g),
		named: map[string]Expression{}}
	for _, dimensions := range inputs {
		for _, d := range dimensions {
			if d.Name != "" && len(d.Of) == 0 {
				a.named[d.Name] = d.symbol(ownName(d.Name))
			}
		}
	}
	for _, p := range g.Params {
		n := &g.Nodes[p]
		names := inputs[n.Name]
		if names != nil && n.Type != nil && n.Type.Kind == relay.TypeTensor && len(names) != len(n.Type.Shape) {
			return nil, fmt.Errorf("the input %s has %d dimensions; %d are named", n.Name, len(n.Type.Shape), len(names))
		}
		a.values[p], a.done[p] = a.parameter(n, names), true
	}
	for i := range g.Nodes {
		if err := a.look(relay.NodeID(i)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// bindings says what the parameters of local functions that are called once are given there.
func bindings(g *relay.Graph) map[relay.NodeID]relay.NodeID {
	calls := map[relay.NodeID]int{}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Kind == relay.KindCall && n.Callee != relay.NoNode {
			calls[n.Callee]++
		}
	}
	bound := map[relay.NodeID]relay.NodeID{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind != relay.KindCall || n.Callee == relay.NoNode || calls[n.Callee] > 1 {
			continue
		}
		callee := &g.Nodes[n.Callee]
		if callee.Kind != relay.KindFunction || len(callee.Binds) != len(n.Inputs) {
			continue
		}
		for k, param := range callee.Binds {
			bound[param] = n.Inputs[k]
		}
	}
	return bound
}

// look works a node out, and before it what it depends on: a local function's parameters come before its arguments.
func (a *Analysis) look(id relay.NodeID) error {
	if a.done[id] {
		return nil
	}
	a.done[id] = true
	n := &a.g.Nodes[id]
	needs := n.Inputs
	argument, isBound := a.bound[id]
	if isBound {
		needs = []relay.NodeID{argument}
	}
	result := relay.NoNode // of the local function that is called
	if n.Kind == relay.KindCall && n.Callee != relay.NoNode {
		if callee := &a.g.Nodes[n.Callee]; callee.Kind == relay.KindFunction && len(callee.Nested) == 1 {
			result = a.g.Scopes[callee.Nested[0]].Root
			needs = append(slices.Clone(needs), result)
		}
	}
	for _, in := range needs {
		if err := a.look(in); err != nil {
			return err
		}
	}
	var found Value
	var err error
	switch {
	case isBound:
		found = a.values[argument]
	case result != relay.NoNode && a.calledOnce(n.Callee):
		found = a.values[result]
	default:
		found, err = a.node(id, n)
	}
	if err != nil {
		return err
	}
	a.values[id] = a.agreeing(found, n.Type, fmt.Sprintf("%s%d", unnamed, id))
	return nil
}

// calledOnce says that the sizes in a local function are those of its one call.
func (a *Analysis) calledOnce(function relay.NodeID) bool {
	for _, param := range a.g.Nodes[function].Binds {
		if _, ok := a.bound[param]; !ok {
			return false
		}
	}
	return true
}

// Of is what is known of a node.
func (a *Analysis) Of(id relay.NodeID) Value { return a.values[id] }

func (a *Analysis) parameter(n *relay.Node, names []Dimension) Value {
	v := a.agreeing(Value{}, n.Type, unnamed+n.Name)
	for d := range v.Shape {
		if n.Type.Shape[d] != relay.AnyDim {
			continue
		}
		name := fmt.Sprintf("%s%s.%d", unnamed, n.Name, d)
		var told Dimension
		if names != nil {
			told = names[d]
		}
		if told.Name != "" {
			name = ownName(told.Name)
		}
		v.Shape[d] = told.symbol(name)
		if sum, ok := a.told(&told); ok {
			v.Shape[d] = sum
		}
	}
	return v
}

// ownName is what a dimension of that name is called here. One that a region has of the function around it, where it
// had no name, has one that a node here may have, too.
func ownName(name string) string {
	if strings.HasPrefix(name, unnamed) {
		return unnamed + name
	}
	return name
}

// symbol is a dimension as an open one of that name.
func (d Dimension) symbol(name string) Expression {
	most := int64(Unbounded)
	if d.Most > 0 {
		most = d.Most
	}
	return Symbol(name, max(1, d.Least), most)
}

// told is what a dimension is of others; false where it is of none, or of such as no input has by itself.
func (a *Analysis) told(d *Dimension) (Expression, bool) {
	known := a.named
	if len(d.Quotients) > 0 {
		known = maps.Clone(known)
	}
	for _, q := range d.Quotients {
		dividend, ok := sumOfProducts(q.Of, known)
		if !ok || q.By < 1 {
			return Expression{}, false
		}
		if known[q.Name], ok = dividend.overAsItRuns(Constant(q.By)); !ok {
			return Expression{}, false
		}
	}
	sum, ok := sumOfProducts(d.Of, known)
	return sum, ok && len(d.Of) > 0
}

// sumOfProducts is the expression of products of what is known; false where one of it is not.
func sumOfProducts(products []Product, known map[string]Expression) (Expression, bool) {
	sum := Expression{}
	for _, p := range products {
		product := Constant(p.By)
		for _, name := range p.Sizes {
			size, ok := known[name]
			if !ok {
				return Expression{}, false
			}
			product = product.Times(size)
		}
		sum = sum.Plus(product)
	}
	return sum, true
}

// agreeing is what is known of a value with what its type says: numbers are the type's, and what neither tells is a
// symbol whose name begins with name.
func (a *Analysis) agreeing(v Value, t *relay.Type, name string) Value {
	switch {
	case t == nil:
		return Value{}
	case t.Kind == relay.TypeTuple:
		fields := make([]Value, len(t.Fields))
		for i, field := range t.Fields {
			var of Value
			if len(v.Fields) == len(fields) {
				of = v.Fields[i]
			}
			fields[i] = a.agreeing(of, field, fmt.Sprintf("%s.%d", name, i))
		}
		return Value{Fields: fields}
	case t.Kind != relay.TypeTensor:
		return Value{}
	}
	out := Value{Shape: make(Extents, len(t.Shape)), known: true}
	for d, extent := range t.Shape {
		switch {
		case extent != relay.AnyDim:
			out.Shape[d] = Constant(extent)
		case v.known && len(v.Shape) == len(t.Shape):
			out.Shape[d] = v.Shape[d]
		default:
			out.Shape[d] = Symbol(fmt.Sprintf("%s.%d", name, d), 0, Unbounded)
		}
	}
	if count, ok := out.Shape.elements().Value(); ok && count == int64(len(v.Items)) && v.Items != nil && isWhole(t.DType) {
		out.Items = v.Items
	}
	return out
}

func isWhole(dtype string) bool { return dtype == "int64" || dtype == "int32" || dtype == "bool" }

func (a *Analysis) node(id relay.NodeID, n *relay.Node) (Value, error) {
	switch n.Kind {
	case relay.KindConstant:
		return a.constant(id, n)
	case relay.KindTuple:
		fields := make([]Value, len(n.Inputs))
		for i, in := range n.Inputs {
			fields[i] = a.values[in]
		}
		return Value{Fields: fields}, nil
	case relay.KindTupleGetItem:
		if of := a.values[n.Inputs[0]]; n.Index < len(of.Fields) {
			return of.Fields[n.Index], nil
		}
	case relay.KindCall:
		if n.Callee == relay.NoNode {
			return a.call(n), nil
		}
	}
	return Value{}, nil
}

// constant reads the items of a small constant of whole numbers.
func (a *Analysis) constant(id relay.NodeID, n *relay.Node) (Value, error) {
	c := n.Constant
	v := Value{Shape: make(Extents, len(c.Shape)), known: true}
	for d, extent := range c.Shape {
		v.Shape[d] = Constant(extent)
	}
	count, ok := v.Shape.elements().Value()
	if !ok || count > mostItems || !isWhole(c.DType) {
		return v, nil
	}
	if count == 1 && math.Abs(c.Scalar) < 1<<53 {
		v.Items = []Expression{Constant(int64(c.Scalar))}
		return v, nil
	}
	if a.g.Function() == nil {
		return v, nil // made in Go, without items
	}
	array, err := a.g.Tensor(id)
	if err != nil {
		return v, err
	}
	defer array.Release()
	data, err := array.Memory()
	if err != nil {
		return v, err
	}
	size := map[string]int{"int64": 8, "int32": 4, "bool": 1}[c.DType]
	if !array.Contiguous() || len(data) != int(count)*size {
		return v, nil
	}
	v.Items = make([]Expression, count)
	for i := range v.Items {
		at := data[i*size:]
		switch size {
		case 8:
			v.Items[i] = Constant(int64(binary.NativeEndian.Uint64(at)))
		case 4:
			v.Items[i] = Constant(int64(int32(binary.NativeEndian.Uint32(at))))
		default:
			v.Items[i] = Constant(int64(at[0]))
		}
	}
	return v, nil
}
