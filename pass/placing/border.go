// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// bordered are the backends whose borders cost something (byoc.Borderer), in the order of the backends. Of those that
// share regions the first speaks for all.
func bordered(backends []byoc.Backend) []byoc.Backend {
	var found []byoc.Backend
	for _, b := range backends {
		if byoc.BorderCostOf(b) != nil && !slices.ContainsFunc(found,
			func(other byoc.Backend) bool { return byoc.ShareRegions(other, b) }) {
			found = append(found, b)
		}
	}
	return found
}

// declared are what backends declare about the borders of one function's values.
type declared struct {
	set      *candidate.Set
	flow     *border.Flow
	speakers []byoc.Backend // speaker i is side i+1, with all that it speaks for; all others are side 0, that of what stays inline
	side     map[string]border.Side
	costs    []map[relay.NodeID]ends // by speaker
}

// ends is what it takes to bring one value to a backend and away from it, in milliseconds.
type ends struct{ in, out float64 }

// declare asks the backends; nil where none declares anything. The error says which border costs what nothing can cost.
func declare(set *candidate.Set, backends []byoc.Backend) (*declared, error) {
	d := &declared{set: set, speakers: bordered(backends), side: map[string]border.Side{}}
	if len(d.speakers) == 0 {
		return nil, nil
	}
	d.flow = border.FlowOf(set.Graph)
	for i, speaker := range d.speakers {
		for _, b := range backends {
			if b.Name() == speaker.Name() || byoc.ShareRegions(b, speaker) {
				d.side[b.Name()] = border.Side(i + 1)
			}
		}
		costs, of := map[relay.NodeID]ends{}, byoc.BorderCostOf(speaker)
		for v, readers := range d.flow.Readers {
			if len(readers) == 0 && !d.flow.Result[v] {
				continue
			}
			t := set.Graph.Nodes[v].Type
			in, out := border.OfType(of, t)
			if !(in >= 0 && out >= 0) || math.IsInf(in+out, 1) {
				return nil, fmt.Errorf("the border cost of the backend %s for %s is %v and %v ms; it must be at "+
					"least 0 and finite",
					speaker.Name(), t, in, out)
			}
			costs[relay.NodeID(v)] = ends{in, out}
		}
		d.costs = append(d.costs, costs)
	}
	return d, nil
}

// ends are border.Ends.
func (d *declared) ends() border.Ends {
	return border.Rounded(func(v relay.NodeID, s border.Side) (in, out float64) {
		if s == 0 {
			return 0, 0
		}
		e := d.costs[s-1][v]
		return e.in, e.out
	})
}

// sideOf is where a candidate's values are.
func (d *declared) sideOf(c *candidate.Candidate) border.Side {
	if c.Free {
		return 0
	}
	return d.side[c.Backend]
}

// sides says where the regions of a placement are.
func (d *declared) sides(regions []annotate.Region) *border.Regions {
	return annotate.Sides(d.set.Graph, regions, 0, func(r *annotate.Region) border.Side {
		return d.sideOf(&d.set.Candidates[r.Candidates[0]])
	})
}

// Sum is what is paid between the regions of a placement, in milliseconds.
func (d *declared) Sum(regions []annotate.Region) float64 {
	if d == nil {
		return 0
	}
	return float64(d.flow.Sum(d.sides(regions), d.ends())) / 1e9
}

// apart says that neighbours of a side do not share a region.
func (d *declared) apart(s place.State) bool { return s > 0 && !d.speakers[s-1].MergesRegions() }

// Record is what a plan says of it; nil for nothing.
func (d *declared) Record() *plan.Borders {
	if d == nil {
		return nil
	}
	record := &plan.Borders{Flow: d.flow}
	for i, b := range d.speakers {
		if !b.MergesRegions() {
			record.Apart = append(record.Apart, b.Name())
		}
		for v := range d.flow.Readers {
			if e := d.costs[i][relay.NodeID(v)]; e != (ends{}) {
				record.Values = append(record.Values,
					plan.Border{Function: d.set.Graph.Name, Value: v, Backend: b.Name(), In: e.in, Out: e.out})
			}
		}
	}
	slices.SortStableFunc(record.Values, func(a, b plan.Border) int { return a.Value - b.Value })
	return record
}

// solve places a function whose options have their costs. Where borders cost something, the placement says how far from
// the cheapest it can be; its prices are then those of the options alone, a bound that leaves the borders out.
func (s *Module) solve(f *Function) (_ *place.Solution, err error) {
	tree := place.TreeOf(f.Set.Graph)
	if f.Borders, err = declare(f.Set, s.Backends); err != nil {
		return nil, err
	}
	alone, err := place.Solve(f.Options, tree)
	if err != nil || f.Borders == nil {
		return alone, err
	}
	for k := range f.Options {
		f.Options[k].State = place.State(f.Borders.sideOf(&f.Set.Candidates[k]))
	}
	problem := &place.Problem{Tree: tree, Options: f.Options, Reads: place.ReadsOf(f.Set.Graph),
		Borders: &place.Borders{Flow: f.Borders.flow, Ends: f.Borders.ends(), Apart: f.Borders.apart,
			Regions: func(chosen []int) *border.Regions {
				return f.Borders.sides(
					annotate.Regions(f.Set, chosen, s.ByName))
			}}}
	placement, err := problem.Solve()
	if err != nil {
		return nil, err
	}
	if err := problem.Verify(placement); err != nil {
		return nil, err
	}
	placement.Prices = alone.Prices
	placement.LowerBound = max(placement.LowerBound, alone.LowerBound)
	placement.Gap = placement.Cost - placement.LowerBound
	return placement, nil
}
