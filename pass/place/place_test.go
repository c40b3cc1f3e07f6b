// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// chain is the tree of n operators in a row.
func chain(n int) *Tree {
	t := &Tree{Parent: make([]relay.NodeID, n), Needs: make([]bool, n)}
	for v := range n {
		t.Parent[v], t.Needs[v] = relay.NodeID(v+1), true
	}
	t.Parent[n-1] = relay.NoNode
	return t
}

func nodes(ids ...relay.NodeID) []relay.NodeID { return ids }

func TestFusedGroupWinsOnlyWhereItIsCheaper(t *testing.T) {
	t.Parallel()
	options := []Option{
		{Nodes: nodes(0), Cost: 1}, {Nodes: nodes(1), Cost: 1}, {Nodes: nodes(2), Cost: 1}, {Nodes: nodes(3), Cost: 1},
		{Nodes: nodes(0, 1), Cost: 1.5}, {Nodes: nodes(1, 2), Cost: 0.9}, {Nodes: nodes(2, 3), Cost: 1.3},
	}
	p, err := Solve(options, chain(4))
	require.NoError(t, err)
	require.Equal(t, []int{4, 6}, p.Chosen)
	require.Equal(t, 2.8, p.Cost)
	require.NoError(t, Verify(options, chain(4), p))
	require.Equal(t, 0.0, p.Slack(options[4]))
	require.InDelta(t, 0.5, p.Slack(options[1]), 1e-9)
}

func TestTiesGoToTheLeastSumOfRanksThenToTheFirst(t *testing.T) {
	t.Parallel()
	// 0.1 + 0.2 and 0.3 are the same cost, whatever float64 makes of the sum.
	options := []Option{
		{Nodes: nodes(0, 1), Cost: 0.3, Rank: 5},
		{Nodes: nodes(0), Cost: 0.1, Rank: 2}, {Nodes: nodes(1), Cost: 0.2, Rank: 2},
		{Nodes: nodes(1), Cost: 0.2, Rank: 2},
	}
	p, err := Solve(options, chain(2))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, p.Chosen)
	options[0].Rank = 3
	p, err = Solve(options, chain(2))
	require.NoError(t, err)
	require.Equal(t, []int{0}, p.Chosen)
}

func TestNodeThatOnlyAGroupCovers(t *testing.T) {
	t.Parallel()
	// Nothing covers 0 by itself, so the dear group must be taken.
	options := []Option{
		{Nodes: nodes(1), Cost: 1}, {Nodes: nodes(2), Cost: 1}, {Nodes: nodes(0, 1), Cost: 50},
		{Nodes: nodes(1, 2), Cost: 0},
	}
	p, err := Solve(options, chain(3))
	require.NoError(t, err)
	require.Equal(t, []int{2, 1}, p.Chosen)
	require.Equal(t, 51.0, p.Cost)
	require.NoError(t, Verify(options, chain(3), p))
}

func TestUncoveredNodesAreNamed(t *testing.T) {
	t.Parallel()
	options := []Option{
		{Nodes: nodes(0, 1), Cost: 1}, {Nodes: nodes(1, 2), Cost: 1},
		{Nodes: nodes(3), Cost: math.Inf(1)}, {Nodes: nodes(4), Cost: 1},
	}
	_, err := Solve(options, chain(5))
	var uncovered *UncoveredError
	require.ErrorAs(t, err, &uncovered)
	require.Equal(t, nodes(3), uncovered.Without)
	require.Len(t, uncovered.Nodes, 2)
	require.Contains(t, uncovered.Nodes, relay.NodeID(3))
	require.Contains(t, err.Error(), "%3")
}

func TestOptionsThatAreNoSubtreesAreRefused(t *testing.T) {
	t.Parallel()
	tree := chain(4)
	for name, o := range map[string]Option{
		"empty":              {},
		"not connected":      {Nodes: nodes(0, 2)},
		"not ascending":      {Nodes: nodes(1, 0)},
		"twice":              {Nodes: nodes(1, 1)},
		"no such node":       {Nodes: nodes(4)},
		"negative node":      {Nodes: nodes(-1)},
		"negative cost":      {Nodes: nodes(1), Cost: -1},
		"cost not a number":  {Nodes: nodes(1), Cost: math.NaN()},
		"disconnected, +Inf": {Nodes: nodes(0, 2), Cost: math.Inf(1)},
	} {
		_, err := Solve([]Option{{Nodes: nodes(0), Cost: 1}, o}, tree)
		var bad *OptionError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, 1, bad.Option, name)
	}
	tree.Needs[3], tree.Parent[2] = false, relay.NoNode
	_, err := Solve([]Option{{Nodes: nodes(3)}}, tree)
	require.ErrorContains(t, err, "needs no cover")
}

func TestMalformedTreesAndCostsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := Solve(nil, &Tree{Parent: nodes(0), Needs: []bool{true}})
	require.ErrorContains(t, err, "does not stand behind")
	_, err = Solve(nil, &Tree{Parent: nodes(1, -1), Needs: []bool{true, false}})
	require.ErrorContains(t, err, "needs no cover")
	_, err = Solve([]Option{{Nodes: nodes(0), Cost: 1e12}}, chain(1))
	require.ErrorContains(t, err, "hours")
	var uncovered *UncoveredError
	require.False(t, errors.As(err, &uncovered))
}

func TestNothingToPlace(t *testing.T) {
	t.Parallel()
	tree := &Tree{Parent: nodes(-1, -1), Needs: make([]bool, 2)}
	p, err := Solve(nil, tree)
	require.NoError(t, err)
	require.Empty(t, p.Chosen)
	require.Zero(t, p.Cost)
	require.NoError(t, Verify(nil, tree, p))
}

// A placement that was read from a plan has prices and no bound; a bound that is set must be its cost.
func TestVerifyTakesAPlacementWithoutItsBound(t *testing.T) {
	t.Parallel()
	tree := chain(3)
	options := []Option{{Nodes: nodes(0), Cost: 1}, {Nodes: nodes(1), Cost: 1}, {Nodes: nodes(2), Cost: 1},
		{Nodes: nodes(0, 1), Cost: 1.5}}
	p, err := Solve(options, tree)
	require.NoError(t, err)
	require.Equal(t, 2.5, p.Cost)
	require.NoError(t, Verify(options, tree, p))
	p.LowerBound = 0
	require.NoError(t, Verify(options, tree, p))
	for _, bound := range []float64{1, 2.4, 2.6} {
		p.LowerBound = bound
		require.ErrorContains(t, Verify(options, tree, p), "claims a lower bound")
	}
}

func TestReadsMustBeOfPlacedNodesBefore(t *testing.T) {
	t.Parallel()
	for _, reads := range [][][]relay.NodeID{{nil, nodes(1), nil}, {nil, nil, nodes(1, 0)}, {nil, nil, nodes(0, 0)},
		{nil, nodes(2), nil}} {
		tree := chain(3)
		p := &Problem{Tree: tree, Reads: reads,
			Options: []Option{{Nodes: nodes(0)}, {Nodes: nodes(1)}, {Nodes: nodes(2)}}}
		_, err := p.Solve()
		require.ErrorContains(t, err, "are not ascending nodes before it", "%v", reads)
	}
	for _, bare := range []relay.NodeID{0, 1} { // read, and reading
		tree := &Tree{Parent: []relay.NodeID{relay.NoNode, relay.NoNode}, Needs: []bool{true, true}}
		tree.Needs[bare] = false
		p := &Problem{Tree: tree, Reads: [][]relay.NodeID{nil, nodes(0)}, Options: []Option{{Nodes: nodes(1 - bare)}}}
		_, err := p.Solve()
		require.ErrorContains(t, err, "need cover", "%%%d", bare)
	}
}

func TestACycleIsShown(t *testing.T) {
	t.Parallel()
	require.Equal(t, "placement: region 3 needs its own results through %1 -> %5",
		(&CycleError{Regions: []int{3}, Path: nodes(1, 5)}).Error())
	long := &CycleError{Regions: []int{1, 2}}
	for v := range relay.NodeID(20) {
		long.Path = append(long.Path, v)
	}
	require.ErrorContains(t, long, "the regions [1 2] need each other's results through %0 -> ")
	require.ErrorContains(t, long, "%11 -> ...")
	require.NotContains(t, long.Error(), "%12")
}
