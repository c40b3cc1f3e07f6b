// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
)

// belief is what a search ended with: the space that it searched in, the borders that it has learnt, and what is
// believed of errors (nil where none are limited).
type belief struct {
	space       *genome.Space
	borders     *feedback.Borders
	overhead    place.Overhead
	sensitivity *sensitivity
	known       []*plan.Belief // by function, once it was asked for
}

// inPlace is the space with what its candidates took in place, by function.
func (b *belief) inPlace(tables []*feedback.Table) *genome.Space {
	space := *b.space
	space.Functions = slices.Clone(b.space.Functions)
	for i := range space.Functions {
		space.Functions[i].Costs = tables[i].Costs()
	}
	space.Border = BorderOf(&space, b.borders)
	return &space
}

// Belief is what is believed about a function at the end of the search: what its candidates take in place, what is paid
// between regions, and what no placement takes less than by these. nil where no network was measured. It is found when
// it is asked for first, with the effort of placing the function once. Errors: as PlaceWithBorders's.
func (r *Result) Belief(function int) (*plan.Belief, error) {
	if r.belief == nil || len(r.Trials) == 0 {
		return nil, nil
	}
	b := r.belief
	if b.known == nil {
		space := b.inPlace(r.Tables)
		known := make([]*plan.Belief, len(space.Functions))
		for i := range space.Functions {
			f := &space.Functions[i]
			options := believed(space, i, b.overhead)
			placed, err := PlaceWithBorders(space, i, options)
			if err != nil {
				return nil, fmt.Errorf("function %s: %w", f.Set.Graph.Name, err)
			}
			borders := space.Borders(i)
			known[i] = &plan.Belief{Prices: placed.Prices, Bound: placed.LowerBound, Flow: borders.Flow,
				Ends:   borders.Ends,
				Inline: border.Side(borders.Inline),
				Side:   func(backend string) border.Side { return border.Side(space.Backend(backend)) }}
			for k := range options {
				known[i].Costs = append(known[i].Costs, options[k].Cost)
			}
		}
		b.known = known
	}
	return b.known[function], nil
}

// Exchanges are genome.Space.Exchanges of a placement by what was believed at the end of the search, by function; nil
// where no network was measured.
func (r *Result) Exchanges(p *genome.Placement) [][]float64 {
	if r.belief == nil || len(r.Trials) == 0 {
		return nil
	}
	space := r.belief.inPlace(r.Tables)
	all := make([][]float64, len(space.Functions))
	for i := range space.Functions {
		all[i] = space.Exchanges(p, i, believed(space, i, r.belief.overhead))
	}
	return all
}
