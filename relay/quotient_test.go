// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// groupsAcyclic says by repeated removal that groups can be run one after the other; it shares nothing with Quotient.
func groupsAcyclic(g *Graph, group []int) bool {
	needs := map[int]map[int]bool{}
	for v := range g.Nodes {
		if needs[group[v]] == nil {
			needs[group[v]] = map[int]bool{}
		}
		for _, in := range g.Reads(NodeID(v)) {
			if group[in] != group[v] {
				needs[group[v]][group[in]] = true
			}
		}
	}
	for len(needs) > 0 {
		before := len(needs)
		for of, on := range needs {
			for other := range on {
				if _, waits := needs[other]; !waits {
					delete(on, other)
				}
			}
			if len(on) == 0 {
				delete(needs, of)
			}
		}
		if len(needs) == before {
			return false
		}
	}
	return true
}

// Groups of any nodes, neighbours or not, are united exactly where the graph of groups stays without a cycle.
func TestUniteKeepsTheQuotientAcyclic(t *testing.T) {
	t.Parallel()
	united, refused := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 51))
		m := NewGraph("main")
		kind := Tensor("float32", 8)
		values := []NodeID{m.Var([]int64{8}, "float32")}
		for range 4 + r.IntN(24) {
			var in []NodeID
			for range 1 + r.IntN(3) {
				in = append(in, values[max(0, len(values)-1-r.IntN(6))])
			}
			values = append(values, m.Call("add", kind, nil, in...))
		}
		g := m.Finish(m.Tuple(values[1:]...))
		q := NewQuotient(g)
		group := make([]int, len(g.Nodes))
		for v := range group {
			group[v] = v
		}
		for range 30 {
			var some []NodeID
			first := r.IntN(len(values))
			for range 2 + r.IntN(3) {
				some = append(some, values[min(len(values)-1, first+r.IntN(5))])
			}
			joined := make([]int, len(group))
			for k := range joined {
				joined[k] = group[k]
				if slices.ContainsFunc(some, func(v NodeID) bool { return group[v] == group[k] }) {
					joined[k] = group[some[0]]
				}
			}
			possible := groupsAcyclic(g, joined)
			require.Equal(t, possible, q.Unite(some...), "seed %d: %v", seed, some)
			if possible {
				united++
				group = joined
			} else {
				refused++
			}
			for v := range group {
				for w := range group {
					if (group[v] == group[w]) != (q.Find(NodeID(v)) == q.Find(NodeID(w))) {
						t.Fatalf("seed %d: %%%d and %%%d", seed, v, w)
					}
				}
			}
		}
	}
	require.Greater(t, united, 2000)
	require.Greater(t, refused, 500)
}
