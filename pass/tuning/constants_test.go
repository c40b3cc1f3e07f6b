// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestByHowMuchTuningMustHelpAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		tuned             float64 // where TVM by itself takes 1 ms
		half, chosen, two bool
	}{{0.995, false, false, false}, {0.985, true, false, false}, {0.97, true, true, false}, {0.95, true, true, true}} {
		var byItself, tuned []float64
		for range 15 {
			byItself, tuned = append(byItself, 1), append(tuned, of.tuned)
		}
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, helpsBy(byItself, tuned, 1-factor*(1-tuningMargin)))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "%v", of.tuned)
	}
}

func TestWhatIsHopedOfTuningAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		ms                float64 // where what is placed takes 1 ms
		half, chosen, two bool
		why               string
	}{
		{0.9, true, true, true, "what TVM is the fastest at"},
		{1.5, false, true, true, "what TVM would win if it were twice as fast; without hope none of these is tuned"},
		{3, false, false, true, "what more than twice the speed would win"},
		{5, false, false, false, "what four times would not win"},
	} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, hopedGain(1, of.ms, factor*hopedSpeedup) > 0)
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, of.why)
	}
}
