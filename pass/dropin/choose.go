// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/place"
)

// Report says how the last partition was found.
type Report struct {
	// Proposed counts the candidates of the complete search; Estimated the calls of the estimator.
	Proposed  int `json:"proposed"`
	Estimated int `json:"estimated"`
	// Seconds is what the estimates of the chosen candidates add up to, LowerBound what every choice costs at least.
	Seconds    float64 `json:"seconds"`
	LowerBound float64 `json:"lower_bound"`
	// Prototype is what the choice of TVM's prototype adds up to; absent where its search finds none, or has too many
	// states.
	Prototype *float64 `json:"prototype,omitempty"`
	// Followed counts the functions where the prototype's choice is the cheapest, and was taken.
	Followed int `json:"followed"`
	// Corrected counts the functions where the prototype would have written its choice wrongly: a group in two
	// partitions, two partitions that need each other, or a chosen one left out.
	Corrected int `json:"corrected"`
	// Proven says that LowerBound is Seconds: the estimator was not exhausted, and no rule was cut short.
	Proven bool `json:"proven"`
}

// leastBudget is how many estimates may be made beyond those that the prototype makes, where there is nothing to bound
// costs with; at most as many again as the prototype makes, where that is more.
const leastBudget = 256

// tolerance is how far costs may be apart and still be called equal, relatively: sums in different orders.
const tolerance = 1e-9

// partitioning is that of the functions of one module.
type partitioning struct {
	estimator Estimator
	names     *names
	report    Report
	// known are the options that have been estimated, by target, for bounds.
	known map[*target][]*option
}

// choose places a function: the chosen options, host included, the one with the last first node first.
func (s *partitioning) choose(f *function) ([]*option, error) {
	legacy := prune(f.legacy)
	// The prototype estimates, and so names, whatever pruning has left, in this order.
	for _, o := range legacy {
		if o.external() {
			if err := s.prepare(f, o); err != nil {
				return nil, err
			}
			if _, err := s.names.entry(o.workload, o.group.Label); err != nil {
				return nil, err
			}
		}
	}
	s.report.Proposed += len(f.all)
	prototype, err := s.walk(f, legacy)
	if err != nil && !errors.Is(err, errExhausted) {
		return nil, err
	}
	best := total(prototype)
	if prototype != nil {
		sum := best
		if s.report.Prototype != nil {
			sum += *s.report.Prototype
		}
		s.report.Prototype = &sum
	}
	limit := err
	chosen, bound, err := s.optimise(f, best)
	if err != nil {
		return nil, err
	}
	if chosen == nil && prototype == nil {
		return nil, fmt.Errorf("too little is known to place anything: %w", cmp.Or(limit, errExhausted))
	}
	if prototype != nil && (chosen == nil || best <= total(chosen)*(1+tolerance)) {
		chosen = prototype
		s.report.Followed++
	}
	s.report.Seconds += total(chosen)
	s.report.LowerBound += min(bound, total(chosen))
	if total(chosen) > bound*(1+2*tolerance) || f.truncated {
		s.report.Proven = false
	}
	return chosen, nil
}

func total(options []*option) float64 {
	if options == nil {
		return math.Inf(1)
	}
	sum := 0.0
	for _, o := range options {
		sum += o.seconds
	}
	return sum
}

// optimise looks for a choice that is cheaper than best; nil where there is none. It measures as package lazy does: what
// the cheapest choice by costs and bounds counts on, until it counts on nothing that is not known, or cannot be cheaper
// than what is known. bound is what every choice costs at least.
func (s *partitioning) optimise(f *function, best float64) (chosen []*option, bound float64, err error) {
	tree := place.TreeOf(f.graph)
	scale := f.scale()
	computations := make([]int, len(f.all)) // each option is one by itself: which are equal, s.names knows
	p := &lazy.Problem{Bounds: make([]float64, len(f.all)), Known: make([]cost.Cost, len(f.all))}
	for i, o := range f.all {
		computations[i] = i
		if o.known {
			p.Known[i] = o.cost(scale)
		}
	}
	tighten := func() {
		for i, o := range f.all {
			if !o.known {
				p.Bounds[i] = s.least(o) * scale
			}
		}
	}
	tighten()
	p.Functions = []lazy.Function{{Tree: tree, Options: f.options(), Computations: computations}}
	var enough bool
	var uncovered *place.UncoveredError // by what was known last
	p.Enough = func(_ []cost.Cost, least float64) (bool, error) {
		uncovered = nil
		known, err := s.solve(f, tree, scale)
		if errors.As(err, &uncovered) {
			return false, nil
		}
		if cost := total(known); err == nil && cost < best*(1-tolerance) {
			best, chosen = cost, known
		}
		enough = least/scale >= best*(1-tolerance)
		return enough, err
	}
	budget := max(leastBudget, s.report.Estimated)
	p.Measure = func(wanted []int) ([]cost.Cost, error) {
		unknown := make([]*option, len(wanted))
		for k, i := range wanted {
			unknown[k] = f.all[i]
		}
		costs, err := s.measure(f, unknown, &budget, scale)
		tighten()
		return costs, err
	}
	found, err := p.Run()
	if err != nil && !errors.Is(err, errExhausted) {
		return nil, 0, err
	}
	exhausted := err != nil
	if !enough { // with what was measured last
		if _, err := p.Enough(found.Costs, found.Least); err != nil {
			return nil, 0, err
		}
	}
	if uncovered != nil && math.IsInf(best, 1) && !exhausted {
		return nil, 0, uncovered // nobody can do that
	}
	return chosen, found.Least / scale, nil
}

// measure finds out what options cost, in milliseconds times scale, within a budget of estimates. errExhausted says that
// this is over, or that the estimator gives no more; what is known by then comes with it.
func (s *partitioning) measure(f *function, options []*option, budget *int, scale float64) (costs []cost.Cost, err error) {
	if err := bridge.CheckSignals(); err != nil {
		return nil, err
	}
	before := s.report.Estimated
	if err := s.measureTogether(f, options[:min(len(options), max(0, *budget))]); err != nil {
		return nil, err
	}
	for _, o := range options {
		if *budget <= 0 {
			return costs, errExhausted
		}
		if err := s.learn(f, o); err != nil {
			return costs, err
		}
		costs = append(costs, o.cost(scale))
	}
	*budget -= s.report.Estimated - before
	return costs, nil
}

// cost is what an option that is known costs, in seconds times scale.
func (o *option) cost(scale float64) cost.Cost {
	if math.IsInf(o.seconds, 1) {
		return cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindError, Detail: "by the estimator"}, time.Time{})
	}
	return cost.FromMilliseconds(o.seconds * scale)
}

// mostSum is what all costs may add up to, in the solver's milliseconds, which are whole picoseconds.
const mostSum = 1e8

// scale makes milliseconds of seconds, or less of a mock's hundreds of seconds, so that they do not overflow the solver.
// What is not known yet is taken to cost no more than mostBeyond times what is known.
func (f *function) scale() float64 {
	const mostBeyond = 64
	most := 0.0
	for _, o := range f.all {
		if o.known && !math.IsInf(o.seconds, 1) {
			most = max(most, o.seconds)
		}
	}
	return min(1e3, mostSum/(mostBeyond*float64(len(f.all))*max(most, 1)))
}

// learn is know, and keeps what was learnt for bounds.
func (s *partitioning) learn(f *function, o *option) error {
	if o.known {
		return nil
	}
	if err := s.know(f, o); err != nil {
		return err
	}
	s.known[o.target] = append(s.known[o.target], o)
	return nil
}

// least is a lower bound of a cost that is not known, in seconds. Costs are never negative. The mock estimator's follow
// from any other on the same target, by the law that TVM's documentation gives.
func (s *partitioning) least(o *option) float64 {
	if e, ok := s.estimator.(*tvmEstimator); ok && e.mock() && len(s.known[o.target]) > 0 {
		k := s.known[o.target][0]
		return k.seconds * mockCost(o.operators) / mockCost(k.operators) * (1 - tolerance/10)
	}
	return 0
}

// mockCost is what the mock estimator lets a group of operators cost where one alone costs 1: each one more costs 0.9
// of the one before it.
func mockCost(operators int) float64 { return (1 - math.Pow(0.9, float64(operators))) / (1 - 0.9) }

// options are the function's for the solver, without costs.
func (f *function) options() []place.Option {
	options := make([]place.Option, len(f.all))
	for i, o := range f.all {
		options[i] = place.Option{Nodes: o.nodes, Rank: o.rank()}
	}
	return options
}

// solve places with what is known. Errors: *place.UncoveredError where that does not cover the function.
func (s *partitioning) solve(f *function, tree *place.Tree, scale float64) ([]*option, error) {
	options := f.options()
	for i, o := range f.all {
		options[i].Cost = math.Inf(1)
		if o.known {
			options[i].Cost = o.seconds * scale
		}
	}
	p, err := place.Solve(options, tree)
	if err != nil {
		return nil, err
	}
	if err := place.Verify(options, tree, p); err != nil {
		return nil, err
	}
	chosen := make([]*option, 0, len(p.Chosen))
	for _, i := range p.Chosen {
		chosen = append(chosen, f.all[i])
	}
	slices.SortFunc(chosen, func(a, b *option) int { return cmp.Compare(b.group.Nodes.First(), a.group.Nodes.First()) })
	return chosen, nil
}

// rank breaks ties: fewer regions, then fewer kernels.
func (o *option) rank() int {
	switch {
	case o.target == nil:
		return 0
	case o.target.external:
		return 1 << 10
	default:
		return 1
	}
}
