// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
)

// Rewriter makes new expressions from the ones a graph was read from: some nodes replaced, the others kept with
// their attributes and spans, and kept as the very same objects where nothing below them changed. Each node is
// rewritten once, so sharing stays sharing, and the walk has its own stack, so depth does not matter.
//
// The expressions that Expr gives out belong to it or to the graph; Release gives back those that it made. It is
// not safe for concurrent use.
type Rewriter struct {
	g        *Graph
	done     map[NodeID]*bridge.Object
	replaced map[NodeID]replacement
	wrapped  map[NodeID]func(expr *bridge.Object) (*bridge.Object, error)
	instead  map[edge]func(expr *bridge.Object) (*bridge.Object, error)
	made     []*bridge.Object
}

// edge is a value and one of those who read it.
type edge struct{ reader, value NodeID }

type replacement struct {
	deps []NodeID
	make func(deps []*bridge.Object) (*bridge.Object, error)
}

// NewRewriter begins a rewriting of g, which must have been read from TVM.
func NewRewriter(g *Graph) *Rewriter {
	return &Rewriter{g: g, done: map[NodeID]*bridge.Object{}, replaced: map[NodeID]replacement{},
		wrapped: map[NodeID]func(expr *bridge.Object) (*bridge.Object, error){},
		instead: map[edge]func(expr *bridge.Object) (*bridge.Object, error){}}
}

// Set makes expr stand for node id: a parameter for a region's input, a constant for a parameter. It must be
// called before anything that uses id is rewritten.
func (r *Rewriter) Set(id NodeID, expr *bridge.Object) { r.done[id] = expr }

// Replace makes what construct returns stand for node id: the call of a region for the region's exit. construct gets
// the rewritten expressions of deps, in order; only these are rewritten for it, so the nodes that the replacement makes
// superfluous are never touched. The same rule of order as for Set.
func (r *Rewriter) Replace(id NodeID, deps []NodeID, construct func(deps []*bridge.Object) (*bridge.Object, error)) {
	r.replaced[id] = replacement{deps, construct}
}

// Wrap makes what construct returns of the rewritten expression of node id stand for it. The same rule of order as for
// Set; a node that is replaced is not wrapped.
func (r *Rewriter) Wrap(id NodeID, construct func(expr *bridge.Object) (*bridge.Object, error)) {
	r.wrapped[id] = construct
}

// Read has reader read what construct returns of the rewritten expression of a value in the place of that. The same
// rule of order as for Set; of a reader that is replaced the value is one of its deps.
func (r *Rewriter) Read(reader, value NodeID, construct func(expr *bridge.Object) (*bridge.Object, error)) {
	r.instead[edge{reader, value}] = construct
}

// Expr returns the rewritten expression of node id.
func (r *Rewriter) Expr(id NodeID) (*bridge.Object, error) {
	if r.g.handles == nil {
		return nil, errors.New("relay: the graph was made in Go: there are no expressions to rewrite")
	}
	stack := []NodeID{id}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		if r.done[at] != nil {
			stack = stack[:len(stack)-1]
			continue
		}
		deps := r.deps(at)
		ready := true
		for i := len(deps) - 1; i >= 0; i-- {
			if r.done[deps[i]] == nil {
				stack = append(stack, deps[i])
				ready = false
			}
		}
		if !ready {
			continue
		}
		stack = stack[:len(stack)-1]
		made, err := r.rewrite(at, deps)
		if err != nil {
			return nil, fmt.Errorf("rewriting %s: %w", r.g.Line(at), err)
		}
		r.done[at] = made
	}
	return r.done[id], nil
}

// deps are the nodes whose rewritten expressions node id needs: callee, inputs, bound variables, and the
// roots of its scopes, in this order.
func (r *Rewriter) deps(id NodeID) []NodeID {
	if p, ok := r.replaced[id]; ok {
		return p.deps
	}
	n := &r.g.Nodes[id]
	if n.Callee == NoNode && len(n.Nested) == 0 {
		return n.Inputs
	}
	var deps []NodeID
	if n.Callee != NoNode {
		deps = append(deps, n.Callee)
	}
	deps = append(append(deps, n.Inputs...), n.Binds...)
	for _, s := range n.Nested {
		deps = append(deps, r.g.Scopes[s].Root)
	}
	return deps
}

func (r *Rewriter) rewrite(id NodeID, deps []NodeID) (*bridge.Object, error) {
	now := make([]*bridge.Object, len(deps))
	same := true
	for i, d := range deps {
		now[i] = r.done[d]
		if construct := r.instead[edge{id, d}]; construct != nil {
			var err error
			if now[i], err = construct(now[i]); err != nil {
				return nil, err
			}
		}
		same = same && now[i].Same(r.g.handles[d])
	}
	if p, ok := r.replaced[id]; ok {
		made, err := p.make(now)
		if err == nil && made == nil {
			err = errors.New("the replacement is nil")
		}
		return made, err
	}
	made := r.g.handles[id]
	if !same {
		var err error
		if made, err = remake(made, &r.g.Nodes[id], now); err != nil {
			return nil, err
		}
		r.made = append(r.made, made)
	}
	if wrap := r.wrapped[id]; wrap != nil {
		return wrap(made)
	}
	return made, nil
}

// remake makes an expression like h with other operands, now.
func remake(h *bridge.Object, n *Node, now []*bridge.Object) (*bridge.Object, error) {
	switch n.Kind {
	case KindCall:
		if n.Callee == NoNode {
			return object("relay.ir.CallWithFields", h, nil, now, nil, nil, nil, nil)
		}
		return object("relay.ir.CallWithFields", h, now[0], now[1:], nil, nil, nil, nil)
	case KindTuple:
		return object("relay.ir.TupleWithFields", h, now, nil, nil)
	case KindTupleGetItem:
		return object("relay.ir.TupleGetItemWithFields", h, now[0], nil, nil, nil)
	case KindFunction:
		k := len(n.Binds)
		return object("relay.ir.FunctionWithFields", h, now[:k], now[k], nil, nil, nil, nil, nil)
	case KindLet:
		return object("relay.ir.LetWithFields", h, now[0], now[1], now[2], nil, nil)
	case KindIf:
		return object("relay.ir.IfWithFields", h, now[0], now[1], now[2], nil, nil)
	case KindRefCreate:
		return object("relay.ir.RefCreateWithFields", h, now[0], nil, nil)
	case KindRefRead:
		return object("relay.ir.RefReadWithFields", h, now[0], nil, nil)
	case KindRefWrite:
		return object("relay.ir.RefWriteWithFields", h, now[0], now[1], nil, nil)
	case KindOpaque:
		if h.TypeKey() == "relay.Match" {
			return rewriteMatch(h, n, now)
		}
	}
	return nil, fmt.Errorf("%s has operands that changed, and no rule to rewrite it", h.TypeKey())
}

// rewriteMatch makes a Match with new data and clause bodies. The patterns, and the variables that they bind,
// stay.
func rewriteMatch(h *bridge.Object, n *Node, now []*bridge.Object) (*bridge.Object, error) {
	old, err := objects(h, "clauses")
	if err != nil {
		return nil, err
	}
	bodies := now[len(now)-len(n.Nested):]
	clauses := make([]*bridge.Object, len(old))
	for i, c := range old {
		defer c.Release()
		pattern, err := c.AttrObject("lhs")
		if err != nil {
			return nil, err
		}
		defer pattern.Release()
		if clauses[i], err = object("relay.ir.Clause", pattern, bodies[i]); err != nil {
			return nil, err
		}
		defer clauses[i].Release()
	}
	complete, err := h.AttrInt("complete")
	if err != nil {
		return nil, err
	}
	return object("relay.ir.Match", now[0], clauses, complete != 0)
}

// Function returns the rewritten function: its parameters (those that were Set are other variables), its
// body, and the attributes and span as they were. It is the very function that was read if nothing changed. The
// reference is the caller's.
func (r *Rewriter) Function() (*bridge.Object, error) {
	body, err := r.Expr(r.g.Root())
	if err != nil {
		return nil, err
	}
	params := make([]*bridge.Object, len(r.g.Params))
	same := body.Same(r.g.handles[r.g.Root()])
	for i, p := range r.g.Params {
		if params[i], err = r.Expr(p); err != nil {
			return nil, err
		}
		same = same && params[i].Same(r.g.handles[p])
	}
	if same {
		return r.g.function.Retain()
	}
	return object("relay.ir.FunctionWithFields", r.g.function, params, body, nil, nil, nil, nil, nil)
}

// Release gives back at once what the Rewriter made, instead of when Go's collector finds it; what was built of
// it lives on in TVM. What was Set, and what Replace's functions made, is not touched.
func (r *Rewriter) Release() {
	for _, o := range r.made {
		o.Release()
	}
	r.made = nil
	clear(r.done)
}
