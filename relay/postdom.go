// SPDX-License-Identifier: Apache-2.0

package relay

import "fmt"

// PostDominatorTree says for each placeable node which node of its scope all paths from it to the scope's
// value pass through first (its immediate post-dominator). One tree a scope; its top is the scope's root.
//
// A group of nodes with one exit is a connected subtree of it, topped by the exit: that is what makes exact
// placement a walk over this tree.
type PostDominatorTree struct {
	parent   []NodeID
	children [][]NodeID
}

// Parent returns id's immediate post-dominator; NoNode for a scope's root and for nodes that are not
// placeable.
func (t *PostDominatorTree) Parent(id NodeID) NodeID { return t.parent[id] }

// Children returns the nodes whose immediate post-dominator is id, ascending. The slice belongs to the tree.
func (t *PostDominatorTree) Children(id NodeID) []NodeID { return t.children[id] }

// PostDominators computes the tree once and returns it. Nodes that are not placeable do not appear in it;
// where one stands on a path (a called function literal between a captured value and the call), the path goes
// on through it.
func (g *Graph) PostDominators() *PostDominatorTree {
	g.derived.postDominators.Do(func() { g.derived.tree = g.postDominators() })
	return g.derived.tree
}

// postDominators walks in reverse post-order: the consumers of a node are settled before the node, and its
// immediate post-dominator is their lowest common ancestor (the graph has no cycle). Skew-binary jump
// pointers keep each ancestor query logarithmic, so long skip connections do not make it quadratic.
func (g *Graph) postDominators() *PostDominatorTree {
	n := len(g.Nodes)
	up := make([]NodeID, n)   // immediate post-dominator, non-placeable nodes included
	jump := make([]NodeID, n) // some further ancestor
	depth := make([]int32, n)
	ancestor := func(a, b NodeID) NodeID {
		if depth[a] < depth[b] {
			a, b = b, a
		}
		for depth[a] > depth[b] {
			if depth[jump[a]] >= depth[b] {
				a = jump[a]
			} else {
				a = up[a]
			}
		}
		for a != b {
			if up[a] == a {
				panic(fmt.Sprintf("relay: %s: nodes %%%d and %%%d both end their scope", g.Name, a, b))
			}
			if jump[a] != jump[b] {
				a, b = jump[a], jump[b]
			} else {
				a, b = up[a], up[b]
			}
		}
		return a
	}
	// above[v] is the nearest placeable proper ancestor, so that the tree skips the others.
	above := make([]NodeID, n)
	t := &PostDominatorTree{parent: make([]NodeID, n), children: make([][]NodeID, n)}
	count := make([]int32, n)
	for i := n - 1; i >= 0; i-- {
		v := NodeID(i)
		above[v], t.parent[v] = NoNode, NoNode
		up[v], jump[v] = v, v // a root is its own ancestor
		uses := g.consumers[v]
		if g.ScopeRoot(v) || len(uses) == 0 {
			continue
		}
		p := uses[0]
		for _, c := range uses[1:] {
			p = ancestor(p, c)
		}
		up[v], depth[v] = p, depth[p]+1
		if j := jump[p]; depth[p]-depth[j] == depth[j]-depth[jump[j]] {
			jump[v] = jump[j]
		} else {
			jump[v] = p
		}
		if above[v] = p; !g.placeable[p] {
			above[v] = above[p]
		}
		if g.placeable[v] {
			t.parent[v] = above[v]
			if above[v] != NoNode {
				count[above[v]]++
			}
		}
	}
	for i := range t.children {
		if count[i] > 0 {
			t.children[i] = make([]NodeID, 0, count[i])
		}
	}
	for i := range t.parent {
		if p := t.parent[i]; p != NoNode {
			t.children[p] = append(t.children[p], NodeID(i))
		}
	}
	return t
}
