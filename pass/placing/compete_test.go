// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// noisy is a machine on which a computation takes its true time or, now and then, longer.
type noisy struct {
	truth   []float64
	random  *rand.Rand
	store   map[int]cost.Cost
	refined int
}

func (n *noisy) samples(i, count int) []float64 {
	out := make([]float64, count)
	for k := range out {
		out[k] = n.truth[i] * (1 + 0.002*n.random.Float64())
		if n.random.IntN(3) == 0 {
			out[k] *= 1 + n.random.Float64()
		}
	}
	return out
}

func (n *noisy) Refine(_ context.Context, requests []cost.Request, samples int) ([]cost.Cost, error) {
	n.refined += len(requests)
	costs := make([]cost.Cost, len(requests))
	for k, r := range requests {
		i := r.Key.Threads // which computation it is
		c := n.store[i]
		c.Samples = slices.Concat(c.Samples, n.samples(i, samples))
		n.store[i] = c
		costs[k] = c
	}
	return costs, nil
}

// contestOf is a module of one node with a candidate for each computation, measured once.
func contestOf(n *noisy) (*Module, *Computations, *lazy.Problem) {
	m := relay.NewGraph("main")
	g := m.Finish(m.Call("nn.relu", relay.Tensor("float32", 8), nil, m.Var([]int64{8}, "float32")))
	f := &Function{Set: &candidate.Set{Graph: g}}
	all := &Computations{Of: [][]int{nil}, Bounds: make([]float64, len(n.truth)), reference: make([]bool, len(n.truth))}
	problem := &lazy.Problem{Bounds: all.Bounds, Known: make([]cost.Cost, len(n.truth))}
	for i := range n.truth {
		f.Set.Candidates = append(f.Set.Candidates,
			candidate.Candidate{Nodes: []relay.NodeID{g.Root()}, Root: g.Root(), Rank: i})
		all.requests = append(all.requests, cost.Request{Key: cost.Key{Environment: cost.Environment{Threads: i}}})
		all.Of[0] = append(all.Of[0], i)
		all.Bounds[i] = 1e-6
		if n.store[i].Samples == nil {
			n.store[i] = cost.Cost{Samples: n.samples(i, 10), Origin: cost.Measured}
		}
		problem.Known[i] = n.store[i]
	}
	zero := 0.0
	s := &Module{Config: &settings.Config{Samples: 10, Overhead: &zero, Context: context.Background()},
		Functions: []*Function{f}}
	problem.Functions = []lazy.Function{{Tree: place.TreeOf(g), Options: f.lazyOptions(), Computations: all.Of[0]}}
	return s, all, problem
}

func compete(t *testing.T, n *noisy) (*Module, *lazy.Result) {
	t.Helper()
	s, all, problem := contestOf(n)
	result, err := problem.Run()
	require.NoError(t, err)
	result, err = s.compete(n, all, problem, result)
	require.NoError(t, err)
	return s, result
}

func TestContestsAreDecidedOrTied(t *testing.T) {
	right, ties := 0, 0
	for seed := range uint64(100) {
		n := &noisy{truth: []float64{1, 1.1, 3}, random: rand.New(rand.NewPCG(seed, 1)), store: map[int]cost.Cost{}}
		s, result := compete(t, n)
		if result.Costs[0].Estimate() < result.Costs[1].Estimate() {
			right++
		}
		ties += s.ties
		assert.Len(t, n.store[2].Samples, 10, "who cannot win is left in peace")
		for i := range 2 {
			assert.LessOrEqual(t, len(n.store[i].Samples), 10*mostSamples)
		}
		// What decided is in the store: a second run asks for nothing.
		n.refined = 0
		_, again := compete(t, n)
		assert.Zero(t, n.refined)
		assert.Equal(t, result.Costs, again.Costs)
	}
	assert.Greater(t, right, 95)
	assert.Less(t, ties, 30)

	// Equals stay equal, after their share of samples.
	n := &noisy{truth: []float64{1, 1}, random: rand.New(rand.NewPCG(1, 2)), store: map[int]cost.Cost{}}
	n.store[0] = cost.Cost{Samples: []float64{1, 1, 1, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2}, Origin: cost.Measured}
	_, _ = compete(t, n)
	assert.Greater(t, n.refined, 0)
}

// Of five samples all may have been disturbed: who is not far behind is looked at again, and nobody else.
func TestAFirstLookDecidesLittle(t *testing.T) {
	measured := func(samples ...float64) cost.Cost { return cost.Cost{Samples: samples, Origin: cost.Measured} }
	n := &noisy{truth: []float64{1, 1.1, 3}, random: rand.New(rand.NewPCG(1, 3)), store: map[int]cost.Cost{
		0: measured(1.12, 1.2, 1.25, 1.3, 1.4), 1: measured(1.1, 1.1, 1.101, 1.101, 1.102),
		2: measured(3, 3.01, 3.02, 3.5, 4)}}
	_, result := compete(t, n)
	assert.Less(t, result.Costs[0].Estimate(), result.Costs[1].Estimate())
	assert.GreaterOrEqual(t, len(n.store[0].Samples), enough)
	assert.Len(t, n.store[2].Samples, 5)

	assert.Equal(t, measure.DefaultSamples/2, firstLook(&settings.Config{}))
	assert.Equal(t, 1, firstLook(&settings.Config{Samples: 1}))
}

func TestContestsAreTheSmallestParts(t *testing.T) {
	options := []place.Option{{Nodes: []relay.NodeID{0}}, {Nodes: []relay.NodeID{1}}, {Nodes: []relay.NodeID{0, 1}},
		{Nodes: []relay.NodeID{2}}, {Nodes: []relay.NodeID{3}}, {Nodes: []relay.NodeID{3}, Rank: 1}}
	got := contests(options, []int{0, 1, 3, 4}, []int{2, 3, 5})
	assert.Equal(t, []contest{{[]int{0, 1}, []int{2}}, {[]int{4}, []int{5}}}, got)
	assert.Empty(t, contests(options, []int{3}, []int{3}))
}
