// SPDX-License-Identifier: Apache-2.0

// Package growth is for tests of how the time that something takes grows with its size. It compares processor times of
// one thread with each other, so that it says the same on a slow machine and on a busy one.
package growth

import (
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// factor is how much larger the larger case is; allowed is how many times as long it may take. What is linear takes
// factor times as long, what is quadratic the square of that.
const (
	factor  = 8
	allowed = 28
)

// Linear fails the test where eight times the size takes more than 28 times as long. prepare makes a case of a size,
// what it returns is timed: the best of several runs of each, taken in turn.
func Linear(t *testing.T, size int, prepare func(size int) (run func())) {
	t.Helper()
	small, large := best(t, size, prepare)
	t.Logf("%v for %d, %v for %d", small, size, large, factor*size)
	if large > allowed*small {
		t.Fatal("that is more than linear")
	}
}

// best are the times of a case of that size and of a larger one.
func best(t *testing.T, size int, prepare func(size int) (run func())) (small, large time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runs := []func(){prepare(size), prepare(factor * size)}
	times := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range 4 {
		for i, run := range runs {
			start := threadTime(t)
			run()
			times[i] = min(times[i], threadTime(t)-start)
		}
		if times[1] <= allowed*times[0] {
			break
		}
	}
	return times[0], times[1]
}

// threadTime is the processor time that this thread has had.
func threadTime(t *testing.T) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Skip("this system does not say what a thread has used: ", err)
	}
	return time.Duration(now.Nano())
}
