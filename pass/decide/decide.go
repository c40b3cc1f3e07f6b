// SPDX-License-Identifier: Apache-2.0

// Package decide is the pipeline behind every way to have a network placed: model -> network -> search -> decision ->
// plan.
//
// What comes in: a normalised module and Options. What goes out: a Decision: the network that is the fastest, as an
// executable that was built and run, with its plan, what stood against it and why it was kept. The operator level
// places once by what parts take in place and what borders cost; the graph level goes on from there. Either way plain
// TVM and each backend alone stand against what was found, as whole networks that run in turn.
//
// compile (the command, collage.compile) writes the executable down; collage.partition, the TVM pass and pass.Partition
// take its module (Partition).
package decide

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/internal/tracefile"
	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/calibration"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
)

// Options say what may be decided, and how.
type Options struct {
	// Name is what the user calls the network; it stands in the plan.
	Name string
	// Backends are those that may be used, in the user's order.
	Backends []string
	// Pin and Forbid are what the placement must keep to (settings.Config).
	Pin, Forbid []string
	// Exact holds for the placement and for every backend alone (settings.Config); a plan to be replayed that breaks it
	// is refused.
	Exact bool
	// Precision says in which types parts may be computed, and how far outputs may be off.
	Precision settings.Precision
	// Target is what settings.ResolveTarget takes; "" for this machine's processor.
	Target string
	// Threads is how many threads the executable uses; 0 for all.
	Threads int
	// OptLevel is the optimisation level of relay.build.
	OptLevel int
	// TuningLog is what TVM's tuners have found out (settings.Config); "" for none.
	TuningLog string
	// DisabledPasses are left out of every build; nil for settings.DefaultDisabledPasses.
	DisabledPasses []string
	// Store is the file of costs; "" for the user's.
	Store string
	// Samples are taken of each candidate, and the finalists run Rounds times; both are at least 1.
	Samples, Rounds int
	// Level says how far the search goes; "" for settings.GraphLevel.
	Level settings.Level
	// SearchTime is how long a compilation may take, from reading the model to writing the executable, and Trials how
	// many networks the graph level measures; 0 for settings.DefaultSearchTime and for no limit.
	SearchTime time.Duration
	Trials     int
	// Reach is which parts of the graph level there are; for benchmarks.
	Reach Reach
	// Budget is that time, where it has begun already; nil: it begins now.
	Budget *budget.Budget
	// ExecutableMemory is how many bytes the executable may take when it runs; 0 for no limit. It needs the graph
	// level.
	ExecutableMemory int64
	// Exhaustive measures every candidate (settings.Config).
	Exhaustive bool
	// SkipUnusable leaves backends out that cannot be used here.
	SkipUnusable bool
	// RetryFailures measures candidates again that failed before.
	RetryFailures bool
	// Strict ends the whole with a *settings.StrictError where there would be a warning otherwise.
	Strict bool
	// Settle decides by what the search measured, which is in the store: nothing is run again, and nothing is built for
	// the end.
	Settle bool
	// Prices wants the costs of all parts, also where there is nothing to choose.
	Prices bool
	// Witness is another engine that was asked what the network answers (witness.Ask), against which what TVM read of
	// the model is held; the caller closes it. nil: there is none.
	Witness *witness.Witness
	// NoVerify does not compare a replayed plan's outputs with TVM's.
	NoVerify bool
	// otherData compares them on random inputs, with a warning, where the plan's calibration data is not given.
	otherData bool
	// Python is the interpreter of the workers.
	Python string
	// Tried are the sizes of inputs, by name, at which a network with open dimensions is measured and checked; those
	// that are not there the host chooses.
	Tried map[string]Sizes
	// Temporary is a folder for what is built; the caller removes it. Extension is that of executables, ".so" or
	// ".tar".
	Temporary, Extension string
	// Build builds a module in this process, as the host does it: what is no finalist of the graph level.
	Build func(module *bridge.Object, b Build) error
	// Rehearse writes an executable where what is kept is going to stand, and takes it away again, to see how long that
	// takes: the disk may be slow, and full. nil: nothing is going to be written.
	Rehearse func(executable string) error
	// Progress is told what happens.
	Progress *progress.Printer
	// Trace records what is done when, but for Progress's steps (progress.Printer.Record). May be nil.
	Trace *tracefile.Recorder
	// Corners has the plan have those of time against error, as they are believed at the end of the search among whole
	// networks (plan.Precision).
	Corners bool
	// Ending ends the search early, and has the best so far kept. May be nil.
	Ending *Ending
	// Poll is called all the while beside the context; an error of it ends everything. May be nil.
	Poll func() error
}

// Sizes are what is known of an input with open dimensions: at which sizes it is tried, what the model calls its
// dimensions ("" for those without a name), between which sizes they may be, both included (nil for any), and at which of
// these sizes it is measured.
type Sizes struct {
	Shape  []int64     `json:"shape"`
	Names  []string    `json:"names,omitempty"`
	Domain []*[2]int64 `json:"domain,omitempty"`
	Points []SizePoint `json:"points,omitempty"`
}

// SizePoint is an input's sizes at one of those points at which a network with open dimensions is measured, of which all
// inputs have as many, and the point's share of the mean.
type SizePoint struct {
	Sizes  []int64 `json:"sizes"`
	Weight float64 `json:"weight"`
}

// Build says how a module is built.
type Build struct {
	// Target, OptLevel, DisabledPasses, TuningLog and Threads are as in Options; Target is TVM's string.
	Target, TuningLog string
	OptLevel, Threads int
	DisabledPasses    []string
	// OnMachine says that it is built for TVM's virtual machine, and Tried is as in Options.
	OnMachine bool
	Tried     map[string]Sizes
	// Plugins are the runtime plug-ins that it is linked with, Out is the file.
	Plugins []string
	Out     string
}

// Decision is what is kept.
type Decision struct {
	// Plan is that of the network that was kept, with the finalists in it.
	Plan *plan.Plan
	// Chosen is the name of the finalist that was kept (plan.PlacementName or a backend's), and Why says why in one
	// sentence.
	Chosen, Why string
	// Notes are what a user should know beside the tables; they stand in the plan, too, but for those that say what
	// came of the time there was. Warnings are those of them that say what went otherwise than it should, or could not
	// be learnt.
	Notes, Warnings []string
	// Agreement is what came of holding it against Options.Witness; nil where there was none.
	Agreement *witness.Agreement
	// Path is the executable, in Options.Temporary, and Bytes its size.
	Path  string
	Bytes int64
}

// decision is one run.
type decision struct {
	Options
	ctx    context.Context
	module *bridge.Object // normalised
	// quantised says that the module came quantised (normalise.Quantised).
	quantised bool
	plan      *plan.Plan // of what was kept
	target    string
	// finalists are in the order in which they are reported: each backend alone, then the placement.
	finalists []*finalist
	// reference is TVM alone, against which outputs are checked. It is among the finalists if TVM was offered.
	reference *finalist
	// placeOnly leaves out running what was placed: a plan is all that is wanted.
	placeOnly bool
	// machine says why TVM's virtual machine runs the network; nil where the graph executor does.
	machine *placing.NotWholeError
	// graph is set where the graph level was searched, and then budget is its time, searching ends when the search is
	// to end, and settled says that the search's own samples decide.
	graph     *graph
	budget    *budget.Budget
	searching context.Context
	settled   bool
	// quit ends ctx, since Poll gave an error, which is stopped, or Strict let something not pass.
	quit    context.CancelFunc
	stopped error
	// taken is on which inputs errors are taken; nil where they are not.
	taken *calibration.Taken
	// placing is the step in which candidates are measured alone; nil where none was. opening says that none is yet.
	placing *progress.Step
	opening bool
	// notes are for the user, and for the plan; warnings are those of them that say what went otherwise than it should.
	// hurried are those of the notes that say what came of the time there was.
	notes, warnings, hurried []string
	// agreement is set once what TVM read was held against the witness.
	agreement *witness.Agreement
	// plainDoubt is by how much plain TVM's outputs are off the witness's, as a share of the greatest; 0 where that is
	// not known, or is of roundings to whole numbers.
	plainDoubt float64
	// expected is what finalists took where sizes are fixed (placeAtSize), by name; nil where nothing is known.
	expected map[string]cost.Cost
	// points are the sizes of open dimensions at which finalists were run; none where nobody said which there may be.
	points []cost.Point
	// testRunner runs the finalists in tests.
	testRunner runner
}

// Decide finds the fastest network for a normalised module, builds it, and says what stood against it.
func Decide(ctx context.Context, module *bridge.Object, options Options) (*Decision, error) {
	c := begun(module, options)
	if name := settings.DeclaredAmong(c.Backends); name != "" {
		return nil, &settings.OptionError{Option: "backends", Reason: fmt.Sprintf("has %s, whose costs are declared: what "+
			"is compiled is run and measured; a network can be planned with it", name)}
	}
	if err := c.lookAtForm(); err != nil {
		return nil, err
	}
	if err := c.offer(); err != nil {
		return nil, err
	}
	return c.under(ctx, func() (*Decision, error) {
		if err := c.find(); err != nil {
			return nil, err
		}
		defer c.graph.close()
		return c.conclude()
	})
}

// begun is a decision whose time runs.
func begun(module *bridge.Object, options Options) *decision {
	options.start()
	return &decision{Options: options, module: module, budget: options.Budget}
}

// start has the time run, where it does not yet.
func (o *Options) start() {
	if o.SearchTime <= 0 {
		o.SearchTime = settings.DefaultSearchTime
	}
	if o.Budget == nil {
		o.Budget = budget.New(o.SearchTime, nil)
	}
}

// under decides while nobody ends it: where Poll gave an error, that is what comes out, whatever was found by then.
func (c *decision) under(ctx context.Context, decide func() (*Decision, error)) (*Decision, error) {
	c.ctx, c.quit = context.WithCancel(ctx)
	defer c.quit()
	var done context.CancelFunc
	c.searching, done = c.Ending.context(c.ctx)
	defer done()
	if c.stopped != nil { // before there was a context
		return nil, c.stopped
	}
	decided, err := decide()
	if c.stopped != nil {
		return nil, c.stopped
	}
	return decided, err
}

// conclude runs what find has found, and decides.
func (c *decision) conclude() (*Decision, error) {
	if err := c.compare(); err != nil {
		return nil, err
	}
	chosen, why, err := c.choose()
	if err != nil {
		return nil, err
	}
	c.Ending.ready(false)
	c.record(chosen)
	c.sayRandom()
	if c.graph != nil {
		if late := c.overrun(); late != "" {
			c.warn("%s", c.hurry(late))
		}
	}
	from := chosen.built()
	if err := c.examineKept(from); err != nil {
		return nil, err
	}
	c.plan.Notes = c.lasting()
	return &Decision{Plan: c.plan, Chosen: chosen.name, Why: why, Notes: c.notes, Warnings: c.warnings,
		Agreement: c.agreement, Path: from.path, Bytes: from.bytes}, c.ctx.Err()
}

// PlaceParts places a normalised module by what its parts take alone, and runs no whole network: the plan is without
// finalists. The module with the regions is the caller's.
func PlaceParts(ctx context.Context, module *bridge.Object, options Options) (*bridge.Object, *plan.Plan, error) {
	c := &decision{Options: options, ctx: ctx, module: module}
	f, err := c.placement()
	if err != nil {
		return nil, nil, err
	}
	if c.stopped != nil { // what Strict does not let pass
		f.module.Release()
		return nil, nil, c.stopped
	}
	return f.module, f.plan, nil
}

// Alone builds what gives all that a backend can take to that backend, and the rest to TVM; nothing is searched or
// measured.
func Alone(ctx context.Context, module *bridge.Object, options Options, backend string) (*Decision, error) {
	c := &decision{Options: options, ctx: ctx, module: module}
	if err := c.lookAtForm(); err != nil {
		return nil, err
	}
	f, err := c.single(backend)
	if err != nil {
		return nil, err
	}
	c.target = f.plan.Environment.Target
	if err := c.buildOne(f); err != nil {
		return nil, err
	}
	return &Decision{Plan: f.plan, Chosen: backend, Path: f.path, Bytes: f.bytes}, nil
}

// poll says whether somebody wants the compilation to end.
func (c *decision) poll() error {
	if err := c.ctx.Err(); err != nil || c.Poll == nil {
		return err
	}
	err := c.Poll()
	if err != nil && c.quit != nil {
		// The end of a search looks like this, too, and then it goes on with what was found.
		c.stopped = err
		c.quit()
	}
	return err
}

// disabledPasses are left out of every build, those of the candidates too.
func (c *decision) disabledPasses() []string {
	if c.DisabledPasses != nil {
		return c.DisabledPasses
	}
	return settings.DefaultDisabledPasses()
}

func (c *decision) config() settings.Config {
	level := c.OptLevel
	return settings.Config{Backends: c.Backends, Target: c.Target, Store: c.Store, Threads: c.Threads, Context: c.ctx,
		OptLevel: &level, DisabledPasses: c.disabledPasses(), Samples: c.Samples, RetryFailures: c.RetryFailures,
		Exact: c.Exact, Precision: c.Precision, Exhaustive: c.Exhaustive, SkipUnusable: c.SkipUnusable,
		TuningLog: c.TuningLog, Python: c.Python, Strict: c.Strict, Recorder: c.Trace}
}

func joinNames(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
