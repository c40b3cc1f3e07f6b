// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// engines are TVM and two that merge.
var engines = []byoc.Backend{library{"tvm", false}, library{"red", true}, library{"blue", true}}

// randomNetwork is a small graph with branches, each operator on each engine at a random cost.
func randomNetwork(t *testing.T, r *rand.Rand, n int) *genome.Space {
	t.Helper()
	m := relay.NewGraph("main")
	values := []relay.NodeID{m.Var([]int64{64}, "float32")}
	for range n {
		shape := int64(1 << (4 + r.IntN(6)))
		if r.IntN(3) == 0 && len(values) > 2 {
			values = append(values, m.Call("add", relay.Tensor("float32", shape), nil, values[len(values)-1],
				values[len(values)-2-r.IntN(2)]))
		} else {
			values = append(values, m.Call("tanh", relay.Tensor("float32", shape), nil, values[len(values)-1]))
		}
	}
	g := m.Finish(values[len(values)-1])
	set := &candidate.Set{Graph: g}
	var costs []float64
	for v := range g.Nodes {
		id := relay.NodeID(v)
		if !g.Placeable(id) {
			continue
		}
		inputs, _ := g.Boundary([]relay.NodeID{id})
		for _, b := range engines {
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: b.Name(), Nodes: []relay.NodeID{id}, Root: id, Inputs: inputs,
					Key: g.Nodes[v].Op})
			costs = append(costs, 1+r.Float64())
		}
	}
	s, err := genome.NewSpace(engines, []genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	return s
}

// sum is what a placement costs, in picoseconds, counted from its regions as annotate has them: it shares no code with
// package border.
func sum(s *genome.Space, p *genome.Placement) int64 {
	f := &s.Functions[0]
	g := f.Set.Graph
	ps := func(ms float64) int64 { return int64(math.Round(ms * 1e9)) }
	total := int64(0)
	for _, k := range p.Chosen[0] {
		total += ps(f.Costs[k])
	}
	outlined := map[relay.NodeID]bool{}
	for _, r := range p.Regions[0] {
		for _, v := range r.Nodes {
			outlined[v] = true
		}
	}
	left := map[relay.NodeID]bool{} // what leaves TVM's share, which is one region
	for _, r := range p.Regions[0] {
		at := s.Backend(r.Backend)
		for _, v := range r.Inputs {
			in, _ := s.Border(0, v, at)
			total += ps(in)
			if _, out := s.Border(0, v, s.Free()); g.Placeable(v) && !outlined[v] && !left[v] {
				left[v] = true
				total += ps(out)
			}
		}
		for _, v := range r.Outputs {
			_, out := s.Border(0, v, at)
			total += ps(out)
			if slices.ContainsFunc(g.Consumers(v), func(user relay.NodeID) bool { return !outlined[user] }) {
				in, _ := s.Border(0, v, s.Free())
				total += ps(in)
			}
		}
	}
	return total
}

// cheapest tries everything out.
func cheapest(s *genome.Space) int64 {
	f := &s.Functions[0]
	with := map[relay.NodeID][]int{}
	for k := range f.Set.Candidates {
		with[f.Set.Candidates[k].Root] = append(with[f.Set.Candidates[k].Root], k)
	}
	var nodes []relay.NodeID
	for v, needs := range f.Tree.Needs {
		if needs {
			nodes = append(nodes, relay.NodeID(v))
		}
	}
	chosen, least := make([]int, len(nodes)), int64(math.MaxInt64)
	var try func(i int)
	try = func(i int) {
		if i == len(nodes) {
			least = min(least, sum(s, s.Place([][]int{chosen})))
			return
		}
		for _, k := range with[nodes[i]] {
			chosen[i] = k
			try(i + 1)
		}
	}
	try(0)
	return least
}

// What the solver says a placement costs, what ranking says of it and what its regions cost are one number, to the last
// picosecond, and no placement costs less.
func TestPlacingAgainIsTheCheapestWithBorders(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		s := randomNetwork(t, r, 3+r.IntN(4))
		borders := feedback.NewBorders(TraitsOf(engines))
		// From borders that are nearly free to those that nothing is worth.
		rate := math.Exp(8*r.Float64() - 4)
		borders.Observe(&feedback.Profile{Borders: []feedback.Border{
			{Backend: "red", Calls: 1 << 20, CallMilliseconds: rate * 1e5, Ins: 1 << 20, InBytes: 1 << 40,
				In: rate * 1e9, Outs: 1 << 20, OutBytes: 1 << 40,
				Out: rate * 5e8},
			{Backend: "blue", Calls: 1 << 20, Ins: 1 << 20, InBytes: 1 << 40, In: rate * 2e8, Outs: 1 << 20,
				OutBytes: 1 << 40, Out: rate * 2e9},
			{Backend: "", Ins: 1, InBytes: 1 << 40, In: rate * 1e8, Outs: 1, OutBytes: 1 << 40, Out: rate * 3e8}}}, 1)
		s.Border = BorderOf(s, borders)
		f := &s.Functions[0]
		options := make([]place.Option, len(f.Costs))
		for k := range options {
			f.Costs[k] = math.Round(1e9*f.Costs[k]) / 1e9 // whole picoseconds
			options[k] = place.Option{Nodes: f.Set.Candidates[k].Nodes, Cost: f.Costs[k]}
		}
		placed, err := PlaceWithBorders(s, 0, options)
		require.NoError(t, err)
		p := s.Place([][]int{placed.Chosen})
		require.Equal(t, float64(sum(s, p))/1e9, placed.Cost, "seed %d", seed)
		assert.InDelta(t, placed.Cost, s.Predict(p), 1e-12, "seed %d", seed)
		best := float64(cheapest(s)) / 1e9
		assert.LessOrEqual(t, placed.Gap, placeEnough*placed.Cost, "seed %d", seed)
		assert.LessOrEqual(t, placed.LowerBound, best+1e-12, "seed %d", seed)
		assert.GreaterOrEqual(t, placed.Cost, best-1e-12, "seed %d", seed)
	}
}

// layouts is a fake of networks in which red is one region with a layout of its own, which it takes long to come to and
// to leave; blue does the middle of the chain faster by gain.
type layouts struct {
	space        *genome.Space
	gain, border float64
}

func (n *layouts) Measure(_ context.Context, placements []*genome.Placement, _ *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	for i, p := range placements {
		f := &n.space.Functions[0]
		profile := &feedback.Profile{}
		red := feedback.Border{Backend: "red"}
		for _, k := range p.Chosen[0] {
			c := &f.Set.Candidates[k]
			ms := map[string]float64{"tvm": 6, "red": 2, "blue": 2}[c.Backend]
			if c.Backend == "blue" && c.Key == "sqrt" {
				ms -= n.gain
			}
			profile.Parts = append(profile.Parts, feedback.Part{Nodes: c.Nodes, Milliseconds: ms})
		}
		for _, region := range p.Regions[0] {
			if region.Backend != "red" {
				continue
			}
			red.Calls++
			for range region.Inputs {
				red.Ins, red.InBytes, red.In = red.Ins+1, red.InBytes+4<<20, red.In+n.border/2
			}
			for range region.Outputs {
				red.Outs, red.OutBytes, red.Out = red.Outs+1, red.OutBytes+4<<20, red.Out+n.border/2
			}
			at := &profile.Parts[0]
			at.Border, at.Crossing = at.Border+n.border, at.Crossing+n.border
		}
		if red.Calls > 0 {
			profile.Borders = append(profile.Borders, red)
		}
		c := cost.Cost{Origin: cost.Measured, Taken: time.Time{}, Network: &cost.Network{Seconds: 1}}
		for range 3 {
			c.Samples = append(c.Samples, profile.Total())
			c.Network.Against = append(c.Network.Against, 30)
		}
		RecordProfile(profile, c.Network)
		if err := taken(i, c); err != nil {
			return err
		}
	}
	return nil
}

func TestARegionIsSplitWhereTheGainIsAboveTheBorder(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		gain, border float64
		whole        bool
	}{{1.5, 8, true}, {1.5, 0.2, false}, {0.1, 1, true}, {1.9, 1, false}} {
		m := relay.NewGraph("main")
		vector := relay.Tensor("float32", 1<<20)
		x := m.Var([]int64{1 << 20}, "float32")
		for _, op := range []string{"tanh", "tanh", "sqrt", "tanh", "tanh"} {
			x = m.Call(op, vector, nil, x)
		}
		g := m.Finish(x)
		set := &candidate.Set{Graph: g}
		var costs []float64
		for v := range g.Nodes {
			id := relay.NodeID(v)
			if !g.Placeable(id) {
				continue
			}
			inputs, _ := g.Boundary([]relay.NodeID{id})
			for _, b := range engines {
				set.Candidates = append(set.Candidates,
					candidate.Candidate{Backend: b.Name(), Nodes: []relay.NodeID{id}, Root: id, Inputs: inputs,
						Key: g.Nodes[v].Op})
				cost := map[string]float64{"tvm": 6, "red": 2, "blue": 2}[b.Name()]
				if b.Name() == "blue" {
					cost = 9 // alone, it says nothing for blue but in the middle
					if g.Nodes[v].Op == "sqrt" {
						cost = 2 - of.gain
					}
				}
				costs = append(costs, cost)
			}
		}
		s, err := genome.NewSpace(engines, []genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
		require.NoError(t, err)
		tvm, err := s.Decode(s.Uniform(0))
		require.NoError(t, err)
		red, err := s.Decode(s.Uniform(1))
		require.NoError(t, err)
		// Where red has a border at two places, four times the border is paid in a network with two regions of it,
		// twice in one with one.
		n := &layouts{space: s, gain: of.gain, border: of.border}
		search := newSearch(context.Background(), s, n, Options{})
		_, err = search.sow([]Seed{{Name: "tvm", Placement: tvm}, {Name: "red", Placement: red}})
		require.NoError(t, err)
		p, gap, err := search.again()
		require.NoError(t, err)
		assert.Zero(t, gap, "a chain is proven at once")
		on := map[string]bool{}
		for _, k := range p.Chosen[0] {
			on[set.Candidates[k].Backend] = true
		}
		assert.Equal(t, of.whole, !on["blue"], "a gain of %v against a border of %v", of.gain, of.border)
		assert.True(t, on["red"])
		assert.Less(t, s.Predict(p), s.Predict(tvm))
	}
}

func TestHopelessRunnersUpArePassedOver(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	n := &network{space: s, profile: true, measured: map[string]int{}}
	seeds := seedsOf(t, s)
	genes := s.Uniform(0)
	for v := range genes[0][:8] {
		genes[0][v].Backend = 1
	}
	mostly, err := s.Decode(genes)
	require.NoError(t, err)
	seeds = append(seeds, Seed{Name: "mostly vain", Placement: mostly, Optional: true})
	r, err := Search(context.Background(), s, seeds, n, Options{Trials: 4, FeedbackSteps: -1})
	require.NoError(t, err)
	assert.Equal(t, []string{"mostly vain"}, r.PassedOver,
		"the operator level's placement has shown what vain takes in company")
	seeds[4].Optional = false
	n = &network{space: s, profile: true, measured: map[string]int{}}
	r, err = Search(context.Background(), s, seeds, n, Options{Trials: 5, FeedbackSteps: -1})
	require.NoError(t, err)
	assert.Empty(t, r.PassedOver)
	assert.Contains(t, n.measured, mostly.Key)
}

// What a backend alone leaves to TVM is known from plain TVM; what its own share takes is not.
func TestABackendAloneThatLeavesMuchToTVMIsPassedOver(t *testing.T) {
	t.Parallel()
	s := chain(t, "tanh", "sqrt", "tanh", "sqrt", "tanh", "sqrt", "tanh", "sqrt", "tanh", "sqrt")
	on := func(backend int16, nodes int) *genome.Placement {
		genes := s.Uniform(0)
		left := nodes
		for v := range genes[0] {
			if left > 0 && len(s.Functions[0].Set.Graph.Nodes[v].Inputs) > 0 {
				genes[0][v].Backend, left = backend, left-1
			}
		}
		p, err := s.Decode(genes)
		require.NoError(t, err)
		return p
	}
	n := &network{space: s, profile: true, measured: map[string]int{}}
	little, all := on(1, 2), on(1, 10)
	seeds := []Seed{{Name: "tvm", Placement: on(0, 10)}, {Name: "shy", Placement: on(2, 10)},
		{Name: "little", Placement: little, Alone: true}, {Name: "all", Placement: all, Alone: true}}
	for p, want := range map[*genome.Placement]float64{little: 32, all: 0} {
		left, err := s.PredictFree(p)
		require.NoError(t, err)
		assert.InDelta(t, want, left, 1e-9)
	}
	r, err := Search(context.Background(), s, seeds, n, Options{Batch: 2, SeedsOnly: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"little"}, r.PassedOver, "eight operators of TVM's take 32 ms, all of shy's 5")
	assert.NotContains(t, n.measured, little.Key)
	assert.Contains(t, n.measured, all.Key, "nothing is known of it but what its parts take by themselves")

	store := cost.NewMemoryStore()
	n = &network{space: s, profile: true, measured: map[string]int{}}
	_, err = Search(context.Background(), s, seeds[2:3], n, Options{Store: store, SeedsOnly: true})
	require.NoError(t, err)
	require.Contains(t, n.measured, little.Key)
	n = &network{space: s, profile: true, measured: map[string]int{}}
	r, err = Search(context.Background(), s, seeds, n, Options{Store: store, Batch: 2, SeedsOnly: true})
	require.NoError(t, err)
	assert.Empty(t, r.PassedOver, "what it takes is in the store")
	assert.NotContains(t, n.measured, little.Key)
}

// lodger is a library that shares red's regions.
type lodger struct{ library }

func (lodger) Compiler() string { return "red" }

func TestTheWaysOfABackendAreTriedEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	for _, second := range []string{"red", "lodger"} {
		t.Run(second, func(t *testing.T) { triedEverywhere(t, second) })
	}
}

// triedEverywhere has a network searched in which red has an algorithm, and it or one that shares its regions another
// one, which is slower alone and faster in place.
func triedEverywhere(t *testing.T, second string) {
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	for range 6 {
		x = m.Call("tanh", vector, nil, x)
	}
	g := m.Finish(x)
	set := &candidate.Set{Graph: g}
	var costs []float64
	for v := range g.Nodes {
		id := relay.NodeID(v)
		if !g.Placeable(id) {
			continue
		}
		inputs, _ := g.Boundary([]relay.NodeID{id})
		for _, of := range []struct {
			backend, composite string
			ms                 float64
		}{{"tvm", "", 6}, {"red", "direct", 2}, {second, "winograd", 2.2}} {
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: of.backend, Composite: of.composite, Nodes: []relay.NodeID{id},
					Root: id, Inputs: inputs, Key: "tanh"})
			costs = append(costs, of.ms)
		}
	}
	s, err := genome.NewSpace(append(slices.Clone(engines), lodger{library{"lodger", true}}),
		[]genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	tvm, err := s.Decode(s.Uniform(0))
	require.NoError(t, err)
	red, err := s.Decode(s.Uniform(1))
	require.NoError(t, err)
	n := &ways{space: s}
	r, err := Search(context.Background(), s, []Seed{{Name: "tvm", Placement: tvm}, {Name: "red", Placement: red}}, n,
		Options{Trials: 12, Patience: 20})
	require.NoError(t, err)
	at := &r.Trials[r.Best()[0]]
	for _, k := range at.Placement.Chosen[0] {
		assert.Equal(t, "winograd", set.Candidates[k].Composite, at.Name)
	}
	require.Len(t, at.Placement.Regions[0], 1)
	assert.Equal(t, "red", at.Placement.Regions[0][0].Compiler)
	assert.Equal(t, second, at.Placement.Regions[0][0].Backend)
}

// ways is a fake of networks in which winograd takes half of what direct takes.
type ways struct{ space *genome.Space }

func (n *ways) Measure(_ context.Context, placements []*genome.Placement, _ *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	for i, p := range placements {
		profile := &feedback.Profile{}
		for _, k := range p.Chosen[0] {
			c := &n.space.Functions[0].Set.Candidates[k]
			ms := map[string]float64{"": 6, "direct": 2, "winograd": 1}[c.Composite]
			profile.Parts = append(profile.Parts, feedback.Part{Nodes: c.Nodes, Milliseconds: ms})
		}
		c := cost.Cost{Samples: []float64{profile.Total()}, Network: &cost.Network{Seconds: 1, Against: []float64{36}}}
		RecordProfile(profile, c.Network)
		if err := taken(i, c); err != nil {
			return err
		}
	}
	return nil
}
