// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
)

// Module is an IRModule, read once. It keeps the IRModule and its expressions alive.
type Module struct {
	// Functions are the global Relay functions, by name.
	Functions []*Graph
	// Others are the names of global functions of other kinds (tir.PrimFunc, external ones), by name.
	Others []string

	object  *bridge.Object
	globals map[string]*bridge.Object
}

// Object returns the IRModule that was read. It belongs to the Module.
func (m *Module) Object() *bridge.Object { return m.object }

// Function returns the global function of that name; nil if the module has no such Relay function.
func (m *Module) Function(name string) *Graph {
	i, ok := slices.BinarySearchFunc(m.Functions, name,
		func(g *Graph, name string) int { return strings.Compare(g.Name, name) })
	if !ok {
		return nil
	}
	return m.Functions[i]
}

// GlobalVar returns the module's global variable of that name, whatever kind of function it names; nil if there is
// none. It belongs to the Module.
func (m *Module) GlobalVar(name string) *bridge.Object { return m.globals[name] }

// Release gives all references to TVM's objects back at once, instead of when Go's collector finds them. What was
// read stays readable; Handle, Function and Tensor can no longer be used. A second call does nothing.
func (m *Module) Release() {
	m.object.Release()
	for _, v := range m.globals {
		v.Release()
	}
	for _, g := range m.Functions {
		g.Release()
	}
}

// Release is Module.Release for one graph, for graphs that ReadFunction made.
func (g *Graph) Release() {
	for _, h := range g.handles {
		h.Release()
	}
	g.function.Release()
}

// Read reads an IRModule: each global Relay function becomes a Graph. The module should have been through
// InferType; where it has not, types are nil. Nothing is changed, and mod stays the caller's.
//
// An expression that is used in several places is one node: identity is that of TVM's objects. Rewrite the
// module that was read, with no pass in between, because TVM's passes make new objects.
func Read(mod *bridge.Object) (*Module, error) {
	if key := mod.TypeKey(); key != "IRModule" {
		return nil, fmt.Errorf("TypeError: relay.Read wants an IRModule, not a %s", key)
	}
	kept, err := mod.Retain()
	if err != nil {
		return nil, err
	}
	m := &Module{object: kept, globals: map[string]*bridge.Object{}}
	functions, err := mod.AttrObject("functions")
	if err != nil {
		return nil, err
	}
	defer functions.Release()
	entries, err := functions.Entries()
	if err != nil {
		return nil, err
	}
	tables := newTables()
	for _, e := range entries {
		variable, err := e.Key.Object()
		if err != nil {
			return nil, err
		}
		name, err := variable.AttrString("name_hint")
		if err != nil {
			return nil, err
		}
		m.globals[name] = variable
		function, err := e.Value.Object()
		if err != nil || function.TypeKey() != "relay.Function" {
			m.Others = append(m.Others, name)
			continue
		}
		g, err := readFunction(name, function, tables)
		if err != nil {
			return nil, fmt.Errorf("reading function %s: %w", name, err)
		}
		m.Functions = append(m.Functions, g)
	}
	slices.SortFunc(m.Functions, func(a, b *Graph) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(m.Others)
	return m, nil
}

// ReadFunction reads one relay.Function that stands alone, under the given name.
func ReadFunction(name string, function *bridge.Object) (*Graph, error) {
	if key := function.TypeKey(); key != "relay.Function" {
		return nil, fmt.Errorf("TypeError: relay.ReadFunction wants a relay.Function, not a %s", key)
	}
	kept, err := function.Retain()
	if err != nil {
		return nil, err
	}
	return readFunction(name, kept, newTables())
}

// Handle returns TVM's expression of a node; nil for a graph made in Go. It belongs to the graph.
func (g *Graph) Handle(id NodeID) *bridge.Object {
	if g.handles == nil {
		return nil
	}
	return g.handles[id]
}

// Function returns the relay.Function that the graph was read from; nil for a graph made in Go. It belongs to the
// graph.
func (g *Graph) Function() *bridge.Object { return g.function }

// Tensor returns a constant's data, which belongs to the caller.
func (g *Graph) Tensor(id NodeID) (*bridge.NDArray, error) {
	if g.Nodes[id].Kind != KindConstant {
		return nil, fmt.Errorf("relay: %s: node %%%d is a %s, not a constant", g.Name, id, g.Nodes[id].Kind)
	}
	if g.handles == nil {
		return nil, errors.New("the graph was made in Go, its constants have no data")
	}
	v, err := g.handles[id].Attr("data")
	if err != nil {
		return nil, err
	}
	return v.NDArray()
}

func (g *Graph) constantData(id NodeID) ([]byte, error) {
	data, err := g.Tensor(id)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return data.Bytes()
}

// reader walks one function. Its stack is its own, so that deep networks do not overflow, and each expression is
// read once, when it is first met.
type reader struct {
	*tables
	g       *Graph
	ids     map[uintptr]NodeID
	stack   []pending
	untyped bool // types and spans of calls and the like are not read
}

// pending is an expression whose children are not all read.
type pending struct {
	object *bridge.Object
	node   Node
	// children are what must be read first, in order: callee, operands, bound variables, bodies.
	children []*bridge.Object
	pointers []uintptr // of children, which are released on the way if they are known already
	next     int
	callee   bool // the first child is the callee
	binds    int  // that many children after the callee are bound variables
	nested   int  // that many children at the end are the roots of nested scopes
	// inputs are the children in between.
}

func readFunction(name string, function *bridge.Object, t *tables) (*Graph, error) {
	g := &Graph{Name: name, function: function, Scopes: []Scope{{Owner: NoNode, Parent: NoScope}}}
	r := &reader{tables: t, g: g, ids: map[uintptr]NodeID{}}
	var err error
	if g.Attrs, err = r.functionAttrs(function); err != nil {
		return nil, err
	}
	params, err := objects(function, "params")
	if err != nil {
		return nil, err
	}
	for _, p := range params {
		id, err := r.read(p)
		if err != nil {
			return nil, err
		}
		g.Params = append(g.Params, id)
	}
	body, err := function.AttrObject("body")
	if err != nil {
		return nil, err
	}
	if g.Scopes[0].Root, err = r.read(body); err != nil {
		return nil, err
	}
	g.index()
	return g, nil
}

// read reads an expression and all that it depends on; it takes over object.
func (r *reader) read(object *bridge.Object) (NodeID, error) {
	if err := r.enter(object); err != nil {
		return NoNode, err
	}
	for len(r.stack) > 0 {
		top := &r.stack[len(r.stack)-1]
		if top.next < len(top.children) {
			child := top.children[top.next]
			top.next++
			if err := r.enter(child); err != nil {
				return NoNode, err
			}
			continue
		}
		p := *top
		r.stack = r.stack[:len(r.stack)-1]
		r.leave(&p)
	}
	return r.ids[object.Pointer()], nil
}

// enter reads the fields of an expression and puts it on the stack, unless it has been read.
func (r *reader) enter(object *bridge.Object) error {
	if _, known := r.ids[object.Pointer()]; known {
		object.Release()
		return nil
	}
	p := pending{object: object, node: Node{Callee: NoNode}}
	if err := r.fields(&p); err != nil {
		return fmt.Errorf("%s: %w", object.TypeKey(), err)
	}
	p.pointers = make([]uintptr, len(p.children))
	for i, c := range p.children {
		p.pointers[i] = c.Pointer()
	}
	r.stack = append(r.stack, p)
	return nil
}

// leave gives an expression its number, now that everything it depends on has one.
func (r *reader) leave(p *pending) {
	id := NodeID(len(r.g.Nodes))
	n := p.node
	all := make([]NodeID, len(p.pointers))
	for i, c := range p.pointers {
		all[i] = r.ids[c]
	}
	if p.callee {
		n.Callee, all = all[0], all[1:]
	}
	if p.binds > 0 {
		n.Binds, all = all[:p.binds:p.binds], all[p.binds:]
	}
	if p.nested > 0 {
		n.Nested = make([]ScopeID, p.nested)
		for i, root := range all[len(all)-p.nested:] {
			n.Nested[i] = ScopeID(len(r.g.Scopes))
			r.g.Scopes = append(r.g.Scopes, Scope{Owner: id, Parent: NoScope, Root: root})
		}
		all = all[:len(all)-p.nested]
	}
	if len(all) > 0 {
		n.Inputs = all
	}
	r.g.Nodes = append(r.g.Nodes, n)
	r.g.handles = append(r.g.handles, p.object)
	r.ids[p.object.Pointer()] = id
}
