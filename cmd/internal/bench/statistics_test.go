// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMedian(t *testing.T) {
	assert.Equal(t, 2.0, median([]float64{3, 1, 2}))
	assert.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	assert.True(t, math.IsNaN(median(nil)))
}

// The ranks are those of the usual tables of the sign test's interval for a median at 95 %.
func TestSignTestRank(t *testing.T) {
	for n, want := range map[int]int{6: 0, 8: 0, 9: 1, 12: 2, 15: 3, 20: 5, 25: 7, 30: 9, 50: 17} {
		rank, coverage := signTestRank(n)
		assert.Equal(t, want, rank, "of %d", n)
		assert.GreaterOrEqual(t, coverage, 0.95, "of %d", n)
	}
	// Fewer than six turns cannot give 95 %.
	for n, want := range map[int]float64{1: 0, 2: 0.5, 3: 0.75, 5: 0.9375} {
		rank, coverage := signTestRank(n)
		assert.Zero(t, rank)
		assert.InDelta(t, want, coverage, 1e-12)
	}
}

func TestSignTestCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	ones := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = 1
		}
		return v
	}
	const runs, turns = 2000, 15
	inside := 0
	for range runs {
		above := make([]float64, turns)
		for i := range above {
			above[i] = 1 + random.ExpFloat64() // the median is 1 + ln 2
		}
		if r := pairedRatio(above, ones(turns)); r.Low <= 1+math.Ln2 && 1+math.Ln2 <= r.High {
			inside++
		}
	}
	_, coverage := signTestRank(turns)
	assert.InDelta(t, coverage, float64(inside)/runs, 0.02)
}

func TestPairedRatio(t *testing.T) {
	r := pairedRatio([]float64{2, 4, 9}, []float64{1, 2, 3})
	assert.Equal(t, Ratio{Median: 2, Low: 2, High: 3, Coverage: 0.75}, r)
	assert.Equal(t, Ratio{}, pairedRatio(nil, nil))
	// What slows both down in one turn cancels.
	slow := pairedRatio([]float64{2, 200, 2}, []float64{1, 100, 1})
	assert.Equal(t, 2.0, slow.Low)
	assert.Equal(t, 2.0, slow.High)
}

func TestGeometricMean(t *testing.T) {
	g := geometricMean([][]float64{{2, 2, 2}, {8, 8, 8}})
	assert.InDelta(t, 4, g.Mean, 1e-12)
	assert.InDelta(t, 4, g.Low, 1e-12)
	assert.InDelta(t, 4, g.High, 1e-12)
	assert.Equal(t, 2, g.Networks)
	noisy := [][]float64{{1, 1.2, 1.4, 1.1, 1.3}, {0.9, 1.1, 1.0, 1.2, 0.8}}
	g = geometricMean(noisy)
	assert.Less(t, g.Low, g.Mean)
	assert.Greater(t, g.High, g.Mean)
	assert.Equal(t, g, geometricMean(noisy), "the same each time")
	assert.Zero(t, geometricMean(nil).Networks)
}
