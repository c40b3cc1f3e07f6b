// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/relay"
)

// randomTree makes a random graph (branches, skips, values used several times, several scopes, nodes that need no
// cover) and gives its post-dominator forest, found by its definition: p post-dominates v when every path from v
// to the scope's root passes p.
func randomTree(r *rand.Rand, n int) *Tree {
	t := &Tree{Parent: make([]relay.NodeID, n), Needs: make([]bool, n)}
	consumers := make([][]int, n)
	for v := range n {
		t.Parent[v] = relay.NoNode
		t.Needs[v] = r.IntN(8) > 0
	}
	last := -1
	for v := n - 1; v >= 0; v-- {
		if !t.Needs[v] {
			continue
		}
		if last < 0 || r.IntN(12) == 0 { // the root of a scope; what stands before it belongs to that scope
			last = v
			continue
		}
		for range 1 + r.IntN(3) {
			c := v + 1 + r.IntN(min(last-v, 1+r.IntN(5)))
			if t.Needs[c] {
				consumers[v] = append(consumers[v], c)
			}
		}
		if len(consumers[v]) == 0 {
			consumers[v] = []int{last}
		}
	}
	for v := range n {
		if len(consumers[v]) == 0 {
			continue
		}
		for p := v + 1; p < n; p++ {
			if t.Needs[p] && !escapes(consumers, v, p) {
				t.Parent[v] = relay.NodeID(p)
				break
			}
		}
	}
	return t
}

// escapes says that some path from v ends without passing p.
func escapes(consumers [][]int, v, p int) bool {
	if v == p {
		return false
	}
	if len(consumers[v]) == 0 {
		return true
	}
	return slices.ContainsFunc(consumers[v], func(c int) bool { return escapes(consumers, c, p) })
}

// randomOptions makes connected subtrees with random costs; mostly, but not always, single nodes for everything.
func randomOptions(r *rand.Rand, t *Tree) []Option {
	children := make([][]relay.NodeID, len(t.Parent))
	for v, p := range t.Parent {
		if p != relay.NoNode {
			children[p] = append(children[p], relay.NodeID(v))
		}
	}
	randomCost := func(size int) float64 {
		switch r.IntN(10) {
		case 0:
			return math.Inf(1)
		case 1, 2, 3:
			return float64(r.IntN(3*size + 1)) // many ties
		default:
			return r.Float64() * float64(size) * 3
		}
	}
	var options []Option
	sparse := r.IntN(4) == 0
	for v := range t.Parent {
		if !t.Needs[v] {
			continue
		}
		if !sparse || r.IntN(3) > 0 {
			options = append(options, Option{Nodes: nodes(relay.NodeID(v)), Cost: r.Float64() * 3, Rank: r.IntN(3)})
		}
		for range r.IntN(4) {
			group := nodes(relay.NodeID(v))
			for i := 0; i < len(group); i++ {
				for _, c := range children[group[i]] {
					if r.IntN(3) > 0 {
						group = append(group, c)
					}
				}
			}
			slices.Sort(group)
			options = append(options, Option{Nodes: group, Cost: randomCost(len(group)), Rank: r.IntN(3)})
		}
	}
	r.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	return options
}

// bruteForce tries all exact covers and gives the least (cost, sum of ranks); it knows nothing of trees.
func bruteForce(t *Tree, options []Option) (cost float64, rank int, ok bool) {
	cost = math.Inf(1)
	covered := make([]bool, len(t.Needs))
	for v := range covered {
		covered[v] = !t.Needs[v]
	}
	with := make([][]int, len(t.Needs))
	for i, o := range options {
		if !math.IsInf(o.Cost, 1) {
			for _, v := range o.Nodes {
				with[v] = append(with[v], i)
			}
		}
	}
	var tryAll func(from int, sum float64, ranks int)
	tryAll = func(from int, sum float64, ranks int) {
		for from < len(covered) && covered[from] {
			from++
		}
		if from == len(covered) {
			const tie = 1e-7
			if sum < cost-tie || sum < cost+tie && ranks < rank {
				cost, rank, ok = min(sum, cost), ranks, true
			}
			return
		}
		for _, i := range with[from] {
			o := options[i]
			if slices.ContainsFunc(o.Nodes, func(v relay.NodeID) bool { return covered[v] }) {
				continue
			}
			for _, v := range o.Nodes {
				covered[v] = true
			}
			tryAll(from, sum+o.Cost, ranks+o.Rank)
			for _, v := range o.Nodes {
				covered[v] = false
			}
		}
	}
	tryAll(0, 0, 0)
	return cost, rank, ok
}

func TestSolverFindsWhatBruteForceFinds(t *testing.T) {
	t.Parallel()
	solved, infeasible := 0, 0
	for seed := range rounds.Seeds(6000) {
		r := rand.New(rand.NewPCG(seed, 1))
		tree := randomTree(r, 2+r.IntN(11))
		options := randomOptions(r, tree)
		cost, rank, ok := bruteForce(tree, options)
		p, err := Solve(options, tree)
		if !ok {
			var uncovered *UncoveredError
			require.ErrorAs(t, err, &uncovered, "seed %d", seed)
			require.NotEmpty(t, uncovered.Nodes)
			infeasible++
			continue
		}
		require.NoError(t, err, "seed %d", seed)
		require.InDelta(t, cost, p.Cost, 1e-7, "seed %d", seed)
		require.NoError(t, Verify(options, tree, p), "seed %d", seed)
		ranks := 0
		for _, i := range p.Chosen {
			ranks += options[i].Rank
		}
		require.Equal(t, rank, ranks, "seed %d: sum of ranks", seed)
		again, err := Solve(options, tree)
		require.NoError(t, err)
		require.Equal(t, p, again)
		solved++
	}
	// A test that never sees one of the two cases shows nothing.
	require.Greater(t, solved, rounds.Of(2000))
	require.Greater(t, infeasible, rounds.Of(100))
}

func TestUncoveredNodesAreAsFewAsPossible(t *testing.T) {
	t.Parallel()
	seen := 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 2))
		tree := randomTree(r, 2+r.IntN(9))
		options := randomOptions(r, tree)
		_, err := Solve(options, tree)
		var uncovered *UncoveredError
		if !errors.As(err, &uncovered) {
			continue
		}
		seen++
		// Giving just those nodes an option of their own makes it possible, and no fewer do.
		all := slices.Clone(options)
		for _, v := range uncovered.Nodes {
			all = append(all, Option{Nodes: nodes(v)})
		}
		_, err = Solve(all, tree)
		require.NoError(t, err, "seed %d", seed)
		for v, needs := range tree.Needs {
			if needs {
				options = append(options, Option{Nodes: nodes(relay.NodeID(v)), Cost: 1e6})
			}
		}
		cost, _, ok := bruteForce(tree, options)
		require.True(t, ok)
		require.Equal(t, int(cost/1e6), len(uncovered.Nodes), "seed %d", seed)
	}
	require.Greater(t, seen, rounds.Of(50))
}

func TestTamperedCertificatesAreRefused(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range rounds.Seeds(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		tree := randomTree(r, 2+r.IntN(11))
		options := randomOptions(r, tree)
		p, err := Solve(options, tree)
		if err != nil || len(p.Chosen) == 0 {
			continue
		}
		v := r.IntN(len(p.Prices))
		i := r.IntN(len(p.Chosen))
		delta := []float64{2e-9, -2e-9, 1, -1, math.NaN(), math.Inf(1)}[r.IntN(6)]
		q := &Solution{Chosen: slices.Clone(p.Chosen), Cost: p.Cost, Prices: slices.Clone(p.Prices)}
		o := slices.Clone(options)
		switch r.IntN(8) {
		case 0: // one price
			q.Prices[v] += delta
		case 1: // the total
			q.Cost += delta
		case 2: // a price and the total alike
			q.Prices[v] += math.Abs(delta)
			q.Cost += math.Abs(delta)
		case 3: // an option is left out
			q.Chosen = slices.Delete(q.Chosen, i, i+1)
		case 4: // an option is taken twice
			q.Chosen = slices.Insert(q.Chosen, i, q.Chosen[i])
		case 5: // another index
			q.Chosen[i] = len(options)
		case 6: // a cheaper option turns up
			o = append(o, Option{Nodes: options[p.Chosen[i]].Nodes, Cost: options[p.Chosen[i]].Cost - 2e-9})
			if o[len(o)-1].Cost < 0 {
				continue
			}
		case 7: // a node needs cover after all
			if tree.Needs[v] {
				continue
			}
			tree.Needs[v] = true
		}
		require.Error(t, Verify(o, tree, q), "seed %d", seed)
		refused++
	}
	require.Greater(t, refused, rounds.Of(1500))
}

// TestWorsePlacementHasNoCertificate: no prices prove a cover that is not the cheapest.
func TestWorsePlacementHasNoCertificate(t *testing.T) {
	t.Parallel()
	options := []Option{{Nodes: nodes(0), Cost: 1}, {Nodes: nodes(1), Cost: 1}, {Nodes: nodes(0, 1), Cost: 3}}
	for seed := range rounds.Seeds(500) {
		r := rand.New(rand.NewPCG(seed, 4))
		y := math.Round(r.Float64()*3e9) / 1e9
		require.Error(t, Verify(options, chain(2), &Solution{Chosen: []int{2}, Cost: 3, Prices: []float64{y, 3 - y}}))
	}
}
