// SPDX-License-Identifier: Apache-2.0

package relay

import "slices"

// index computes what is derived from Nodes, Inputs, Nested and the scopes' owners and roots: the scope of
// each node, the scopes' parents, what each node reads, who consumes it, and what is placeable. The reader and
// GraphMaker call it once, last.
func (g *Graph) index() {
	g.assignScopes()
	g.collectReads()
	g.collectConsumers()
	g.markPlaceable()
}

// assignScopes gives each node the innermost scope that holds all its uses: the lowest common ancestor of
// the scopes of the uses. Users stand behind what they use, so one walk from the back knows every use of
// a node, and the parents of the scopes it is used in, before it comes to the node.
func (g *Graph) assignScopes() {
	const unused ScopeID = -2
	use := make([]ScopeID, len(g.Nodes))
	for i := range use {
		use[i] = unused
	}
	depth := make([]int32, len(g.Scopes))
	meet := func(id NodeID, s ScopeID) {
		if use[id] == unused {
			use[id] = s
			return
		}
		a := use[id]
		for a != s {
			if depth[a] >= depth[s] {
				a = g.Scopes[a].Parent
			} else {
				s = g.Scopes[s].Parent
			}
		}
		use[id] = a
	}
	g.Scopes[0].Parent = NoScope
	for _, p := range g.Params {
		use[p] = 0
	}
	meet(g.Scopes[0].Root, 0)
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := &g.Nodes[i]
		if use[i] == unused { // a bound variable that nobody reads is settled by its binder, below
			use[i] = 0
		}
		n.Scope = use[i]
		for _, s := range n.Nested {
			g.Scopes[s].Parent = n.Scope
			depth[s] = depth[n.Scope] + 1
			meet(g.Scopes[s].Root, s)
		}
		if n.Callee != NoNode {
			meet(n.Callee, n.Scope)
		}
		for _, in := range n.Inputs {
			meet(in, n.Scope)
		}
		for k, v := range n.Binds {
			switch {
			case n.Kind == KindFunction:
				meet(v, n.Nested[0])
			case n.Kind == KindLet:
				meet(v, n.Nested[1])
			case use[v] == unused: // a variable of a Match clause
				meet(v, n.Nested[min(k, len(n.Nested)-1)])
			}
		}
	}
}

// collectReads fills g.reads: the callee, the inputs, and what the nested scopes capture, each once, in
// this order (captures in ascending order of the nodes that use them).
func (g *Graph) collectReads() {
	g.reads = make([][]NodeID, len(g.Nodes))
	lastReader := make([]NodeID, len(g.Nodes))
	for i := range lastReader {
		lastReader[i] = NoNode
	}
	for i := range g.Nodes {
		id, n := NodeID(i), &g.Nodes[i]
		if n.Callee == NoNode && len(n.Inputs) == 0 {
			continue
		}
		reads := make([]NodeID, 0, len(n.Inputs)+1)
		add := func(v NodeID) {
			if lastReader[v] != id {
				lastReader[v] = id
				reads = append(reads, v)
			}
		}
		if n.Callee != NoNode {
			add(n.Callee)
		}
		for _, in := range n.Inputs {
			add(in)
		}
		g.reads[i] = reads
	}
	if len(g.Scopes) == 1 {
		return
	}
	type edge struct{ owner, value NodeID }
	captured := map[edge]bool{}
	capture := func(value NodeID, from ScopeID) {
		for s := from; s != g.Nodes[value].Scope; {
			owner := g.Scopes[s].Owner
			if captured[edge{owner, value}] {
				return // and so have the owners around it
			}
			captured[edge{owner, value}] = true
			if slices.Contains(g.Nodes[owner].Binds, value) {
				return // the owner's own variable: a recursive Let
			}
			if !slices.Contains(g.Nodes[owner].Inputs, value) {
				g.reads[owner] = append(g.reads[owner], value)
			}
			s = g.Nodes[owner].Scope
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Callee != NoNode {
			capture(n.Callee, n.Scope)
		}
		for _, in := range n.Inputs {
			capture(in, n.Scope)
		}
		for _, s := range n.Nested {
			capture(g.Scopes[s].Root, s)
		}
	}
}

// collectConsumers inverts reads within each scope. Consumers come out ascending, each once.
func (g *Graph) collectConsumers() {
	count := make([]int32, len(g.Nodes))
	total := 0
	for i := range g.Nodes {
		for _, v := range g.reads[i] {
			if g.Nodes[v].Scope == g.Nodes[i].Scope {
				count[v]++
				total++
			}
		}
	}
	flat := make([]NodeID, 0, total)
	g.consumers = make([][]NodeID, len(g.Nodes))
	for i, c := range count {
		start := len(flat)
		flat = flat[:start+int(c)]
		g.consumers[i] = flat[start:start:len(flat)]
	}
	for i := range g.Nodes {
		for _, v := range g.reads[i] {
			if g.Nodes[v].Scope == g.Nodes[i].Scope {
				g.consumers[v] = append(g.consumers[v], NodeID(i))
			}
		}
	}
}

// markPlaceable finds the nodes that compute something by themselves. A function literal that is only called
// belongs to its call, and so does a constructor.
func (g *Graph) markPlaceable() {
	g.placeable = make([]bool, len(g.Nodes))
	value := make([]bool, len(g.Nodes)) // used as a value, not only as a callee
	for i := range g.Nodes {
		for _, in := range g.Nodes[i].Inputs {
			value[in] = true
		}
	}
	for _, s := range g.Scopes {
		value[s.Root] = true
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch n.Kind {
		case KindVar, KindConstant, KindGlobalVar:
		case KindFunction:
			g.placeable[i] = value[i]
		case KindOpaque:
			g.placeable[i] = len(n.Inputs)+len(n.Nested) > 0
		default:
			g.placeable[i] = true
		}
	}
}

// Consumers returns the nodes of id's own scope that use id's value, ascending, each once. A use inside a
// nested scope counts as a use by the node that opens it. The slice belongs to the graph.
func (g *Graph) Consumers(id NodeID) []NodeID { return g.consumers[id] }

// Reads returns the values that id uses, each once: its callee (where that is an expression), its inputs, and
// what its nested scopes use of the scopes around them. The slice belongs to the graph.
func (g *Graph) Reads(id NodeID) []NodeID { return g.reads[id] }

// ScopeRoot says that id's value is the value of the scope it belongs to, so that it is used outside whatever
// its consumers are.
func (g *Graph) ScopeRoot(id NodeID) bool { return g.Scopes[g.Nodes[id].Scope].Root == id }

// Placeable says that id computes something that must be given to a backend. Variables, constants, global
// variables, and functions and constructors that are only called are not placeable.
func (g *Graph) Placeable(id NodeID) bool { return g.placeable[id] }

// Root is the node whose value the function returns.
func (g *Graph) Root() NodeID { return g.Scopes[0].Root }

// ScopeNodes returns the nodes that belong to the scope itself (not to scopes nested in it), ascending.
func (g *Graph) ScopeNodes(s ScopeID) []NodeID {
	var nodes []NodeID
	for i := range g.Nodes {
		if g.Nodes[i].Scope == s {
			nodes = append(nodes, NodeID(i))
		}
	}
	return nodes
}

// Encloses says that scope inner is outer or is nested in it, at any depth.
func (g *Graph) Encloses(outer, inner ScopeID) bool {
	for inner != outer {
		if inner == NoScope {
			return false
		}
		inner = g.Scopes[inner].Parent
	}
	return true
}
