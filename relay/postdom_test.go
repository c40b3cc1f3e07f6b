// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// reaches says that root can be reached from id along consumers without passing through without.
func reaches(g *Graph, id, root, without NodeID) bool {
	if id == without {
		return false
	}
	seen := make([]bool, len(g.Nodes))
	var walk func(NodeID) bool
	walk = func(v NodeID) bool {
		if v == without || seen[v] {
			return false
		}
		seen[v] = true
		if v == root {
			return true
		}
		for _, c := range g.Consumers(v) {
			if walk(c) {
				return true
			}
		}
		return false
	}
	return walk(id)
}

// checkPostDominators compares the tree with the definition: the immediate post-dominator is the first (least) of
// the placeable nodes without which the scope's root cannot be reached.
func checkPostDominators(t *testing.T, g *Graph) {
	tree := g.PostDominators()
	for i := range g.Nodes {
		id := NodeID(i)
		want := NoNode
		root := g.Scopes[g.Nodes[i].Scope].Root
		if g.Placeable(id) && id != root {
			for j := i + 1; j < len(g.Nodes); j++ {
				d := NodeID(j)
				if g.Placeable(d) && g.Nodes[j].Scope == g.Nodes[i].Scope && !reaches(g, id, root, d) {
					want = d
					break
				}
			}
		}
		require.Equal(t, want, tree.Parent(id), "node %%%d of\n%s", id, g)
		if want != NoNode {
			require.Contains(t, tree.Children(want), id)
		}
	}
	total := 0
	for i := range g.Nodes {
		total += len(tree.Children(NodeID(i)))
		for _, c := range tree.Children(NodeID(i)) {
			require.Equal(t, NodeID(i), tree.Parent(c))
		}
	}
}

func TestPostDominators(t *testing.T) {
	t.Parallel()
	checkPostDominators(t, residual())
	checkPostDominators(t, branches())
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { checkPostDominators(t, randomGraph(r, 2+r.IntN(40))) })
	}
}

// skips is a chain of n adds in which each node also reads the first: the worst case for naive ancestor walks.
func skips(n int) *Graph {
	m := NewGraph("main")
	t := Tensor("float32", 4)
	first := m.Call("tanh", t, nil, m.Var([]int64{4}, "float32"))
	at := first
	for range n {
		at = m.Call("add", t, nil, at, first)
	}
	return m.Finish(at)
}

func BenchmarkPostDominators(b *testing.B) {
	for _, n := range []int{1000, 100000} {
		g := skips(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				g.postDominators()
			}
		})
	}
}
