// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// computations are the different ones among all candidates: what is measured at most.
type computations struct {
	requests []cost.Request
	bounds   []float64
	// reference says that the computation is a single operator on a backend that takes anything.
	reference []bool
	// of says, for each function, which computation each candidate is; lazy.Free for those that cost nothing.
	of [][]int
	// counts for the events
	known, done int
}

// mostBuilders is how many workers compile side by side at most: each holds some 300 MB.
const mostBuilders = 4

// mostProposals is how often backends are asked for further candidates at most.
const mostProposals = 3

// estimate finds out what the candidates cost, measuring as little as the proof needs, and lets the backends propose
// further ones from what was learnt until they have nothing more to say.
func (s *search) estimate() error {
	defer clock(&s.timings.Measure)()
	estimator, done := cost.Estimator(nil), func() error { return nil }
	learnt := map[cost.Key]cost.Cost{}
	var all *computations
	var costs []cost.Cost
	var err error
	for round := 0; ; round++ {
		all = s.computations()
		s.all = all
		if len(all.requests) > 0 && estimator == nil {
			samples := s.cfg.samples()
			if s.slack == nil { // compete has more taken where that matters
				samples = s.cfg.firstLook()
			}
			if estimator, done, err = s.estimator(samples); err != nil {
				return err
			}
		}
		var problem *lazy.Problem
		var result *lazy.Result
		if len(all.requests) > 0 {
			if problem, result, err = s.search(estimator, all, learnt); err != nil {
				break
			}
			costs = result.Costs
		}
		added := 0
		if round < mostProposals && !s.late {
			if added, err = s.extend(all, costs, learnt); err != nil {
				break
			}
		}
		if added > 0 {
			continue
		}
		if r, ok := estimator.(refiner); ok && problem != nil && s.slack == nil && !s.late {
			if result, err = s.compete(r, all, problem, result); err != nil {
				break
			}
			costs = result.Costs
		}
		if problem != nil {
			s.tested, s.wrong = problem.Tested(costs)
		}
		break
	}
	if closing := done(); err == nil {
		err = closing // after another error it would only say the same again
	}
	if err != nil {
		return err
	}
	// The rest was bounded away.
	s.cfg.Progress(Event{Stage: StageMeasure, Done: len(all.requests), Total: len(all.requests)})
	for i, f := range s.functions {
		f.costs = make([]cost.Cost, len(f.set.Candidates))
		for k := range f.costs {
			if c := all.of[i][k]; c != lazy.Free {
				f.costs[k] = costs[c]
			} else {
				f.costs[k] = cost.FromMilliseconds(0)
			}
		}
	}
	return nil
}

// extend asks the backends that propose by themselves for more, with what is known by now, and says how many candidates
// came. learnt takes what is known, for the next round.
func (s *search) extend(all *computations, costs []cost.Cost, learnt map[cost.Key]cost.Cost) (int, error) {
	known := func(c *cost.Cost) bool { return c.Failed() || c.Known() && c.Origin != cost.Bounded }
	for i, c := range costs {
		if known(&c) {
			learnt[all.requests[i].Key] = c
		}
	}
	rules, err := s.rules()
	if err != nil {
		return 0, err
	}
	total := 0
	for i, f := range s.functions {
		var about []byoc.Learnt
		for k := range f.set.Candidates {
			at := all.of[i][k]
			if at == lazy.Free || !known(&costs[at]) {
				continue
			}
			failure := ""
			if costs[at].Failed() {
				failure = costs[at].Failure.Detail
			}
			about = append(about, f.set.Candidates[k].Learnt(costs[at].Estimate(), failure))
		}
		set, added, err := candidate.Extend(f.set, s.backends, candidate.Options{OpPattern: opPattern}, about)
		if err != nil {
			return 0, err
		}
		if added == 0 {
			continue
		}
		// Those that the configuration rules out were taken out before, and are proposed anew.
		allowed := slices.DeleteFunc(slices.Clone(set.Candidates),
			func(c candidate.Candidate) bool { return s.breaks(f, &c, rules) != "" || s.unfit(set.Graph, &c) })
		total += len(allowed) - len(f.set.Candidates)
		set.Candidates = allowed
		f.set = set
	}
	return total, nil
}

// computations finds out which candidates are the same computation on the same backend.
func (s *search) computations() *computations {
	all := &computations{}
	index := map[cost.Key]int{}
	for _, f := range s.functions {
		of := make([]int, len(f.set.Candidates))
		for k := range f.set.Candidates {
			c := &f.set.Candidates[k]
			if of[k] = lazy.Free; c.Free {
				continue
			}
			r := s.request(f, c)
			i, ok := index[r.Key]
			if !ok {
				i = len(all.requests)
				index[r.Key] = i
				all.requests = append(all.requests, r)
				all.reference = append(all.reference, s.byName[c.Backend].TakesAnything() &&
					c.Operators(f.set.Graph) <= 1)
			}
			of[k] = i
		}
		all.of = append(all.of, of)
	}
	all.bounds = make([]float64, len(all.requests))
	return all
}

// knower is an estimator that knows some costs without measuring.
type knower interface {
	Known(requests []cost.Request) []cost.Cost
}

// calibrator is an estimator that measures on a machine whose speed it can tell.
type calibrator interface {
	Machine(ctx context.Context, env cost.Environment) (*bound.Machine, error)
}

// expecter is an estimator that can do something ahead for requests that are likely to come.
type expecter interface {
	Expect(requests []cost.Request) error
}

// search runs the loop of pass/lazy. learnt is what earlier rounds found out.
func (s *search) search(estimator cost.Estimator, all *computations, learnt map[cost.Key]cost.Cost) (*lazy.Problem,
	*lazy.Result, error) {
	known := make([]cost.Cost, len(all.requests))
	if k, ok := estimator.(knower); ok {
		known = k.Known(all.requests)
		for i := range known {
			s.keepReference(all, i, &known[i])
		}
	}
	for i := range known {
		if c, ok := learnt[all.requests[i].Key]; ok {
			known[i] = c
		}
	}
	if err := s.backendCosts(all, known); err != nil {
		return nil, nil, err
	}
	// Most of what is not known will be measured: workers start and build while the machine is looked at, and while the
	// first are timed. Where something is known, it may be all that is needed.
	var unknown []cost.Request
	for i := range known {
		if !known[i].Known() && !known[i].Failed() {
			unknown = append(unknown, all.requests[i])
		}
	}
	expect := func() error {
		e, ok := estimator.(expecter)
		if !ok || unknown == nil {
			return nil
		}
		list := unknown
		unknown = nil
		return e.Expect(list)
	}
	if len(unknown) == len(known) && s.slack == nil {
		if err := expect(); err != nil {
			return nil, nil, err
		}
	}
	if c, ok := estimator.(calibrator); ok && s.bounded() && (!s.exhaustive() || s.slack != nil || s.cfg.Until != nil) {
		machine, err := c.Machine(s.cfg.Context, s.env)
		if err != nil {
			return nil, nil, err
		}
		for i, f := range s.functions {
			for k := range f.set.Candidates {
				if at := all.of[i][k]; at != lazy.Free && all.bounds[at] == 0 {
					work := bound.Of(f.set.Graph, &f.set.Candidates[k])
					all.bounds[at] = machine.Milliseconds(work.In(byoc.PrecisionOf(s.byName[f.set.Candidates[k].Backend])))
				}
			}
		}
	}
	problem := &lazy.Problem{Bounds: all.bounds, Known: known, Overhead: s.overhead(), Exhaustive: s.exhaustive()}
	for i, f := range s.functions {
		problem.Functions = append(problem.Functions, lazy.Function{Tree: place.TreeOf(f.set.Graph),
			Options: f.lazyOptions(), Computations: all.of[i]})
	}
	for i := range known {
		if known[i].Known() || known[i].Failed() {
			all.known++
			s.cfg.Progress(Event{Stage: StageMeasure, Done: all.known, Total: len(all.requests),
				Label: all.requests[i].Label, Cost: &known[i]})
		}
	}
	all.done = all.known
	if s.slack != nil {
		err := s.slack.measure(s, estimator, all, problem)
		return problem, problem.Unmeasured(), err
	}
	problem.Measure = func(wanted []int) ([]cost.Cost, error) {
		requests := make([]cost.Request, len(wanted))
		for k, i := range wanted {
			requests[k] = all.requests[i]
		}
		if err := expect(); err != nil {
			return nil, err
		}
		costs, err := estimator.Estimate(s.measuringContext(), requests)
		for k, i := range wanted {
			if k < len(costs) {
				s.keepReference(all, i, &costs[k])
			}
		}
		all.done += len(wanted)
		if err == nil && len(costs) != len(wanted) {
			err = fmt.Errorf("the cost estimator gave %d costs for %d requests", len(costs), len(wanted))
		}
		return costs, err
	}
	result, err := problem.Run()
	if s.outOfTime(err) {
		return problem, s.cutShort(problem, result), nil
	}
	return problem, result, err
}

// measuringContext is under which candidates are measured.
func (s *search) measuringContext() context.Context {
	if s.cfg.Until != nil {
		return s.cfg.Until
	}
	return s.cfg.Context
}

// outOfTime says that Config.Until has ended the measuring, which err is of, and nobody the search.
func (s *search) outOfTime(err error) bool {
	return s.cfg.Until != nil && s.cfg.Until.Err() != nil && s.cfg.Context.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// cutShort is what is known where the time is over: of all that was asked for and not measured a bound.
func (s *search) cutShort(problem *lazy.Problem, result *lazy.Result) *lazy.Result {
	s.late = true
	problem.Known = result.Costs
	return problem.Unmeasured()
}

// exhaustive says that every candidate is measured that the proof could need: the bounds of pass/lazy do not know
// borders.
func (s *search) exhaustive() bool { return s.cfg.Exhaustive || len(bordered(s.backends)) > 0 }

// measured passes on what the workers report.
func (s *search) measured(e measure.Event) {
	s.cfg.Progress(Event{Stage: StageMeasure, Done: min(s.all.done+e.Done, len(s.all.requests)),
		Total: len(s.all.requests),
		Label: e.Request.Label, Cost: &e.Cost})
}

// bounded says that the calibration of this machine's processor says something about the target.
func (s *search) bounded() bool {
	return strings.HasPrefix(s.env.Target, "llvm") || strings.HasPrefix(s.env.Target, "c ")
}

// overhead is what each candidate costs beside its own latency. Costs that a caller gives are taken as they are, unless
// the caller asks for it.
func (s *search) overhead() place.Overhead {
	switch {
	case s.cfg.Overhead != nil:
		return place.Overhead{Option: *s.cfg.Overhead}
	case s.cfg.Estimator != nil:
		return place.Overhead{}
	}
	return place.Overhead{Option: place.DefaultOverhead}
}

// lazyOptions are a function's options without their costs.
func (f *function) lazyOptions() []place.Option {
	options := make([]place.Option, len(f.set.Candidates))
	for k := range f.set.Candidates {
		options[k] = place.Option{Nodes: f.set.Candidates[k].Nodes, Rank: f.set.Candidates[k].Rank}
	}
	return options
}

func (s *search) request(f *function, c *candidate.Candidate) cost.Request {
	key := cost.Key{Structure: c.Key, Backend: c.Backend, Composite: c.Composite, Environment: s.env}
	key.Library = s.library(s.byName[c.Backend])
	if !s.byName[c.Backend].TakesAnything() {
		// What TVM's tuners know changes TVM's code alone.
		key.Options = strings.TrimSuffix(key.Options, Tuned(s.cfg.tuningDigest))
	}
	g := f.set.Graph
	return cost.Request{Key: key, Candidate: c, Label: c.Label(g), Computation: computation(g, c),
		Build: func() (*cost.Workload, error) {
			b := s.byName[c.Backend]
			w, err := annotate.Workload(g, c, b)
			if err == nil {
				w.RTol, w.ATol = bound.Tolerance(g, c)
				w.Narrow = byoc.PrecisionOf(b) != byoc.F32
			}
			return w, err
		}}
}

// computation is what a candidate computes, for people: its operators and the types of its results.
func computation(g *relay.Graph, c *candidate.Candidate) string {
	var words []string
	for _, v := range c.Nodes {
		if candidate.IsOperator(&g.Nodes[v]) {
			words = append(words, g.Nodes[v].Op)
		}
	}
	for _, v := range c.Results() {
		if t := g.Nodes[v].Type; t != nil {
			words = append(words, t.String())
		}
	}
	return strings.Join(words, " ")
}

// estimator gives the caller's estimator, or one that looks into the store and measures in worker processes, so many
// samples each. done ends it.
func (s *search) estimator(samples int) (estimator cost.Estimator, done func() error, err error) {
	cfg := *s.cfg
	cfg.Samples = samples
	if cfg.Estimator != nil {
		return cfg.Estimator, func() error { return nil }, nil
	}
	m, err := openMeasuring(&cfg, BuildWithout(cfg.DisabledPasses), s.measured)
	if err != nil {
		return nil, nil, err
	}
	return m.Pool, m.Close, nil
}

// lastResort is what an operator costs that TVM builds but cannot run in time, in milliseconds: more than anything that
// was measured.
const lastResort = float64(10*time.Minute) / float64(time.Millisecond)

// keepReference makes sure that what TVM could build but not run in time by itself can still be placed on TVM, where
// nobody else takes it: TVM's result is what all others are checked against, and it compiles the network whole.
func (s *search) keepReference(all *computations, i int, c *cost.Cost) {
	if c.Failure == nil || !all.reference[i] {
		return
	}
	if c.Failure.Phase == "build" && c.Failure.Kind == cost.KindError {
		return // TVM has no code for it: it would not build the network either
	}
	*c = cost.FromMilliseconds(lastResort)
}
