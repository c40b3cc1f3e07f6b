// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"errors"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
)

// mostCorners is how many corners of the frontier's lower hull are looked for at most: those between which the most
// time lies come first.
const mostCorners = 48

// Corners are those of the lower hull of time against error, as both are believed at the end of the search, the most
// exact one first, without what is paid between regions; nil where no error was limited, nothing is computed narrowly
// or no network was measured. They are found with as many placements of the whole as there are corners, and one for
// each two neighbours, which proves that there is none between. Errors: place.Solve's.
func (r *Result) Corners() ([]plan.Corner, error) {
	if r.belief == nil || r.belief.sensitivity == nil || len(r.Trials) == 0 {
		return nil, nil
	}
	space := r.belief.inPlace(r.Tables)
	return r.belief.sensitivity.corners(func(i int) []place.Option { return believed(space, i, r.belief.overhead) })
}

// edge is between two corners: the exact one and the fast one, which has chosen nothing where there is none. fall is by
// how much a placement may lie below it, as far as was proven.
type edge struct {
	exact, fast atPrice
	fall        float64
}

// corners sweeps the price of errors: at the price at which two corners cost the same nothing is cheaper, which makes
// them neighbours, or what is cheaper is a corner between them. options gives a function's candidates. Errors:
// place.Solve's.
func (n *sensitivity) corners(options func(function int) []place.Option) ([]plan.Corner, error) {
	all := n.allOptions(options)
	fast, err := n.at(0, all)
	if err != nil {
		return nil, err
	}
	exact, err := n.mostExact(all, fast)
	if err != nil {
		return nil, err
	}
	if exact.off >= fast.off {
		return n.toldCorners([]edge{{exact: fast}}), nil
	}
	open, known := []edge{{exact: exact, fast: fast}}, []edge(nil)
	for count := 2; len(open) > 0; {
		at := 0
		for i := range open {
			if open[i].exact.time-open[i].fast.time > open[at].exact.time-open[at].fast.time {
				at = i
			}
		}
		e := open[at]
		open = slices.Delete(open, at, at+1)
		price := (e.exact.time - e.fast.time) / (e.fast.off - e.exact.off)
		if !(price > 0) { // as fast, and more exact: the other one is no corner
			known = append(known, edge{exact: e.exact})
			continue
		}
		between, err := n.at(price, all)
		if err != nil { // costs add up to more than the solver counts at so high a price
			e.fall = e.exact.time - e.fast.time
			known = append(known, e)
			continue
		}
		below := e.exact.whole(price) - between.whole(price)
		if below > n.roundings() && count < mostCorners && between.off > e.exact.off && between.off < e.fast.off {
			open = append(open, edge{exact: e.exact, fast: between}, edge{exact: between, fast: e.fast})
			count++
			continue
		}
		if e.fall = e.exact.whole(price) - between.least; e.fall <= n.roundings() {
			e.fall = 0
		}
		known = append(known, e)
	}
	slices.SortFunc(known, func(a, b edge) int {
		if a.exact.off < b.exact.off {
			return -1
		}
		return 1
	})
	return n.toldCorners(known), nil
}

// mostExact is the fastest placement that is computed in the network's own type; where there is none, one that is off
// the least of those that a price leads to.
func (n *sensitivity) mostExact(all [][]place.Option, fast atPrice) (atPrice, error) {
	wide := make([][]place.Option, len(all))
	for i := range all {
		wide[i] = slices.Clone(all[i])
		for k := range wide[i] {
			if len(n.parts(i, k)) > 0 {
				wide[i][k].Cost = math.Inf(1)
			}
		}
	}
	var uncovered *place.UncoveredError
	if a, err := n.at(0, wide); err == nil || !errors.As(err, &uncovered) {
		return a, err
	}
	best := fast
	for price, k := 1/max(fast.off, math.SmallestNonzeroFloat32), 0; k < steps; price, k = 4*price, k+1 {
		a, err := n.at(price, all)
		if err != nil {
			return best, nil // costs add up to more than the solver counts
		}
		if a.off < best.off {
			best = a
		}
	}
	return best, nil
}

// toldCorners are the corners at the ends of edges, which are in order; one that is as slow as one before it is none.
func (n *sensitivity) toldCorners(edges []edge) []plan.Corner {
	told := make([]plan.Corner, 0, len(edges)+1)
	for i, e := range edges {
		c := n.corner(&e.exact)
		if e.fast.chosen != nil {
			c.Price = max(0, (e.exact.time-e.fast.time)/(e.fast.off-e.exact.off))
			c.Gap, c.Unproven = max(0, e.exact.time-e.fast.time)+e.fall, e.fall
			if told = append(told, c); i == len(edges)-1 {
				told = append(told, n.corner(&e.fast))
			}
			continue
		}
		told = append(told, c)
	}
	kept := told[:0]
	for _, c := range told {
		if len(kept) > 0 {
			before := &kept[len(kept)-1]
			if c.Milliseconds >= before.Milliseconds {
				continue
			}
			if before.Gap == 0 { // what lay between was none: that nothing else does was not looked at
				before.Gap = before.Milliseconds - c.Milliseconds
				before.Price, before.Unproven = before.Gap/(n.squared(c.Error)-n.squared(before.Error)), before.Gap
			}
		}
		kept = append(kept, c)
	}
	return kept
}

// corner is a placement as a corner, and in which precisions it computes how many operators: what parts leaves out is
// computed in the network's own type.
func (n *sensitivity) corner(a *atPrice) plan.Corner {
	c := plan.Corner{Milliseconds: a.time, Error: n.unsquared(a.off), Operators: map[string]int{}}
	for i := range a.chosen {
		set := n.space.Functions[i].Set
		for _, k := range a.chosen[i] {
			narrow, wide := len(n.parts(i, k)), 0
			for _, v := range set.Candidates[k].Nodes {
				if candidate.IsOperator(&set.Graph.Nodes[v]) {
					wide++
				}
			}
			if wide -= narrow; wide > 0 {
				c.Operators[string(byoc.F32)] += wide
			}
			if narrow > 0 {
				c.Operators[string(byoc.Precisions()[n.in[i][k]])] += narrow
			}
		}
	}
	return c
}
