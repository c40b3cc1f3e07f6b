// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Of backends that share regions the last one is taken where its lower bound is no higher, but for so much.
func TestWhichBoundsAreAlikeAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		higher            float64 // the last one's bound
		half, chosen, two bool
	}{{0.004, true, true, true}, {0.008, false, true, true}, {0.015, false, false, true}, {0.03, false, false, false}} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, asLast(1+of.higher, factor*alike) < 1)
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "higher by %v", of.higher)
	}
}
