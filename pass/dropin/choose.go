// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/bridge"
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

// optimise looks for a choice that is cheaper than best; nil where there is none. It solves with bounds for the costs
// that it does not know, estimates those that the solution counts on, and solves again, until the solution counts on
// none, or cannot be cheaper than what is known. bound is what every choice costs at least.
func (s *partitioning) optimise(f *function, best float64) (chosen []*option, bound float64, err error) {
	tree := place.TreeOf(f.graph)
	exhausted := false
	budget := max(leastBudget, s.report.Estimated)
	for {
		if err := bridge.CheckSignals(); err != nil {
			return nil, 0, err
		}
		known, err := s.solve(f, tree, false)
		if err != nil {
			return nil, 0, err
		}
		if cost := total(known); cost < best*(1-tolerance) {
			best, chosen = cost, known
		}
		relaxed, err := s.solve(f, tree, true)
		if err != nil {
			return nil, 0, err
		}
		bound = 0
		var unknown []*option
		for _, o := range relaxed {
			bound += s.optimistic(o)
			if !o.known {
				unknown = append(unknown, o)
			}
		}
		if bound >= best*(1-tolerance) || len(unknown) == 0 || exhausted {
			return chosen, bound, nil
		}
		before := s.report.Estimated
		if err := s.measureTogether(f, unknown[:min(len(unknown), max(0, budget))]); err != nil {
			return nil, 0, err
		}
		for _, o := range unknown {
			if err := s.learn(f, o); errors.Is(err, errExhausted) || budget <= 0 {
				exhausted = true
				break
			} else if err != nil {
				return nil, 0, err
			}
		}
		budget -= s.report.Estimated - before
	}
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

// optimistic is a cost, or a lower bound of one that is not known. Costs are never negative. The mock estimator's
// follow from any other on the same target, by the law that TVM's documentation gives.
func (s *partitioning) optimistic(o *option) float64 {
	if o.known {
		return o.seconds
	}
	if e, ok := s.estimator.(*tvmEstimator); ok && e.mock() && len(s.known[o.target]) > 0 {
		k := s.known[o.target][0]
		return k.seconds * mockCost(o.operators) / mockCost(k.operators) * (1 - tolerance/10)
	}
	return 0
}

// mockCost is what the mock estimator lets a group of operators cost where one alone costs 1: each one more costs 0.9
// of the one before it.
func mockCost(operators int) float64 { return (1 - math.Pow(0.9, float64(operators))) / (1 - 0.9) }

// solve places with what is known, or optimistically with all options; nil where that covers nothing.
func (s *partitioning) solve(f *function, tree *place.Tree, optimistic bool) ([]*option, error) {
	costs := make([]float64, len(f.all))
	sum := 0.0
	for i, o := range f.all {
		costs[i] = math.Inf(1)
		if o.known || optimistic {
			costs[i] = s.optimistic(o)
		}
		if !math.IsInf(costs[i], 1) {
			sum += costs[i]
		}
	}
	// The solver counts in picoseconds, which a mock's hundreds of seconds would overflow.
	scale := 1e3
	if sum > 1e5 {
		scale *= 1e5 / sum
	}
	options := make([]place.Option, len(f.all))
	for i, o := range f.all {
		options[i] = place.Option{Nodes: o.nodes, Cost: costs[i] * scale, Rank: o.rank()}
	}
	p, err := place.Solve(options, tree)
	var uncovered *place.UncoveredError
	if errors.As(err, &uncovered) {
		if optimistic {
			return nil, err
		}
		return nil, nil
	}
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

// rank breaks ties: what is known, then fewer regions, then fewer kernels.
func (o *option) rank() int {
	rank := 0
	switch {
	case o.target == nil:
	case o.target.external:
		rank = 1 << 10
	default:
		rank = 1
	}
	if !o.known {
		rank += 1 << 20
	}
	return rank
}
