// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// library is a backend of the tests; "tvm" takes anything.
type library struct {
	name   string
	merges bool
}

func (l library) Name() string        { return l.name }
func (l library) Description() string { return "a library of the tests" }
func (l library) Level() byoc.Level   { return byoc.OperatorLevel }
func (l library) Compiler() string {
	if l.name == "tvm" {
		return ""
	}
	return l.name
}
func (l library) Patterns() []byoc.Pattern { return nil }
func (l library) TakesAnything() bool      { return l.name == "tvm" }
func (l library) MergesRegions() bool      { return l.merges }
func (l library) Probe() byoc.Probe        { return byoc.Probe{Usable: true} }
func (l library) Install() error           { return nil }

// vain is fast alone and slow in company; shy is slow alone and fast in company, in regions of some size, but for exp.
var backends = []byoc.Backend{library{"tvm", false}, library{"vain", false}, library{"shy", true}}

// alone is what each operator takes when it is measured by itself.
var alone = map[string]float64{"tvm": 4, "vain": 1, "shy": 6}

// network is a fake of whole networks: true times with interactions, the same samples for the same placement every
// time.
type network struct {
	space *genome.Space
	// profile says that parts are timed, too.
	profile bool
	// measured counts how often each placement was measured; dieAt ends the search after so many.
	measured map[string]int
	dieAt    int
	// broken are placements that cannot be run, by the backend that they hold; inexact are those whose outputs are off.
	broken, inexact string
	// passing says that what is broken may go well another time.
	passing bool
}

// holds says that a placement has a region on a backend.
func (n *network) holds(p *genome.Placement, backend string) bool {
	return slices.ContainsFunc(p.Regions[0], func(r annotate.Region) bool { return r.Backend == backend })
}

func (n *network) of(p *genome.Placement) (total float64, parts []feedback.Part) {
	f := &n.space.Functions[0]
	in := map[int]int{}
	for _, r := range p.Regions[0] {
		for _, k := range r.Candidates {
			in[k] = len(r.Candidates)
		}
	}
	company := false
	for _, k := range p.Chosen[0] {
		company = company || f.Set.Candidates[k].Backend != "vain" && !f.Set.Candidates[k].Free
	}
	for _, k := range p.Chosen[0] {
		c := &f.Set.Candidates[k]
		if c.Free {
			continue
		}
		ms := alone[c.Backend]
		switch {
		case c.Backend == "vain" && company:
			ms = 9
		case c.Backend == "shy" && f.Set.Graph.Nodes[c.Root].Op == "exp":
			ms = 8
		case c.Backend == "shy" && in[k] >= 2:
			ms = 0.5
		}
		total += ms
		parts = append(parts, feedback.Part{Nodes: c.Nodes, Milliseconds: ms})
	}
	return total, parts
}

func (n *network) Measure(_ context.Context, placements []*genome.Placement, best *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	for i, p := range placements {
		if n.dieAt > 0 && len(n.measured) >= n.dieAt {
			return errors.New("killed")
		}
		n.measured[p.Key]++
		total, parts := n.of(p)
		h := fnv.New64a()
		h.Write([]byte(p.Key))
		r := rand.New(rand.NewPCG(h.Sum64(), 3))
		c := cost.Cost{Origin: cost.Measured, Network: &cost.Network{Seconds: 1, Bytes: 1000, Resident: 2000}}
		for round := range 9 {
			if round == roundsToJudge && best != nil && Hopeless(c, *best) {
				break
			}
			busy := 1 + r.Float64() // somebody else is on the machine
			c.Samples = append(c.Samples, total*busy*(1+0.002*r.Float64()))
			c.Network.Against = append(c.Network.Against, 40*busy*(1+0.002*r.Float64()))
		}
		if n.inexact != "" {
			if c.Network.Errors = (&cost.Errors{}); n.holds(p, n.inexact) {
				c.Network.Errors.L2 = 0.02
			}
		}
		if n.profile {
			RecordProfile(&feedback.Profile{Parts: parts}, c.Network)
		}
		if n.broken != "" && n.holds(p, n.broken) {
			c = cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindCrash, Unkept: n.passing}, time.Time{})
		}
		if err := taken(i, c); err != nil {
			return err
		}
	}
	return nil
}

// chain is a chain of operators that all backends take, but for "sort", which only TVM does.
func chain(t *testing.T, ops ...string) *genome.Space {
	t.Helper()
	m := relay.NewGraph("main")
	v := m.Var([]int64{8}, "float32")
	for _, op := range ops {
		v = m.Call(op, relay.Tensor("float32", 8), nil, v)
	}
	g := m.Finish(v)
	set := &candidate.Set{Graph: g}
	var costs []float64
	for id := range g.Nodes {
		nodes := []relay.NodeID{relay.NodeID(id)}
		if !g.Placeable(nodes[0]) {
			continue
		}
		for _, b := range backends {
			if g.Nodes[id].Op == "sort" && b.Name() != "tvm" {
				continue
			}
			inputs, _ := g.Boundary(nodes)
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: b.Name(), Nodes: nodes, Root: nodes[0], Inputs: inputs,
					Key: g.Nodes[id].Op})
			costs = append(costs, alone[b.Name()])
		}
	}
	s, err := genome.NewSpace(backends, []genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	return s
}

// operatorLevel is the cheapest placement by the costs.
func operatorLevel(t *testing.T, s *genome.Space) *genome.Placement {
	t.Helper()
	f := &s.Functions[0]
	options := make([]place.Option, len(f.Costs))
	for k := range options {
		options[k] = place.Option{Nodes: f.Set.Candidates[k].Nodes, Cost: f.Costs[k]}
	}
	p, err := place.Solve(options, f.Tree)
	require.NoError(t, err)
	return s.Place([][]int{p.Chosen})
}

func seedsOf(t *testing.T, s *genome.Space) []Seed {
	t.Helper()
	tvm, err := s.Decode(s.Uniform(0))
	require.NoError(t, err)
	vain, err := s.Decode(s.Uniform(1))
	require.NoError(t, err)
	shy, err := s.Decode(s.Uniform(2))
	require.NoError(t, err)
	return []Seed{{Name: "tvm", Placement: tvm}, {Name: "operator level", Placement: operatorLevel(t, s)},
		{Name: "vain", Placement: vain},
		{Name: "shy", Placement: shy}}
}

var ten = []string{"exp", "tanh", "sqrt", "sort", "tanh", "tanh", "sqrt", "exp", "tanh", "sqrt"}

func begin(t *testing.T, s *genome.Space, n *network, options Options) (*Result, error) {
	t.Helper()
	if n.measured == nil {
		n.measured = map[string]int{}
	}
	n.space = s
	return Search(context.Background(), s, seedsOf(t, s), n, options)
}

// optimum is the least true time of ten: sort and exp on TVM, all others in three regions of shy.
const optimum = 3*4 + 7*0.5

func best(t *testing.T, r *Result, n *network) (float64, *Trial) {
	t.Helper()
	at := &r.Trials[r.Best()[0]]
	total, _ := n.of(at.Placement)
	return total, at
}

func TestItFindsOutWhoIsSlowAndWhoIsFastInCompany(t *testing.T) {
	t.Parallel()
	for _, profiled := range []bool{false, true} {
		t.Run(fmt.Sprintf("profiled=%v", profiled), func(t *testing.T) {
			s := chain(t, ten...)
			n := &network{profile: profiled}
			start, _ := (&network{space: s}).of(operatorLevel(t, s))
			require.Equal(t, 9*9+4.0, start, "by costs measured alone, everything goes to the one that is slow in "+
				"company")
			r, err := begin(t, s, n, Options{Trials: 120, Patience: 200, Time: time.Hour})
			require.NoError(t, err)
			total, at := best(t, r, n)
			assert.Equal(t, optimum, total, "%s", at.Name)
			for _, c := range at.Placement.Chosen[0] {
				assert.NotEqual(t, "vain", s.Functions[0].Set.Candidates[c].Backend)
			}
			for key, times := range n.measured {
				assert.Equal(t, 1, times, key)
			}
		})
	}
}

func TestFeedbackAloneUnmasksTheOneThatIsSlowInCompany(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	n := &network{profile: true}
	seeds := seedsOf(t, s)
	r, err := begin(t, s, n, Options{Trials: 7, Patience: 1})
	require.NoError(t, err)
	total, at := best(t, r, n)
	for _, seed := range seeds {
		of, _ := n.of(seed.Placement)
		assert.Less(t, total, of, "what came of feedback is better than %s", seed.Name)
	}
	assert.NotContains(t, []string{"tvm", "operator level", "vain", "shy"}, at.Name)
	require.NotEmpty(t, r.Steps)
	last := r.Steps[len(r.Steps)-1]
	for _, step := range r.Steps {
		assert.InDelta(t, step.Kernels, step.Kernels+step.Border, 1e-9)
		assert.NotEmpty(t, step.Placement)
	}
	assert.True(t, last.Repeats || len(r.Steps) > DefaultFeedback, "%+v", r.Steps)
	// What was seen in place is kept beside what it took alone.
	seen := 0
	for k := range s.Functions[0].Costs {
		if _, ok := r.Tables[0].Seen(k); ok {
			seen++
		}
	}
	assert.Positive(t, seen)
}

func TestTheSearchIsNeverWorseThanItsSeeds(t *testing.T) {
	t.Parallel()
	for _, profiled := range []bool{false, true} {
		s := chain(t, ten...)
		n := &network{profile: profiled}
		seeds := seedsOf(t, s)
		r, err := begin(t, s, n, Options{Trials: 6})
		require.NoError(t, err)
		// By the true times, not by the scores that made it the best.
		total, at := best(t, r, n)
		for _, seed := range seeds {
			of, _ := n.of(seed.Placement)
			assert.LessOrEqual(t, total, of, "%s against %s", at.Name, seed.Name)
			assert.Contains(t, n.measured, seed.Placement.Key, "%s was measured", seed.Name)
		}
	}
}

func names(r *Result) []string {
	var list []string
	for _, t := range r.Trials {
		list = append(list, t.Name+" "+t.Placement.Key)
	}
	return list
}

// What a record rests on beside the placement is in its key: with other scales, and there alone, networks are measured
// anew.
func TestRecordsRestOnWhatTheyAreSaidTo(t *testing.T) {
	t.Parallel()
	store := cost.NewMemoryStore()
	s := chain(t, ten...)
	rounds := s.Place(operatorLevel(t, s).Chosen).Key
	measured := func(scales string) int {
		n := &network{}
		_, err := begin(t, s, n, Options{SeedsOnly: true, Store: store, Rests: func(p *genome.Placement) string {
			if p.Key == rounds {
				return scales
			}
			return ""
		}})
		require.NoError(t, err)
		return len(n.measured)
	}
	require.Greater(t, measured(" scales 1"), 1)
	assert.Zero(t, measured(" scales 1"))
	assert.Equal(t, 1, measured(" scales 2"))
}

func TestAKilledSearchGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	const trials = 9
	options := func(store *cost.Store) Options {
		return Options{Trials: trials, Patience: 100, Store: store, Time: time.Hour}
	}
	whole := &network{profile: true}
	want, err := begin(t, chain(t, ten...), whole, options(cost.NewMemoryStore()))
	require.NoError(t, err)
	require.Len(t, want.Trials, trials)

	r := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		path := filepath.Join(t.TempDir(), "costs.jsonl")
		killed := 2 + r.IntN(trials-3) // a whole batch, or more rounds would be given up than before
		store, err := cost.OpenStore(path)
		require.NoError(t, err)
		n := &network{profile: true, dieAt: killed}
		part, err := begin(t, chain(t, ten...), n, options(store))
		require.Error(t, err, "killed after %d", killed)
		require.NoError(t, store.Close())
		require.LessOrEqual(t, len(part.Trials), killed)

		store, err = cost.OpenStore(path)
		require.NoError(t, err)
		again := &network{profile: true}
		got, err := begin(t, chain(t, ten...), again, options(store))
		require.NoError(t, err)
		assert.Equal(t, names(want), names(got), "killed after %d", killed)
		assert.Equal(t, want.Trials[want.Best()[0]].Placement.Key, got.Trials[got.Best()[0]].Placement.Key)
		assert.Equal(t, want.Why, got.Why)
		assert.Equal(t, want.Spent, got.Spent, "what the store has counts as long as it took")
		assert.Equal(t, want.Steps, got.Steps)
		assert.Len(t, again.measured, trials-killed, "nothing is measured twice")
		require.NoError(t, store.Close())
	}
}

func TestTheBudget(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	r, err := begin(t, s, &network{}, Options{Time: 8 * time.Second, Patience: 1000})
	require.NoError(t, err)
	assert.Equal(t, "its 8s were used up", r.Why)
	assert.InDelta(t, 8, len(r.Trials), 1, "the seeds' time is a part of it")

	r, err = begin(t, s, &network{}, Options{Trials: 5, Patience: 9})
	require.NoError(t, err)
	assert.Len(t, r.Trials, 5)

	r, err = begin(t, chain(t, "sort"), &network{}, Options{})
	require.NoError(t, err)
	assert.Len(t, r.Trials, 1, "seeds that are the same network are one")
	assert.Equal(t, "every change that could be made to the best was tried", r.Why)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s = chain(t, ten...)
	_, err = Search(ctx, s, seedsOf(t, s), &network{space: s, measured: map[string]int{}}, Options{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNetworksThatFailOrAreTooLarge(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	n := &network{broken: "vain"}
	r, err := begin(t, s, n, Options{Trials: 20})
	require.NoError(t, err)
	_, at := best(t, r, n)
	for _, region := range at.Placement.Regions[0] {
		assert.NotEqual(t, "vain", region.Backend)
	}

	var told []string
	r, err = begin(t, s, &network{}, Options{Trials: 4, MemoryLimit: 1000, Progress: func(e Event) {
		told = append(told, e.Trial.Cost.Failure.Kind)
	}})
	require.NoError(t, err)
	assert.Empty(t, r.Best())
	assert.Equal(t, "none of the networks runs", r.Why)
	assert.Equal(t, []string{"out-of-memory", "out-of-memory", "out-of-memory"}, told)
	assert.Contains(t, r.Trials[0].Cost.Failure.Detail, "the limit is 0.0 MB")
}

// What is further off than it may be is no result, whatever it takes; with another limit the store's records serve.
func TestNetworksThatAreTooFarOff(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	store := cost.NewMemoryStore()
	n := &network{inexact: "shy", profile: true}
	limit := cost.Limit{Most: 0.01, Measure: cost.L2}
	r, err := begin(t, s, n, Options{Trials: 20, Limit: limit, Store: store})
	require.NoError(t, err)
	exceeding := 0
	for i := range r.Trials {
		if trial := &r.Trials[i]; n.holds(trial.Placement, "shy") {
			exceeding++
			assert.Equal(t, "its outputs are off by 0.02 (l2) where 0.01 is allowed", trial.Exceeds)
			assert.False(t, trial.Cost.Failed())
			assert.NotContains(t, r.Best(), i)
		} else {
			assert.Empty(t, trial.Exceeds)
		}
	}
	require.Positive(t, exceeding)
	assert.Len(t, r.Best(), len(r.Trials)-exceeding)

	again := &network{inexact: "shy", profile: true}
	wide, err := begin(t, chain(t, ten...), again, Options{Trials: len(r.Trials), Store: store,
		Limit: cost.Limit{Most: 0.05, Measure: cost.L2}})
	require.NoError(t, err)
	assert.Len(t, wide.Best(), len(wide.Trials))
	assert.Less(t, len(again.measured), len(wide.Trials), "what stands in the store is not measured again")
}

func TestHopeless(t *testing.T) {
	t.Parallel()
	fast := cost.Cost{Samples: []float64{1, 1.1, 1, 1.2}}
	slow := cost.Cost{Samples: []float64{2, 2, 2}}
	assert.True(t, Hopeless(slow, fast))
	assert.False(t, Hopeless(fast, slow))
	assert.False(t, Hopeless(cost.Cost{Samples: []float64{2, 2}}, fast), "two rounds say nothing")
	assert.False(t, Hopeless(slow, cost.Cost{}))
	busy := cost.Cost{Samples: []float64{2, 2, 2}, Network: &cost.Network{Against: []float64{20, 20, 20}}}
	assert.False(t, Hopeless(busy, cost.Cost{Samples: []float64{1, 1, 1},
		Network: &cost.Network{Against: []float64{9, 9, 9}}}),
		"the machine was busy, and TVM was as slow")

	best := cost.Cost{Samples: []float64{1, 1, 1},
		Network: &cost.Network{Against: []float64{4, 2, 1.6}}} // TVM is noisy
	paced := cost.Cost{Samples: []float64{2, 2, 2},
		Network: &cost.Network{Against: []float64{1.9, 1.9, 1.9}, Pace: 0.5}}
	assert.InDelta(t, 0.5/0.95, Score(paced), 1e-9, "of plain TVM's time, by way of the best one")
	assert.True(t, Hopeless(paced, best), "in the rounds that both ran in")
	assert.True(t, Behind(paced, 0.5), "5 % behind")
	assert.False(t, Behind(paced, 0.52))
	assert.False(t, Behind(cost.Cost{Samples: []float64{9, 9}}, 0.5), "two rounds do not tell")
	assert.False(t, Hopeless(cost.Cost{Samples: []float64{2, 2, 2},
		Network: &cost.Network{Against: []float64{4, 4, 4}}}, best))
}

// A failure that is not the network's own is not in the store: another search measures it again.
func TestWhatFailedForTheMachinesSakeIsNotStored(t *testing.T) {
	t.Parallel()
	for _, passing := range []bool{false, true} {
		store, s := cost.NewMemoryStore(), chain(t, ten...)
		n := &network{broken: "vain", passing: passing}
		r, err := begin(t, s, n, Options{Store: store, SeedsOnly: true})
		require.NoError(t, err)
		require.Len(t, r.Trials, 3)
		assert.True(t, r.Trials[1].Cost.Failed())
		n.broken = ""
		r, err = begin(t, s, n, Options{Store: store, SeedsOnly: true})
		require.NoError(t, err)
		assert.Equal(t, !passing, r.Trials[1].Cost.Failed())
		assert.Equal(t, 1, n.measured[r.Trials[0].Placement.Key], "what ran is stored")
	}
}
