// Package cost keeps what is known about how long candidates take.
//
// What comes in: samples measured by workers, failures with their reasons. What goes out: a Cost for each key,
// and the Store, an append-only JSON-lines file that several processes may write at once.
package cost

import "time"

// Origin says where a cost comes from.
type Origin string

const (
	// Measured in this run.
	Measured Origin = "measured"
	// Stored: measured earlier and found in the store.
	Stored Origin = "stored"
	// Given by a cost function of the backend, by a caller's estimator, or by rule (a tuple costs nothing).
	Given Origin = "given"
)

// Cost is what is known about the latency of one candidate on one backend. It keeps its samples; the number
// that the solver takes is Estimate.
type Cost struct {
	// Samples are latencies of one call in milliseconds, in the order in which they were taken.
	Samples []float64 `json:"samples_ms,omitempty"`
	Origin  Origin    `json:"origin"`
	// Failure is set when the candidate must not be placed.
	Failure *Failure `json:"failure,omitempty"`
	// MaxError is the greatest absolute difference from TVM's result on the same inputs; 0 for TVM itself.
	MaxError float64 `json:"max_error,omitempty"`
	// Taken is when the samples were taken.
	Taken time.Time `json:"taken,omitzero"`
}

// Failure says why a candidate cannot be used.
type Failure struct {
	// Phase is "build", "load", "run" or "check".
	Phase string `json:"phase"`
	// Kind is "error", "crash", "timeout", "wrong-result" or "not-a-number".
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}
