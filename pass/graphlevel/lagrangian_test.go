// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
)

// A solver that is not exact may give another placement than is cheapest at a price. Then the price at which two of
// them cost the same lies outside of the prices at which they were found: nothing is asked at a price below 0, which
// would pay for errors, nor beyond the one that led to what is allowed; that is the answer, with a bound that holds.
func TestThePriceOfErrorsOfASolverThatIsNotExact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wide, narrow float64 // what operators take
		instead      string  // the backend that the solver takes instead, and when, counted from 1
		at           func(solve int) bool
	}{
		"slower and further off, without a price": {1, 3, "slim", func(solve int) bool { return solve == 1 }},
		"exact and far too slow, with the first":  {10, 1, "tvm", func(solve int) bool { return solve > 1 }},
	} {
		s := narrowable(t, rand.New(rand.NewPCG(19, 20)), 6)
		n := newSensitivity(s, cost.Limit{Most: 1e-3, Measure: cost.L2}, nil)
		f := &s.Functions[0]
		var instead []int
		slim := 0
		for k := range f.Costs {
			switch one := &f.Set.Candidates[k]; {
			case one.Backend == "tvm":
				f.Costs[k] = c.wide
			case len(one.Nodes) == 1:
				slim, f.Costs[k] = k, c.narrow
			default:
				f.Costs[k] = 100
			}
			if one := &f.Set.Candidates[k]; one.Backend == c.instead && len(one.Nodes) == 1 {
				instead = append(instead, k)
			}
		}
		require.Len(t, instead, 6)
		share := n.share[0][n.parts(0, slim)[0]]
		allowed := n.squared(margin * n.limit.Most)
		require.Greater(t, 6*share, allowed, "not all may be narrow")
		var prices []float64
		n.solve = func(priced []place.Option, tree *place.Tree) (*place.Solution, error) {
			prices = append(prices, (priced[slim].Cost-f.Costs[slim])/share)
			placed, err := place.Solve(priced, tree)
			if err != nil || !c.at(len(prices)) {
				return placed, err
			}
			other := &place.Solution{Chosen: instead, LowerBound: placed.LowerBound}
			for _, k := range instead {
				other.Cost += priced[k].Cost
			}
			return other, nil
		}
		relaxed, err := n.relaxed(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
		require.NoError(t, err)
		require.Greater(t, len(prices), 2, name)
		assert.GreaterOrEqual(t, slices.Min(prices), 0.0, name)
		assert.LessOrEqual(t, slices.Max(prices), prices[1]*1.01, name)
		assert.InDelta(t, 6*c.wide, relaxed.Milliseconds, 1e-9, name)
		assert.Zero(t, relaxed.Error, name)
		fastest := math.Inf(1)
		for _, p := range placements(f) {
			if n.sum(n.covered([][]int{p})) <= allowed {
				fastest = min(fastest, milliseconds(f, p))
			}
		}
		assert.LessOrEqual(t, relaxed.Bound, fastest+1e-9, name)
		assert.InDelta(t, relaxed.Milliseconds-relaxed.Bound, relaxed.Gap, 1e-9, name)
	}
}
