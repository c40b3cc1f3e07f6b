// SPDX-License-Identifier: Apache-2.0

// Package measure learns what candidates cost by compiling and running them in worker processes.
//
// What comes in: cost.Requests. What goes out: a cost.Cost for each, from the store where it is known, else from a
// worker, and then at once into the store. A candidate that crashes the worker, hangs it or answers wrongly gets a
// cost.Failure; the search goes on. Finished models are compared by the same workers (Pool.Compare).
//
// A worker is a process `python -m collage.worker`. It reads one JSON object a line on its standard input and
// answers so on its standard output (protocol.go); its standard error is kept for messages.
package measure

import (
	"runtime"
	"slices"
	"time"

	"github.com/collage-tvm/collage/internal/tracefile"
	"github.com/collage-tvm/collage/pass/cost"
)

// Settings say how candidates are built and timed. All that changes the result is also in the costs' keys.
type Settings struct {
	// Target is TVM's target string.
	Target string
	// OptLevel is the optimisation level of relay.build.
	OptLevel int
	// DisabledPasses are left out of relay.build.
	DisabledPasses []string
	// TuningLog is what TVM's tuners have found out (settings.TuningDigest), an absolute path; "" for none.
	TuningLog string
	// Threads is how many threads the executable uses; 0 for as many as this process has processors.
	Threads int
	// Samples is how many samples are taken of a candidate; 0 for DefaultSamples.
	Samples int
	// MinSample is the time that one sample takes at least, by calling the function again and again; 0 for
	// DefaultMinSample.
	MinSample time.Duration
}

// Defaults of Settings and Options.
const (
	DefaultSamples      = 10
	DefaultMinSample    = 500 * time.Microsecond
	DefaultBuildTimeout = 2 * time.Minute
	DefaultRunTimeout   = time.Minute
	DefaultStartTimeout = time.Minute
	// A large network takes TVM minutes on a slow machine.
	DefaultNetworkTimeout = 15 * time.Minute
)

// Options say what a Pool works with. Only Command or Python must be given.
type Options struct {
	Settings
	// Python is the interpreter of the workers.
	Python string
	// Command is the worker's command line; nil for {Python, "-m", "collage.worker"}.
	Command []string
	// Hurry is what the times are multiplied by for which a network is run to see how to round its values (Watch, Rounded);
	// 0 for 1.
	Hurry float64
	// Env are further environment variables of the workers, "NAME=value".
	Env []string
	// Workers is how many workers build and run at once; 0 for one, which is right where they would share the
	// processors that they time.
	Workers int
	// Builders is how many further workers build ahead, many computations at once, for the one that times them; they
	// stand still while it does. 0 for none: what is timed is built where it is timed. With builders there is one
	// worker.
	Builders int
	// Store has what is known; nil for a store in memory.
	Store *cost.Store
	// Reference is the backend that is measured first of all those that offer the same computation ("tvm").
	Reference string
	// StartTimeout, BuildTimeout and RunTimeout limit how long a worker may take to say hello, to build one candidate,
	// and to check and time it; 0 for the defaults. A worker that takes longer is killed with all its children.
	StartTimeout, BuildTimeout, RunTimeout time.Duration
	// NetworkTimeout limits building, and each step of running, a whole network; 0 for DefaultNetworkTimeout.
	NetworkTimeout time.Duration
	// MaxMemory ends a worker (between two candidates) that holds more than so many bytes; 0 for half of the machine's
	// memory.
	MaxMemory int64
	// MemoryLimit ends a worker at once that holds more than so many bytes: its candidate is out of memory. 0 for three
	// quarters of the machine's memory.
	MemoryLimit int64
	// RetryFailures measures candidates again that the store knows as failed.
	RetryFailures bool
	// Poll is called every 20 ms on the goroutine that called Estimate or Compare; an error of it ends the call (how
	// Ctrl-C gets through while Go runs). May be nil.
	Poll func() error
	// Trace is told what each worker does, and when it is stopped. May be nil.
	Trace *tracefile.Recorder
	// Progress is called on that goroutine for each request that is answered. May be nil.
	Progress func(Event)
}

// Event is a request that has been answered.
type Event struct {
	// Done of Total different keys have an answer.
	Done, Total int
	Request     *cost.Request
	Cost        cost.Cost
}

// Stats count what a Pool has done since it was made.
type Stats struct {
	// Requested is the number of different keys that were asked for, FromStore how many of them were known, Measured
	// how many went to a worker, and Failed how many of these failed. Resampled counts the rounds of further samples,
	// a key each time.
	Requested, FromStore, Measured, Failed, Resampled int
	// Started is how many worker processes were started.
	Started int
}

func (o Options) withDefaults() Options {
	if o.Threads <= 0 {
		o.Threads = runtime.NumCPU()
	}
	if o.Command == nil {
		o.Command = []string{o.Python, "-m", "collage.worker"}
	}
	if o.Hurry <= 0 {
		o.Hurry = 1
	}
	if o.Workers <= 0 {
		o.Workers = 1
	}
	if o.Store == nil {
		o.Store = cost.NewMemoryStore()
	}
	if o.Samples <= 0 {
		o.Samples = DefaultSamples
	}
	if o.MinSample <= 0 {
		o.MinSample = DefaultMinSample
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.BuildTimeout <= 0 {
		o.BuildTimeout = DefaultBuildTimeout
	}
	if o.RunTimeout <= 0 {
		o.RunTimeout = DefaultRunTimeout
	}
	if o.NetworkTimeout <= 0 {
		o.NetworkTimeout = DefaultNetworkTimeout
	}
	if o.MaxMemory <= 0 {
		o.MaxMemory = halfOfMemory()
	}
	if o.MemoryLimit <= 0 {
		o.MemoryLimit = halfOfMemory() / 2 * 3
	}
	// The workers' own builds take it from there, whatever this process was started with.
	o.Env = append(slices.Clone(o.Env), "COLLAGE_TUNING_LOG="+o.TuningLog)
	return o
}
