// SPDX-License-Identifier: Apache-2.0

package plan

// Timeline says when what was found. It is of one run and decides nothing: the rest of a plan is the same however long
// things took. All times are in seconds since the command began.
type Timeline struct {
	// Asked is how long the whole might take, and Taken when it was decided what is written.
	Asked float64 `json:"asked_seconds"`
	Taken float64 `json:"taken_seconds"`
	// Ready is when there was the first executable that could have been written; 0 where the search built none.
	Ready float64 `json:"ready_seconds,omitempty"`
	// Networks are those of GraphLevel, in that order.
	Networks []Moment `json:"networks"`
}

// Moment is when it was known how fast a network is.
type Moment struct {
	Placement string  `json:"placement"`
	Seconds   float64 `json:"seconds"`
	// Stored says that the store told of it, so that there was no executable.
	Stored bool `json:"stored,omitempty"`
}
