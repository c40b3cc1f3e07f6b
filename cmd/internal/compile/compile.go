// SPDX-License-Identifier: Apache-2.0

// Package compile makes an executable of a model: it reads the model, has pass/decide find the fastest network, and
// puts that in its place.
//
// What comes in: a model's name and Options, in the Python host's process (TVM loaded, collage.host.* registered).
// What goes out: the executable at Options.Output and a Result with the plan, the finalists' times and the reason
// for the choice. On an error nothing stands at Options.Output that did not before; costs that were measured are
// in the store.
package compile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/ragged"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
)

// Options say what to compile and how.
type Options struct {
	// What may be decided, and how. Name, Extension and Build are filled in. With Replay, what the plan says is not
	// looked at: Backends, Pin, Forbid, Target, Threads, OptLevel, Samples, Rounds.
	decide.Options
	// Model is a file, or "workload:NAME".
	Model string
	// Module is the model itself, normalised, where there is no file to read; Model is then no more than a name.
	Module *bridge.Object
	// Params is a file of parameters for a Relay program; "" for none.
	Params string
	// InputShapes fix what the model leaves open.
	InputShapes map[string][]int64
	// InputValues make constants of inputs of an ONNX model, which say of which shape something is.
	InputValues map[string][]float64
	// Dynamic are dimensions of inputs that stay open, with what is known of their sizes (nil for nothing); InputShapes
	// then say at which sizes they are tried.
	Dynamic map[string]map[int64]*Domain
	// Ragged is the input that says which places of a padded batch are tokens (ragged.ClearPadding); "" for none.
	Ragged string
	// Format is "onnx", "pt2", "relay", "tflite" or "torchscript"; "" to tell by the file.
	Format string
	// Output is the executable, .so or .tar.
	Output string
	// NoCheckImport does not hold what TVM read of a file against what another engine makes of it.
	NoCheckImport bool
	// Began is when SearchTime began; the zero time for when Compile is called.
	Began time.Time
	// Replay is a plan that is built as it is; nil to decide.
	Replay *plan.Plan
}

// Result is what became of a model.
type Result struct {
	// Plan is that of the network that was kept, with the finalists in it.
	Plan *plan.Plan
	// Chosen is the name of the finalist that was kept (plan.PlacementName or a backend's), and Why says why in one
	// sentence.
	Chosen, Why string
	// Notes are what a user should know beside the tables, Warnings those of them that say what went otherwise than it
	// should.
	Notes, Warnings []string
	// Bytes is the size of the executable.
	Bytes int64
	// Agreement is what came of holding what TVM read against another engine; nil where there is none that reads such
	// models, and with NoCheckImport.
	Agreement *witness.Agreement
	// Model is what the front end said.
	Model ModelInfo
}

// Domain is between which sizes an open dimension may be, both included.
type Domain struct {
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
	// Weights are sizes with how often they come, [size, how often]; nil where all come alike.
	Weights [][2]float64 `json:"weights,omitempty"`
}

// ModelInfo is what the front end says about a model.
type ModelInfo struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Inputs map[string]struct {
		// Shape has open dimensions as they are tried, and Open says which these are.
		Shape []int64 `json:"shape"`
		DType string  `json:"dtype"`
		Open  []int64 `json:"open,omitempty"`
		// Names are what the model calls its open dimensions ("" for others), Domain between which sizes they may be, both
		// included (nil for any), and Points at which of these it is measured; nil where there are none.
		Names  []string           `json:"names,omitempty"`
		Domain []*[2]int64        `json:"domain,omitempty"`
		Points []decide.SizePoint `json:"points,omitempty"`
	} `json:"inputs"`
	Operators      int            `json:"operators"`
	OperatorCounts map[string]int `json:"operator_counts"`
	ParameterBytes int64          `json:"parameter_bytes"`
}

// read is what the front end says about a model, with the question for another engine; null for none.
type read struct {
	*ModelInfo
	Question json.RawMessage `json:"question"`
}

// disabledPasses are left out of the builds of a model that was read from a file, those of the candidates too.
var disabledPasses = settings.DefaultDisabledPasses()

// compilation is one run of Compile.
type compilation struct {
	Options
	ctx    context.Context
	module *bridge.Object // normalised
	// asked says that the front end has a question for another engine.
	asked bool
}

// begin is a compilation with what the options leave to it.
func begin(ctx context.Context, options Options) *compilation {
	options.Name, options.Extension, options.Build = options.Model, ".so", decide.HostBuild
	if filepath.Ext(options.Output) == ".tar" {
		options.Extension = ".tar"
	}
	return &compilation{Options: options, ctx: ctx}
}

// Compile compiles a model. See the package's comment.
func Compile(ctx context.Context, options Options) (*Result, error) {
	c := begin(ctx, options)
	defer func() { c.Witness.Close() }()
	if options.Replay != nil {
		return c.replay()
	}
	c.beginTime()
	c.Rehearse = func(executable string) error { return atomicfile.Rehearse(c.Output, executable) }
	result := &Result{}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&result.Model); err != nil {
		return nil, err
	}
	decided, err := decide.Decide(ctx, c.module, c.Options.Options)
	if err != nil {
		return nil, c.located(err, result.Model.Format)
	}
	return result, c.export(result, decided)
}

// export puts what was decided in its place, and takes it into the result.
func (c *compilation) export(result *Result, d *decide.Decision) error {
	defer c.Trace.Phase("writing the executable").End(nil)
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if err := atomicfile.Copy(c.Output, d.Path, c.ctx.Err); err != nil {
		return err
	}
	result.Plan, result.Chosen, result.Why, result.Notes, result.Bytes = d.Plan, d.Chosen, d.Why, d.Notes, d.Bytes
	result.Warnings = d.Warnings
	result.Agreement = d.Agreement
	return nil
}

// Decide reads a model and has the operator level place it within Options.SearchTime: the result has the plan, without
// finalists. What is built on the way is in Options.Temporary. Options.Output and Rounds are not looked at.
func Decide(ctx context.Context, options Options) (*Result, error) {
	c := begin(ctx, options)
	c.NoCheckImport = true // nothing is written whose outputs could be wrong
	c.beginTime()
	result := &Result{}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&result.Model); err != nil {
		return nil, err
	}
	var err error
	if result.Plan, result.Notes, err = decide.Planned(ctx, c.module, c.Options.Options); err != nil {
		return nil, err
	}
	return result, nil
}

// beginTime has the time of the whole run.
func (c *compilation) beginTime() {
	if c.SearchTime <= 0 {
		c.SearchTime = settings.DefaultSearchTime
	}
	if c.Began.IsZero() {
		c.Began = time.Now()
	}
	c.Budget = budget.Begun(c.Began, c.SearchTime, nil)
}

// checkTarget replaces names of levels by targets of TVM's and asks TVM whether it knows the target, before anything
// else is done.
func (c *compilation) checkTarget() error {
	if c.Target == "" {
		return nil
	}
	target, err := settings.ResolveTarget(c.Target)
	if err != nil {
		return fmt.Errorf("--target: %w", err)
	}
	c.Target = target
	if _, err := bridge.Global("target.Target", c.Target); err != nil {
		return fmt.Errorf("--target: TVM does not know the target %q: %s", c.Target, lastMessage(err))
	}
	return nil
}

// given is the model as the Python host is told of it.
func (c *compilation) given() map[string]any {
	spec := map[string]any{"model": c.Model, "params": orNull(c.Params), "format": orNull(c.Format),
		"input_shapes": nil}
	if len(c.InputShapes) > 0 {
		spec["input_shapes"] = c.InputShapes
	}
	if len(c.InputValues) > 0 {
		spec["input_values"] = c.InputValues
	}
	if len(c.Dynamic) > 0 {
		spec["dynamic"] = c.Dynamic
	}
	if c.Ragged != "" {
		spec["ones"] = []string{c.Ragged} // what an engine that does not clear padding is asked has none
	}
	return spec
}

// load reads the model and normalises it.
func (c *compilation) load(info *ModelInfo) error {
	if c.Module != nil {
		c.module = c.Module
		return nil
	}
	step := c.Progress.Start("reading "+c.Model, 0)
	value, err := decide.CallHost("collage.host.load_model", c.given())
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
	told := read{ModelInfo: info}
	if err := json.Unmarshal([]byte(description), &told); err != nil {
		return fmt.Errorf("the Python host's description of the model is not readable: %w", err)
	}
	c.Tried = map[string]decide.Sizes{}
	for name, input := range info.Inputs {
		c.Tried[name] = decide.Sizes{Shape: input.Shape, Names: input.Names, Domain: input.Domain,
			Points: input.Points}
	}
	step.Done("%d operators, %.1f MB of weights", info.Operators, float64(info.ParameterBytes)/1e6)

	if err := c.ask(told.Question); err != nil {
		return err
	}
	step = c.Progress.Start("normalising", 0)
	c.module, err = normalise.Normalise(module, normalise.Options{DisabledPasses: disabledPasses})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Model, err)
	}
	if c.Ragged != "" {
		values, err := c.clearPadding()
		if err != nil {
			return err
		}
		step.Done("done; padding is 0 in %s", report.Counted(values, "value"))
	} else {
		step.Done("done")
	}
	return c.ctx.Err()
}

// clearPadding makes the network known as one on padded batches, and gives in how many values padding became 0.
func (c *compilation) clearPadding() (values int, err error) {
	cleared, values, err := ragged.ClearPadding(c.module, c.Ragged)
	if err != nil {
		return 0, err
	}
	defer cleared.Release()
	typed, err := normalise.InferTypes(cleared)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.Model, err)
	}
	c.module.Release()
	c.module = typed
	return values, nil
}

// lastMessage is what TVM says, without the class.
func lastMessage(err error) string {
	var fromTVM *bridge.Error
	if errors.As(err, &fromTVM) {
		return fromTVM.Message
	}
	return err.Error()
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
