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

// observe puts what a trial says about its parts and borders into the table. Its kernels are brought to what the whole network took
// against plain TVM: a profile is taken at another moment, when the machine may be busier.
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
	scale := min(mostScale, max(1/mostScale, s.reference*t.Score/total))
	s.result.Tables[s.main].Observe(profile, t.Placement.Chosen[s.main], scale)
	s.borders.Observe(profile, scale)
}

// believe makes what was seen in place the costs by which genomes are decoded and judged.
func (s *search) believe() {
	for i := range s.space.Functions {
		s.space.Functions[i].Costs = s.result.Tables[i].Costs()
	}
	s.space.Border = BorderOf(s.space, s.borders)
}

// BorderOf gives what borders are believed to cost now, for genome.Space.Border.
func BorderOf(space *genome.Space, borders *feedback.Borders) func(function int, v relay.NodeID, backend int16) (in, out float64) {
	type border struct{ in, out float64 }
	known := make([]map[int64]border, len(space.Functions))
	for i := range known {
		known[i] = map[int64]border{}
	}
	return func(function int, v relay.NodeID, backend int16) (in, out float64) {
		key := int64(v)<<16 | int64(backend)
		b, ok := known[function][key]
		if !ok {
			b.in, b.out = borders.Cost(space.Backends[backend].Name(), space.Functions[function].Set.Graph.Nodes[v].Type)
			known[function][key] = b
		}
		return b.in, b.out
	}
}

// placeEffort bounds the work of placing with borders: a quarter of place.DefaultEffort, some half a second.
const placeEffort = place.DefaultEffort / 4

// PlaceWithBorders places a function by the options' costs and by what space.Border says about values that go from one backend to
// another. options are those of its candidates; their States are filled in. Deterministic. Errors: as place.Solve's.
func PlaceWithBorders(space *genome.Space, function int, options []place.Option) ([]int, error) {
	f := &space.Functions[function]
	g := f.Set.Graph
	for k := range options {
		c := &f.Set.Candidates[k]
		at := space.Backend(c.Backend)
		options[k].State = place.State(at)
		if c.Free || math.IsInf(options[k].Cost, 1) {
			continue
		}
		// What the network's own inputs and results take at the border nobody else pays for.
		for _, v := range c.Inputs {
			if !g.Placeable(v) && at != space.Free() {
				in, _ := space.Border(function, v, at)
				options[k].Cost += in
			}
		}
		if g.ScopeRoot(c.Root) && at != space.Free() {
			_, out := space.Border(function, c.Root, at)
			options[k].Cost += out
		}
	}
	problem := &place.Problem{Tree: f.Tree, Options: options, Reads: place.ReadsOf(g), Effort: placeEffort,
		Transfer: func(u relay.NodeID, from, to place.State) float64 {
			if from == to {
				return 0
			}
			_, out := space.Border(function, u, int16(from))
			in, _ := space.Border(function, u, int16(to))
			return in + out
		}}
	placed, err := problem.Solve()
	if err != nil {
		// Within the effort there may be none; without the borders there is one, if there is one at all.
		if placed, err = place.Solve(options, f.Tree); err != nil {
			return nil, err
		}
	}
	return placed.Chosen, nil
}

// again places by the costs in context.
func (s *search) again() (*genome.Placement, error) {
	chosen := make([][]int, len(s.space.Functions))
	for i := range s.space.Functions {
		f := &s.space.Functions[i]
		options := make([]place.Option, len(f.Costs))
		for k := range options {
			c := &f.Set.Candidates[k]
			options[k] = place.Option{Nodes: c.Nodes, Cost: f.Costs[k], Rank: c.Rank}
			if c.Free {
				options[k].Cost = 0
			}
		}
		var err error
		if chosen[i], err = PlaceWithBorders(s.space, i, s.options.Overhead.Apply(options)); err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Set.Graph.Name, err)
		}
	}
	return s.space.Place(chosen), nil
}
