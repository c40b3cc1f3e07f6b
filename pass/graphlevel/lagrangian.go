// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
)

// steps is how often the price of errors is raised at most, and how often it is then narrowed down.
const steps = 24

// atPrice is the cheapest placement by costs and a price for errors: what it takes in milliseconds, what its squared
// error is believed to be, and what no placement takes less than, the price of its errors included.
type atPrice struct {
	price, time, off, least float64
	chosen                  [][]int // by function
}

// whole is what it takes with the price of its errors.
func (a *atPrice) whole(price float64) float64 { return a.time + price*a.off }

// relaxed finds what is to be paid for each unit of the squared error, in milliseconds, so that the cheapest placement
// by costs and that price is believed to be no further off than is allowed: the least such price. It is the multiplier
// of Lagrange's relaxation. The placement is the fastest of all that are off by no more than it is. That may be less
// than what is allowed, and where the frontier of time against error is not convex one that is allowed may be faster:
// by no more than the gap, which is what the placement takes less what the relaxation shows that all that are allowed
// take at least. A price of 0: nothing needs to be paid. nil where no error is limited. options gives a function's
// candidates without that price; what is paid between regions is left out. Errors: place.Solve's.
func (n *sensitivity) relaxed(options func(function int) []place.Option) (*plan.Lagrangian, error) {
	if n == nil {
		return nil, nil
	}
	all := n.allOptions(options)
	allowed := n.aimed(margin)
	bound := math.Inf(-1)
	at := func(price float64) (atPrice, error) {
		a, err := n.at(price, all)
		if err == nil {
			bound = max(bound, a.least-price*allowed)
		}
		return a, err
	}
	result := func(a atPrice) *plan.Lagrangian {
		return &plan.Lagrangian{Price: a.price, Milliseconds: a.time, Error: n.unsquared(a.off),
			Allowed: n.unsquared(allowed), Bound: min(bound, a.time), Gap: max(0, a.time-bound)}
	}
	low, err := at(0)
	if err != nil || low.off <= allowed {
		return result(low), err
	}
	high := atPrice{}
	for price, k := 1/low.off, 0; ; price, k = 4*price, k+1 { // a millisecond for all of the error
		if high, err = at(price); err != nil {
			if k > 0 {
				return result(low), nil // with that price costs add up to more than the solver counts
			}
			return nil, err
		}
		if high.off <= allowed {
			break
		}
		if low = high; k == steps/2 {
			return result(high), nil // nothing that is believed to be allowed
		}
	}
	// Both are cheapest at the price where they cost the same, or another one is cheaper there, and takes the place of one
	// of them. These are corners of the frontier's lower hull, of which there are few.
	least := high.price
	for range steps {
		price := (high.time - low.time) / (low.off - high.off)
		if price <= low.price || price >= high.price {
			least = max(low.price, min(price, high.price)) // the solver was not exact
			break
		}
		between, err := at(price)
		if err != nil {
			return nil, err
		}
		least = price
		if between.whole(price) >= high.whole(price)-n.roundings() {
			break
		}
		if between.off <= allowed {
			high = between
		} else {
			low = between
		}
	}
	// A little more than the price at which they cost the same is what makes the one that is allowed the cheaper one.
	for _, more := range []float64{1e-6, 1e-4, 1e-2} {
		if a, err := at(least * (1 + more)); err != nil {
			return nil, err
		} else if a.off <= allowed {
			high = a
			break
		}
	}
	return result(high), nil
}

// allOptions are the options of each function.
func (n *sensitivity) allOptions(options func(function int) []place.Option) [][]place.Option {
	all := make([][]place.Option, len(n.space.Functions))
	for i := range all {
		all[i] = options(i)
	}
	return all
}

// at places by costs and a price for errors. Errors: place.Solve's.
func (n *sensitivity) at(price float64, all [][]place.Option) (atPrice, error) {
	a := atPrice{price: price, chosen: make([][]int, len(all))}
	for i := range all {
		placed, err := n.solve(n.priced(i, all[i], price), n.space.Functions[i].Tree)
		if err != nil {
			return a, fmt.Errorf("function %s: %w", n.space.Functions[i].Set.Graph.Name, err)
		}
		a.chosen[i] = placed.Chosen
		a.least += placed.LowerBound
		for _, k := range placed.Chosen {
			a.time += all[i][k].Cost
		}
	}
	a.off = n.sum(n.covered(a.chosen))
	return a, nil
}

// onePicosecond is what the solver counts in.
const onePicosecond = 1e-9

// roundings is what two placements of the same cost may seem to differ by: each option's cost is rounded.
func (n *sensitivity) roundings() float64 {
	options := 0
	for i := range n.space.Functions {
		for _, needs := range n.space.Functions[i].Tree.Needs {
			if needs {
				options++
			}
		}
	}
	return onePicosecond * float64(options)
}

// unsquared is the error whose squared is so much.
func (n *sensitivity) unsquared(square float64) float64 {
	if n.squared(0.5) == 0.5 {
		return square
	}
	return math.Sqrt(square)
}
