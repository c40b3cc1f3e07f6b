// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/growth"
	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/relay"
)

func TestRegretIsWhatBruteForceSays(t *testing.T) {
	t.Parallel()
	solved, losers, hopeless, beyondSlack := 0, 0, 0, 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 31))
		n := randomNetwork(r, 1+r.IntN(8))
		options := n.options(r, 1)
		best, ok := n.cheapest(&Problem{Tree: n.tree, Options: options, Reads: n.reads}, nil)
		regret, err := Regret(options, n.tree)
		threshold, err2 := Threshold(options, n.tree)
		if !ok {
			var open *UncoveredError
			require.ErrorAs(t, err, &open, "seed %d", seed)
			require.ErrorAs(t, err2, &open, "seed %d", seed)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, err2)
		p, err := Solve(options, n.tree)
		require.NoError(t, err)
		solved++
		for i, o := range options {
			// The cheapest cover with option i: nothing else may touch its nodes.
			free := slices.Clone(options)
			free[i].Cost = 0
			rest, possible := n.cheapest(&Problem{Tree: n.tree, Options: free, Reads: n.reads}, func(k int) bool {
				return k == i || !slices.ContainsFunc(options[k].Nodes,
					func(v relay.NodeID) bool { return slices.Contains(o.Nodes, v) })
			})
			if !possible {
				require.True(t, math.IsInf(threshold[i], -1), "seed %d option %d: %v", seed, i, threshold[i])
				require.True(t, math.IsInf(regret[i], 1), "seed %d", seed)
				hopeless++
				continue
			}
			require.InDelta(t, best-rest, threshold[i], 1e-7, "seed %d option %d", seed, i)
			if math.IsInf(o.Cost, 1) {
				require.True(t, math.IsInf(regret[i], 1))
				continue
			}
			require.InDelta(t, rest+o.Cost-best, regret[i], 1e-7, "seed %d option %d", seed, i)
			require.LessOrEqual(t, p.Slack(o), regret[i]+1e-7, "slack is a lower bound")
			if p.Slack(o) < regret[i]-1e-6 {
				beyondSlack++
			}
			if regret[i] > 0 {
				losers++
				require.NotContains(t, p.Chosen, i)
			}
		}
		for _, i := range p.Chosen {
			require.Zero(t, regret[i], "seed %d", seed)
		}
	}
	require.Greater(t, solved, rounds.Of(800))
	require.Greater(t, losers, rounds.Of(3000))
	require.Greater(t, hopeless, rounds.Of(100))
	require.Greater(t, beyondSlack, rounds.Of(100))
}

// TestRegretIsTheTurningPoint: cheaper by a little more than its regret an option is taken, by a little less it is not.
func TestRegretIsTheTurningPoint(t *testing.T) {
	t.Parallel()
	turned := 0
	for seed := range rounds.Seeds(300) {
		r := rand.New(rand.NewPCG(seed, 32))
		n := randomNetwork(r, 20)
		options := n.options(r, 1)
		regret, err := Regret(options, n.tree)
		if err != nil {
			continue
		}
		i := r.IntN(len(options))
		if math.IsInf(regret[i], 1) || regret[i] == 0 || regret[i]+2e-9 > options[i].Cost {
			continue
		}
		cheaper := slices.Clone(options)
		cheaper[i].Cost = options[i].Cost - regret[i] - 1e-9
		p, err := Solve(cheaper, n.tree)
		require.NoError(t, err)
		require.Contains(t, p.Chosen, i, "seed %d", seed)
		cheaper[i].Cost = options[i].Cost - regret[i] + 1e-9
		p, err = Solve(cheaper, n.tree)
		require.NoError(t, err)
		require.NotContains(t, p.Chosen, i, "seed %d", seed)
		turned++
	}
	require.Greater(t, turned, rounds.Of(20))
}

func TestRegretTakesLinearTime(t *testing.T) {
	growth.Linear(t, 2_000, func(size int) func() {
		tree, options := residualNetwork(size)
		p, err := Solve(options, tree)
		require.NoError(t, err)
		return func() {
			regret, err := Regret(options, tree)
			require.NoError(t, err)
			for _, i := range p.Chosen {
				require.Zero(t, regret[i])
			}
		}
	})
}

// One node with very many children is where a careless recursion is quadratic.
func TestRegretOfAStarTakesLinearTime(t *testing.T) {
	growth.Linear(t, 4_000, func(n int) func() {
		tree := &Tree{Parent: make([]relay.NodeID, n), Needs: make([]bool, n)}
		options := make([]Option, 0, 2*n)
		last := relay.NodeID(n - 1)
		for v := range n {
			tree.Parent[v], tree.Needs[v] = last, true
			options = append(options, Option{Nodes: nodes(relay.NodeID(v)), Cost: 1})
			if v < n-1 {
				options = append(options, Option{Nodes: nodes(relay.NodeID(v), last), Cost: 1.5 + float64(v%7)})
			}
		}
		tree.Parent[last] = relay.NoNode
		return func() {
			regret, err := Regret(options, tree)
			require.NoError(t, err)
			require.Zero(t, regret[1])
			require.Equal(t, 1.0, regret[3])
		}
	})
}
