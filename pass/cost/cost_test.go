// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestEstimateIsTheLowerQuartile(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 2.0, Cost{Samples: []float64{5, 1, 4, 2, 3}}.Estimate())
	assert.Equal(t, 1.25, Cost{Samples: []float64{2, 1}}.Estimate())
	assert.Equal(t, 7.0, Cost{Samples: []float64{7}}.Estimate())
	// One sample taken while another process had the processor changes nothing.
	assert.InDelta(t, 1.0, Cost{Samples: []float64{1, 1, 1, 1, 1, 1, 1, 500}}.Estimate(), 1e-12)
	assert.True(t, math.IsInf(Cost{}.Estimate(), 1), "an unknown cost")
	failed := FromFailure(Failure{Phase: "run", Kind: KindCrash}, time.Now())
	failed.Samples = []float64{1}
	assert.True(t, math.IsInf(failed.Estimate(), 1), "a failed cost has no estimate, whatever was sampled before")
	assert.True(t, failed.Failed())
	assert.False(t, failed.Known())
}

func TestIntervalCoversTheQuantile(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{20, 40, 100} {
		covered, narrow := 0, 0
		const rounds = 2000
		for range rounds {
			samples := make([]float64, n)
			for i := range samples {
				samples[i] = rng.ExpFloat64()
			}
			low, high := Cost{Samples: samples}.Interval()
			quantile := -math.Log(1 - Quantile)
			if low <= quantile && quantile <= high {
				covered++
			}
			if low > slices.Min(samples) || high < slices.Max(samples) {
				narrow++
			}
		}
		assert.GreaterOrEqual(t, float64(covered)/rounds, confidence-0.02, "n=%d", n)
		assert.Equal(t, rounds, narrow, "n=%d: the interval is narrower than the range", n)
	}
	low, high := Cost{Samples: []float64{3}}.Interval()
	assert.Equal(t, 3.0, low)
	assert.Equal(t, 3.0, high)
	low, high = Cost{}.Interval()
	assert.True(t, math.IsInf(low, 1) && math.IsInf(high, 1))
}

func TestValidate(t *testing.T) {
	t.Parallel()
	assert.NoError(t, FromMilliseconds(0).Validate())
	assert.Error(t, Cost{}.Validate())
	assert.Error(t, Cost{Samples: []float64{math.NaN()}}.Validate())
	assert.Error(t, Cost{Samples: []float64{math.Inf(1)}}.Validate())
	assert.Error(t, Cost{Samples: []float64{-1}}.Validate())
	assert.Error(t, Cost{Failure: &Failure{}}.Validate())
}

func TestDeviceNamesTheProcessor(t *testing.T) {
	t.Parallel()
	assert.NotEmpty(t, Device())
	assert.Equal(t, Device(), Device())
	assert.Equal(t, []string{"avx2", "avx512f"}, vectorFeatures([]string{"avx512f", "x", "avx2"}))
}
