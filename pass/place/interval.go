// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Interval is what is known about a cost, in milliseconds: it is at least Low and at most High.
type Interval struct{ Low, High float64 }

// IntervalPlacement is a placement under uncertain costs.
type IntervalPlacement struct {
	// Solution is the cheapest by the options' costs.
	*Solution
	// Low and High enclose what the cheapest placement costs, whatever the costs are within their intervals.
	Low, High float64
	// Regret is by how many milliseconds, at most, the placement is dearer than the cheapest, whatever the costs are
	// within their intervals. 0: no further sample can change that it is a cheapest one.
	Regret float64
	// Rival are the options of the placement that would be cheaper by Regret; nil where Regret is 0.
	Rival []int
	// Next are the options whose uncertainty makes the regret: those that are in one of the placement and its rival,
	// and whose interval has a width; widest first. A sample that narrows none of them leaves the regret as it is.
	// Empty only where Regret is 0.
	Next []int
}

// SolveInterval places by the options' costs and says how sure that is, and which options to measure next. intervals
// are those of the options, in that order, and hold the costs; what is not measured yet has an interval from a true
// lower bound to whatever is believed (+Inf: it will not be taken where something else can be). An option of cost +Inf
// and of interval [+Inf, +Inf] must not be taken. Errors: as Solver's; a plain one for a cost outside of its interval.
func SolveInterval(options []Option, intervals []Interval, tree *Tree) (*IntervalPlacement, error) {
	if len(intervals) != len(options) {
		return nil, fmt.Errorf("placement: %d intervals for %d options", len(intervals), len(options))
	}
	with := func(cost func(i int) float64) []Option {
		out := slices.Clone(options)
		for i := range out {
			out[i].Cost = cost(i)
		}
		return out
	}
	for i, r := range intervals {
		if !(r.Low <= options[i].Cost && options[i].Cost <= r.High) {
			return nil, fmt.Errorf("placement: option %d costs %v ms, which is not within [%v, %v]", i, options[i].Cost,
				r.Low, r.High)
		}
	}
	p, err := Solve(options, tree)
	if err != nil {
		return nil, err
	}
	low, err := Solve(with(func(i int) float64 { return intervals[i].Low }), tree)
	if err != nil {
		return nil, err
	}
	out := &IntervalPlacement{Solution: p, Low: low.Cost, High: math.Inf(1)}
	if high, err := Solve(with(func(i int) float64 { return intervals[i].High }), tree); err == nil {
		out.High = high.Cost
	}
	// The placement looks worst where its own options are dear and all others cheap; what the two share drops out.
	mine := make([]bool, len(options))
	for _, i := range p.Chosen {
		mine[i] = true
	}
	against := with(func(i int) float64 {
		if mine[i] {
			return intervals[i].High
		}
		return intervals[i].Low
	})
	unbounded := false
	for _, i := range p.Chosen {
		if math.IsInf(intervals[i].High, 1) { // its cost must be a number for the solver; the regret has no end
			against[i].Cost, unbounded = options[i].Cost, true
		}
	}
	rival, err := Solve(against, tree)
	if err != nil {
		return nil, err
	}
	theirs := make([]bool, len(options))
	for _, i := range rival.Chosen {
		theirs[i] = true
	}
	regret := int64(0)
	for i := range options {
		if mine[i] && !theirs[i] {
			regret += picoseconds(against[i].Cost)
		} else if theirs[i] && !mine[i] {
			regret -= picoseconds(against[i].Cost)
		}
	}
	if regret <= 0 && !unbounded {
		return out, nil
	}
	out.Regret, out.Rival = milliseconds(regret), rival.Chosen
	if unbounded {
		out.Regret = math.Inf(1)
	}
	width := func(i int) float64 { return intervals[i].High - intervals[i].Low }
	for i := range options {
		if (mine[i] != theirs[i] || mine[i] && math.IsInf(intervals[i].High, 1)) && width(i) > 0 {
			out.Next = append(out.Next, i)
		}
	}
	slices.SortStableFunc(out.Next, func(a, b int) int { return cmp.Compare(width(b), width(a)) })
	return out, nil
}
