// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
)

// The constants that decide here, each at half, as it is, and at twice: what is true of the chosen one alone is why it
// is chosen.

func TestWhichSeedsAreHopelessAtHalfAndTwice(t *testing.T) {
	const best = 10.0
	for _, of := range []struct {
		expected          float64
		half, chosen, two bool
		why               string
	}{
		{8, true, false, false, "what looks faster than the best must be tried"},
		{14, true, false, false, "predictions are off by so much"},
		{16, true, true, false, "half as slow again is not worth a build"},
		{31, true, true, true, "three times as slow"},
	} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, hopelessWith(of.expected, best, factor*hopelessSeed))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, of.why)
	}
}

func TestWhatCountsAsAnImprovementAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		score             float64
		half, chosen, two bool
	}{{0.998, false, false, false}, {0.996, true, false, false}, {0.992, true, true, false}, {0.98, true, true, true}} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, improves(of.score, 1, factor*improvement))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "%v of the best", of.score)
	}
}

func TestWhenARunIsGivenUpAtHalfAndTwice(t *testing.T) {
	rounds := func(ms float64) cost.Cost {
		return cost.Cost{Samples: []float64{ms, ms, ms}, Origin: cost.Measured,
			Network: &cost.Network{Against: []float64{1, 1, 1}}}
	}
	for _, of := range []struct {
		ms                float64
		half, chosen, two bool
	}{{1.01, false, false, false}, {1.02, true, false, false}, {1.05, true, true, false}, {1.07, true, true, true}} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, hopelessBy(rounds(of.ms), rounds(1), 1+factor*(hopelessRun-1)))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "%v times the best", of.ms)
	}
}

func TestWhenUnfoundKernelsAreWorthAWordAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		rest              float64 // beside 1 ms
		half, chosen, two bool
	}{{0.02, false, false, false}, {0.04, true, false, false}, {0.08, true, true, false}, {0.2, true, true, true}} {
		p := &feedback.Profile{Parts: []feedback.Part{{Milliseconds: 1}}, Rest: of.rest}
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			got = append(got, unfound(p, factor*mostRest))
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, "%v", of.rest)
	}
}

func TestHowFarProfilesAreBroughtToOneSpeedAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		busy              float64 // how much longer all took while the profile was taken
		half, chosen, two bool
		why               string
	}{
		{1.5, true, true, true, "half as slow again"},
		{3, false, true, true, "one of three shares of a core"},
		{6, false, false, true, "what is further off than a busy machine explains"},
		{10, false, false, false, "and further"},
	} {
		got := []bool{}
		for _, factor := range []float64{0.5, 1, 2} {
			most := factor * mostScale
			whole := scaled(1/of.busy, most) == 1/of.busy
			assert.Equal(t, whole, scaled(of.busy, most) == of.busy, "as far to the other side")
			got = append(got, whole)
		}
		assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, of.why)
	}
}

func TestHowMuchOfTheAllowedErrorIsAimedAtAtHalfAndTwice(t *testing.T) {
	for _, of := range []struct {
		off               float64 // of what is allowed, as it is believed
		half, chosen, two bool
		why               string
	}{
		{0.4, true, true, true, "far within"},
		{0.8, false, true, true, "at half, half of the room would be given away"},
		{0.95, false, false, true, "what turns out a tenth further off than believed would not be allowed"},
		{1.5, false, false, true, "at twice, what is believed not to be allowed would be aimed at"},
	} {
		for _, measure := range []string{cost.Cosine, "l2"} {
			n := &sensitivity{limit: cost.Limit{Most: 0.02, Measure: measure}}
			got := []bool{}
			for _, factor := range []float64{0.5, 1, 2} {
				got = append(got, n.squared(of.off*n.limit.Most) <= n.aimed(factor*margin))
			}
			assert.Equal(t, []bool{of.half, of.chosen, of.two}, got, of.why)
		}
	}
}
