// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/lane"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
	"github.com/collage-tvm/collage/relay"
)

// pace says how long things take in a simulated compilation.
type pace struct {
	build, run, start, learn time.Duration
	// profile is what profiling a network takes beside running it, and write what writing an executable takes: in the
	// rehearsal, where there is one, and in the end.
	profile, write, writeInTheEnd time.Duration
	// straggler is how many times as long one of eight builds, runs and loads takes.
	straggler float64
}

// of is what something takes: around what is usual, always the same for the same thing.
func (p *pace) of(usual time.Duration, what string) time.Duration {
	h := fnv.New64a()
	fmt.Fprint(h, what)
	r := rand.New(rand.NewPCG(h.Sum64(), 7))
	factor := 0.7 + 0.6*r.Float64()
	if r.IntN(8) == 0 && p.straggler > 0 {
		factor *= p.straggler
	}
	return time.Duration(factor * float64(usual))
}

// pass lets time go by, unless the context ends before.
func (p *pace) pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// library is a backend of the simulation; "tvm" takes anything.
type library string

func (l library) Name() string        { return string(l) }
func (l library) Description() string { return "a library of the tests" }
func (l library) Level() byoc.Level   { return byoc.OperatorLevel }
func (l library) Compiler() string {
	if l == "tvm" {
		return ""
	}
	return string(l)
}
func (l library) Patterns() []byoc.Pattern { return nil }
func (l library) TakesAnything() bool      { return l == "tvm" }
func (l library) MergesRegions() bool      { return l != "tvm" }
func (l library) Probe() byoc.Probe        { return byoc.Probe{Usable: true} }
func (l library) Install() error           { return nil }

// narrowed is a library that computes in bytes what another one does in float32.
type narrowed struct {
	library
	wide string
}

func (narrowed) Precision() byoc.Precision { return byoc.INT8 }
func (n narrowed) Wide() string            { return n.wide }

// module is a network of the simulation: a chain of operators that three backends take.
type module struct {
	*pace
	all   *genome.Space
	first *genome.Placement
	// left is how many operators placements leave to TVM, by key.
	left map[string]int
	// only is the backend that all placements come to; "" for each its own.
	only string
	// log has what was run, and when candidates were measured alone.
	log []string
	// likelyOnly has what Learn was told.
	likelyOnly []bool
}

func newModule(t *testing.T, p *pace, backends ...byoc.Backend) *module {
	t.Helper()
	m := relay.NewGraph("main")
	v := m.Var([]int64{8}, "float32")
	for i := range 60 {
		v = m.Call([]string{"exp", "tanh", "sqrt"}[i%3], relay.Tensor("float32", 8), nil, v)
	}
	g := m.Finish(v)
	set := &candidate.Set{Graph: g}
	var costs []float64
	for id := range g.Nodes {
		nodes := []relay.NodeID{relay.NodeID(id)}
		if !g.Placeable(nodes[0]) {
			continue
		}
		for k, b := range backends {
			inputs, _ := g.Boundary(nodes)
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: b.Name(), Nodes: nodes, Root: nodes[0], Inputs: inputs,
					Key: g.Nodes[id].Op})
			costs = append(costs, float64(len(backends)-k))
		}
	}
	s, err := genome.NewSpace(backends, []genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	n := &module{pace: p, all: s}
	n.first = n.Alone(backends[2].Name())
	return n
}

func (n *module) placed() *genome.Placement                   { return n.first }
func (n *module) space() *genome.Space                        { return n.all }
func (n *module) Backends() []byoc.Backend                    { return n.all.Backends }
func (n *module) Key() cost.Key                               { return cost.Key{Structure: "net", Backend: "all"} }
func (n *module) Overhead() place.Overhead                    { return place.Overhead{} }
func (n *module) Bounded() [][]bool                           { return nil }
func (n *module) Renew()                                      {}
func (n *module) Tuned(backends ...string) *genome.Placement  { return n.Alone(backends[0]) }
func (n *module) GroupedKernels() []string                    { return nil }
func (n *module) Grouped(string, ...string) *genome.Placement { return nil }
func (n *module) Families() [][]string                        { return nil }
func (n *module) Left(p *genome.Placement) int                { return n.left[p.Key] }
func (n *module) BackendsOf(*genome.Placement) []string       { return nil }
func (n *module) Together(...string) *genome.Placement        { return nil }
func (n *module) RunnersUp() []graphlevel.Seed                { return nil }
func (n *module) Kept(p *genome.Placement) func() *genome.Placement {
	return func() *genome.Placement { return p }
}
func (n *module) Plan(*genome.Placement, *graphlevel.Result) (*plan.Plan, error) {
	return &plan.Plan{}, nil
}

func (n *module) Exchange(*genome.Placement, *graphlevel.Result, *plan.Plan) {}

func (n *module) Alone(backend string) *genome.Placement {
	if n.only != "" {
		backend = n.only
	}
	p, err := n.all.Decode(n.all.Uniform(n.all.Backend(backend)))
	if err != nil {
		panic(err)
	}
	return p
}

func (n *module) Learn(until context.Context, _ []*feedback.Table, likelyOnly bool) error {
	n.likelyOnly = append(n.likelyOnly, likelyOnly)
	n.log = append(n.log, "candidates alone")
	_ = n.pass(until, n.learn)
	return nil
}

// works is a lane of the simulation: two builders side by side, then one network after another is measured.
type works struct {
	*pace
	// parts are what operators take by operator and backend, where networks take the sum of theirs; nil: what a network
	// takes has nothing to do with its operators.
	parts     map[string]map[string]float64
	disagrees error // what Agree finds
	// off is how far outputs are off, by a backend that has a part in it.
	off map[string]float64
	// whole is what profiles do not tell.
	whole []feedback.Whole
	// poll is called after each network, as real workers call it all the while; nil: it is not.
	poll    func() error
	net     *module
	budget  *budget.Budget
	plain   *genome.Placement
	started bool
	// builds counts how often each placement was built.
	builds map[string]int
	built  map[string]*lane.Executable
	// known are the placements whose values were looked at.
	known []string
}

func (w *works) Plain() *genome.Placement                                { return w.plain }
func (w *works) Built(p *genome.Placement) bool                          { return w.built[p.Key] != nil }
func (w *works) Forget(...*genome.Placement)                             {}
func (w *works) Rest()                                                   {}
func (w *works) Renew() error                                            { return nil }
func (m *module) Scales() *cost.Scales                                   { return nil }
func (m *module) ScalesText(*genome.Placement) string                    { return "" }
func (m *module) Adds(int, relay.NodeID, byoc.Precision) (float64, bool) { return 0, false }
func (w *works) Close()                                                  {}

func (w *works) Know(_ context.Context, p *genome.Placement) error {
	w.known = append(w.known, p.Key)
	return nil
}

func (w *works) milliseconds(key string) float64 {
	return float64(w.of(40*time.Millisecond, "speed "+key)) / 1e6
}

func (w *works) Agree(_ context.Context, _ *lane.Executable, t witness.Testimony) (witness.Agreement, error) {
	return witness.Agreement{Engine: t.Engine}, w.disagrees
}

func (w *works) Footprint(ctx context.Context, _ *lane.Executable) (measure.Footprint, error) {
	return measure.Footprint{Resident: 1, Peak: 2}, w.pass(ctx, w.of(w.start, "footprint"))
}

func (w *works) Build(ctx context.Context, placements []*genome.Placement) error {
	builders := [2]time.Duration{}
	type done struct {
		key  string
		took time.Duration
		at   time.Duration
	}
	var list []done
	for _, p := range placements {
		if w.built[p.Key] != nil || slices.ContainsFunc(list, func(d done) bool { return d.key == p.Key }) {
			continue
		}
		k := 0
		if builders[1] < builders[0] {
			k = 1
		}
		took := w.of(w.build, "build "+p.Key)
		builders[k] += took
		list = append(list, done{p.Key, took, builders[k]})
	}
	slices.SortFunc(list, func(a, b done) int { return int(a.at - b.at) })
	now := time.Duration(0)
	for _, d := range list {
		if err := w.pass(ctx, d.at-now); err != nil {
			return err
		}
		now = d.at
		w.builds[d.key]++
		w.budget.Built(d.took)
		w.built[d.key] = &lane.Executable{Path: d.key, Bytes: 1000}
	}
	return nil
}

func (w *works) Executable(ctx context.Context, p *genome.Placement) (*lane.Executable, error) {
	err := w.Build(ctx, []*genome.Placement{p})
	return w.built[p.Key], err
}

func (w *works) Measure(ctx context.Context, placements []*genome.Placement, _ *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	began := time.Now()
	if err := w.Build(ctx, append([]*genome.Placement{w.plain}, placements...)); err != nil {
		return err
	}
	building := time.Since(began) / time.Duration(len(placements))
	for i, p := range placements {
		measured := time.Now()
		took := w.of(w.run, "run "+p.Key)
		if !w.started {
			took, w.started = took+w.start, true
		}
		profile := w.of(w.profile, "profile "+p.Key)
		if err := w.pass(ctx, took+profile); err != nil {
			return err
		}
		if w.poll != nil {
			if err := w.poll(); err != nil {
				return err
			}
		}
		w.budget.Ran(time.Since(measured), profile)
		c := cost.Cost{Origin: cost.Measured,
			Network: &cost.Network{Seconds: (building + time.Since(measured)).Seconds()}}
		w.net.log = append(w.net.log, p.Key)
		var parts []feedback.Part
		total, set := 0.0, w.net.all.Functions[0].Set
		for _, k := range p.Chosen[0] {
			ms := w.milliseconds(p.Key) / 60
			if w.parts != nil {
				ms = w.parts[set.Graph.Nodes[set.Candidates[k].Root].Op][set.Candidates[k].Backend]
			}
			total += ms
			parts = append(parts, feedback.Part{Nodes: set.Candidates[k].Nodes, Milliseconds: ms})
		}
		for range 9 {
			c.Samples = append(c.Samples, total)
			c.Network.Against = append(c.Network.Against, 50)
		}
		for backend, off := range w.off {
			if slices.ContainsFunc(p.Chosen[0], func(k int) bool { return set.Candidates[k].Backend == backend }) {
				c.Network.Errors, c.Network.HeldOut = &cost.Errors{L2: off}, &cost.Errors{L2: off}
			}
		}
		graphlevel.RecordProfile(&feedback.Profile{Parts: parts, Whole: w.whole}, c.Network)
		if err := taken(i, c); err != nil {
			return err
		}
	}
	return nil
}

// turns runs finalists in the simulation.
type turns struct {
	*works
	models []string
}

func (*turns) Close() error { return nil }

func (r *turns) Compare(ctx context.Context, models []measure.Model, o measure.CompareOptions) (*measure.Comparison,
	error) {
	took := r.start
	comparison := &measure.Comparison{Costs: map[string]cost.Cost{}, Outputs: map[string]measure.OutputCheck{}}
	for _, m := range models {
		r.models = append(r.models, m.Path)
		ms := r.milliseconds(m.Path)
		took += r.of(r.run/2, "load "+m.Path) + time.Duration(float64(o.Rounds)*ms*1e6)
		c := cost.Cost{Origin: cost.Measured}
		for range o.Rounds {
			c.Samples = append(c.Samples, ms)
		}
		comparison.Costs[m.Name], comparison.Outputs[m.Name] = c, measure.OutputCheck{OK: true}
	}
	return comparison, r.pass(ctx, took)
}

// simulated is a compilation of the simulation.
type simulated struct {
	decided *Decision
	took    time.Duration
	works   *works
	c       *decision
}

// simulate decides on a clock of its own; reading the model takes a second, ending a quarter.
func simulate(t *testing.T, p *pace, total time.Duration, store string) *simulated {
	t.Helper()
	began := time.Now()
	c, w := prepare(t, p, total, store)
	require.NoError(t, c.searchOpened())
	decided, err := c.conclude()
	require.NoError(t, err)
	time.Sleep(p.writeInTheEnd + 250*time.Millisecond)
	return &simulated{decided, time.Since(began), w, c}
}

// prepare is a compilation of the simulation that has read its model.
func prepare(t *testing.T, p *pace, total time.Duration, store string) (*decision, *works) {
	t.Helper()
	return prepareWith(t, p, total, store, library("tvm"), library("one"), library("two"))
}

func prepareWith(t *testing.T, p *pace, total time.Duration, store string, backends ...byoc.Backend) (*decision,
	*works) {
	t.Helper()
	c := &decision{ctx: t.Context(), searching: t.Context(), budget: budget.New(total, nil)}
	c.Options = Options{Name: "net", Store: store, Rounds: settings.DefaultRounds,
		SearchTime: total,
		Temporary:  t.TempDir(), Progress: &progress.Printer{}}
	for _, b := range backends {
		c.Backends = append(c.Backends, b.Name())
	}
	time.Sleep(time.Second)
	n := newModule(t, p, backends...)
	w := &works{pace: p, net: n, budget: c.budget, plain: n.Alone("tvm"), builds: map[string]int{},
		built: map[string]*lane.Executable{}}
	c.Rehearse = func(string) error { time.Sleep(p.write); return nil }
	c.testRunner = &turns{works: w}
	c.graph = &graph{network: n, lane: w, result: &graphlevel.Result{}, moments: map[string]plan.Moment{}}
	return c, w
}

// Networks are placed by what parts take in place before candidates are measured alone: that is often the best.
func TestOneStepOfFeedbackComesBeforeCandidatesAlone(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second, learn: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
		w.parts = map[string]map[string]float64{"exp": {"tvm": 2, "one": 0.1, "two": 1},
			"tanh": {"tvm": 2, "one": 1, "two": 0.1}, "sqrt": {"tvm": 2, "one": 1, "two": 0.1}}
		require.NoError(t, c.searchOpened())
		feedback := slices.IndexFunc(c.graph.result.Trials, func(t graphlevel.Trial) bool { return t.Name == "feedback 1" })
		require.GreaterOrEqual(t, feedback, 0)
		best := c.graph.result.Trials[feedback]
		assert.InDelta(t, 6, best.Cost.Estimate(), 1e-9, "each operator where it is the fastest")
		alone := slices.Index(w.net.log, "candidates alone")
		assert.Equal(t, []bool{true}, w.net.likelyOnly, "whole networks tell more than what is unlikely to gain")
		require.Greater(t, alone, 0)
		assert.Contains(t, w.net.log[:alone], best.Placement.Key)
	})
}

// Ctrl-C once keeps the fastest so far; twice ends everything with what the host raised, even where both are seen at
// once: that the search is to end does not hide it.
func TestTheSecondInterruptIsNotTakenForTheFirst(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second}
	raised := errors.New("KeyboardInterrupt")
	for _, twice := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
			c.Ending = &Ending{}
			polled := 0
			c.Poll = func() error {
				if polled++; polled < 4 {
					return nil
				}
				c.Ending.End()
				if twice {
					return raised
				}
				return nil
			}
			w.poll = c.poll
			decided, err := c.under(t.Context(), func() (*Decision, error) {
				if err := c.searchOpened(); err != nil {
					return nil, err
				}
				return c.conclude()
			})
			if twice {
				require.ErrorIs(t, err, raised)
				assert.Nil(t, decided)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "it was interrupted", c.graph.result.Why)
			assert.Contains(t, w.built, decided.Path)
		})
	}
}

// What TVM read wrong is not searched for the fastest way to compute it.
func TestAWrongReadingEndsTheSearch(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second, learn: 3 * time.Second}
	for _, test := range []struct {
		name      string
		testimony witness.Testimony
		disagrees error
		more      bool // networks are built after the seeds
	}{
		{"another answer", witness.Testimony{Engine: "E 1"},
			&witness.DisagreementError{Engine: "E 1", Mismatch: "by 3"}, false},
		{"the same answer", witness.Testimony{Engine: "E 1"}, nil, true},
		{"no answer", witness.Testimony{Unchecked: "it draws"}, errors.New("nobody asks"), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
			c.Witness, w.disagrees = witness.Known(test.testimony), test.disagrees
			err := c.searchOpened()
			if !test.more {
				require.ErrorIs(t, err, test.disagrees, test.name)
				assert.Len(t, w.builds, 3, "%s: plain TVM and two backends alone", test.name)
				return
			}
			require.NoError(t, err, test.name)
			decided, err := c.conclude()
			require.NoError(t, err, test.name)
			assert.Greater(t, len(w.builds), 3, test.name)
			assert.Equal(t, &witness.Agreement{Engine: test.testimony.Engine, Unchecked: test.testimony.Unchecked},
				decided.Agreement, test.name)
		})
	}
}

// The whole ends in the time that was asked for wherever the first two networks fit into it, however long single things
// take; where they do not, that is said. Nothing is built twice, and what is written is what was built in the search.
func TestTheWholeEndsInTime(t *testing.T) {
	late, inTime, searched, full := 0, 0, 0, 0
	for _, p := range []*pace{
		{build: 2 * time.Second, run: 400 * time.Millisecond, start: time.Second, learn: time.Minute},
		{build: 6 * time.Second, run: time.Second, start: 2 * time.Second, learn: 3 * time.Second, straggler: 3},
		{build: 12 * time.Second, run: 5 * time.Second, start: 3 * time.Second, learn: time.Hour, straggler: 2},
		{build: time.Second, run: 8 * time.Second, start: 4 * time.Second, straggler: 4},
		{build: time.Second, run: 300 * time.Millisecond, start: time.Second, straggler: 60},
	} {
		for _, seconds := range []int{5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 300} {
			synctest.Test(t, func(t *testing.T) {
				total := time.Duration(seconds) * time.Second
				s := simulate(t, p, total, filepath.Join(t.TempDir(), "costs.jsonl"))
				what := fmt.Sprintf("%+v, %d s: took %v; %s; %v", *p, seconds, s.took, s.decided.Why, s.decided.Notes)
				for key, times := range s.works.builds {
					assert.Equal(t, 1, times, "%s: %s was built again", what, key)
				}
				assert.Contains(t, s.works.built, s.decided.Path, what)
				fits := s.c.graph.firstDone+s.c.budget.Writing() <= total
				if fits {
					assert.LessOrEqual(t, s.took, total, what)
					inTime++
				} else {
					late++
				}
				assert.Equal(t, !fits, slices.ContainsFunc(s.decided.Notes, isOverrun), what)
				assert.False(t, slices.ContainsFunc(s.decided.Plan.Notes, func(note string) bool {
					return isOverrun(note) || strings.HasPrefix(note, "There was no time")
				}), "the same costs give the same plan: %v", s.decided.Plan.Notes)
				assert.Subset(t, s.decided.Notes, s.decided.Plan.Notes)
				if len(s.c.graph.result.Trials) > firstFew {
					searched++
					why := s.c.graph.result.Why
					if s.took > total*9/10 || strings.Contains(why, "no improvement") ||
						strings.Contains(why, "every change") {
						full++
					}
				}
			})
		}
	}
	assert.Greater(t, late, 10)
	assert.Greater(t, inTime, 20)
	assert.Greater(t, searched, 15)
	assert.Greater(t, 5*full, 4*searched, "the time is used")
}

// How long writing takes is seen beforehand, on the disk where the executable is going to stand: slow ones do not make
// the whole late. Where it takes half or twice as long in the end, the whole ends earlier or later by as much.
func TestWritingIsKeptTimeFor(t *testing.T) {
	const write, total = 4 * time.Second, time.Minute
	for _, end := range []time.Duration{write / 2, write, 2 * write} {
		p := &pace{build: 5 * time.Second, run: time.Second, start: time.Second, write: write, writeInTheEnd: end}
		synctest.Test(t, func(t *testing.T) {
			s := simulate(t, p, total, filepath.Join(t.TempDir(), "costs.jsonl"))
			assert.Equal(t, write, s.c.budget.Writing()-budget.New(total, nil).Writing())
			assert.LessOrEqual(t, s.took, total+max(0, end-write), "%v in the end", end)
			assert.Greater(t, s.took, total*8/10, "%v in the end; %s", end, s.c.graph.result.Why)
		})
	}
}

// A disk that is full is told as soon as there is something to write.
func TestAFullDiskEndsTheSearch(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
		full := errors.New("the disk is full")
		c.Rehearse = func(string) error { return full }
		require.ErrorIs(t, c.searchOpened(), full)
		assert.Len(t, w.builds, 3, "plain TVM and two backends alone")
	})
}

// Finalists are not profiled: networks whose profiles take most of the time leave the search as much of it as others
// do.
func TestNoTimeIsKeptForProfilesInTheEnd(t *testing.T) {
	const total = time.Minute
	p := &pace{build: 500 * time.Millisecond, run: time.Second, start: time.Second, profile: 6 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		s := simulate(t, p, total, filepath.Join(t.TempDir(), "costs.jsonl"))
		assert.LessOrEqual(t, s.took, total)
		last := 0.0
		for _, at := range s.c.graph.moments {
			last = max(last, at.Seconds)
		}
		assert.Greater(t, last, 40.0, "%s", s.c.graph.result.Why)
		assert.Greater(t, len(s.c.finalists), 2)
	})
}

func isOverrun(note string) bool {
	var took, asked float64
	n, _ := fmt.Sscanf(note, "It takes %f s where %f s were asked for: ", &took, &asked)
	return n == 2
}

// Backends that leave the least to TVM are built first; one that the search passed over is no finalist.
func TestBackendsAloneComeByWhatTheyLeaveToTVM(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
		names := func() (list []string) {
			for _, seed := range c.alone() {
				assert.Equal(t, seed.Name != "tvm", seed.Alone)
				list = append(list, seed.Name)
			}
			return list
		}
		assert.Equal(t, []string{"tvm", "one", "two"}, names(), "as they were named")
		w.net.left = map[string]int{w.net.Alone("one").Key: 40, w.net.Alone("two").Key: 3}
		assert.Equal(t, []string{"tvm", "two", "one"}, names())

		require.NoError(t, c.searchOpened())
		titles := func() (list []string) {
			for _, f := range c.all() {
				list = append(list, f.name)
			}
			return list
		}
		assert.Subset(t, titles(), []string{"one", "two"})
		c.finalists, c.graph.result.PassedOver = nil, []string{"one"}
		require.NoError(t, c.graphFinalists(c.alone()))
		assert.Contains(t, titles(), "two")
		assert.NotContains(t, titles(), "one")
		c.finalists, c.graph.result.PassedOver, c.graph.result.FarOff = nil, nil, []string{"one"}
		require.NoError(t, c.graphFinalists(c.alone()))
		assert.Contains(t, titles(), "two")
		assert.NotContains(t, titles(), "one")
	})
}

// Narrow backends come first where they are allowed, the one first that is expected to take the least. Where their
// outputs are too far off, the engine that computes the same in float32 is built however short the time is: else plain
// TVM were all that is left.
func TestAnEngineIsKeptWhereNarrowOnesAreTooFarOff(t *testing.T) {
	for _, of := range []struct {
		seconds int
		off     float64
		alone   []string // what was measured first
	}{
		{12, 0.05, []string{"tvm", "one_int8", "one"}}, {12, 0.005, []string{"tvm", "one_int8"}},
		{90, 0.05, []string{"tvm", "one_int8", "two_int8"}},
	} {
		p := &pace{build: 2 * time.Second, run: time.Second, start: time.Second, learn: 3 * time.Second}
		synctest.Test(t, func(t *testing.T) {
			c, w := prepareWith(t, p, time.Duration(of.seconds)*time.Second, filepath.Join(t.TempDir(), "costs.jsonl"),
				library("tvm"), library("one"), library("two"), narrowed{"two_int8", "two"}, narrowed{"one_int8", "one"})
			c.Precision = settings.Precision{Allowed: settings.PrecisionINT8}
			w.off = map[string]float64{"one_int8": of.off, "two_int8": of.off}
			w.parts = map[string]map[string]float64{}
			for _, op := range []string{"exp", "tanh", "sqrt"} {
				w.parts[op] = map[string]float64{"tvm": 0.8, "one": 0.4, "two": 0.5, "one_int8": 0.1, "two_int8": 0.2}
			}
			require.NoError(t, c.searchOpened())
			var names []string
			for _, trial := range c.graph.result.Trials {
				names = append(names, trial.Name)
			}
			require.GreaterOrEqual(t, len(names), len(of.alone), "%v", names)
			assert.Equal(t, of.alone, names[:len(of.alone)], "%+v", of)
			if !slices.Contains(names, "two_int8") {
				assert.NotContains(t, w.known, w.net.Alone("two_int8").Key, "there was no time to measure it")
			}
			decided, err := c.conclude()
			require.NoError(t, err)
			assert.NotEqual(t, w.plain.Key, decided.Path)
			if of.off > settings.DefaultMaxError {
				assert.Contains(t, names, "one")
			}
		})
	}
}
