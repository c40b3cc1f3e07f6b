// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"sync/atomic"
	"time"
)

// Timings say how long the steps of one Partition took, in milliseconds. InferType and Hash are TVM's own work; the
// others are Collage's.
type Timings struct {
	InferType  float64 `json:"infer_type_ms"`
	Read       float64 `json:"read_ms"`
	Candidates float64 `json:"candidates_ms"`
	// Measure is the time in the cost estimator.
	Measure  float64 `json:"measure_ms"`
	Place    float64 `json:"place_ms"`
	Annotate float64 `json:"annotate_ms"`
	// InferResult is the inference of the types of the module that comes out.
	InferResult float64 `json:"infer_result_type_ms"`
	Hash        float64 `json:"hash_ms"`
	Plan        float64 `json:"plan_ms"`
}

var lastTimings atomic.Pointer[Timings]

// LastTimings are those of the last Partition of this process that succeeded; nil before the first.
func LastTimings() *Timings { return lastTimings.Load() }

// clock measures one step: defer clock(&t.Read)().
func clock(field *float64) func() {
	start := time.Now()
	return func() { *field += float64(time.Since(start)) / float64(time.Millisecond) }
}

// Keep has LastTimings give these.
func (t Timings) Keep() { lastTimings.Store(&t) }
