// SPDX-License-Identifier: Apache-2.0

package placing

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
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
)

// Computations are the different ones among all candidates: what is measured at most.
type Computations struct {
	requests []cost.Request
	Bounds   []float64
	// reference says that the computation is a single operator on a backend that takes anything.
	reference []bool
	// Of says, for each function, which computation each candidate is; lazy.Free for those that cost nothing.
	Of [][]int
	// counts for the events
	known, done int
}

// mostProposals is how often backends are asked for further candidates at most.
const mostProposals = 3

// Estimate finds out what the candidates cost, measuring as little as the proof needs, and lets the backends propose
// further ones from what was learnt until they have nothing more to say.
func (s *Module) Estimate() error {
	defer clock(&s.Timings.Measure)()
	estimator, done := cost.Estimator(nil), func() error { return nil }
	learnt := map[cost.Key]cost.Cost{}
	var all *Computations
	var costs []cost.Cost
	var err error
	for round := 0; ; round++ {
		all = s.computations()
		s.All = all
		if len(all.requests) > 0 && estimator == nil {
			samples := sampled(s.Config)
			if s.Slack == nil { // compete has more taken where that matters
				samples = firstLook(s.Config)
			}
			if estimator, done, err = s.estimator(samples); err != nil {
				return err
			}
		}
		var problem *lazy.Problem
		var result *lazy.Result
		if len(all.requests) > 0 {
			if problem, result, err = s.measureLazily(estimator, all, learnt); err != nil {
				break
			}
			costs = result.Costs
		}
		added := 0
		if round < mostProposals && !s.Late {
			if added, err = s.extend(all, costs, learnt); err != nil {
				break
			}
		}
		if added > 0 {
			continue
		}
		if r, ok := estimator.(refiner); ok && problem != nil && s.Slack == nil && !s.Late {
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
	s.Config.Progress(settings.Event{Stage: settings.StageMeasure, Done: len(all.requests), Total: len(all.requests)})
	for i, f := range s.Functions {
		f.Costs = make([]cost.Cost, len(f.Set.Candidates))
		for k := range f.Costs {
			if c := all.Of[i][k]; c != lazy.Free {
				f.Costs[k] = costs[c]
			} else {
				f.Costs[k] = cost.FromMilliseconds(0)
			}
		}
	}
	return nil
}

// extend asks the backends that propose by themselves for more, with what is known by now, and says how many candidates
// came. learnt takes what is known, for the next round.
func (s *Module) extend(all *Computations, costs []cost.Cost, learnt map[cost.Key]cost.Cost) (int, error) {
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
	for i, f := range s.Functions {
		var about []byoc.Learnt
		for k := range f.Set.Candidates {
			at := all.Of[i][k]
			if at == lazy.Free || !known(&costs[at]) {
				continue
			}
			failure := ""
			if costs[at].Failed() {
				failure = costs[at].Failure.Detail
			}
			about = append(about, f.Set.Candidates[k].Learnt(costs[at].Estimate(), failure))
		}
		set, added, err := candidate.Extend(f.Set, s.Backends, candidate.Options{OpPattern: candidate.RegisteredPattern}, about)
		if err != nil {
			return 0, err
		}
		if added == 0 {
			continue
		}
		// Those that the configuration rules out, and those without costs, were taken out before, and are proposed anew.
		allowed := slices.DeleteFunc(slices.Clone(set.Candidates),
			func(c candidate.Candidate) bool {
				return s.breaks(f, &c, rules) != "" || s.withoutCost(&c) ||
					s.unfit(set.Graph, &c) || s.tooLarge(set.Graph, &c) != ""
			})
		total += len(allowed) - len(f.Set.Candidates)
		set.Candidates = allowed
		f.Set = set
	}
	return total, nil
}

// computations finds out which candidates are the same computation on the same backend.
func (s *Module) computations() *Computations {
	all := &Computations{}
	index := map[cost.Key]int{}
	for _, f := range s.Functions {
		of := make([]int, len(f.Set.Candidates))
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			if of[k] = lazy.Free; c.Free {
				continue
			}
			r := s.Request(f, c)
			i, ok := index[r.Key]
			if !ok {
				i = len(all.requests)
				index[r.Key] = i
				all.requests = append(all.requests, r)
				all.reference = append(all.reference, s.ByName[c.Backend].TakesAnything() &&
					c.Operators(f.Set.Graph) <= 1)
			}
			of[k] = i
		}
		all.Of = append(all.Of, of)
	}
	all.Bounds = make([]float64, len(all.requests))
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

// measureLazily runs the loop of pass/lazy. learnt is what earlier rounds found out.
func (s *Module) measureLazily(estimator cost.Estimator, all *Computations,
	learnt map[cost.Key]cost.Cost) (*lazy.Problem,
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
	if len(unknown) == len(known) && s.Slack == nil {
		if err := expect(); err != nil {
			return nil, nil, err
		}
	}
	if c, ok := estimator.(calibrator); ok && s.bounded() && (!s.exhaustive() || s.Slack != nil || s.Config.Until != nil) {
		machine, err := c.Machine(s.Config.Context, s.Env)
		if err != nil {
			return nil, nil, err
		}
		for i, f := range s.Functions {
			for k := range f.Set.Candidates {
				b := s.ByName[f.Set.Candidates[k].Backend]
				if byoc.DeviceOf(b) != byoc.Host {
					continue // another device may be faster than this processor by any factor
				}
				if at := all.Of[i][k]; at != lazy.Free && all.Bounds[at] == 0 {
					work := bound.Of(f.Set.Graph, &f.Set.Candidates[k])
					all.Bounds[at] = machine.Milliseconds(work.In(byoc.PrecisionOf(b)))
				}
			}
		}
	}
	problem := &lazy.Problem{Bounds: all.Bounds, Known: known, Overhead: s.Overhead(), Exhaustive: s.exhaustive()}
	for i, f := range s.Functions {
		problem.Functions = append(problem.Functions, lazy.Function{Tree: place.TreeOf(f.Set.Graph),
			Options: f.lazyOptions(), Computations: all.Of[i]})
	}
	for i := range known {
		if known[i].Known() || known[i].Failed() {
			all.known++
			s.Config.Progress(settings.Event{Stage: settings.StageMeasure, Done: all.known, Total: len(all.requests),
				Label: all.requests[i].Label, Cost: &known[i]})
		}
	}
	all.done = all.known
	if s.Slack != nil {
		err := s.Slack.measure(s, estimator, all, problem)
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
func (s *Module) measuringContext() context.Context {
	if s.Config.Until != nil {
		return s.Config.Until
	}
	return s.Config.Context
}

// outOfTime says that Config.Until has ended the measuring, which err is of, and nobody the whole.
func (s *Module) outOfTime(err error) bool {
	return s.Config.Until != nil && s.Config.Until.Err() != nil && s.Config.Context.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// cutShort is what is known where the time is over: of all that was asked for and not measured a bound.
func (s *Module) cutShort(problem *lazy.Problem, result *lazy.Result) *lazy.Result {
	s.Late = true
	problem.Known = result.Costs
	return problem.Unmeasured()
}

// exhaustive says that every candidate is measured that the proof could need: the bounds of pass/lazy do not know
// borders.
func (s *Module) exhaustive() bool { return s.Config.Exhaustive || len(bordered(s.Backends)) > 0 }

// measured passes on what the workers report.
func (s *Module) measured(e measure.Event) {
	s.Config.Progress(settings.Event{Stage: settings.StageMeasure, Done: min(s.All.done+e.Done, len(s.All.requests)),
		Total: len(s.All.requests),
		Label: e.Request.Label, Cost: &e.Cost})
}

// bounded says that the calibration of this machine's processor says something about the target.
func (s *Module) bounded() bool {
	return strings.HasPrefix(s.Env.Target, "llvm") || strings.HasPrefix(s.Env.Target, "c ")
}

// Overhead is what each candidate costs beside its own latency. Costs that a caller gives are taken as they are, unless
// the caller asks for it.
func (s *Module) Overhead() place.Overhead {
	switch {
	case s.Config.Overhead != nil:
		return place.Overhead{Option: *s.Config.Overhead}
	case s.Config.Estimator != nil:
		return place.Overhead{}
	}
	return place.Overhead{Option: place.DefaultOverhead}
}

// lazyOptions are a function's options without their costs.
func (f *Function) lazyOptions() []place.Option {
	options := make([]place.Option, len(f.Set.Candidates))
	for k := range f.Set.Candidates {
		options[k] = place.Option{Nodes: f.Set.Candidates[k].Nodes, Rank: f.Set.Candidates[k].Rank}
	}
	return options
}

func (s *Module) Request(f *Function, c *candidate.Candidate) cost.Request {
	key := cost.Key{Structure: c.Key, Backend: c.Backend, Composite: c.Composite, Environment: s.Env}
	key.Library = s.Library(s.ByName[c.Backend])
	if !s.ByName[c.Backend].TakesAnything() {
		// What TVM's tuners know changes TVM's code alone.
		key.Options = strings.TrimSuffix(key.Options, settings.Tuned(s.Config.DigestOfLog))
	}
	g := f.Set.Graph
	return cost.Request{Key: key, Candidate: c, Label: c.Label(g), Computation: computation(g, c),
		Build: func() (*cost.Workload, error) {
			b := s.ByName[c.Backend]
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
func (s *Module) estimator(samples int) (estimator cost.Estimator, done func() error, err error) {
	cfg := *s.Config
	cfg.Samples = samples
	if cfg.Estimator != nil {
		return cfg.Estimator, func() error { return nil }, nil
	}
	m, err := workers.MeasuringWith(&cfg, normalise.BuildWithout(cfg.DisabledPasses), s.measured)
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
func (s *Module) keepReference(all *Computations, i int, c *cost.Cost) {
	if c.Failure == nil || !all.reference[i] {
		return
	}
	if c.Failure.Phase == "build" && c.Failure.Kind == cost.KindError {
		return // TVM has no code for it: it would not build the network either
	}
	*c = cost.FromMilliseconds(lastResort)
}
