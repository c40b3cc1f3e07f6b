// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The constants that decide here, each at half, as it is, and at twice.

// against are the rounds of something that is slower by a share than what takes 1 ms, faster in so many rounds.
func against(slower float64, faster int) (a, b []float64) {
	for i := range 20 {
		x := 1 + slower
		if i < faster {
			x = 0.99
		}
		a, b = append(a, x), append(b, 1)
	}
	return a, b
}

func TestWhichFinalistsAreTiedAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		slower            float64
		half, chosen, two bool
	}{{0.004, true, true, true}, {0.008, false, true, true}, {0.015, false, false, true}, {0.03, false, false, false}} {
		a, b := against(of.slower, 0)
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, equalWithin(a, b, factor*tieMargin, doubt))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "slower by %v", of.slower)
	}
}

func TestWhatChanceExplainsAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		faster            int
		half, chosen, two bool
	}{{4, false, false, false}, {5, false, false, false}, {6, true, true, false}, {7, true, true, true}} {
		a, b := against(0.05, of.faster)
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, equalWithin(a, b, tieMargin, factor*doubt))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "faster in %d of 20 rounds", of.faster)
	}
}

func TestWhatIsLeftForNetworksAtHalfAndTwice(t *testing.T) {
	const free = time.Minute
	for _, of := range []struct {
		factor float64
		parts  time.Duration
		decide bool // networks, which decide, have at least as long as parts
	}{{0.5, 12 * time.Second, true}, {1, 24 * time.Second, true}, {2, 48 * time.Second, false}} {
		parts := partsTime(free, of.factor*learnShare)
		assert.Equal(t, of.parts, parts)
		assert.Equal(t, of.decide, free-parts >= parts)
	}
}

// On TVM's virtual machine, what is placed has yet to be built and run beside every backend alone.
func TestWhatIsLeftForTheMachineAtHalfAndTwice(t *testing.T) {
	const free = time.Minute
	for factor, left := range map[float64]time.Duration{0.5: 45 * time.Second, 1: 30 * time.Second, 2: 0} {
		assert.Equal(t, left, free-partsTime(free, factor*machineShare), "times %v", factor)
	}
}
