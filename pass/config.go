// SPDX-License-Identifier: Apache-2.0

// Package pass is CollagePartition: it reads a Relay module, asks the backends what they can take, learns what that
// costs, chooses, and writes the choice back as BYOC annotations.
//
// What comes in: an IRModule and a Config. What goes out: an IRModule in which the regions of the backends are
// functions with Compiler and Composite attributes, and the plan that says what was chosen and why. The steps are
// the packages below this one, in the order candidate, cost and measure, place, annotate; plan and report hold and
// show the result.
package pass

import (
	"context"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

// Config says how to partition. The zero Config places on TVM and oneDNN, measures in worker processes for the
// target "llvm", and keeps costs in the user's store.
type Config struct {
	// Backends are the names of the backends that may be used; empty for {"tvm", "dnnl"}.
	Backends []string
	// Target is TVM's target ("llvm -mcpu=native" is spelt out by TVM); "" for "llvm" with this machine's processor.
	Target string
	// Store is the file of costs; "" for the user's default (cost.DefaultPath). It is used only when Estimator is nil.
	Store string
	// Threads is how many threads the executable may use; 0 for as many as this process has processors.
	Threads int
	// Only names a backend that gets all that it can take, the rest going to TVM (a "single backend" placement).
	// Nothing is measured then.
	Only string
	// Estimator gives the costs; nil measures in worker processes.
	Estimator cost.Estimator
	// Python is the interpreter that runs the workers; "" for COLLAGE_PYTHON, else the one that this process is,
	// else python3.
	Python string
	// Progress is called on the goroutine that called Partition. May be nil.
	Progress func(Event)
	// Context ends the search when it is done; nil for none. What was measured before is in the store.
	Context context.Context
	// OptLevel is the optimisation level of the builds that are measured; 0 for 3. Use -1 for level 0.
	OptLevel int
	// DisabledPasses are passes that builds leave out, those that are measured and the final one.
	DisabledPasses []string
	// BuildTimeout and RunTimeout limit the two halves of one measurement; 0 for the defaults of pass/measure.
	BuildTimeout, RunTimeout time.Duration
	// Samples is how many samples are taken of each candidate; 0 for the default of pass/measure.
	Samples int
	// RetryFailures measures candidates again that are in the store as failed.
	RetryFailures bool
}

// Stage names a step of Partition in its Events.
type Stage string

// The stages, in order.
const (
	StageRead       Stage = "read"
	StageCandidates Stage = "candidates"
	StageMeasure    Stage = "measure"
	StagePlace      Stage = "place"
	StageAnnotate   Stage = "annotate"
)

// Event is a piece of progress.
type Event struct {
	Stage Stage
	// Done of Total pieces of the stage's work are finished.
	Done, Total int
	// Label says what was worked on ("dnnl.conv2d_bias_relu on dnnl").
	Label string
	// Cost is what was found for a candidate (StageMeasure); nil otherwise.
	Cost *cost.Cost
}

// DefaultBackends are used where a Config names none.
var DefaultBackends = []string{"tvm", "dnnl"}

// NormaliseOptions says how Normalise prepares a module.
type NormaliseOptions struct {
	// DisabledPasses are left out.
	DisabledPasses []string
}
