// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
)

func TestHowMuchASearchHurries(t *testing.T) {
	for search, want := range map[time.Duration]float64{0: 1, 30 * time.Second: 0.25, time.Minute: 0.5, unhurried: 1,
		time.Hour: 1} {
		assert.Equal(t, want, hurry(search), search)
	}
}

func TestWhoSetsThePaceAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		lost, rounds      int
		half, chosen, two bool
	}{{0, 9, true, true, true}, {1, 8, false, true, true}, {2, 9, false, false, true}, {3, 9, false, false, false}} {
		c := cost.Cost{Network: &cost.Network{}}
		for i := range of.rounds {
			c.Samples, c.Network.Against = append(c.Samples, 1), append(c.Network.Against, 1.1)
			if i < of.lost {
				c.Network.Against[i] = 0.9
			}
		}
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, aheadOf(c, factor*chance))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "%d of %d lost", of.lost, of.rounds)
	}
}
