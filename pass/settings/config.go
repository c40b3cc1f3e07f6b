// SPDX-License-Identifier: Apache-2.0

// Package settings has what users say: the Config of a placement with its defaults and what is wrong with it, the
// backends that it names, precisions, targets, tuning logs.
package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/tracefile"
	"github.com/collage-tvm/collage/pass/cost"
)

// Config says how to partition. The zero Config places on TVM, oneDNN and our own kernels, measures in workers for this
// machine's processor, and keeps costs in the user's store.
type Config struct {
	// Backends are the names of the backends that may be used; empty for DefaultBackends.
	Backends []string `json:"backends,omitempty"`
	// Devices are the kinds of device that parts may run on beside the processor ("opencl", "cuda"): the backends of these are
	// used, too (WithDevices). Empty for DefaultDevices.
	Devices []string `json:"devices,omitempty"`
	// Target is what ResolveTarget takes: a level ("x86-64-v3"), a target of TVM's, or "" for the one of the Target
	// scope around the call, else this machine's processor.
	Target string `json:"target,omitempty"`
	// Store is the file of costs; "" for the user's default (cost.DefaultPath). It is used only when Estimator is nil.
	Store string `json:"store,omitempty"`
	// Threads is how many threads the executable may use; 0 for as many as this process has processors.
	Threads int `json:"threads,omitempty"`
	// Only names a backend that gets all that it can take, the rest going to TVM (a "single backend" placement), or
	// several ("native,dnnl", "native+dnnl"): then what both can take goes to the first. Nothing is measured then, and
	// Backends is not looked at.
	Only string `json:"only,omitempty"`
	// Estimator gives the costs; nil measures in worker processes.
	Estimator cost.Estimator `json:"-"`
	// Python is the interpreter that runs the workers; "" for COLLAGE_PYTHON, which libcollage sets to the one that it
	// was loaded into.
	Python string `json:"python,omitempty"`
	// Progress is called on the goroutine that called Partition. May be nil.
	Progress func(Event) `json:"-"`
	// Warn is told what the user should know and what is no error; nil writes to standard error.
	Warn func(text string) `json:"-"`
	// Context ends the search when it is done; nil for none. What was measured before is in the store.
	Context context.Context `json:"-"`
	// Until ends the measuring of candidates alone (Place): what is not known by then counts by what is believed of it,
	// as its lower bound and the others' costs tell. It is derived from Context; nil for all the time that the proof
	// takes.
	Until context.Context `json:"-"`
	// OptLevel is the optimisation level of the builds that are measured, which should be that of the final build; nil
	// for 3.
	OptLevel *int `json:"opt_level,omitempty"`
	// DisabledPasses are passes that builds leave out, those that are measured and the final one; nil for
	// DefaultDisabledPasses.
	DisabledPasses []string `json:"disabled_passes,omitempty"`
	// TuningLog is what TVM's tuners have found out (TuningDigest says in which forms), applied to what TVM compiles;
	// "" for none.
	TuningLog string `json:"tuning_log,omitempty"`
	// BuildTimeout and RunTimeout limit the two halves of one measurement; 0 for the defaults of pass/measure.
	BuildTimeout time.Duration `json:"build_timeout_ns,omitempty"`
	RunTimeout   time.Duration `json:"run_timeout_ns,omitempty"`
	// Samples is how many samples are taken of each candidate; 0 for the default of pass/measure.
	Samples int `json:"samples,omitempty"`
	// RetryFailures measures candidates again that are in the store as failed.
	RetryFailures bool `json:"retry_failures,omitempty"`
	// Pin and Forbid say where operators must go and must not, each as "SELECTOR=BACKEND" or "SELECTOR=BACKEND.KERNEL"
	// (plan.Rule): "nn.conv2d=dnnl", "%12=tvm", "nn.conv2d=native.winograd". They do not go with Only.
	Pin    []string `json:"pin,omitempty"`
	Forbid []string `json:"forbid,omitempty"`
	// Exact does without candidates that associate their sums otherwise than a direct sum does
	// (byoc.Pattern.Reassociates).
	Exact bool `json:"exact,omitempty"`
	// Precision says in which types parts may be computed, and how far outputs may be off. Whole networks are held to
	// that: what only adds up what parts take (Place, Explore) leaves it to its caller.
	Precision
	// MemoryLimit is how many bytes a worker may hold; a candidate that takes more is out of memory. 0 for the default
	// of pass/measure.
	MemoryLimit int64 `json:"memory_limit_bytes,omitempty"`
	// SkipUnusable leaves a backend out that cannot be used here (its library is absent); the plan says why. Without it
	// that is an error, unless the store has costs of the backend: then it is left out with a warning.
	SkipUnusable bool `json:"skip_unusable,omitempty"`
	// Exhaustive measures all candidates, those too that a lower bound leaves no chance. The placement is as cheap,
	// but where a backend proposes more candidates from what was learnt (random program 54 of tests/random_programs).
	Exhaustive bool `json:"exhaustive,omitempty"`
	// Overhead is added to the cost of each candidate, in milliseconds (place.Overhead); nil for place.DefaultOverhead,
	// or for none where Estimator is set.
	Overhead *float64 `json:"overhead_ms,omitempty"`
	// Level says how far the search goes: OperatorLevel places once, by what parts take in place in every backend
	// alone, GraphLevel (the default) searches among whole networks from there. Either way the fastest of what was
	// found, of each backend alone and of plain TVM is kept (Partition).
	Level Level `json:"level,omitempty"`
	// SearchTime is how many seconds the whole takes, Trials how many networks the graph level measures at most,
	// and the best run Rounds times in turn; 0 for the defaults of pass/decide.
	SearchTime float64 `json:"search_time,omitempty"`
	Trials     int     `json:"trials,omitempty"`
	Rounds     int     `json:"rounds,omitempty"`
	// Verify has what is replayed (ReplayPass) built and run once, and its outputs compared with plain TVM's.
	Verify bool `json:"verify,omitempty"`
	// Strict makes errors (StrictError) of what would be warnings otherwise: what came out could be other than what was
	// asked for.
	Strict bool `json:"strict,omitempty"`
	// Trace is a file for a recording of what was done when (package tracefile); "" for none. Whoever is called from
	// outside makes the Recorder of it and writes it (Record); what does the work is told of that one. Both may be nil.
	Trace    string              `json:"trace,omitempty"`
	Recorder *tracefile.Recorder `json:"-"`
	// Listener is who is told of progress (ListenFunction): a name that Python knows somebody by, "" for nobody. With
	// ShowProgress it is shown on the standard error.
	Listener     string `json:"listener,omitempty"`
	ShowProgress bool   `json:"show_progress,omitempty"`
	// ModuleName is what the user calls the module; it stands in the plan.
	ModuleName string `json:"module_name,omitempty"`

	// DigestOfLog is the tuning log's (TuningDigest); Resolved fills it in.
	DigestOfLog string `json:"-"`
	// KnowsScales says that there will be scales for what backends have rounded (byoc.Rounding): Explore finds them, a
	// plan has them.
	KnowsScales bool `json:"-"`
	// WithoutCosts says that what is placed is known (placing.Like, Replay): candidates need no costs.
	WithoutCosts bool `json:"-"`
}

// Level says how far the search goes.
type Level string

const (
	// OperatorLevel places once, by the costs of parts in place and of borders.
	OperatorLevel Level = "operator"
	// GraphLevel searches among whole networks.
	GraphLevel Level = "graph"
)

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
	// Label says what was worked on ("dnnl.conv2d_bias_relu %12 on dnnl").
	Label string
	// Cost is what was found for a candidate (StageMeasure); nil otherwise.
	Cost *cost.Cost
}

// DefaultBackends are used where a Config names none.
var DefaultBackends = []string{"tvm", "dnnl", "native"}

// OptionError says which option makes no sense, and why.
type OptionError struct {
	// Option is the option's name as Python and the PassContext spell it ("threads").
	Option string
	Reason string
}

func (e *OptionError) Error() string { return fmt.Sprintf("the option %s %s", e.Option, e.Reason) }

// Exception is what Python is told.
func (e *OptionError) Exception() bridge.Exception {
	return bridge.Exception{Class: "OptionError", Option: e.Option}
}

// ParseConfig reads a Config from JSON ("" for the zero Config). Its names are those of the JSON tags above; unknown
// ones are an error.
func ParseConfig(text string) (Config, error) {
	var cfg Config
	err := ParseJSON(text, &cfg)
	return cfg, err
}

func ParseJSON(text string, into any) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return &OptionError{"configuration", "is not readable: " + err.Error()}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return &OptionError{"configuration", "is not readable: something follows the JSON value"}
	}
	return nil
}

// Validate says which option makes no sense, and why. It needs no TVM, and does not say whether the backends' libraries
// are there.
func (c *Config) Validate() error {
	names, err := c.backendNames()
	if err != nil {
		return err
	}
	if _, err := FindBackends(names); err != nil {
		return err
	}
	if err := c.Precision.Validate(); err != nil {
		return err
	}
	switch {
	case c.Threads < 0:
		return &OptionError{"threads", fmt.Sprintf("is %d; name at least 1, or 0 for all processors", c.Threads)}
	case c.Only != "" && len(c.Pin)+len(c.Forbid) > 0:
		return &OptionError{"only", "leaves nothing to choose, so nothing can be pinned or forbidden"}
	case c.Only != "" && c.Limit() != (cost.Limit{}):
		return &OptionError{"only", "measures nothing, so there is no error for precision or max_error to limit"}
	case c.Level != "" && c.Level != OperatorLevel && c.Level != GraphLevel:
		return &OptionError{"level", fmt.Sprintf("is %q; it is %q or %q", c.Level, OperatorLevel, GraphLevel)}
	case c.Level == GraphLevel && c.declared() != "":
		return &OptionError{"level", fmt.Sprintf("is graph, which runs networks; the costs of %s are declared, and go with "+
			"level=\"operator\"", c.declared())}
	case c.Level == GraphLevel && c.Only != "":
		return &OptionError{"only", "leaves the graph level nothing to search; it goes with level=\"operator\""}
	case !(c.SearchTime >= 0) || c.Trials < 0 || c.Rounds < 0:
		return &OptionError{"search_time, trials or rounds", "is below 0"}
	case c.Samples < 0:
		return &OptionError{"samples", fmt.Sprintf("is %d; take at least 1, or 0 for the default", c.Samples)}
	case c.BuildTimeout < 0 || c.RunTimeout < 0:
		return &OptionError{"build_timeout_ns or run_timeout_ns", "is below 0; name some time, or 0 for the default"}
	case c.MemoryLimit < 0:
		return &OptionError{"memory_limit_bytes",
			fmt.Sprintf("is %d; name some bytes, or 0 for the default", c.MemoryLimit)}
	case c.Overhead != nil && !(*c.Overhead >= 0 && *c.Overhead < 1e6):
		return &OptionError{"overhead_ms", fmt.Sprintf("is %v; name some milliseconds, or 0 for none", *c.Overhead)}
	case c.OptLevel != nil && (*c.OptLevel < 0 || *c.OptLevel > 4):
		return &OptionError{"opt_level", fmt.Sprintf("is %d; it goes from 0 to 4", *c.OptLevel)}
	}
	return nil
}

// backendNames are the backends that a placement may use: those named and those of the devices, or for a single-backend
// placement that one and TVM, which takes the rest.
func (c *Config) backendNames() ([]string, error) {
	switch {
	case c.Only != "":
		return slices.Compact(append([]string{"tvm"}, c.OnlyNames()...)), nil
	case len(c.Backends) == 0:
		return WithDevices(DefaultBackends, c.Devices)
	}
	return WithDevices(c.Backends, c.Devices)
}

// OnlyNames are the backends that Only names; none where it is "".
func (c *Config) OnlyNames() []string {
	if c.Only == "" {
		return nil
	}
	names := strings.FieldsFunc(c.Only, func(r rune) bool { return r == ',' || r == '+' })
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

// Warn tells a warning to Python's log, where Python is there (LogFunction), else to the standard error; it is
// Config.Warn where there is none.
func Warn(text string) {
	if _, err := bridge.Global(LogFunction, "warning", text); err != nil {
		fmt.Fprintln(os.Stderr, "collage: warning:", text)
	}
}

// Resolved is a Config without gaps.
func (c Config) Resolved() (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	var err error
	if c.Backends, err = c.backendNames(); err != nil {
		return c, err
	}
	if c.Only == "" { // which says by itself in what parts are computed
		if c.Backends, err = c.Offered(c.Backends); err != nil {
			return c, err
		}
	}
	if c.Threads == 0 {
		c.Threads = defaultThreads()
	}
	if c.Context == nil {
		c.Context = context.Background()
	}
	if c.OptLevel == nil {
		level := 3
		c.OptLevel = &level
	}
	if c.Progress == nil {
		c.Progress = func(Event) {}
	}
	if c.Warn == nil {
		c.Warn = Warn
	}
	if c.DisabledPasses == nil {
		c.DisabledPasses = DefaultDisabledPasses()
	}
	if c.TuningLog != "" {
		if c.DigestOfLog, err = TuningDigest(c.TuningLog); err == nil {
			c.TuningLog, err = filepath.Abs(c.TuningLog)
		}
		if err != nil {
			return c, &OptionError{"tuning_log", "cannot be used: " + err.Error()}
		}
	}
	target, err := ResolveTarget(c.Target)
	if err != nil {
		return c, &OptionError{"target", err.Error()}
	}
	c.Target = target
	return c, nil
}

// RunsNothing says that no whole network is to be run: there is nothing to choose, or costs are given or declared.
func (c *Config) RunsNothing() bool { return c.Only != "" || c.Estimator != nil || c.declared() != "" }

// declared is the first backend whose costs are declared; "" for none.
func (c *Config) declared() string {
	names, err := c.backendNames()
	if err != nil {
		return "" // Validate tells
	}
	return DeclaredAmong(names)
}

// DeclaredAmong is the first of some backends whose costs are declared (byoc.Declare); "" for none.
func DeclaredAmong(names []string) string {
	for _, name := range names {
		if b, err := byoc.Lookup(strings.TrimSpace(name)); err == nil && byoc.DeclarationOf(b) != nil {
			return b.Name()
		}
	}
	return ""
}

func defaultThreads() int { return runtime.NumCPU() }
