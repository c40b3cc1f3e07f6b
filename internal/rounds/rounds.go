// SPDX-License-Identifier: Apache-2.0

// Package rounds says how many cases a test with random ones tries: all in a plain `go test`, a quarter under the race
// detector, which finds no more races in more of them, and an eighth under -short.
package rounds

import "testing"

// divisor is what the numbers are divided by.
func divisor() int {
	switch {
	case testing.Short():
		return 8
	case raceDetector:
		return 4
	}
	return 1
}

// Seeds is the number of seeds that are tried of all; at least one.
func Seeds(all uint64) uint64 { return max(1, all/uint64(divisor())) }

// Of is how often something must have come up that comes up n times in all cases.
// Fewer cases leave more to chance.
func Of(n int) int {
	if d := divisor(); d > 1 {
		return n * 3 / (4 * d)
	}
	return n
}
