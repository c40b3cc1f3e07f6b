// SPDX-License-Identifier: Apache-2.0

package dnnltvm

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/relay"
)

// program is a region function as TVM's oneDNN runtime reads it: nodes in the order in which they run, the
// parameters first, a constant before its first use. Every node has one result, so that a node's number is
// also the number of its result: the runtime's in-place accumulation mixes the two up.
type program struct {
	symbol string
	nodes  []programNode
	// heads are the nodes whose results the function returns, in order, each node once.
	heads []int
	// constants are the constant nodes' names and tensors, in the order of the nodes.
	constants []constantEntry
}

type programNode struct {
	op     string // "input", "const" or "kernel"
	name   string
	inputs []int
	attrs  []attribute
	shape  []int64
	dtype  string
	sum    int // the index in inputs of what the kernel accumulates into; -1 without one
}

// index finds the rules of composites and operators.
var index = sync.OnceValue(func() *onednn.Index { return onednn.NewIndex(onednn.Rules()) })

// constantEntry is a constant tensor of the graph, or a number of the code generator's where value is NoNode.
type constantEntry struct {
	name   string
	value  relay.NodeID
	number float32
}

// constantName names the i-th constant of a region. TVM wants it to begin with the compiler's name.
func constantName(symbol string, i int) string {
	return fmt.Sprintf("%s_%s_const_%d", Compiler, symbol, i)
}

func (p *program) constantNames() []string {
	names := make([]string, len(p.constants))
	for i, c := range p.constants {
		names[i] = c.name
	}
	return names
}

// translate turns a region function, read into g, into a program. The error says which operator or attribute
// the runtime would not understand.
func translate(g *relay.Graph, symbol string) (*program, error) {
	t := &translation{
		g: g, p: &program{symbol: symbol},
		kernels: map[relay.NodeID]int{}, leaves: map[leafKey]int{}, bound: map[relay.NodeID]relay.NodeID{},
	}
	for i, param := range g.Params {
		typ, err := t.anyTensor(param, fmt.Sprintf("parameter %d", i+1))
		if err != nil {
			return nil, err
		}
		name := g.Nodes[param].Name
		if name == "" {
			name = fmt.Sprintf("p%d", i)
		}
		t.leaves[leafKey{value: param}] = t.add(
			programNode{op: "input", name: name, shape: typ.Shape, dtype: typ.DType, sum: -1})
	}
	// Post-order: every call stands behind what it reads.
	for id := range g.Nodes {
		n := &g.Nodes[id]
		if n.Scope != 0 {
			continue
		}
		if err := t.visit(relay.NodeID(id), n); err != nil {
			return nil, fmt.Errorf("region %s: %w", symbol, err)
		}
	}
	if err := t.results(g.Scopes[0].Root); err != nil {
		return nil, fmt.Errorf("region %s: %w", symbol, err)
	}
	t.protectResiduals()
	return t.p, nil
}

type translation struct {
	g *relay.Graph
	p *program
	// kernels says which node holds the value of a call.
	kernels map[relay.NodeID]int
	leaves  map[leafKey]int
	// bound says which value of the region a Composite function's parameter stands for.
	bound map[relay.NodeID]relay.NodeID
}

// leafKey is a parameter or constant as one shape: the same tensor may be read in two shapes.
type leafKey struct {
	value relay.NodeID
	shape string
	// number is the constant where value is NoNode.
	number float32
}

func (t *translation) add(n programNode) int {
	t.p.nodes = append(t.p.nodes, n)
	return len(t.p.nodes) - 1
}

// anyTensor is the type of a parameter or constant: any dtype, so that what no kernel reads may be there.
func (t *translation) anyTensor(id relay.NodeID, what string) (*relay.Type, error) {
	typ := t.g.Nodes[id].Type
	if typ == nil || typ.Kind != relay.TypeTensor {
		return nil, fmt.Errorf("%s is not a tensor of known type", what)
	}
	for _, d := range typ.Shape {
		if d == relay.AnyDim {
			return nil, fmt.Errorf("%s has the shape %s; dimensions that are known only at run time are not supported",
				what, relay.ShapeText(typ.Shape))
		}
	}
	return typ, nil
}

// visit translates a node of the region's own scope.
func (t *translation) visit(id relay.NodeID, n *relay.Node) error {
	switch n.Kind {
	case relay.KindVar, relay.KindConstant, relay.KindTuple, relay.KindTupleGetItem, relay.KindFunction:
		return nil // taken up where they are used
	case relay.KindCall:
		k, typ, err := t.call(id, n)
		if err != nil {
			return err
		}
		return t.kernel(id, k, typ)
	}
	return fmt.Errorf("a region for oneDNN cannot contain the expression %s", t.describe(n))
}

func (t *translation) describe(n *relay.Node) string {
	if n.Op != "" {
		return n.Op
	}
	return fmt.Sprintf("of kind %d", n.Kind)
}

// call finds the kernel of an operator call or of a call of a Composite function.
func (t *translation) call(id relay.NodeID, n *relay.Node) (*kernel, *relay.Type, error) {
	root, r, name := id, (*onednn.Rule)(nil), n.Op
	if n.Op != "" {
		if r = index().Operator(n.Op); r == nil {
			return nil, nil, fmt.Errorf("TVM's oneDNN runtime has no kernel for the operator %s", n.Op)
		}
	} else {
		callee := &t.g.Nodes[n.Callee]
		name = callee.FuncAttrs["Composite"]
		if callee.Kind != relay.KindFunction || name == "" {
			return nil, nil, fmt.Errorf("a region for oneDNN calls a function that is not a Composite function")
		}
		if r = index().Composite(name); r == nil {
			return nil, nil, fmt.Errorf("TVM's oneDNN runtime does not know the composite %q", name)
		}
		if len(callee.Binds) != len(n.Inputs) {
			return nil, nil, fmt.Errorf("%s is called with %d arguments for %d parameters", name, len(n.Inputs),
				len(callee.Binds))
		}
		for i, v := range callee.Binds {
			t.bound[v] = n.Inputs[i]
		}
		root = t.g.Scopes[callee.Nested[0]].Root
	}
	k, err := t.match(r, name, root)
	if err != nil {
		return nil, nil, err
	}
	typ, err := onednn.TensorAt(t.g, root, "the result of "+name)
	return k, typ, err
}

// match finds the way in which the rule fits the expression at root and writes its kernel.
func (t *translation) match(r *onednn.Rule, name string, root relay.NodeID) (*kernel, error) {
	limits := r.Correct
	if limits == nil {
		limits = r.Limits
	}
	var refusal error
	for _, m := range t.g.Match(r.Shape, root) {
		if !t.whole(m) {
			continue
		}
		if err := limits(t.g, m); err != nil {
			if refusal == nil {
				refusal = err
			}
			continue
		}
		layer, err := r.Read(t.g, m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return kernelOf(t.g, r.Composite, layer)
	}
	if refusal == nil {
		refusal = fmt.Errorf("its body is not what the name says")
	}
	return nil, fmt.Errorf("%s: %w", name, refusal)
}

// whole says that a match inside a Composite function leaves nothing of the function's body outside.
func (t *translation) whole(m *relay.Match) bool {
	if t.g.Nodes[m.Root].Scope == 0 {
		return true
	}
	for _, in := range m.Inputs {
		if _, parameter := t.bound[in]; !parameter {
			return false
		}
	}
	return true
}

// kernel adds the node of a kernel and of the leaves that it is the first to read.
func (t *translation) kernel(id relay.NodeID, k *kernel, typ *relay.Type) error {
	n := programNode{op: "kernel", name: k.name, attrs: k.attrs, shape: typ.Shape, dtype: typ.DType, sum: k.sum}
	for _, in := range k.inputs {
		at, err := t.value(in)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		n.inputs = append(n.inputs, at)
	}
	t.kernels[id] = t.add(n)
	return nil
}

// resolve follows a Composite function's parameters, and fields of tuples, to where a value is made.
func (t *translation) resolve(id relay.NodeID) relay.NodeID {
	for {
		n := &t.g.Nodes[id]
		if outer, ok := t.bound[id]; ok {
			id = outer
			continue
		}
		if n.Kind == relay.KindTupleGetItem {
			if tuple := t.resolve(n.Inputs[0]); t.g.Nodes[tuple].Kind == relay.KindTuple {
				id = t.g.Nodes[tuple].Inputs[n.Index]
				continue
			}
		}
		return id
	}
}

// value is the node that holds a value in the wanted shape.
func (t *translation) value(in operand) (int, error) {
	if in.value == relay.NoNode {
		key := leafKey{value: relay.NoNode, number: in.number}
		if _, ok := t.leaves[key]; !ok {
			t.leaves[key] = t.constant(constantEntry{value: relay.NoNode, number: in.number}, []int64{1}, "float32")
		}
		return t.leaves[key], nil
	}
	id := t.resolve(in.value)
	if at, ok := t.kernels[id]; ok {
		if in.shape != nil {
			return 0, fmt.Errorf("a weight that is to be read in another shape is made inside the region")
		}
		return at, nil
	}
	n := &t.g.Nodes[id]
	key := leafKey{value: id}
	if in.shape != nil {
		key.shape = relay.ShapeText(in.shape)
	}
	if at, ok := t.leaves[key]; ok {
		return at, nil
	}
	switch n.Kind {
	case relay.KindConstant:
		typ, err := t.anyTensor(id, "a constant")
		if err != nil {
			return 0, err
		}
		shape := typ.Shape
		if in.shape != nil {
			shape = in.shape
		}
		t.leaves[key] = t.constant(constantEntry{value: id}, shape, typ.DType)
		return t.leaves[key], nil
	case relay.KindVar:
		return t.parameterInShape(id, key, in.shape)
	}
	return 0, fmt.Errorf("an argument is %s, which is made by no kernel", t.describe(n))
}

// constant adds a constant's node and names it.
func (t *translation) constant(c constantEntry, shape []int64, dtype string) int {
	c.name = constantName(t.p.symbol, len(t.p.constants))
	t.p.constants = append(t.p.constants, c)
	return t.add(programNode{op: "const", name: c.name, shape: shape, dtype: dtype, sum: -1})
}

// parameterInShape lets the runtime see a parameter of the region in another shape. The runtime knows one
// shape for each parameter, so this works for a parameter with one reader.
func (t *translation) parameterInShape(id relay.NodeID, key leafKey, shape []int64) (int, error) {
	at, ok := t.leaves[leafKey{value: id}]
	if !ok {
		return 0, fmt.Errorf("the variable %s is not a parameter of the region, or is read in two shapes",
			t.g.Nodes[id].Name)
	}
	for _, other := range t.p.nodes {
		for _, in := range other.inputs {
			if in == at {
				return 0, fmt.Errorf("the weight %s is not a constant and is used twice", t.g.Nodes[id].Name)
			}
		}
	}
	t.p.nodes[at].shape = shape
	delete(t.leaves, leafKey{value: id}) // a later reader in the plain shape would read the wrong one
	t.leaves[key] = at
	return at, nil
}

// results lists what the function returns. The runtime finds an output by its node: one that is a parameter,
// or that is returned twice, needs a copy of its own.
func (t *translation) results(root relay.NodeID) error {
	fields := []relay.NodeID{root}
	if tuple := t.resolve(root); t.g.Nodes[tuple].Kind == relay.KindTuple {
		fields = t.g.Nodes[tuple].Inputs
	}
	taken := map[int]bool{}
	for _, f := range fields {
		id := t.resolve(f)
		if t.g.Nodes[id].Kind == relay.KindTuple {
			return fmt.Errorf("the region returns a tuple inside a tuple")
		}
		at, err := t.value(operand{value: id})
		if err != nil {
			return fmt.Errorf("a result: %w", err)
		}
		if t.p.nodes[at].op != "kernel" || taken[at] {
			if d := t.p.nodes[at].dtype; d != "float32" {
				return fmt.Errorf("the region returns its own %s argument", d)
			}
			at = t.add(identity(t.p.nodes[at], at))
		}
		taken[at] = true
		t.p.heads = append(t.p.heads, at)
	}
	return nil
}

// identity is a kernel that copies a value: a leaky ReLU whose slope is one.
func identity(of programNode, at int) programNode {
	return programNode{
		op: "kernel", name: "nn.leaky_relu", inputs: []int{at}, attrs: []attribute{number("alpha", 1)},
		shape: of.shape, dtype: of.dtype, sum: -1,
	}
}

// protectResiduals puts a copy before every accumulation that would destroy a value which is still needed. The
// runtime lets a kernel write its result over the residual value when both live only inside the region, without
// asking who else reads that value: the kernel itself, or one that runs later.
func (t *translation) protectResiduals() {
	returned := map[int]bool{}
	for _, h := range t.p.heads {
		returned[h] = true
	}
	old := t.p.nodes
	lastReader := make([]int, len(old))
	for at, n := range old {
		for _, in := range n.inputs {
			lastReader[in] = at
		}
	}
	destroys := func(at int) bool {
		n := &old[at]
		if n.sum < 0 || returned[at] {
			return false
		}
		residual := n.inputs[n.sum]
		if old[residual].op != "kernel" || returned[residual] {
			return false
		}
		for i, in := range n.inputs {
			if in == residual && i != n.sum {
				return true
			}
		}
		return lastReader[residual] > at
	}
	t.p.nodes = nil
	renamed := make([]int, len(old))
	for at, n := range old {
		inputs := make([]int, len(n.inputs))
		for i, in := range n.inputs {
			inputs[i] = renamed[in]
		}
		if destroys(at) {
			residual := n.inputs[n.sum]
			inputs[n.sum] = t.add(identity(old[residual], renamed[residual]))
		}
		n.inputs = inputs
		renamed[at] = t.add(n)
	}
	for i, h := range t.p.heads {
		t.p.heads[i] = renamed[h]
	}
}
