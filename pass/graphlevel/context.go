// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// TraitsOf gives the traits of backends by name.
func TraitsOf(backends []byoc.Backend) func(backend string) feedback.Traits {
	traits := map[string]feedback.Traits{}
	for _, b := range backends {
		of := feedback.TraitsOf(b)
		for _, other := range backends { // the first that says something about its borders speaks for all that share its regions
			if declared := byoc.BorderCostOf(other); declared != nil && byoc.ShareRegions(b, other) {
				of.Declared = declared
				break
			}
		}
		traits[b.Name()] = of
	}
	return func(backend string) feedback.Traits { return traits[backend] }
}

// mostScale is how far a profile is brought to the speed of the first one.
const mostScale = 4.0

// observe puts what a trial says about its parts and borders into the table. Its kernels are brought to what the whole
// network took against plain TVM: a profile is taken at another moment, when the machine may be busier.
func (s *search) observe(t *Trial) {
	profile := profileOf(t.Cost)
	if profile == nil || s.main < 0 || t.Cost.Failed() {
		return
	}
	total := profile.Total()
	if !(total > 0) || math.IsInf(t.Score, 1) {
		return
	}
	if s.reference == 0 {
		s.reference = total / t.Score
	}
	scale := scaled(s.reference*t.Score/total, mostScale)
	s.result.Tables[s.main].Observe(profile, t.Placement.Chosen[s.main], scale)
	s.borders.Observe(profile, scale)
}

// scaled is what a profile's times are multiplied with, which should be factor: no more than most, and no less than its
// inverse.
func scaled(factor, most float64) float64 { return min(most, max(1/most, factor)) }

// believe makes what was seen in place the costs by which genomes are decoded and judged.
func (s *search) believe() {
	for i := range s.space.Functions {
		s.space.Functions[i].Costs = s.result.Tables[i].Costs()
	}
	s.space.Border = BorderOf(s.space, s.borders)
}

// BorderOf gives what borders are believed to cost now, for genome.Space.Border.
func BorderOf(space *genome.Space, borders *feedback.Borders) func(function int, v relay.NodeID, backend int16) (in,
	out float64) {
	type border struct{ in, out float64 }
	known := make([]map[int64]border, len(space.Functions))
	for i := range known {
		known[i] = map[int64]border{}
	}
	return func(function int, v relay.NodeID, backend int16) (in, out float64) {
		key := int64(v)<<16 | int64(backend)
		b, ok := known[function][key]
		if !ok {
			b.in, b.out = borders.Cost(space.Backends[backend].Name(),
				space.Functions[function].Set.Graph.Nodes[v].Type)
			known[function][key] = b
		}
		return b.in, b.out
	}
}

// placeEffort bounds the work of placing with borders: a quarter of place.DefaultEffort, some half a second.
const placeEffort = place.DefaultEffort / 4

// placeEnough is how far from the cheapest, of its cost, a placement may be that nothing better is looked for: a
// fiftieth of what a network must gain to count as better (improvement).
const placeEnough = improvement / 50

// PlaceWithBorders places a function by the options' costs and by what space.Border says about values that go from one
// region to another. options are those of its candidates; their States are filled in. The placement says how far from
// the cheapest it is at most; its prices, which leave the borders out, sum to a bound, too. Deterministic. Errors: as
// place.Solve's.
func PlaceWithBorders(space *genome.Space, function int, options []place.Option) (*place.Solution, error) {
	f := &space.Functions[function]
	for k := range options {
		options[k].State = space.State(&f.Set.Candidates[k])
	}
	alone, err := place.SolveWithin(options, f.Tree, placeEffort)
	if err != nil {
		return nil, err
	}
	problem := &place.Problem{Tree: f.Tree, Options: options, Reads: place.ReadsOf(f.Set.Graph), Effort: placeEffort,
		Enough:  placeEnough,
		Borders: space.Borders(function)}
	placed, err := problem.Solve()
	if err != nil {
		// Within the effort there may be none; without the borders there is one.
		cost, err := problem.Cost(alone.Chosen)
		if err != nil {
			return nil, err
		}
		placed = &place.Solution{Chosen: alone.Chosen, Cost: float64(cost) / 1e9}
	}
	placed.Prices = alone.Prices
	placed.LowerBound = max(placed.LowerBound, alone.LowerBound)
	placed.Gap = placed.Cost - placed.LowerBound
	return placed, nil
}

// again is placeAgain; where its answer is known already, once more without heeding by how much the last one was
// further off than was believed.
func (s *search) again() (p *genome.Placement, gap float64, err error) {
	for p, gap, err = s.placeAgain(); err == nil; p, gap, err = s.placeAgain() {
		if _, done := s.tried[p.Key]; !done || !s.sensitivity.calm() {
			break
		}
	}
	return p, gap, err
}

// placeAgain places by the costs in context, and by the price of errors where they are limited, and says how far from
// the cheapest by these that is at most, in milliseconds.
func (s *search) placeAgain() (p *genome.Placement, gap float64, err error) {
	chosen := make([][]int, len(s.space.Functions))
	options := func(i int) []place.Option { return believed(s.space, i, s.options.Overhead) }
	relaxed, err := s.sensitivity.relaxed(options)
	if err != nil {
		return nil, 0, err
	}
	price := 0.0
	if relaxed != nil {
		price, s.result.Lagrangian = relaxed.Price, relaxed
	}
	for i := range s.space.Functions {
		placed, err := PlaceWithBorders(s.space, i, s.sensitivity.priced(i, options(i), price))
		if err != nil {
			return nil, 0, fmt.Errorf("function %s: %w", s.space.Functions[i].Set.Graph.Name, err)
		}
		chosen[i] = placed.Chosen
		gap += placed.Gap
	}
	return s.space.Place(chosen), gap, nil
}

// believed are a function's options by the space's costs.
func believed(space *genome.Space, function int, overhead place.Overhead) []place.Option {
	f := &space.Functions[function]
	options := make([]place.Option, len(f.Costs))
	for k := range options {
		c := &f.Set.Candidates[k]
		options[k] = place.Option{Nodes: c.Nodes, Cost: f.Costs[k], Rank: c.Rank, State: space.State(c)}
		if c.Free {
			options[k].Cost = 0
		}
	}
	return overhead.Apply(options)
}
