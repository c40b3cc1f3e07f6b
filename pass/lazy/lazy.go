// SPDX-License-Identifier: Apache-2.0

// Package lazy finds the cheapest placement while measuring as little as it can.
//
// What comes in: the candidates of a network, a true lower bound for each computation, what is known already, and
// someone who measures (Problem). What goes out: costs, measured or bounded, with which place.Solve gives a placement
// that is proven to be as cheap as the one that measuring everything would give (Result).
//
// The loop is: place with the known costs and, for the rest, the bounds; measure what was chosen and is not known, and
// what would be chosen after it if it cost what is usual beside its bound; again, until all that is chosen is known. Then the sum of the prices over each candidate that was not measured is at
// most its bound, so at most its cost: the certificate holds for whatever it may cost.
package lazy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
)

// Free is the computation of an option that costs nothing by rule.
const Free = -1

// Function is one function to be placed.
type Function struct {
	Tree *place.Tree
	// Options have nodes and ranks; their costs are not looked at, except that +Inf rules one out.
	Options []place.Option
	// Computations says of each option which computation it is (an index into Problem.Bounds), or Free. Options with
	// one computation cost the same.
	Computations []int
}

// Problem is a network with what is known about its candidates.
type Problem struct {
	Functions []Function
	// Bounds are what each computation takes at least, in milliseconds. They must be true, and above 0 where the cost
	// is sure to be. Measure may raise those of what is not known yet, by what it learns.
	Bounds []float64
	// Known are the costs that are known; zero Costs for the others. Failures are known, too.
	Known []cost.Cost
	// Overhead is added to each option, as place.Overhead says.
	Overhead place.Overhead
	// Measure gives the costs of computations, in their order. What it leaves unknown is not placed.
	Measure func(computations []int) ([]cost.Cost, error)
	// Enough, if not nil, ends the loop before everything that is chosen is known: costs are what is known by now, and
	// least is what every placement takes at least, in milliseconds.
	Enough func(costs []cost.Cost, least float64) (bool, error)
	// Exhaustive measures everything at once.
	Exhaustive bool
	// Placed, if not nil, is told after each round how much is measured and how much may still be.
	Placed func(round, measured, open int)
}

// Result is what the loop found.
type Result struct {
	// Costs are those of all computations; those that were not measured have Origin cost.Bounded, and their bound as
	// the one sample.
	Costs []cost.Cost
	// Measured counts the computations that Measure was asked for, Rounds how often it was called.
	Measured, Rounds int
	// Least is what every placement takes at least, in milliseconds, Overhead with it, as the last one that was looked at
	// shows.
	Least float64
	// Scale is what the bounds were multiplied with: less than 1 where some cost was found to be under its bound, which
	// means that the machine is faster than its calibration.
	Scale float64
}

// Run measures until the placement is proven. On an error of Measure the result has what was known by then.
func (p *Problem) Run() (*Result, error) {
	if len(p.Known) != len(p.Bounds) {
		return nil, fmt.Errorf("lazy: %d known costs and %d bounds", len(p.Known), len(p.Bounds))
	}
	r := &Result{Costs: append([]cost.Cost(nil), p.Known...), Scale: 1}
	asked := make([]bool, len(p.Bounds))
	for i := range r.Costs {
		asked[i] = settled(r.Costs[i])
	}
	for {
		r.Scale = p.scale(r.Costs)
		next, err := p.next(r, asked)
		if err != nil {
			return r, err
		}
		if len(next) == 0 {
			break
		}
		if p.Enough != nil {
			if enough, err := p.Enough(r.Costs, r.Least); enough || err != nil {
				return p.bounded(r, asked), err
			}
		}
		for _, i := range next {
			asked[i] = true
		}
		r.Rounds++
		r.Measured += len(next)
		costs, err := p.Measure(next)
		for k, i := range next {
			if k < len(costs) {
				r.Costs[i] = costs[k]
			}
		}
		if err != nil {
			return r, err
		}
		if len(costs) != len(next) {
			return r, fmt.Errorf("lazy: %d costs for %d computations", len(costs), len(next))
		}
	}
	return p.bounded(r, asked), nil
}

// bounded fills in bounds for what was not asked for.
func (p *Problem) bounded(r *Result, asked []bool) *Result {
	for i := range r.Costs {
		if !asked[i] {
			r.Costs[i] = cost.FromBound(p.Bounds[i] * r.Scale)
		}
	}
	return r
}

// Unmeasured is the result of a Run that measures nothing: what is known, and for all else a bound.
func (p *Problem) Unmeasured() *Result {
	r := &Result{Costs: append([]cost.Cost(nil), p.Known...)}
	r.Scale = p.scale(r.Costs)
	for i := range r.Costs {
		if !settled(r.Costs[i]) {
			r.Costs[i] = cost.FromBound(p.Bounds[i] * r.Scale)
		}
	}
	return r
}

// Tested says of how many computations both a cost and a bound are known, and of how many of these the cost is under
// the bound: the bound was wrong, and all are scaled by it.
func (p *Problem) Tested(costs []cost.Cost) (tested, wrong int) {
	for i, c := range costs {
		if settled(c) && !c.Failed() && p.Bounds[i] > 0 {
			tested++
			if c.Estimate() < p.Bounds[i] {
				wrong++
			}
		}
	}
	return tested, wrong
}

func settled(c cost.Cost) bool { return c.Failed() || c.Known() && c.Origin != cost.Bounded }

// distrust is how far under the cost a bound is put that was found to be above it: others are likely to be as wrong and
// somewhat more. At half of it bounds rule out little and most is measured; at 1 and beyond a bound stays above what
// was measured, which would be ruled out.
const distrust = 0.8

// scale makes all bounds smaller in proportion to the worst one. It is a function of what is known alone, so that a
// second run, which knows everything from the beginning, ends with the same bounds.
func (p *Problem) scale(costs []cost.Cost) float64 { return p.scaleBy(costs, distrust) }

func (p *Problem) scaleBy(costs []cost.Cost, distrust float64) float64 {
	scale := 1.0
	for i, c := range costs {
		if settled(c) && !c.Failed() && p.Bounds[i] > 0 {
			if ms := c.Estimate(); ms < p.Bounds[i] {
				scale = min(scale, distrust*ms/p.Bounds[i])
			}
		}
	}
	return scale
}

// next gives the computations to measure, in the order of the functions and their nodes.
func (p *Problem) next(r *Result, asked []bool) ([]int, error) {
	var next []int
	taken := make([]bool, len(asked))
	take := func(i int) {
		if i != Free && !asked[i] && !taken[i] {
			taken[i] = true
			next = append(next, i)
		}
	}
	open := 0
	r.Least = 0
	for k := range p.Functions {
		f := &p.Functions[k]
		if p.Exhaustive {
			for o, i := range f.Computations {
				if !math.IsInf(f.Options[o].Cost, 1) {
					take(i)
				}
			}
			continue
		}
		placement, err := place.Solve(p.Overhead.Apply(p.options(f, r, asked)), f.Tree)
		var uncovered *place.UncoveredError
		if errors.As(err, &uncovered) {
			continue // whoever places says which nodes; no measurement could help
		}
		if err != nil {
			return nil, err
		}
		r.Least += placement.LowerBound
		for _, o := range placement.Chosen {
			take(f.Computations[o])
		}
		if err := p.lookAhead(f, r, asked, taken, take, usual(p.Bounds, r)); err != nil {
			return nil, err
		}
	}
	if p.Placed != nil {
		for i := range asked {
			if !asked[i] {
				open++
			}
		}
		p.Placed(r.Rounds, r.Measured, open)
	}
	return next, nil
}

// lookAhead takes what later rounds are likely to ask for: what is chosen when those that are taken cost so many times
// their bounds, until nothing new is. Whoever measures can build and measure many side by side, and few of a round make
// others wait.
func (p *Problem) lookAhead(f *Function, r *Result, asked, taken []bool, take func(i int), times float64) error {
	for more := slices.Contains(taken, true); more; {
		options := p.options(f, r, asked)
		for o, i := range f.Computations {
			if i != Free && taken[i] && !math.IsInf(options[o].Cost, 1) {
				options[o].Cost *= times
			}
		}
		placement, err := place.Solve(p.Overhead.Apply(options), f.Tree)
		if err != nil {
			return err
		}
		more = false
		for _, o := range placement.Chosen {
			if i := f.Computations[o]; i != Free && !asked[i] && !taken[i] {
				take(i)
				more = true
			}
		}
	}
	return nil
}

// usualAtFirst is how many times their bounds computations are taken to cost while none is known.
const usualAtFirst = 2.0

// usual is how many times their bounds computations cost, as far as that is known: the lower quartile, since what is
// asked for without need costs more than another round.
func usual(bounds []float64, r *Result) float64 {
	var times []float64
	for i, c := range r.Costs {
		if settled(c) && !c.Failed() && bounds[i] > 0 {
			times = append(times, c.Estimate()/(bounds[i]*r.Scale))
		}
	}
	if len(times) == 0 {
		return usualAtFirst
	}
	slices.Sort(times)
	return max(1, times[len(times)/4])
}

// options are a function's options with costs where they are known and bounds where they are not.
func (p *Problem) options(f *Function, r *Result, asked []bool) []place.Option {
	options := append([]place.Option(nil), f.Options...)
	for o := range options {
		i := f.Computations[o]
		switch {
		case math.IsInf(options[o].Cost, 1):
		case i == Free:
			options[o].Cost = 0
		case asked[i]:
			options[o].Cost = r.Costs[i].Estimate()
		default:
			options[o].Cost = p.Bounds[i] * r.Scale
		}
	}
	return options
}
