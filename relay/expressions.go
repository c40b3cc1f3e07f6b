// SPDX-License-Identifier: Apache-2.0

package relay

import "github.com/collage-tvm/collage/bridge"

// Expressions reads Relay expressions one after the other into one graph, each node once: for work beside a front end,
// whose expressions are made of those before. Types and places in the source are not read, as front ends infer types
// late; nor does anything know the scopes and the readers of a node.
type Expressions struct {
	r *reader
}

// NewExpressions begins with an empty graph.
func NewExpressions() *Expressions {
	g := &Graph{Name: "expression", Scopes: []Scope{{Owner: NoNode, Parent: NoScope, Root: NoNode}}}
	return &Expressions{&reader{tables: newTables(), g: g, ids: map[uintptr]NodeID{}, untyped: true}}
}

// Add reads what is new in an expression, which stays the caller's, and returns its node. The new nodes stand at the
// end.
func (e *Expressions) Add(expr *bridge.Object) (NodeID, error) {
	kept, err := expr.Retain()
	if err != nil {
		return NoNode, err
	}
	id, err := e.r.read(kept)
	if err != nil {
		e.r.stack = nil
	}
	return id, err
}

// Graph is the graph that Add adds to. Nodes, Handle and Tensor are of use; what is derived from a whole graph is not.
func (e *Expressions) Graph() *Graph { return e.r.g }

// Type is the type that has been inferred for a node by now; nil where none has.
func (e *Expressions) Type(id NodeID) (*Type, error) {
	return newTables().typeField(e.r.g.handles[id], "_checked_type_")
}

// Release gives all references to TVM's objects back; see Module.Release.
func (e *Expressions) Release() {
	for _, h := range e.r.g.handles {
		h.Release()
	}
}
