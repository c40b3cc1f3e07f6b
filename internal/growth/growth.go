// SPDX-License-Identifier: Apache-2.0

// Package growth is for tests of how the time that something takes grows with its size. It compares times with each other
// only, so that it says the same on a slow machine and on a busy one.
package growth

import (
	"math"
	"testing"
	"time"
)

// factor is how much larger the larger case is; allowed is how many times as long it may take. What is linear takes factor
// times as long, what is quadratic the square of that.
const (
	factor  = 8
	allowed = 28
)

// Linear fails the test where eight times the size takes more than 28 times as long. prepare makes a case of a size, what
// it returns is timed: the best of several runs of each, taken in turn.
func Linear(t *testing.T, size int, prepare func(size int) (run func())) {
	t.Helper()
	small, large := prepare(size), prepare(factor*size)
	best := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range 4 {
		for i, run := range []func(){small, large} {
			start := time.Now()
			run()
			best[i] = min(best[i], time.Since(start))
		}
		if best[1] <= allowed*best[0] {
			t.Logf("%v for %d, %v for %d", best[0], size, best[1], factor*size)
			return
		}
	}
	t.Fatalf("%v for %d, %v for %d: that is more than linear", best[0], size, best[1], factor*size)
}
