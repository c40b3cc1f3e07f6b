// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Flow is a graph as the rules that make candidates see it (TVM's prototype: DataflowGraph): which node feeds which,
// over the borders of scopes too, constants and variables included; what each node's fusion kind is; and what lies
// downstream of it. It is read-only once made, but for the sets of downstream nodes, which are computed when asked for:
// not safe for concurrent use.
type Flow struct {
	Graph *relay.Graph
	// SharedConstants lets a constant be bound inside several groups. TVM's prototype counts it among a group's exits
	// where anybody else reads it.
	SharedConstants bool

	inputs, outputs [][]relay.NodeID
	inline          []bool
	kinds           []OpPattern
	labels          []string
	downstream      []NodeSet
}

// NewFlow looks at a graph. kind gives an operator's fusion pattern, for its call.
func NewFlow(g *relay.Graph, kind func(call *relay.Node) OpPattern) *Flow {
	n := len(g.Nodes)
	f := &Flow{Graph: g, inputs: make([][]relay.NodeID, n), outputs: make([][]relay.NodeID, n), inline: make([]bool, n),
		kinds: make([]OpPattern, n), labels: make([]string, n), downstream: make([]NodeSet, n)}
	taken := takenScopes(g)
	for i := range g.Nodes {
		v, node := relay.NodeID(i), &g.Nodes[i]
		f.connect(v, node)
		f.inline[i] = Inlinable(node)
		f.kinds[i], f.labels[i] = f.describe(node, kind)
		if taken[node.Scope] {
			f.kinds[i] = Opaque
		}
	}
	return f
}

func (f *Flow) connect(v relay.NodeID, n *relay.Node) {
	feed := func(from, to relay.NodeID) {
		f.inputs[to] = append(f.inputs[to], from)
		f.outputs[from] = append(f.outputs[from], to)
	}
	if n.Callee != relay.NoNode {
		feed(n.Callee, v)
	}
	for _, in := range n.Inputs {
		feed(in, v)
	}
	for i, s := range n.Nested {
		to := v
		if n.Kind == relay.KindLet && i == 0 {
			to = n.Binds[0]
		}
		if root := f.Graph.Scopes[s].Root; root != to {
			feed(root, to)
		}
	}
}

// Inlinable says that an input of this kind is simply repeated in the function that a group becomes: a scalar constant,
// or a function that is called.
func Inlinable(n *relay.Node) bool {
	if n.Kind == relay.KindFunction {
		return true
	}
	c := n.Constant
	if c == nil || len(c.Shape) != 0 {
		return false
	}
	switch c.DType {
	case "int16", "int32", "int64", "float16", "float32", "float64", "bool":
		return true
	}
	return false
}

func (f *Flow) describe(n *relay.Node, kind func(*relay.Node) OpPattern) (OpPattern, string) {
	tensors := func(t *relay.Type) OpPattern {
		if t == nil || t.Kind != relay.TypeTuple ||
			slices.ContainsFunc(t.Fields, func(f *relay.Type) bool { return f.Kind != relay.TypeTensor }) {
			return Opaque
		}
		return Injective
	}
	switch n.Kind {
	case relay.KindCall:
		if n.Op == "" {
			return Opaque, "call_fun"
		}
		return kind(n), n.Op
	case relay.KindTuple:
		return tensors(n.Type), "tuple"
	case relay.KindTupleGetItem:
		return tensors(f.Graph.Nodes[n.Inputs[0]].Type), "proj"
	case relay.KindConstant:
		if Inlinable(n) {
			return ElemWise, "scalar"
		}
		return ElemWise, "const"
	default:
		return Opaque, OperatorName(n)
	}
}

// IsStatic says that all dimensions of a type are known.
func IsStatic(t *relay.Type) bool { return isStatic(t) }

// Kind is the fusion kind of a node.
func (f *Flow) Kind(v relay.NodeID) OpPattern { return f.kinds[v] }

// Downstream are the nodes that v's value flows into, sooner or later.
func (f *Flow) Downstream(v relay.NodeID) NodeSet {
	if f.downstream[v] == nil {
		set := NewNodeSet(len(f.Graph.Nodes))
		stack := slices.Clone(f.outputs[v])
		for len(stack) > 0 {
			u := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if !set.Has(u) {
				set.Add(u)
				stack = append(stack, f.outputs[u]...)
			}
		}
		f.downstream[v] = set
	}
	return f.downstream[v]
}
