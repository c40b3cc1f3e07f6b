// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/relay"
)

// TestSolveTakesSeveralExitsWhereTheyPay holds Solve, with options of several exits among the others, against brute
// force over all covers that can be run, and its proof against what the proof says.
func TestSolveTakesSeveralExitsWhereTheyPay(t *testing.T) {
	t.Parallel()
	solved, taken, atOnce, searched, proven := 0, 0, 0, 0, 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 41))
		n := randomNetwork(r, 1+r.IntN(8))
		options := append(n.options(r, 1), n.convex(r, 1+r.IntN(8), 1)...)
		best, ok := n.cheapest(&Problem{Tree: n.tree, Options: options, Reads: n.reads}, nil)
		p, err := Solve(options, n.tree)
		if !ok {
			require.Error(t, err, "seed %d", seed)
			continue
		}
		require.NoError(t, err, "seed %d", seed)
		solved++
		require.Zero(t, p.Gap, "seed %d", seed)
		require.InDelta(t, best, p.Cost, 1e-7, "seed %d", seed)
		bound, err := VerifyBound(options, n.tree, p)
		require.NoError(t, err, "seed %d", seed)
		require.LessOrEqual(t, bound, p.Cost+1e-9, "seed %d", seed)
		if picoseconds(bound) == picoseconds(p.Cost) {
			require.NoError(t, Verify(options, n.tree, p), "seed %d", seed)
			proven++
		}
		apart := severalExits(options, n.tree)
		if apart == nil {
			continue
		}
		if slices.ContainsFunc(p.Chosen, func(i int) bool { return apart[i] }) {
			taken++
		}
		one, err := TreeSolver{}.Solve(slices.DeleteFunc(slices.Clone(options), func(o Option) bool {
			return severalExits([]Option{o}, n.tree) != nil
		}), n.tree)
		if err == nil && one.Cost == p.Cost {
			atOnce++
		} else {
			searched++
		}
	}
	// A test that never sees a case shows nothing about it.
	require.Greater(t, solved, rounds.Of(1000))
	require.Greater(t, taken, rounds.Of(300))
	require.Greater(t, atOnce, rounds.Of(200))
	require.Greater(t, searched, rounds.Of(300))
	require.Greater(t, proven, solved*9/10, "the prices alone are nearly always the proof")
}

func TestRegretWithSeveralExitsIsWhatBruteForceSays(t *testing.T) {
	t.Parallel()
	losers, hopeless, apartLosers := 0, 0, 0
	for seed := range rounds.Seeds(600) {
		r := rand.New(rand.NewPCG(seed, 42))
		n := randomNetwork(r, 1+r.IntN(7))
		options := append(n.options(r, 1), n.convex(r, 1+r.IntN(5), 1)...)
		apart := severalExits(options, n.tree)
		best, ok := n.cheapest(&Problem{Tree: n.tree, Options: options, Reads: n.reads}, nil)
		if !ok || apart == nil {
			continue
		}
		regret, err := Regret(options, n.tree)
		require.NoError(t, err, "seed %d", seed)
		for i, o := range options {
			with, possible := n.cheapest(&Problem{Tree: n.tree, Options: options, Reads: n.reads}, func(k int) bool {
				return k == i || !slices.ContainsFunc(options[k].Nodes,
					func(v relay.NodeID) bool { return slices.Contains(o.Nodes, v) })
			})
			if !possible || math.IsInf(o.Cost, 1) {
				require.True(t, math.IsInf(regret[i], 1), "seed %d option %d: %v", seed, i, regret[i])
				hopeless++
				continue
			}
			require.InDelta(t, with-best, regret[i], 1e-7, "seed %d option %d", seed, i)
			if regret[i] > 0 {
				losers++
				if apart[i] {
					apartLosers++
				}
			}
		}
	}
	require.Greater(t, losers, rounds.Of(1500))
	require.Greater(t, apartLosers, rounds.Of(100))
	require.Greater(t, hopeless, rounds.Of(50))
}

// Two chains, 1 -> 3 and 2 -> 4: {1, 4} and {2, 3} need each other's results. Prices prove that nothing is cheaper
// than the two together, which is no placement.
func TestAProofOfWhatCannotBeRunIsRefused(t *testing.T) {
	t.Parallel()
	n := diamonds()
	options := []Option{{Nodes: nodes(1, 4), Cost: 1}, {Nodes: nodes(2, 3), Cost: 1}, {Nodes: nodes(5)}}
	p := &Solution{Chosen: []int{1, 0, 2}, Cost: 2, LowerBound: 2, Prices: []float64{0, 0.5, 0.5, 0.5, 0.5, 0}}
	require.ErrorContains(t, Verify(options, n.tree, p), "3 of 3 options wait for each other's results")
	across := []Option{{Nodes: nodes(1, 2), Cost: 1}, {Nodes: nodes(3, 4), Cost: 1}, {Nodes: nodes(5)}}
	p.Chosen = []int{0, 1, 2}
	require.NoError(t, Verify(across, n.tree, p))
	withoutReads := &Tree{Parent: n.tree.Parent, Needs: n.tree.Needs}
	require.ErrorContains(t, Verify(across, withoutReads, p), "not connected with its root")
}

// What has several exits is searched for only where the prices of the others do not settle it.
func TestPricesSettleWhatHasSeveralExits(t *testing.T) {
	t.Parallel()
	n := diamonds()
	options := []Option{{Nodes: nodes(1), Cost: 1}, {Nodes: nodes(2), Cost: 1}, {Nodes: nodes(3), Cost: 1},
		{Nodes: nodes(4), Cost: 1},
		{Nodes: nodes(5)}, {Nodes: nodes(1, 2), Cost: 2}}
	p, searched, err := solveSeveral(options, severalExits(options, n.tree), n.tree, 1)
	require.NoError(t, err)
	require.False(t, searched)
	require.Equal(t, []int{0, 1, 2, 3, 4}, p.Chosen, "equally cheap: nothing has several exits without need")
	require.Zero(t, p.Gap)
	options[5].Cost = 1.5
	p, searched, err = solveSeveral(options, severalExits(options, n.tree), n.tree, 1)
	require.NoError(t, err)
	require.True(t, searched)
	require.Equal(t, []int{5, 2, 3, 4}, p.Chosen)
	require.Equal(t, 3.5, p.Cost)
	require.NoError(t, Verify(options, n.tree, p), "by its prices: one pass is enough")
	var bad *OptionError
	options[5] = Option{Nodes: nodes(1, 2), Cost: -1}
	_, err = Solve(options, n.tree)
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 5, bad.Option)
	options[5] = Option{Nodes: nodes(1, 3), Cost: -1}
	_, err = Solve(append([]Option{{Nodes: nodes(1, 2), Cost: 9}}, options...), n.tree)
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 6, bad.Option, "counted among all options")
}

// TestWhatCostsNothingIsProvenByNoPrices: no cost is negative, so prices of 0 prove a placement that costs nothing. The
// root's own are off by what is rounded, and would leave it without proof.
func TestWhatCostsNothingIsProvenByNoPrices(t *testing.T) {
	t.Parallel()
	free := 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 53))
		n := randomNetwork(r, 1+r.IntN(8))
		options := append(n.options(r, 1), n.convex(r, 1+r.IntN(8), 1)...)
		for i := range options {
			if severalExits(options[i:i+1], n.tree) != nil || r.IntN(3) == 0 {
				options[i].Cost = 0
			}
		}
		p, err := Solve(options, n.tree)
		if err != nil || p.Cost != 0 {
			continue
		}
		free++
		require.NoError(t, Verify(options, n.tree, p), "seed %d", seed)
	}
	require.Greater(t, free, rounds.Of(50))
}
