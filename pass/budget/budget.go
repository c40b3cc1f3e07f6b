// SPDX-License-Identifier: Apache-2.0

// Package budget divides the time that a compilation has among its phases.
//
// What comes in: how long the whole may take, and on the way how long it took to build and to run networks. What goes
// out: how much is left, how much of that the end needs (Reserve): running the finalists and writing the best; and what
// one more network is expected to take (Expect), so that none is begun that there is no time for.
package budget

import (
	"time"
)

// Budget is the time of one compilation. It belongs to one goroutine.
type Budget struct {
	now        func() time.Time
	began, end time.Time
	// start is what the first network took that was run, without its profile: the worker's start is in it. The others took
	// ran together, of which profiled was for their profiles; first is the first one's.
	start, first  time.Duration
	ran, profiled time.Duration
	runs          int
	// built is how long networks took to be built, of which there were builds.
	built  time.Duration
	builds int
	// wrote is how long it took to write an executable where the best is going to stand.
	wrote time.Duration
}

const (
	// leastShare is what is kept for the end while nothing is known, as a part of the whole: where the store knows the
	// first networks, so that none was run. The first run takes its place.
	leastShare = 0.15
	// mostShare is what is kept at most: a search that keeps more for its end than it has for itself finds nothing.
	mostShare = 0.5
	// ending is what it takes to end the workers and to go, beside writing the executable (Wrote). It hardly depends on
	// the network.
	ending = 300 * time.Millisecond
)

// New begins a budget of so much time; now is the clock, nil for time.Now.
func New(total time.Duration, now func() time.Time) *Budget {
	if now == nil {
		now = time.Now
	}
	return Begun(now(), total, now)
}

// Begun is New with a budget that has begun before.
func Begun(began time.Time, total time.Duration, now func() time.Time) *Budget {
	if now == nil {
		now = time.Now
	}
	return &Budget{now: now, began: began, end: began.Add(total)}
}

// Left is what there is until the end; less than 0 after it.
func (b *Budget) Left() time.Duration { return b.end.Sub(b.now()) }

// Spent is what has gone by.
func (b *Budget) Spent() time.Duration { return b.now().Sub(b.began) }

// Total is the whole.
func (b *Budget) Total() time.Duration { return b.end.Sub(b.began) }

// Ran notes how long it took to load, run and profile one network, and how much of that was its profile.
func (b *Budget) Ran(took, profile time.Duration) {
	if b.runs == 0 {
		b.start, b.first = took-profile, profile
	} else {
		b.ran += took
		b.profiled += profile
	}
	b.runs++
}

// Run is what one more network is expected to take in a worker that runs, its profile included.
func (b *Budget) Run() time.Duration {
	if b.runs < 2 {
		return b.start/2 + b.first
	}
	return b.ran / time.Duration(b.runs-1)
}

// Again is what one more network is expected to take that is not profiled, as those at the end are not.
func (b *Budget) Again() time.Duration {
	if b.runs < 2 {
		return b.start / 2
	}
	return (b.ran - b.profiled) / time.Duration(b.runs-1)
}

// Start is what the first network is expected to take in a worker that must be started, without a profile.
func (b *Budget) Start() time.Duration { return b.start }

// Built notes how long it took to build one network.
func (b *Budget) Built(took time.Duration) {
	b.built += took
	b.builds++
}

// Build is what it is expected to take to build one more network, or several side by side: as long as those before,
// which were built side by side, too. It is a mean and no bound: what takes longer than there is time is given up, and
// else the time would be lost.
func (b *Budget) Build() time.Duration { return b.built / time.Duration(max(1, b.builds)) }

// Expect is what it is expected to take to run so many networks one after another, of which so many must be built
// first, side by side.
func (b *Budget) Expect(networks, unbuilt int) time.Duration {
	took := time.Duration(networks) * b.Run()
	if unbuilt > 0 {
		took += b.Build()
	}
	return took
}

// Loading is what it is expected to take to start a worker and load so many networks. What is noted of a run has the
// network and plain TVM's loaded, so that one takes half of it at most; and the first run has the worker's start in it.
func (b *Budget) Loading(networks int) time.Duration {
	return max(0, b.start-b.Again()) + time.Duration(networks)*b.Again()/2
}

// Wrote notes how long it took to write an executable where the best is going to stand. Those of one network are about
// as large: most of it are its weights.
func (b *Budget) Wrote(took time.Duration) { b.wrote = max(b.wrote, took) }

// Writing is what it takes to put the executable in its place and to end.
func (b *Budget) Writing() time.Duration { return b.wrote + ending }

// Need is what the end takes with so many finalists that are built, as far as that can be told from what was run: a
// worker is started and runs them in turn, without profiles, and the best is written.
func (b *Budget) Need(finalists int) time.Duration {
	if b.runs == 0 {
		return time.Duration(leastShare * float64(b.Total()))
	}
	return b.Writing() + b.start + time.Duration(max(0, finalists-1))*b.Again()
}

// Reserve is what a search keeps of its time for the end with so many finalists: what that needs, but never so much
// that the search has less for itself. What is more is saved on finalists then.
func (b *Budget) Reserve(finalists int) time.Duration {
	return min(time.Duration(mostShare*float64(b.Total())), b.Need(finalists))
}

// Free is what is left for anything else while so much is kept for the end.
func (b *Budget) Free(finalists int) time.Duration { return b.Left() - b.Reserve(finalists) }
