// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/relay"
)

func TestConstraintsAgainstBruteForce(t *testing.T) {
	t.Parallel()
	kept, conflicts, dearer := 0, 0, 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 41))
		n := randomNetwork(r, 1+r.IntN(8))
		options := n.options(r, 3)
		c := Constraints{Pin: map[relay.NodeID][]State{}, Forbid: map[relay.NodeID][]State{}}
		for range 1 + r.IntN(3) {
			v, s := n.needs[r.IntN(len(n.needs))], State(r.IntN(3)*10)
			if r.IntN(2) == 0 {
				c.Pin[v] = append(c.Pin[v], s) // one of these, where there are several
			} else {
				c.Forbid[v] = append(c.Forbid[v], s)
			}
		}
		for v, pins := range c.Pin {
			c.Forbid[v] = slices.DeleteFunc(c.Forbid[v], func(f State) bool { return slices.Contains(pins, f) })
		}
		problem := &Problem{Tree: n.tree, Options: options, Reads: n.reads}
		keeps := func(list []Constraint) func(int) bool {
			return func(i int) bool {
				for _, k := range list {
					if slices.Contains(options[i].Nodes, k.Node) &&
						slices.Contains(k.States, options[i].State) == k.Forbid {
						return false
					}
				}
				return true
			}
		}
		free, possible := n.cheapest(problem, nil)
		best, ok := n.cheapest(problem, keeps(c.List()))
		p, err := c.Solve(options, n.tree)
		switch {
		case ok:
			require.NoError(t, err, "seed %d", seed)
			require.InDelta(t, best, p.Cost, 1e-7, "seed %d", seed)
			constrained, err := c.Apply(options, n.tree)
			require.NoError(t, err)
			require.NoError(t, Verify(constrained, n.tree, p))
			kept++
			if best > free+1e-7 {
				dearer++
			}
		case possible:
			var conflict *ConstraintError
			require.ErrorAs(t, err, &conflict, "seed %d", seed)
			var open *UncoveredError
			require.ErrorAs(t, err, &open)
			_, ok := n.cheapest(problem, keeps(conflict.Conflict))
			require.False(t, ok, "seed %d: what is named is a conflict", seed)
			for i := range conflict.Conflict {
				_, ok := n.cheapest(problem, keeps(slices.Delete(slices.Clone(conflict.Conflict), i, i+1)))
				require.True(t, ok, "seed %d: and none of it is superfluous", seed)
			}
			conflicts++
		default:
			var open *UncoveredError
			require.ErrorAs(t, err, &open, "seed %d", seed)
			var conflict *ConstraintError
			require.NotErrorAs(t, err, &conflict, "seed %d", seed)
		}
	}
	require.Greater(t, kept, rounds.Of(400))
	require.Greater(t, dearer, rounds.Of(100))
	require.Greater(t, conflicts, rounds.Of(100))
}

func TestConstraintsNameWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	options := []Option{
		{Nodes: nodes(0), Cost: 1}, {Nodes: nodes(1), Cost: 1}, {Nodes: nodes(2), Cost: 1},
		{Nodes: nodes(0, 1), Cost: 1, State: 1},
	}
	_, err := Constraints{Pin: map[relay.NodeID][]State{0: {1}, 1: {0}, 2: {0}}}.Solve(options, chain(3))
	require.EqualError(t, err, "no placement keeps these constraints together: %0 is pinned to 1; %1 is pinned to 0: "+
		"the candidates leave 1 nodes uncovered: %0")
	_, err = Constraints{Pin: map[relay.NodeID][]State{1: {0}},
		Forbid: map[relay.NodeID][]State{2: {7, 0}}}.Solve(options, chain(3))
	require.ErrorContains(t, err, "no placement keeps the constraint that %2 is forbidden on 0:")
	_, err = Constraints{Pin: map[relay.NodeID][]State{1: {0}}, Forbid: map[relay.NodeID][]State{1: {0}}}.Solve(options,
		chain(3))
	require.ErrorContains(t, err, "%1 is pinned to 0, and forbidden there")
	_, err = Constraints{Pin: map[relay.NodeID][]State{5: {0}}}.Solve(options, chain(3))
	require.ErrorContains(t, err, "%5 is pinned to 0, but it is no node of the graph that needs cover")
	p, err := Constraints{Pin: map[relay.NodeID][]State{1: {0}}}.Solve(options, chain(3))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, p.Chosen)
	p, err = Constraints{Pin: map[relay.NodeID][]State{0: {1, 7}},
		Forbid: map[relay.NodeID][]State{0: {7}}}.Solve(options, chain(3))
	require.NoError(t, err, "one of two states is left")
	require.Equal(t, []int{3, 2}, p.Chosen)
	_, err = Constraints{Pin: map[relay.NodeID][]State{2: {7, 1}}}.Solve(options, chain(3))
	require.ErrorContains(t, err, "no placement keeps the constraint that %2 is pinned to 1 or 7:")
}
