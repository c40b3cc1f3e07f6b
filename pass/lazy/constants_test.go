// SPDX-License-Identifier: Apache-2.0

package lazy

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
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
