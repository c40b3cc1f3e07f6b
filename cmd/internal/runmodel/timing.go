// SPDX-License-Identifier: Apache-2.0

package runmodel

import (
	"slices"
	"time"

	"github.com/collage-tvm/collage/internal/statistics"
)

// Timings are what calls of a model took. Times are in milliseconds.
type Timings struct {
	// Samples are the times of single calls, in the order in which they were made.
	Samples []float64 `json:"samples_ms"`
	// Warmup is how many calls were made before, untimed.
	Warmup int     `json:"warmup"`
	Median float64 `json:"median_ms"`
	// Low and High are the 10 % and 90 % quantiles. Low is what the machine can do when little disturbs it; the
	// distance between the two is how much it was disturbed.
	Low  float64 `json:"p10_ms"`
	High float64 `json:"p90_ms"`
	Min  float64 `json:"min_ms"`
	Max  float64 `json:"max_ms"`
	Mean float64 `json:"mean_ms"`
}

func newTimings(samples []time.Duration, warmup int) *Timings {
	t := &Timings{Warmup: warmup}
	for _, s := range samples {
		t.Samples = append(t.Samples, float64(s)/float64(time.Millisecond))
	}
	if len(t.Samples) == 0 {
		return t
	}
	sorted := slices.Sorted(slices.Values(t.Samples))
	t.Min, t.Max = sorted[0], sorted[len(sorted)-1]
	t.Median, t.Low, t.High = statistics.Median(sorted), statistics.Quantile(sorted, 0.1),
		statistics.Quantile(sorted, 0.9)
	for _, s := range sorted {
		t.Mean += s / float64(len(sorted))
	}
	return t
}
