// SPDX-License-Identifier: Apache-2.0

package cost

// Point is what whole networks take at some sizes of their open dimensions.
type Point struct {
	// Sizes are the inputs' shapes, Weight is the point's share of the mean over all sizes.
	Sizes  map[string][]int64 `json:"sizes"`
	Weight float64            `json:"weight"`
	// Milliseconds are medians, by the networks' names.
	Milliseconds map[string]float64 `json:"ms"`
}
