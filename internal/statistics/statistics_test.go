// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMedian(t *testing.T) {
	assert.Equal(t, 2.0, Median([]float64{3, 1, 2}))
	assert.Equal(t, 2.5, Median([]float64{4, 1, 2, 3}))
	assert.True(t, math.IsNaN(Median(nil)))
}

// The ranks are those of the usual tables of the sign test's interval for a median at 95 %.
func TestMedianRank(t *testing.T) {
	for n, want := range map[int]int{6: 0, 8: 0, 9: 1, 12: 2, 15: 3, 20: 5, 25: 7, 30: 9, 50: 17} {
		rank, coverage := medianRank(n)
		assert.Equal(t, want, rank, "of %d", n)
		assert.GreaterOrEqual(t, coverage, 0.95, "of %d", n)
	}
	// Fewer than six turns cannot give 95 %.
	for n, want := range map[int]float64{1: 0, 2: 0.5, 3: 0.75, 5: 0.9375} {
		rank, coverage := medianRank(n)
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
		if r := PairedRatio(above, ones(turns)); r.Low <= 1+math.Ln2 && 1+math.Ln2 <= r.High {
			inside++
		}
	}
	_, coverage := medianRank(turns)
	assert.InDelta(t, coverage, float64(inside)/runs, 0.02)
}

func TestPairedRatio(t *testing.T) {
	r := PairedRatio([]float64{2, 4, 9}, []float64{1, 2, 3})
	assert.Equal(t, Ratio{Median: 2, Low: 2, High: 3, Coverage: 0.75}, r)
	assert.Equal(t, Ratio{}, PairedRatio(nil, nil))
	// What slows both down in one turn cancels.
	slow := PairedRatio([]float64{2, 200, 2}, []float64{1, 100, 1})
	assert.Equal(t, 2.0, slow.Low)
	assert.Equal(t, 2.0, slow.High)
}

func TestGeometricMean(t *testing.T) {
	g := GeometricMeanOf([][]float64{{2, 2, 2}, {8, 8, 8}})
	assert.InDelta(t, 4, g.Mean, 1e-12)
	assert.InDelta(t, 4, g.Low, 1e-12)
	assert.InDelta(t, 4, g.High, 1e-12)
	assert.Equal(t, 2, g.Networks)
	noisy := [][]float64{{1, 1.2, 1.4, 1.1, 1.3}, {0.9, 1.1, 1.0, 1.2, 0.8}}
	g = GeometricMeanOf(noisy)
	assert.Less(t, g.Low, g.Mean)
	assert.Greater(t, g.High, g.Mean)
	assert.Equal(t, g, GeometricMeanOf(noisy), "the same each time")
	assert.Zero(t, GeometricMeanOf(nil).Networks)
}

func TestSignTest(t *testing.T) {
	assert.Equal(t, 1.0, SignTest(0, 0))
	assert.InDelta(t, 2*(1.0/1024), SignTest(0, 10), 1e-12)
	assert.InDelta(t, 2*(1+10+45)/1024.0, SignTest(2, 10), 1e-12)
	assert.Equal(t, 1.0, SignTest(5, 10))
}

func TestQuantile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	assert.Equal(t, 1.0, Quantile(values, 0))
	assert.Equal(t, 1.75, Quantile(values, 0.25))
	assert.Equal(t, Median(values), Quantile(values, 0.5))
	assert.Equal(t, 4.0, Quantile(values, 1))
	assert.Equal(t, 7.0, Quantile([]float64{7}, 0.3))
	assert.True(t, math.IsNaN(Quantile(nil, 0.5)))
	assert.Equal(t, []float64{4, 1, 3, 2}, values, "the order is the caller's")
}

// An interval holds the quantile as often as it says, whatever the distribution.
func TestQuantileIntervalCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const runs, samples, q, confidence = 2000, 30, 0.25, 0.9
	inside := 0
	for range runs {
		values := make([]float64, samples)
		for i := range values {
			values[i] = random.ExpFloat64()
		}
		low, high := QuantileInterval(values, q, confidence)
		if truth := -math.Log(1 - q); low <= truth && truth <= high {
			inside++
		}
	}
	assert.GreaterOrEqual(t, float64(inside)/runs, confidence-0.02)
	low, high := QuantileInterval([]float64{3, 1}, q, confidence)
	assert.Equal(t, []float64{1, 3}, []float64{low, high}, "too few for an end")
	low, _ = QuantileInterval(nil, q, confidence)
	assert.True(t, math.IsNaN(low))
}

func TestSigns(t *testing.T) {
	below, above := Signs([]float64{1, 2, 3, 4}, []float64{2, 2, 2})
	assert.Equal(t, []int{1, 1}, []int{below, above}, "equal ones and those without a partner count for neither")
}
