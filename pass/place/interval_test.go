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

// intervals widens the costs of options.
func intervals(r *rand.Rand, options []Option) []Interval {
	out := make([]Interval, len(options))
	for i, o := range options {
		out[i] = Interval{o.Cost, o.Cost}
		if r.IntN(3) > 0 && !math.IsInf(o.Cost, 1) {
			out[i] = Interval{max(0, o.Cost-r.Float64()*r.Float64()), o.Cost + r.Float64()*r.Float64()}
		}
	}
	return out
}

func TestIntervalsHoldWhateverTheCostsAre(t *testing.T) {
	t.Parallel()
	sure, unsure, reached := 0, 0, 0
	for seed := range rounds.Seeds(800) {
		r := rand.New(rand.NewPCG(seed, 51))
		n := randomNetwork(r, 1+r.IntN(10))
		options := n.options(r, 1)
		ranges := intervals(r, options)
		p, err := SolveInterval(options, ranges, n.tree)
		if err != nil {
			var open *UncoveredError
			require.ErrorAs(t, err, &open)
			continue
		}
		require.NoError(t, Verify(options, n.tree, p.Solution))
		if p.Regret == 0 {
			sure++
			require.Empty(t, p.Next)
		} else {
			unsure++
			require.NotEmpty(t, p.Next)
		}
		for range 20 {
			real := slices.Clone(options)
			sum := 0.0
			for i := range real {
				if ranges[i].High > ranges[i].Low {
					x := r.Float64()
					if r.IntN(2) == 0 {
						x = math.Round(x)
					}
					real[i].Cost = ranges[i].Low + x*(ranges[i].High-ranges[i].Low)
				}
			}
			for _, i := range p.Chosen {
				sum += real[i].Cost
			}
			best, err := Solve(real, n.tree)
			require.NoError(t, err)
			require.GreaterOrEqual(t, best.Cost, p.Low-1e-7)
			require.LessOrEqual(t, best.Cost, p.High+1e-7)
			require.LessOrEqual(t, sum-best.Cost, p.Regret+1e-7, "seed %d", seed)
		}
		if p.Regret > 0 { // it is reached: the placement's own at their worst, the rival's at their best
			real, cost := slices.Clone(options), 0.0
			for i := range real {
				real[i].Cost = ranges[i].Low
			}
			for _, i := range p.Chosen {
				real[i].Cost = ranges[i].High
				cost += ranges[i].High
			}
			best, err := Solve(real, n.tree)
			require.NoError(t, err)
			require.InDelta(t, cost-best.Cost, p.Regret, 1e-6)
			reached++
		}
	}
	require.Greater(t, sure, rounds.Of(50))
	require.Greater(t, unsure, rounds.Of(100))
	require.Equal(t, unsure, reached)
}

// TestSamplingWhatIsNextEndsSure: always sampling the first of Next ends with a placement that is the cheapest by the
// true costs, with most options never sampled.
func TestSamplingWhatIsNextEndsSure(t *testing.T) {
	t.Parallel()
	sampled, all := 0, 0
	for seed := range rounds.Seeds(100) {
		r := rand.New(rand.NewPCG(seed, 52))
		n := randomNetwork(r, 15)
		truth := n.options(r, 1)
		best, err := Solve(truth, n.tree)
		if err != nil {
			continue
		}
		options, ranges := slices.Clone(truth), make([]Interval, len(truth))
		for i, o := range truth { // not measured yet: somewhere between a bound and three times that
			low := o.Cost / (1 + 2*r.Float64())
			ranges[i] = Interval{low, 3 * low}
			options[i].Cost = 2 * low
		}
		for steps := 0; ; steps++ {
			require.LessOrEqual(t, steps, len(options), "seed %d", seed)
			p, err := SolveInterval(options, ranges, n.tree)
			require.NoError(t, err)
			if p.Regret == 0 {
				cost := 0.0
				for _, i := range p.Chosen {
					cost += truth[i].Cost
				}
				require.InDelta(t, best.Cost, cost, 1e-6, "seed %d", seed)
				break
			}
			i := p.Next[0]
			options[i].Cost, ranges[i] = truth[i].Cost, Interval{truth[i].Cost, truth[i].Cost}
			sampled++
		}
		all += len(options)
	}
	t.Logf("%d of %d options sampled", sampled, all)
	require.Less(t, sampled, all*3/4)
}

// TestLazyMeasuringFindsTheOptimum: with single operators measured and a lower bound on everything else, measuring only
// what Next names ends at the optimum.
func TestLazyMeasuringFindsTheOptimum(t *testing.T) {
	t.Parallel()
	measured, all := 0, 0
	for seed := range rounds.Seeds(300) {
		r := rand.New(rand.NewPCG(seed, 54))
		n := randomNetwork(r, 2+r.IntN(20))
		truth := n.options(r, 2)
		for _, v := range n.needs {
			truth = append(truth, Option{Nodes: nodes(v), Cost: 1 + 2*r.Float64()})
		}
		options, ranges := slices.Clone(truth), make([]Interval, len(truth))
		for i, o := range truth {
			if len(o.Nodes) == 1 && o.State == 0 || math.IsInf(o.Cost, 1) {
				ranges[i] = Interval{o.Cost, o.Cost}
			} else {
				options[i].Cost, ranges[i] = math.Inf(1), Interval{o.Cost * (0.3 + 0.6*r.Float64()), math.Inf(1)}
			}
		}
		best, err := Solve(truth, n.tree)
		require.NoError(t, err)
		for {
			p, err := SolveInterval(options, ranges, n.tree)
			require.NoError(t, err)
			require.LessOrEqual(t, p.Low, best.Cost+1e-7)
			if p.Regret == 0 {
				require.InDelta(t, best.Cost, p.Cost, 1e-6, "seed %d", seed)
				break
			}
			require.NotEmpty(t, p.Next)
			for _, i := range p.Next {
				options[i].Cost, ranges[i] = truth[i].Cost, Interval{truth[i].Cost, truth[i].Cost}
				measured++
			}
		}
		all += len(options)
	}
	t.Logf("%d of %d options measured", measured, all)
	require.Greater(t, all, rounds.Of(1000))
	require.Less(t, measured, all/2)
}

func TestOptionsThatAreNotMeasuredYet(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	options := []Option{{Nodes: nodes(0), Cost: 1}, {Nodes: nodes(1), Cost: 1}, {Nodes: nodes(0, 1), Cost: inf}}
	p, err := SolveInterval(options, []Interval{{1, 1}, {1, 1}, {1.5, inf}}, chain(2))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, p.Chosen)
	require.Equal(t, 0.5, p.Regret)
	require.Equal(t, []int{2}, p.Next)
	p, err = SolveInterval(options, []Interval{{1, 1}, {1, 1}, {2, inf}}, chain(2))
	require.NoError(t, err)
	require.Zero(t, p.Regret)
	p, err = SolveInterval(options, []Interval{{1, 1}, {0.5, inf}, {2, inf}}, chain(2))
	require.NoError(t, err)
	require.Equal(t, inf, p.Regret)
	require.Contains(t, p.Next, 1)
	_, err = SolveInterval(options, []Interval{{1, 1}, {2, 3}, {2, inf}}, chain(2))
	require.ErrorContains(t, err, "option 1 costs 1 ms, which is not within [2, 3]")
}

func TestOverheadKeepsNoiseFromCutting(t *testing.T) {
	t.Parallel()
	// One kernel of 1 ms, or ten of 0.1 ms with an error of a microsecond each.
	r := rand.New(rand.NewPCG(1, 1))
	var options []Option
	var all Option
	for v := range 10 {
		all.Nodes = append(all.Nodes, nodes(relay.NodeID(v))...)
		options = append(options, Option{Nodes: nodes(relay.NodeID(v)), Cost: 0.1 - 0.001*r.Float64()})
	}
	all.Cost = 1
	options = append(options, all)
	tree := chain(10)
	p, err := Solve(options, tree)
	require.NoError(t, err)
	require.Len(t, p.Chosen, 10)
	h := Overhead{Option: DefaultOverhead}
	dearer := h.Apply(options)
	p, err = Solve(dearer, tree)
	require.NoError(t, err)
	require.Equal(t, []int{10}, p.Chosen)
	require.InDelta(t, 1.01, p.Cost, 1e-9)
	require.InDelta(t, 0.01, h.Of(options, p.Chosen), 1e-9)
	require.NoError(t, Verify(dearer, tree, p))
}

func TestOverheadCostsNoMoreThanItSays(t *testing.T) {
	t.Parallel()
	fewer := 0
	for seed := range rounds.Seeds(1000) {
		r := rand.New(rand.NewPCG(seed, 53))
		n := randomNetwork(r, 2+r.IntN(20))
		options := n.options(r, 2)
		q, err := Solve(options, n.tree)
		if err != nil {
			continue
		}
		h := Overhead{Option: 0.1 + r.Float64()}
		p, err := Solve(h.Apply(options), n.tree)
		require.NoError(t, err)
		worse := p.Cost - h.Of(options, p.Chosen) - q.Cost
		require.GreaterOrEqual(t, worse, -1e-7)
		require.LessOrEqual(t, worse, h.Of(options, q.Chosen)-h.Of(options, p.Chosen)+1e-7)
		if len(p.Chosen) < len(q.Chosen) {
			fewer++
		}
		h.State = map[State]float64{10: 5}
		p, err = Solve(h.Apply(options), n.tree)
		require.NoError(t, err)
		require.NoError(t, Verify(h.Apply(options), n.tree, p))
	}
	require.Greater(t, fewer, rounds.Of(100))
}
