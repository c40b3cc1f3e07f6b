// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhichCandidatesAreTiedAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		regret, size      float64
		half, chosen, two bool // by tieShare
		why               string
	}{
		{0.009, 1, true, true, true, "a tie at each"},
		{0.015, 1, false, true, true, "further samples would change nothing"},
		{0.03, 1, false, false, true, "a gain of 3 %"},
		{0.05, 1, false, false, false, "a gain of 5 %"},
		{0.0015, 0.01, true, true, true, "the clock's noise, however small what competes is"},
		{0.003, 0.01, false, false, false, "above the floor, and a third of what competes"},
	} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, tiedBy(of.regret, of.size, factor*tieShare, tieFloor))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, of.why)
	}
	for factor, want := range map[float64]bool{0.5: false, 1: true, 2: true} {
		assert.Equal(t, want, tiedBy(0.0015, 0.01, tieShare, factor*tieFloor), "floor times %v", factor)
	}
}
