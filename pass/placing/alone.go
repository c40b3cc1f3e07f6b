// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
)

// EachCandidate is what a candidate counts, in milliseconds, where a backend is to have all and nothing is known of how
// long its candidates take: the fewer, the better, and ranks decide among as many. It is the smallest number of which a
// thousandth is a picosecond, so that thousands of them are far less than an operator elsewhere.
const EachCandidate = 1e-6

// elsewhere is what an operator counts that is left to TVM where a backend is to take all that it can, in milliseconds:
// more than any choice among the backend's own candidates can save.
const elsewhere = 1e5

// Alone is a backend alone, or a few together: all that any of them can take is theirs, and TVM has the rest. What an
// operator takes on TVM is not looked at, so the fewest are left there that can be; own says what one of the backends'
// own candidates (k of function i) counts, in milliseconds, which decides among covers that leave as few. A candidate
// that failed is not taken. The chosen candidates of each function come back. Errors: as place.Solve's, with the
// function's name.
//
// Config.Only and every placement of a Network that gives all to some backends are this one.
func (s *Module) Alone(backends []string, own func(i, k int) float64) ([][]int, error) {
	chosen := make([][]int, len(s.Functions))
	for i, f := range s.Functions {
		options := make([]place.Option, len(f.Set.Candidates))
		others := map[int]float64{} // operators of what is not theirs
		sum := 0.0
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			options[k] = place.Option{Nodes: c.Nodes, Rank: c.Rank}
			switch {
			case c.Free && !c.Open:
			case f.Costs[k].Failed():
				options[k].Cost = math.Inf(1)
			case slices.Contains(backends, c.Backend):
				options[k].Cost = own(i, k)
			case s.ByName[c.Backend].TakesAnything():
				others[k] = float64(c.Operators(f.Set.Graph))
			case len(s.Config.Pin) > 0: // what is pinned there can be nowhere else
				others[k] = 2 * float64(c.Operators(f.Set.Graph))
			default:
				options[k].Cost = math.Inf(1)
			}
			sum += others[k]
		}
		// Less for a function of so many operators that the solver could not add that up; the other half is for own's.
		each := min(elsewhere, place.GreatestSum/2/max(1, sum))
		for k, operators := range others {
			options[k].Cost = each * operators
		}
		placed, err := place.Solve(options, place.TreeOf(f.Set.Graph))
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Set.Graph.Name, err)
		}
		chosen[i] = placed.Chosen
	}
	return chosen, nil
}

// PlaceOnly places by alone what Config.Only names. What the candidates counted for that is no time, and nothing of it
// reaches the plan.
func (s *Module) PlaceOnly() error {
	defer clock(&s.Timings.Place)()
	for _, f := range s.Functions {
		f.Costs = make([]cost.Cost, len(f.Set.Candidates))
	}
	chosen, err := s.Alone(s.Config.OnlyNames(), func(int, int) float64 { return EachCandidate })
	if err != nil {
		return err
	}
	for i, f := range s.Functions {
		f.decideUncosted(chosen[i], s.ByName)
	}
	return nil
}

// decideUncosted is decide of candidates that something else than their costs chose.
func (f *Function) decideUncosted(chosen []int, byName map[string]byoc.Backend) {
	f.Options = f.lazyOptions()
	for k := range f.Options {
		f.Options[k].Cost = cost.Cost{}.Estimate()
	}
	for _, k := range chosen {
		f.Options[k].Cost = 0
	}
	f.decide(&place.Solution{Chosen: chosen}, byName)
}
