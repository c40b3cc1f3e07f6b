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
	// Seed is that of the random numbers in plans of searches that drew some.
	Seed uint64 `json:"seed,omitempty"`
	// Believed is what the network that was kept takes by what was believed at the end; nil where nothing was learnt.
	Believed *Believed `json:"believed,omitempty"`
}

// Believed is a network by the costs in place and the borders that a search ended with. The candidates have these
// costs, too, the nodes prices of their own.
type Believed struct {
	// Milliseconds is what it takes: its candidates, and what is paid between its regions, which is Transfers.
	Milliseconds float64 `json:"total_ms"`
	Transfers    float64 `json:"transfers_ms"`
	// Bound is what no network of these candidates takes less than, as far as the solver has shown; Gap is Milliseconds
	// less Bound. Proven is what the file shows by itself: the sum of the nodes' prices, which leave out what is paid
	// between regions.
	Bound  float64 `json:"bound_ms"`
	Gap    float64 `json:"gap_ms"`
	Proven float64 `json:"proven_ms"`
	// Payments are what is paid between the regions: each value once where it leaves the region that makes it, and once
	// where it enters one that reads it.
	Payments []Payment `json:"payments,omitempty"`
}

// Payment is a value that is paid for at a region.
type Payment struct {
	Function string `json:"function"`
	Value    int    `json:"value"`
	// Region is the region's ID, -1 for what stays inline. Out: the value leaves it; else it enters.
	Region       int     `json:"region"`
	Out          bool    `json:"out,omitempty"`
	Milliseconds float64 `json:"ms"`
}

// Step is one turn of the feedback: what a placement was believed to take, part by part, and what it took.
type Step struct {
	// Name says where the placement comes from, Placement is its key.
	Name      string `json:"name"`
	Placement string `json:"placement"`
	// Predicted is the sum of the costs that were believed before. Kernels is what its kernels took in place, of which
	// Border went into layouts and copies between parts and Rest could not be attributed. Measured is the whole
	// network.
	Predicted float64 `json:"predicted_ms"`
	Kernels   float64 `json:"kernels_ms"`
	Border    float64 `json:"border_ms"`
	Rest      float64 `json:"rest_ms"`
	Measured  float64 `json:"measured_ms"`
	// Regions counts those outside of TVM.
	Regions int `json:"regions"`
	// Gap is how far from the cheapest the placement was at most, by what was believed when it was made; 0 for a seed.
	Gap float64 `json:"gap_ms,omitempty"`
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
	// Error is how far its outputs were off on the search's inputs, in the measure of Plan.Precision; Exceeds says that
	// this is too far to be kept.
	Error   float64 `json:"error,omitempty"`
	Exceeds string  `json:"exceeds,omitempty"`
	// Failure says why it could not be measured; "" where it could.
	Failure string `json:"failure,omitempty"`
}
