// SPDX-License-Identifier: Apache-2.0

// Package compile makes an executable of a model: it has the model placed, builds the placement and what stands
// against it as whole networks (each backend by itself, TVM alone), runs them in turn, and keeps the fastest.
//
// What comes in: a model's name and Options, in the Python host's process (TVM loaded, collage.host.* registered).
// What goes out: the executable at Options.Output and a Result with the plan, the finalists' times and the reason
// for the choice. On an error nothing stands at Options.Output that did not before; costs that were measured are
// in the store.
package compile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/progress"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
)

// Options say what to compile and how.
type Options struct {
	// Model is a file, or "workload:NAME".
	Model string
	// Module is the model itself, normalised, where there is no file to read; Model is then no more than a name.
	Module *bridge.Object
	// Params is a file of parameters for a Relay program; "" for none.
	Params string
	// InputShapes fix what the model leaves open.
	InputShapes map[string][]int64
	// Format is "onnx", "relay" or "torchscript"; "" to tell by the file.
	Format string
	// Output is the executable, .so or .tar.
	Output string
	// Backends are those that may be used, in the user's order.
	Backends []string
	// Pin and Forbid are what the placement must keep to (pass.Config).
	Pin, Forbid []string
	// Exact holds for the placement and for every backend alone (pass.Config); a plan to be replayed that breaks it is refused.
	Exact bool
	// Replay is a plan that is built as it is; nil to decide. What a plan says is then not looked at above and below:
	// Backends, Pin, Forbid, Target, Threads, OptLevel, Samples, Rounds. Of Store the failures are: a plan with a candidate that
	// is known to fail is refused, unless RetryFailures.
	Replay *plan.Plan
	// NoVerify does not compare a replayed plan's outputs with TVM's.
	NoVerify bool
	// Target is what pass.ResolveTarget takes; "" for this machine's processor.
	Target string
	// Threads is how many threads the executable uses; 0 for all.
	Threads int
	// OptLevel is the optimisation level of relay.build.
	OptLevel int
	// TuningLog is what TVM's tuners have found out (pass.Config); "" for none.
	TuningLog string
	// DisabledPasses are left out of every build; nil for pass.DefaultDisabledPasses.
	DisabledPasses []string
	// Store is the file of costs; "" for the user's.
	Store string
	// Samples are taken of each candidate, and the finalists run Rounds times; both are at least 1.
	Samples, Rounds int
	// Level says how far the search goes; "" for GraphLevel.
	Level Level
	// SearchTime is how long a compilation that searches the graph level may take, from reading the model to writing the
	// executable, and Trials how many networks it measures; 0 for graphlevel.DefaultTime and for no limit. Seed makes the
	// random numbers.
	SearchTime time.Duration
	Trials     int
	Seed       uint64
	// ExecutableMemory is how many bytes the executable may take when it runs; 0 for no limit. It needs GraphLevel.
	ExecutableMemory int64
	// Exhaustive measures every candidate (pass.Config).
	Exhaustive bool
	// SkipUnusable leaves backends out that cannot be used here.
	SkipUnusable bool
	// RetryFailures measures candidates again that failed before.
	RetryFailures bool
	// Python is the interpreter of the workers.
	Python string
	// Temporary is a folder for what is built on the way; the caller removes it.
	Temporary string
	// Progress is told what happens.
	Progress *progress.Printer
	// Ending ends the search early, and has the best so far written. May be nil.
	Ending *Ending
	// Poll is called all the while beside the context; an error of it ends the compilation. May be nil.
	Poll func() error
}

// Result is what became of a model.
type Result struct {
	// Plan is that of the network that was kept, with the finalists in it.
	Plan *plan.Plan
	// Chosen is the name of the finalist that was kept (plan.PlacementName or a backend's), and Why says why in one
	// sentence.
	Chosen, Why string
	// Notes are what a user should know beside the tables.
	Notes []string
	// Bytes is the size of the executable.
	Bytes int64
	// Model is what the front end said.
	Model ModelInfo
}

// ModelInfo is what the front end says about a model.
type ModelInfo struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Inputs map[string]struct {
		Shape []int64 `json:"shape"`
		DType string  `json:"dtype"`
	} `json:"inputs"`
	Operators      int            `json:"operators"`
	OperatorCounts map[string]int `json:"operator_counts"`
	ParameterBytes int64          `json:"parameter_bytes"`
}

// disabledPasses are left out of the builds of a model that was read from a file, those of the candidates too.
var disabledPasses = pass.DefaultDisabledPasses()

// compilation is one run of Compile.
type compilation struct {
	Options
	ctx    context.Context
	module *bridge.Object // normalised
	plan   *plan.Plan     // of what was kept
	target string
	// finalists are in the order in which they are reported: each backend alone, then the placement.
	finalists []*finalist
	// reference is TVM alone, against which outputs are checked. It is among the finalists if TVM was offered.
	reference *finalist
	// graph is set where the graph level was searched, and then budget is its time, searching ends when the search is to end, and
	// settled says that the search's own samples decide.
	graph     *graph
	budget    *budget.Budget
	searching context.Context
	settled   bool
	notes     []string
}

// Compile compiles a model. See the package's comment.
func Compile(ctx context.Context, options Options) (*Result, error) {
	c := &compilation{Options: options, ctx: ctx}
	if options.Replay != nil {
		return c.replay()
	}
	if c.SearchTime <= 0 {
		c.SearchTime = graphlevel.DefaultTime
	}
	c.budget = budget.New(c.SearchTime, nil)
	var done context.CancelFunc
	c.searching, done = c.Ending.context(ctx)
	defer done()
	result := &Result{}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&result.Model); err != nil {
		return nil, err
	}
	if err := c.find(); err != nil {
		return nil, err
	}
	defer c.graph.close()
	if err := c.compare(); err != nil {
		return nil, err
	}
	chosen, why, err := c.choose()
	if err != nil {
		return nil, err
	}
	c.Ending.ready(false)
	if result.Bytes, err = c.export(chosen); err != nil {
		return nil, err
	}
	c.record(chosen)
	result.Plan, result.Chosen, result.Why, result.Notes = c.plan, chosen.name, why, c.notes
	return result, nil
}

// Decide reads a model and places it, and builds nothing: the result has the plan, without finalists. Options.Output,
// Rounds and Temporary are not looked at.
func Decide(ctx context.Context, options Options) (*Result, error) {
	c := &compilation{Options: options, ctx: ctx}
	result := &Result{}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&result.Model); err != nil {
		return nil, err
	}
	f, err := c.placement()
	if err != nil {
		return nil, err
	}
	f.module.Release()
	result.Plan, result.Notes = f.plan, c.notes
	return result, nil
}

// poll says whether somebody wants the compilation to end.
func (c *compilation) poll() error {
	if err := c.ctx.Err(); err != nil || c.Poll == nil {
		return err
	}
	return c.Poll()
}

// checkTarget replaces names of levels by targets of TVM's and asks TVM whether it knows the target, before anything else is done.
func (c *compilation) checkTarget() error {
	if c.Target == "" {
		return nil
	}
	target, err := pass.ResolveTarget(c.Target)
	if err != nil {
		return fmt.Errorf("--target: %w", err)
	}
	c.Target = target
	if _, err := bridge.Global("target.Target", c.Target); err != nil {
		return fmt.Errorf("--target: TVM does not know the target %q: %s", c.Target, lastMessage(err))
	}
	return nil
}

// load reads the model and normalises it.
func (c *compilation) load(info *ModelInfo) error {
	if c.Module != nil {
		c.module = c.Module
		return nil
	}
	step := c.Progress.Start("reading "+c.Model, 0)
	spec := map[string]any{"model": c.Model, "params": orNull(c.Params), "format": orNull(c.Format), "input_shapes": nil}
	if len(c.InputShapes) > 0 {
		spec["input_shapes"] = c.InputShapes
	}
	value, err := callHost("collage.host.load_model", spec)
	if err != nil {
		return err
	}
	answer, err := value.Object()
	if err != nil {
		return err
	}
	defer answer.Release()
	module, err := answer.ObjectAt(0)
	if err != nil {
		return err
	}
	text, err := answer.At(1)
	if err != nil {
		return err
	}
	description, err := text.Str()
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(description), info); err != nil {
		return fmt.Errorf("the Python host's description of the model is not readable: %w", err)
	}
	step.Done("%d operators, %.1f MB of weights", info.Operators, float64(info.ParameterBytes)/1e6)

	step = c.Progress.Start("normalising", 0)
	c.module, err = pass.Normalise(module, pass.NormaliseOptions{DisabledPasses: disabledPasses})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Model, err)
	}
	step.Done("done")
	return c.ctx.Err()
}

// find decides which networks are compared in the end, and has them built.
func (c *compilation) find() error {
	if c.searchesGraph() {
		err := c.searchGraph()
		if err != nil {
			c.graph.close()
		}
		return err
	}
	if err := c.place(); err != nil {
		return err
	}
	return c.build()
}

// place decides the placements of the whole network that are to be built.
func (c *compilation) place() error {
	// TVM alone needs no decision. It is built even where it may not be chosen: outputs are held against its.
	c.reference = &finalist{name: "tvm", module: c.module, eligible: slices.Contains(c.Backends, "tvm") && !c.constrained()}
	if !c.reference.eligible || len(c.Backends) == 1 {
		return c.placeAlone()
	}
	config, step := c.placementConfig()
	network, err := pass.Explore(c.module, config)
	if err != nil {
		return err
	}
	c.target = network.Target()
	plain, err := network.Reference()
	if err == nil {
		err = c.addPlaced(network, c.reference, plain)
	}
	if err != nil {
		return err
	}
	for _, b := range network.Backends() {
		if b.TakesAnything() {
			continue
		}
		if p := network.Single(b.Name()); p != nil {
			if err := c.addPlaced(network, &finalist{name: b.Name(), eligible: true}, p); err != nil {
				return err
			}
		}
	}
	f := &finalist{name: plan.PlacementName, eligible: true}
	if err := c.addPlaced(network, f, network.Placed); err != nil {
		return err
	}
	c.donePlacing(step(), f.plan)
	return c.ctx.Err()
}

// placeAlone decides the one placement that there is where no backend alone stands against it.
func (c *compilation) placeAlone() error {
	f, err := c.placement()
	if err != nil {
		return err
	}
	if c.reference.eligible {
		c.reference.plan = f.plan // all of it is on TVM
		c.finalists = append(c.finalists, c.reference)
	}
	c.finalists = append(c.finalists, f)
	return nil
}

// addPlaced makes a placement of a network a finalist: its module, where it has none, and its plan.
func (c *compilation) addPlaced(network *pass.Network, f *finalist, p *genome.Placement) (err error) {
	if f.module == nil {
		if f.module, err = network.Module(p); err != nil {
			return err
		}
	}
	if f.plan, err = network.Plan(p, nil); err != nil {
		return err
	}
	f.plan.Module.Name = c.Model
	c.finalists = append(c.finalists, f)
	return nil
}

// constrained says that only the placement keeps to what was asked for.
func (c *compilation) constrained() bool { return len(c.Pin)+len(c.Forbid) > 0 }

// single gives everything that a backend can take to it, and the rest to TVM.
func (c *compilation) single(name string) (*finalist, error) {
	config := c.config()
	config.Only = name
	module, p, err := pass.Partition(c.module, config)
	if err != nil {
		return nil, err
	}
	return &finalist{name: name, module: module, plan: p, eligible: true}, nil
}

// placementConfig is the configuration of the placement's search, with its progress shown; step gives the step under
// which that is.
func (c *compilation) placementConfig() (config pass.Config, step func() *progress.Step) {
	var current *progress.Step
	config = c.config()
	config.Pin, config.Forbid = c.Pin, c.Forbid
	config.Progress = func(e pass.Event) {
		if e.Stage != pass.StageMeasure || e.Total == 0 {
			return
		}
		if current == nil {
			current = c.Progress.Start("measuring candidates", e.Total)
		}
		current.At(e.Done, e.Label)
		if e.Cost != nil && e.Cost.Failed() {
			c.Progress.Detail("%s: %s", e.Label, e.Cost.Failure)
		} else if e.Cost != nil {
			c.Progress.Detail("%s: %.4g ms (%s)", e.Label, e.Cost.Estimate(), e.Cost.Origin)
		}
	}
	return config, func() *progress.Step { return current }
}

// donePlacing ends the step of the placement.
func (c *compilation) donePlacing(step *progress.Step, p *plan.Plan) {
	if step == nil {
		step = c.Progress.Start("placing", 0)
	}
	n := p.Candidates
	step.Done("%d candidates, %d different computations: %d measured now, %d from the store, %d failed; %s", n.Proposed,
		n.Distinct, n.Measured, n.Stored, n.Failed, p)
}

// placement is what the operator level decides.
func (c *compilation) placement() (*finalist, error) {
	config, step := c.placementConfig()
	if len(c.Backends) == 1 && c.Backends[0] == "tvm" && !c.constrained() {
		// With TVM alone there is nothing to choose, so nothing is measured.
		config.Only = "tvm"
	}
	module, p, err := pass.Partition(c.module, config)
	if err != nil {
		return nil, err
	}
	c.donePlacing(step(), p)
	p.Module.Name = c.Model
	c.target = p.Environment.Target
	return &finalist{name: plan.PlacementName, module: module, plan: p, eligible: true}, c.ctx.Err()
}

// disabledPasses are left out of every build, those of the candidates too.
func (c *compilation) disabledPasses() []string {
	if c.DisabledPasses != nil {
		return c.DisabledPasses
	}
	return disabledPasses
}

func (c *compilation) config() pass.Config {
	level := c.OptLevel
	return pass.Config{Backends: c.Backends, Target: c.Target, Store: c.Store, Threads: c.Threads, Context: c.ctx,
		OptLevel: &level, DisabledPasses: c.disabledPasses(), Samples: c.Samples, RetryFailures: c.RetryFailures,
		Exact: c.Exact, Exhaustive: c.Exhaustive, SkipUnusable: c.SkipUnusable,
		TuningLog: c.TuningLog, Python: c.Python}
}

// callHost calls a packed function of the Python host. The last argument is the options, as JSON.
func callHost(name string, options map[string]any, before ...any) (bridge.Value, error) {
	text, err := json.Marshal(options)
	if err != nil {
		return bridge.Value{}, err
	}
	value, err := bridge.Global(name, append(before, string(text))...)
	if err != nil {
		return bridge.Value{}, plainError(err)
	}
	return value, nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// pluginPaths are the runtime plug-ins that an executable with regions of these compilers is linked with. A
// compiler that has no plug-in of ours brings its runtime by itself.
func pluginPaths(compilers []string) []string {
	var paths []string
	if path, err := byoc.PluginPath("runtime"); err == nil {
		paths = append(paths, path)
	}
	for _, compiler := range compilers {
		// What is missing here was missing when the backend was probed.
		if files, err := byoc.LibrariesFor(compiler); err == nil {
			paths = append(paths, files...)
		}
	}
	return paths
}

func backendCompiler(name string) string {
	b, err := byoc.Lookup(name)
	if err != nil {
		return ""
	}
	return b.Compiler()
}

func joinNames(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
