// SPDX-License-Identifier: Apache-2.0

package plan

// GraphLevel says how the placement was found among whole networks. All times are in milliseconds.
type GraphLevel struct {
	// Steps are the turns of the feedback from context: placements that were built and profiled, the seeds first.
	Steps []Step `json:"steps,omitempty"`
	// Networks are all that were measured, in that order.
	Networks []Network `json:"networks"`
	// Seconds is how long building and measuring them took, and Why says what ended the search.
	Seconds float64 `json:"seconds"`
	Why     string  `json:"why"`
	// Seed is that of the random numbers.
	Seed uint64 `json:"seed"`
}

// Step is one turn of the feedback: what a placement was believed to take, part by part, and what it took.
type Step struct {
	// Name says where the placement comes from, Placement is its key.
	Name      string `json:"name"`
	Placement string `json:"placement"`
	// Predicted is the sum of the costs that were believed before. Kernels is what its kernels took in place, of which Border
	// went into layouts and copies between parts and Rest could not be attributed. Measured is the whole network.
	Predicted float64 `json:"predicted_ms"`
	Kernels   float64 `json:"kernels_ms"`
	Border    float64 `json:"border_ms"`
	Rest      float64 `json:"rest_ms"`
	Measured  float64 `json:"measured_ms"`
	// Regions counts those outside of TVM.
	Regions int `json:"regions"`
	// Repeats says that the costs in place led back to a placement that had been measured.
	Repeats bool `json:"repeats,omitempty"`
}

// Network is a whole network that was measured during the search. The finalists were measured again.
type Network struct {
	Name      string `json:"name"`
	Placement string `json:"placement"`
	// Ratio is its time over plain TVM's, the median of the rounds; 0 where it failed.
	Ratio        float64 `json:"ratio,omitempty"`
	Milliseconds float64 `json:"measured_ms,omitempty"`
	Rounds       int     `json:"rounds,omitempty"`
	Regions      int     `json:"regions"`
	// Failure says why it could not be measured; "" where it could.
	Failure string `json:"failure,omitempty"`
}
