// SPDX-License-Identifier: Apache-2.0

//go:build !race

package place

// raceFactor is how much longer a time limit is under the race detector.
const raceFactor = 1

// large is how many operators the tests of speed place.
const large = 100_000
