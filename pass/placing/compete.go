// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/settings"
)

// refiner is an estimator that can take further samples in turn.
type refiner interface {
	Refine(ctx context.Context, requests []cost.Request, samples int) ([]cost.Cost, error)
}

const (
	// tieShare: what is dearer by at most such a share of the costs of what competes is as good. At half, samples
	// go to what is worth a hundredth of two candidates; at twice, a gain of 3 % in place is left to chance.
	tieShare = 0.02
	// tieFloor in milliseconds: differences under it are noise of the clock and of the call.
	tieFloor = 0.002
	// mostSamples is how many times Config.Samples is taken at most; then it is a tie.
	mostSamples = 4
	// enough samples say how low the quantile may be that is estimated: with fewer the smallest of them is above it
	// more often than in one case of twenty.
	enough = 10
)

// sampled is Config.Samples, or its default.
func sampled(c *settings.Config) int {
	if c.Samples <= 0 {
		return measure.DefaultSamples
	}
	return c.Samples
}

// firstLook is how many samples are taken of each candidate, where those whose place is not clear get further ones
// then, as many at once.
func firstLook(c *settings.Config) int { return (sampled(c) + 1) / 2 }

// compete has further samples taken of candidates whose order is not clear: of those that were placed and of those that
// would have been were all costs at the worse ends of their intervals. It ends when each such contest is decided, or
// can only be a tie, or has had its share of samples. All that decides is in the store, so a second run asks for
// nothing.
func (s *Module) compete(estimator refiner, all *Computations, problem *lazy.Problem,
	result *lazy.Result) (*lazy.Result, error) {
	look := firstLook(s.Config)
	for {
		var wanted []int
		s.ties = 0
		for i, f := range s.Functions {
			of, err := s.contested(f, all.Of[i], result.Costs)
			if err != nil {
				return nil, err
			}
			wanted = append(wanted, of...)
		}
		slices.Sort(wanted)
		wanted = slices.DeleteFunc(slices.Compact(wanted), func(i int) bool {
			return len(result.Costs[i].Samples) >= mostSamples*sampled(s.Config)
		})
		if len(wanted) == 0 {
			return result, nil
		}
		requests := make([]cost.Request, len(wanted))
		for k, i := range wanted {
			requests[k] = all.requests[i]
		}
		costs, err := estimator.Refine(s.measuringContext(), requests, look)
		if s.outOfTime(err) {
			return result, nil // its order is what nothing is known of, and ties says so
		}
		if err != nil {
			return nil, err
		}
		problem.Known = slices.Clone(result.Costs)
		for k, i := range wanted {
			s.keepReference(all, i, &costs[k])
			problem.Known[i] = costs[k]
		}
		for i := range problem.Known {
			if problem.Known[i].Origin == cost.Bounded {
				problem.Known[i] = cost.Cost{}
			}
		}
		// Other costs may make others worth a look.
		if result, err = problem.Run(); s.outOfTime(err) {
			return s.cutShort(problem, result), nil
		} else if err != nil {
			return nil, err
		}
	}
}

// contested gives the computations whose costs decide between a function's placement and its rivals.
func (s *Module) contested(f *Function, of []int, costs []cost.Cost) ([]int, error) {
	options := f.lazyOptions()
	intervals := make([]place.Interval, len(options))
	for k := range options {
		if of[k] == lazy.Free {
			continue
		}
		c := costs[of[k]]
		options[k].Cost = c.Estimate()
		low, high := c.Interval()
		if c.Known() && len(c.Samples) < enough {
			low -= high - low
		}
		intervals[k] = place.Interval{Low: min(max(low, 0), options[k].Cost), High: max(high, options[k].Cost)}
		if c.Origin == cost.Bounded {
			intervals[k].High = options[k].Cost // what it is dearer by does not matter
		}
	}
	overhead := s.Overhead()
	raised := overhead.Apply(options)
	for k := range raised {
		if options[k].Cost > 0 && !math.IsInf(options[k].Cost, 1) {
			intervals[k].Low += raised[k].Cost - options[k].Cost
			intervals[k].High += raised[k].Cost - options[k].Cost
		}
	}
	p, err := place.SolveInterval(raised, intervals, place.TreeOf(f.Set.Graph))
	var uncovered *place.UncoveredError
	if errors.As(err, &uncovered) {
		return nil, nil // whoever places says which nodes
	}
	if err != nil || p.Regret == 0 {
		return nil, err
	}
	var wanted []int
	for _, c := range contests(raised, p.Chosen, p.Rival) {
		regret, size, open := 0.0, 0.0, len(wanted)
		for _, k := range c.mine {
			regret += intervals[k].High
			size += raised[k].Cost
		}
		for _, k := range c.theirs {
			regret -= intervals[k].Low
		}
		if tiedBy(regret, size, tieShare, tieFloor) {
			continue
		}
		for _, k := range slices.Concat(c.mine, c.theirs) {
			if of[k] != lazy.Free && costs[of[k]].Origin != cost.Bounded && !costs[of[k]].Exact() {
				wanted = append(wanted, of[k])
			}
		}
		if len(wanted) > open {
			s.ties++
		}
	}
	return wanted, nil
}

// contest is a part of a graph that a placement and its rival cover in different ways.
type contest struct{ mine, theirs []int }

// contests takes two placements apart into the smallest sets of options that cover the same nodes.
func contests(options []place.Option, mine, theirs []int) []contest {
	inTheirs := map[int]bool{}
	for _, k := range theirs {
		inTheirs[k] = true
	}
	shared := map[int]bool{}
	for _, k := range mine {
		shared[k] = inTheirs[k]
	}
	// A node leads from the one's option to the other's.
	lead := map[int]int{} // option -> contest, by union and find
	var find func(k int) int
	find = func(k int) int {
		if up, ok := lead[k]; ok && up != k {
			root := find(up)
			lead[k] = root
			return root
		}
		lead[k] = k
		return k
	}
	byNode := map[int32]int{}
	for _, k := range mine {
		if !shared[k] {
			for _, v := range options[k].Nodes {
				byNode[int32(v)] = k
			}
		}
	}
	for _, k := range theirs {
		if !shared[k] {
			for _, v := range options[k].Nodes {
				if m, ok := byNode[int32(v)]; ok {
					lead[find(k)] = find(m)
				}
			}
		}
	}
	var list []contest
	index := map[int]int{}
	add := func(k int, mine bool) {
		root := find(k)
		at, ok := index[root]
		if !ok {
			at = len(list)
			index[root] = at
			list = append(list, contest{})
		}
		if mine {
			list[at].mine = append(list[at].mine, k)
		} else {
			list[at].theirs = append(list[at].theirs, k)
		}
	}
	for _, k := range mine {
		if !shared[k] {
			add(k, true)
		}
	}
	for _, k := range theirs {
		if !shared[k] {
			add(k, false)
		}
	}
	return list
}

// tiedBy says that what may be lost is nothing beside what competes, in milliseconds.
func tiedBy(regret, size, share, floor float64) bool { return regret <= max(floor, share*size) }
