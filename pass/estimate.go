// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/relay"
)

// estimate finds out what each candidate of all functions costs.
func (s *search) estimate() error {
	defer clock(&s.timings.Measure)()
	type place struct{ function, candidate int }
	var requests []cost.Request
	var places []place
	for i, f := range s.functions {
		f.costs = make([]cost.Cost, len(f.set.Candidates))
		for k := range f.set.Candidates {
			c := &f.set.Candidates[k]
			if c.Free {
				f.costs[k] = cost.FromMilliseconds(0)
				continue
			}
			requests = append(requests, s.request(f, c))
			places = append(places, place{i, k})
		}
	}
	if len(requests) == 0 {
		return nil
	}
	estimator, done, err := s.estimator()
	if err != nil {
		return err
	}
	costs, err := estimator.Estimate(s.cfg.Context, requests)
	if closing := done(); err == nil {
		err = closing // after another error it would only say the same again
	}
	if err != nil {
		return err
	}
	if len(costs) != len(requests) {
		return fmt.Errorf("the cost estimator gave %d costs for %d requests", len(costs), len(requests))
	}
	for i, at := range places {
		s.functions[at.function].costs[at.candidate] = costs[i]
	}
	s.keepReference()
	return nil
}

func (s *search) request(f *function, c *candidate.Candidate) cost.Request {
	key := cost.Key{Structure: c.Key, Backend: c.Backend, Composite: c.Composite, Environment: s.env}
	key.Library = library(s.byName[c.Backend])
	g := f.set.Graph
	return cost.Request{Key: key, Candidate: c, Label: c.Label(g), Computation: computation(g, c), Build: func() (*cost.Workload, error) {
		return annotate.Workload(g, c, s.byName[c.Backend].Compiler())
	}}
}

// computation is what a candidate computes, for people: its operators and the type of its result.
func computation(g *relay.Graph, c *candidate.Candidate) string {
	var words []string
	for _, v := range c.Nodes {
		if candidate.IsOperator(&g.Nodes[v]) {
			words = append(words, g.Nodes[v].Op)
		}
	}
	if t := g.Nodes[c.Root].Type; t != nil {
		words = append(words, t.String())
	}
	return strings.Join(words, " ")
}

// estimator gives the caller's estimator, or one that looks into the store and measures in worker processes. done
// ends it.
func (s *search) estimator() (estimator cost.Estimator, done func() error, err error) {
	cfg := s.cfg
	if cfg.Estimator != nil {
		return cfg.Estimator, func() error { return nil }, nil
	}
	interpreter, err := python(cfg)
	if err != nil {
		return nil, nil, err
	}
	store, err := cost.OpenStore(cfg.Store)
	if err != nil {
		return nil, nil, err
	}
	pool, err := measure.NewPool(measure.Options{
		Settings: measure.Settings{Target: cfg.Target, OptLevel: *cfg.OptLevel, DisabledPasses: cfg.DisabledPasses,
			Threads: cfg.Threads, Samples: cfg.Samples},
		Python: interpreter, Env: WorkerEnvironment(), Store: store, Reference: "tvm",
		BuildTimeout: cfg.BuildTimeout, RunTimeout: cfg.RunTimeout, RetryFailures: cfg.RetryFailures,
		Poll: bridge.CheckSignals,
		Progress: func(e measure.Event) {
			cfg.Progress(Event{Stage: StageMeasure, Done: e.Done, Total: e.Total, Label: e.Request.Label, Cost: &e.Cost})
		},
	})
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return pool, func() error { return errors.Join(pool.Close(), store.Close()) }, nil
}

// keepReference makes sure that what TVM could build but not run in time by itself can still be placed on TVM, where
// nobody else takes it: TVM's result is what all others are checked against, and it compiles the network whole. Such a
// candidate gets a cost that any other's is below.
func (s *search) keepReference() {
	for _, f := range s.functions {
		total := 0.0
		for _, c := range f.costs {
			if ms := c.Estimate(); !math.IsInf(ms, 1) {
				total += ms
			}
		}
		for k := range f.set.Candidates {
			c := &f.set.Candidates[k]
			failure := f.costs[k].Failure
			if failure == nil || !s.byName[c.Backend].TakesAnything() || c.Operators(f.set.Graph) > 1 {
				continue
			}
			if failure.Phase == "build" && failure.Kind == cost.KindError {
				continue // TVM has no code for it: it would not build the network either
			}
			f.costs[k] = cost.FromMilliseconds(math.Max(1000, 2*total))
		}
	}
}
