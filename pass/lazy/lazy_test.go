// SPDX-License-Identifier: Apache-2.0

package lazy

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// world is a random network whose true costs are known to the test alone.
type world struct {
	problem  Problem
	truth    []cost.Cost
	estimate int // computations that were measured
}

// newWorld makes functions whose candidates are random connected subtrees. Every node has a candidate by itself that
// never fails. tight says how far bounds are under the costs: 1 is just.
func newWorld(r *rand.Rand, tight float64) *world {
	w := &world{}
	byTruth := map[[2]int]int{} // computations that are shared between places
	for range 1 + r.IntN(2) {
		n := 2 + r.IntN(30)
		tree := &place.Tree{Parent: make([]relay.NodeID, n), Needs: make([]bool, n)}
		for v := range n {
			tree.Needs[v] = true
			tree.Parent[v] = relay.NoNode
			if v < n-1 && r.IntN(15) > 0 {
				tree.Parent[v] = relay.NodeID(v + 1 + r.IntN(min(n-v-1, 4)))
			}
		}
		f := Function{Tree: tree}
		add := func(nodes []relay.NodeID, always bool) {
			f.Options = append(f.Options, place.Option{Nodes: nodes, Rank: 1 + r.IntN(3)})
			if !always && r.IntN(20) == 0 {
				f.Computations = append(f.Computations, Free)
				return
			}
			kind := [2]int{len(nodes), r.IntN(40)}
			i, ok := byTruth[kind]
			if !ok || always {
				i = len(w.truth)
				c := cost.Cost{Samples: []float64{math.Round(
					1e6*(0.05+r.Float64())*math.Pow(float64(len(nodes)), 0.7)) / 1e6},
					Origin: cost.Measured}
				bound := c.Samples[0] * tight * (1 - r.Float64()*(1-tight))
				if !always && r.IntN(10) == 0 {
					c = cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindCrash}, time.Time{})
				}
				w.truth = append(w.truth, c)
				w.problem.Bounds = append(w.problem.Bounds, bound)
				if !always {
					byTruth[kind] = i
				}
			}
			f.Computations = append(f.Computations, i)
		}
		children := make([][]relay.NodeID, n)
		for v := range n {
			if p := tree.Parent[v]; p != relay.NoNode {
				children[p] = append(children[p], relay.NodeID(v))
			}
			add([]relay.NodeID{relay.NodeID(v)}, true)
		}
		for v := range n {
			for range r.IntN(6) {
				nodes := []relay.NodeID{relay.NodeID(v)}
				for range r.IntN(5) {
					at := nodes[r.IntN(len(nodes))]
					if len(children[at]) == 0 {
						continue
					}
					if c := children[at][r.IntN(len(children[at]))]; !slices.Contains(nodes, c) {
						nodes = append(nodes, c)
					}
				}
				slices.Sort(nodes)
				add(nodes, false)
			}
		}
		w.problem.Functions = append(w.problem.Functions, f)
	}
	w.problem.Known = make([]cost.Cost, len(w.truth))
	w.problem.Overhead = place.Overhead{Option: 0.01}
	w.problem.Measure = func(computations []int) ([]cost.Cost, error) {
		w.estimate += len(computations)
		out := make([]cost.Cost, len(computations))
		for k, i := range computations {
			out[k] = w.truth[i]
		}
		return out, nil
	}
	return w
}

// placed places with the costs of a result and checks the certificate.
func placed(t *testing.T, w *world, r *Result) (total float64, chosen [][]int) {
	t.Helper()
	for k := range w.problem.Functions {
		f := &w.problem.Functions[k]
		asked := make([]bool, len(r.Costs))
		for i, c := range r.Costs {
			asked[i] = c.Origin != cost.Bounded
		}
		options := w.problem.Overhead.Apply(w.problem.options(f, r, asked))
		p, err := place.Solve(options, f.Tree)
		require.NoError(t, err)
		require.NoError(t, place.Verify(options, f.Tree, p))
		// The certificate is one for the true costs, too: no candidate that was left out is cheaper than its prices.
		truth := w.problem.Overhead.Apply(w.problem.options(f, &Result{Costs: w.truth, Scale: 1}, all(len(w.truth))))
		require.NoError(t, place.Verify(truth, f.Tree, p), "with the costs that were not looked at")
		total += p.Cost
		chosen = append(chosen, p.Chosen)
		for _, o := range p.Chosen {
			if i := f.Computations[o]; i != Free {
				require.NotEqual(t, cost.Bounded, r.Costs[i].Origin, "what is placed was measured")
			}
		}
	}
	return total, chosen
}

func all(n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
	}
	return out
}

func TestTheOptimumIsThatOfMeasuringEverything(t *testing.T) {
	t.Parallel()
	measured, proposed := 0, 0
	for seed := range rounds.Seeds(600) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := newWorld(r, 0.2+0.7*r.Float64())
		lazily, err := w.problem.Run()
		require.NoError(t, err)
		lazy := w.estimate
		cheapest, _ := placed(t, w, lazily)
		w.estimate = 0
		w.problem.Exhaustive = true
		everything, err := w.problem.Run()
		require.NoError(t, err)
		require.Equal(t, 1, everything.Rounds)
		total, _ := placed(t, w, everything)
		require.InDelta(t, total, cheapest, 1e-9, "seed %d", seed)
		require.Equal(t, lazily.Measured, lazy)
		require.LessOrEqual(t, lazy, w.estimate)
		require.Equal(t, 1.0, lazily.Scale)
		measured, proposed = measured+lazy, proposed+w.estimate
		// What is known at the end is enough: a second run measures nothing and gives the same.
		w.estimate, w.problem.Exhaustive = 0, false
		for i, c := range lazily.Costs {
			if c.Origin != cost.Bounded {
				w.problem.Known[i] = c
			}
		}
		again, err := w.problem.Run()
		require.NoError(t, err)
		require.Zero(t, w.estimate)
		require.Equal(t, lazily.Costs, again.Costs)
	}
	t.Logf("%d of %d computations were measured", measured, proposed)
	assert.Less(t, measured, proposed*8/10)
}

func TestWithoutBoundsItIsStillTheOptimum(t *testing.T) {
	t.Parallel()
	for seed := range rounds.Seeds(100) {
		w := newWorld(rand.New(rand.NewPCG(seed, 5)), 0)
		lazily, err := w.problem.Run()
		require.NoError(t, err)
		cheapest, _ := placed(t, w, lazily)
		w.problem.Exhaustive = true
		everything, err := w.problem.Run()
		require.NoError(t, err)
		total, _ := placed(t, w, everything)
		require.InDelta(t, total, cheapest, 1e-9)
	}
}

// A bound that turns out to be no bound lowers all of them, and a second run ends with the same ones.
func TestABoundThatWasNoneLowersTheOthers(t *testing.T) {
	t.Parallel()
	tree := &place.Tree{Parent: []relay.NodeID{1, relay.NoNode}, Needs: []bool{true, true}}
	truth := []float64{1, 1, 1.2, 0.9}
	asked := 0
	p := Problem{Bounds: []float64{2, 1, 3, 2.2}, Known: make([]cost.Cost, 4), Functions: []Function{{Tree: tree,
		Computations: []int{0, 1, 2, 3}, Options: []place.Option{{Nodes: []relay.NodeID{0}}, {Nodes: []relay.NodeID{1}},
			{Nodes: []relay.NodeID{0, 1}}, {Nodes: []relay.NodeID{0, 1}, Rank: 1}}}},
		Measure: func(computations []int) ([]cost.Cost, error) {
			asked += len(computations)
			var out []cost.Cost
			for _, i := range computations {
				out = append(out, cost.Cost{Samples: []float64{truth[i]}, Origin: cost.Measured})
			}
			return out, nil
		}}
	r, err := p.Run()
	require.NoError(t, err)
	assert.Less(t, r.Scale, 0.4)
	assert.Equal(t, 0.9, r.Costs[3].Estimate(), "measured after all")
	all := make([]cost.Cost, len(truth))
	for i := range truth {
		all[i] = cost.Cost{Samples: []float64{truth[i]}, Origin: cost.Stored}
	}
	tested, wrong := p.Tested(all)
	assert.Equal(t, []int{4, 3}, []int{tested, wrong}, "the second one's bound is its cost")
	all[0], all[1] = cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindCrash}, time.Time{}),
		cost.FromBound(0.5)
	tested, wrong = p.Tested(all)
	assert.Equal(t, []int{2, 2}, []int{tested, wrong}, "what failed, and what was not measured, tests nothing")
	p.Known = r.Costs
	before := asked
	again, err := p.Run()
	require.NoError(t, err)
	assert.Equal(t, before, asked)
	assert.Equal(t, r.Scale, again.Scale)
}

func TestErrorsKeepWhatIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(rand.New(rand.NewPCG(1, 1)), 0.5)
	measure, broken := w.problem.Measure, errors.New("no worker")
	w.problem.Measure = func(computations []int) ([]cost.Cost, error) {
		costs, _ := measure(computations[:1])
		return costs, broken
	}
	r, err := w.problem.Run()
	require.ErrorIs(t, err, broken)
	known := 0
	for _, c := range r.Costs {
		if settled(c) {
			known++
		}
	}
	assert.Equal(t, 1, known)
	w.problem.Measure = func([]int) ([]cost.Cost, error) { return nil, nil }
	_, err = w.problem.Run()
	assert.ErrorContains(t, err, "0 costs")
}

// What nobody can cover is not measured to death: the placement says what is missing.
func TestWhatCannotBeCovered(t *testing.T) {
	t.Parallel()
	tree := &place.Tree{Parent: []relay.NodeID{relay.NoNode}, Needs: []bool{true}}
	failure := cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindCrash}, time.Time{})
	p := Problem{Bounds: []float64{1}, Known: []cost.Cost{failure},
		Functions: []Function{{Tree: tree, Computations: []int{0},
			Options: []place.Option{{Nodes: []relay.NodeID{0}}}}}}
	r, err := p.Run()
	require.NoError(t, err)
	assert.True(t, r.Costs[0].Failed())
}

// Who has a placement at hand ends the loop where nothing can be cheaper, and learns what everything takes at least.
func TestItEndsWhereEnoughIsKnown(t *testing.T) {
	t.Parallel()
	tree := &place.Tree{Parent: []relay.NodeID{relay.NoNode}, Needs: []bool{true}}
	for _, at := range []struct {
		hand     float64 // what the placement at hand takes
		measured int
		least    float64
	}{{1, 0, 1}, {2, 1, 2}, {9, 2, 3}} {
		p := Problem{Bounds: []float64{1, 2}, Known: make([]cost.Cost, 2), Functions: []Function{{Tree: tree,
			Computations: []int{0, 1}, Options: []place.Option{{Nodes: []relay.NodeID{0}}, {Nodes: []relay.NodeID{0}}}}},
			Enough: func(costs []cost.Cost, least float64) (bool, error) { return least >= at.hand, nil },
			Measure: func(computations []int) ([]cost.Cost, error) {
				return []cost.Cost{cost.FromMilliseconds([]float64{4, 3}[computations[0]])}, nil
			}}
		r, err := p.Run()
		require.NoError(t, err)
		require.Equal(t, at.measured, r.Measured, "with %v at hand", at.hand)
		require.InDelta(t, at.least, r.Least, 1e-9)
		for i := r.Measured; i < 2; i++ {
			require.Equal(t, cost.Bounded, r.Costs[i].Origin)
		}
	}
}
