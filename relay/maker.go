// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
)

// GraphMaker makes a Graph in Go, without TVM: for tests and for tools that need no expressions back. Node
// numbers are handed out in the order of the calls. Its methods panic on misuse (an unknown node, an unused
// one): a graph made by hand is part of a program.
type GraphMaker struct {
	g *Graph
}

// NewGraph begins a graph.
func NewGraph(name string) *GraphMaker {
	return &GraphMaker{&Graph{Name: name, Scopes: []Scope{{Owner: NoNode, Parent: NoScope, Root: NoNode}}}}
}

func (m *GraphMaker) add(n Node) NodeID {
	id := NodeID(len(m.g.Nodes))
	if n.Callee != NoNode {
		m.check(n.Callee)
	}
	for _, in := range n.Inputs {
		m.check(in)
	}
	m.g.Nodes = append(m.g.Nodes, n)
	return id
}

func (m *GraphMaker) check(id NodeID) {
	if id < 0 || int(id) >= len(m.g.Nodes) {
		panic(fmt.Sprintf("relay: GraphMaker: node %%%d is not made yet", id))
	}
}

func (m *GraphMaker) scope(owner, root NodeID) ScopeID {
	m.check(root)
	m.g.Scopes = append(m.g.Scopes, Scope{Owner: owner, Root: root})
	return ScopeID(len(m.g.Scopes) - 1)
}

// Var adds a parameter of the function; dtype "" makes it untyped.
func (m *GraphMaker) Var(shape []int64, dtype string) NodeID {
	id := m.LocalVar(shape, dtype)
	m.g.Params = append(m.g.Params, id)
	return id
}

// LocalVar adds a variable that a Function or Let is going to bind.
func (m *GraphMaker) LocalVar(shape []int64, dtype string) NodeID {
	n := Node{Kind: KindVar, Callee: NoNode, Name: fmt.Sprintf("v%d", len(m.g.Nodes))}
	if dtype != "" {
		n.Type = Tensor(dtype, shape...)
	}
	return m.add(n)
}

// Const adds a constant whose content is as good as random: two constants have the same content only if content
// is the same.
func (m *GraphMaker) Const(shape []int64, dtype string, content ...string) NodeID {
	id := NodeID(len(m.g.Nodes))
	c := &Constant{DType: dtype, Shape: shape, Bytes: Elements(shape) * ((DTypeBits(dtype) + 7) / 8),
		Scalar: math.NaN()}
	sum := sha256.Sum256([]byte(fmt.Sprint(dtype, shape, content)))
	digest := hex.EncodeToString(sum[:])
	if c.Bytes <= SmallConstant {
		c.Digest = digest
	} else {
		if m.g.derived.digests == nil {
			m.g.derived.digests = map[NodeID]string{}
		}
		m.g.derived.digests[id] = digest
	}
	return m.add(Node{Kind: KindConstant, Callee: NoNode, Constant: c, Type: Tensor(dtype, shape...)})
}

// Scalar adds a constant of one element and no dimensions.
func (m *GraphMaker) Scalar(value float64, dtype string) NodeID {
	id := m.Const(nil, dtype, fmt.Sprint(value))
	m.g.Nodes[id].Constant.Scalar = value
	return id
}

// Call adds a call of an operator with result type t. attrs may be nil; for the kinds of values see NewAttrs.
func (m *GraphMaker) Call(op string, t *Type, attrs map[string]any, inputs ...NodeID) NodeID {
	n := Node{Kind: KindCall, Op: op, Callee: NoNode, Inputs: inputs, Type: t}
	if attrs != nil {
		n.Attrs = NewAttrs("", attrs)
	}
	return m.add(n)
}

// CallFunction adds a call of something else than an operator.
func (m *GraphMaker) CallFunction(callee NodeID, t *Type, inputs ...NodeID) NodeID {
	return m.add(Node{Kind: KindCall, Callee: callee, Inputs: inputs, Type: t})
}

// Global adds a reference to another global function.
func (m *GraphMaker) Global(name string) NodeID {
	return m.add(Node{Kind: KindGlobalVar, Callee: NoNode, Name: name})
}

// Tuple adds a tuple.
func (m *GraphMaker) Tuple(fields ...NodeID) NodeID {
	t := &Type{Kind: TypeTuple}
	for _, f := range fields {
		m.check(f)
		t.Fields = append(t.Fields, m.g.Nodes[f].Type)
	}
	return m.add(Node{Kind: KindTuple, Callee: NoNode, Inputs: fields, Type: t})
}

// Get adds the taking of field i of a tuple.
func (m *GraphMaker) Get(tuple NodeID, i int) NodeID {
	m.check(tuple)
	n := Node{Kind: KindTupleGetItem, Callee: NoNode, Inputs: []NodeID{tuple}, Index: i}
	if t := m.g.Nodes[tuple].Type; t != nil && t.Kind == TypeTuple && i < len(t.Fields) {
		n.Type = t.Fields[i]
	}
	return m.add(n)
}

// If adds a conditional; the nodes that only a branch uses belong to that branch's scope.
func (m *GraphMaker) If(condition, then, otherwise NodeID, t *Type) NodeID {
	id := NodeID(len(m.g.Nodes))
	nested := []ScopeID{m.scope(id, then), m.scope(id, otherwise)}
	return m.add(Node{Kind: KindIf, Callee: NoNode, Inputs: []NodeID{condition}, Nested: nested, Type: t})
}

// Let adds "let v = value; body".
func (m *GraphMaker) Let(v, value, body NodeID) NodeID {
	id := NodeID(len(m.g.Nodes))
	nested := []ScopeID{m.scope(id, value), m.scope(id, body)}
	return m.add(Node{Kind: KindLet, Callee: NoNode, Binds: []NodeID{v}, Nested: nested, Type: m.g.Nodes[body].Type})
}

// Function adds a function literal; attrs may be nil.
func (m *GraphMaker) Function(params []NodeID, body NodeID, attrs map[string]string) NodeID {
	id := NodeID(len(m.g.Nodes))
	nested := []ScopeID{m.scope(id, body)}
	return m.add(Node{Kind: KindFunction, Callee: NoNode, Binds: params, Nested: nested, FuncAttrs: attrs})
}

// Other adds a node of any other kind (KindRefCreate, KindOpaque, …).
func (m *GraphMaker) Other(kind Kind, name string, t *Type, inputs ...NodeID) NodeID {
	return m.add(Node{Kind: kind, Callee: NoNode, Name: name, Inputs: inputs, Type: t})
}

// Attr sets an attribute of the function.
func (m *GraphMaker) Attr(name, value string) {
	if m.g.Attrs == nil {
		m.g.Attrs = map[string]string{}
	}
	m.g.Attrs[name] = value
}

// Finish ends the graph; root is the function's value. All nodes but variables must be used.
func (m *GraphMaker) Finish(root NodeID) *Graph {
	m.check(root)
	g := m.g
	m.g = nil // a finished graph does not change
	g.Scopes[0].Root = root
	used := make([]bool, len(g.Nodes))
	used[root] = true
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := &g.Nodes[i]
		if !used[i] {
			if n.Kind == KindVar {
				continue
			}
			panic(fmt.Sprintf("relay: GraphMaker: %s is not used by the root", g.Line(NodeID(i))))
		}
		if n.Callee != NoNode {
			used[n.Callee] = true
		}
		for _, in := range n.Inputs {
			used[in] = true
		}
		for _, s := range n.Nested {
			used[g.Scopes[s].Root] = true
		}
	}
	g.index()
	return g
}
