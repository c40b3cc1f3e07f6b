// SPDX-License-Identifier: Apache-2.0

package lazy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// A computation takes 0.9 ms whose bound was 1 ms. Another one with a bound of 2 ms is ruled out where 1.5 ms are known
// of the same operators.
func TestHowFarBoundsAreDistrustedAtHalfAndTwice(t *testing.T) {
	p := &Problem{Bounds: []float64{1, 2}}
	costs := []cost.Cost{cost.FromMilliseconds(0.9), {}}
	for _, of := range []struct {
		factor, bound float64
		measured      bool // the other one, which may take less than 1.5 ms
		sound         bool // the bound that was wrong lies below what was seen
	}{{0.5, 0.72, true, true}, {1, 1.44, true, true}, {2, 2, false, false}} {
		scale := p.scaleBy(costs, of.factor*distrust)
		assert.InDelta(t, of.bound, 2*scale, 1e-12, "times %v", of.factor)
		assert.Equal(t, of.measured, 2*scale < 1.5)
		assert.Equal(t, of.sound, scale*p.Bounds[0] <= 0.9)
	}
}

// Two candidates for an operator. The one with the lower bound is asked for, and the other one at the same time where
// it would be chosen if the first one turned out to cost what is usual. At half nothing is
// asked for ahead; at twice what has four times the bound is measured as well.
func TestWhatIsUsualAtFirstAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		second            float64 // b's bound, where a's is 1
		half, chosen, two bool
	}{{1.5, false, true, true}, {3, false, false, true}, {5, false, false, false}} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			p := &Problem{Bounds: []float64{1, of.second}, Known: make([]cost.Cost, 2), Functions: []Function{{
				Tree:         &place.Tree{Parent: []relay.NodeID{relay.NoNode}, Needs: []bool{true}},
				Options:      []place.Option{{Nodes: []relay.NodeID{0}}, {Nodes: []relay.NodeID{0}, Rank: 1}},
				Computations: []int{0, 1}}}}
			r := &Result{Costs: make([]cost.Cost, 2), Scale: 1}
			taken := []bool{true, false}
			take := func(i int) { taken[i] = true }
			require.NoError(t, p.lookAhead(&p.Functions[0], r, make([]bool, 2), taken, take, factor*usualAtFirst))
			got = append(got, taken[0] && taken[1])
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "a bound of %v beside one of 1", of.second)
	}
}

func TestWhatIsUsualIsLearnt(t *testing.T) {
	r := &Result{Scale: 1, Costs: []cost.Cost{cost.FromMilliseconds(3), cost.FromMilliseconds(8), {},
		cost.FromMilliseconds(5), cost.FromMilliseconds(20)}}
	assert.Equal(t, 4.0, usual([]float64{1, 2, 1, 1, 1}, r), "the lower quartile of 3, 4, 5 and 20")
	assert.Equal(t, usualAtFirst, usual([]float64{1}, &Result{Scale: 1, Costs: make([]cost.Cost, 1)}))
}
