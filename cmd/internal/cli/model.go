// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/cmd/internal/install"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/ragged"
	"github.com/collage-tvm/collage/pass/settings"
)

// modelFlags are the flags of the commands that place a model: which one it is, and how it is to be placed.
type modelFlags struct {
	params, format, target, store, ragged, weights string
	tuningLog                                      string
	backends, shapes, values, pin, forbid          []string
	devices                                        []string
	dynamic                                        []string
	threads, optLevel, samples                     int
	exact                                          bool
	precision                                      settings.Precision
	exhaustive, skip, retry, strict                bool
	json, verbose, quiet                           bool
	traceFlag

	inputShapes map[string][]int64
	inputValues map[string][]float64
	openAxes    map[string]map[int64]*compile.Domain
}

// declareModel declares the flags that say what the model is.
func (m *modelFlags) declareModel(flags *pflag.FlagSet) {
	flags.StringVar(&m.params, "params", "", "parameters of a Relay program, from `FILE`")
	flags.StringVar(&m.format, "format", "", "`FORMAT` of MODEL where its name does not tell: onnx, pt2, relay, "+
		"tflite or torchscript")
	flags.StringArrayVar(&m.shapes, "input-shape", nil, "fix an input's shape, as `NAME:1,3,224,224`; of an "+
		"ONNX sequence, how many tensors it has, as NAME:3; may be repeated")
	flags.StringArrayVar(&m.values, "input-value", nil,
		"make a constant of an input of an ONNX model that says of which shape something is, as `NAME:2,2`; may be repeated")
	flags.StringArrayVar(&m.dynamic, "dynamic", nil, "leave dimensions of an input open that the model leaves open, as "+
		"`NAME:0,1` or, with the sizes that it may have, NAME:1=1..512: TVM's virtual machine then runs it at any size, and "+
		"it is measured all over the sizes given, else at the one of --input-shape; may be repeated")
	flags.StringVar(&m.weights, strings.TrimPrefix(weightsFlag, "--"), "", "how often the sizes of --dynamic come, from "+
		"`FILE`, of which a line is SIZE or SIZE HOW-OFTEN; where dimensions have other sizes than each other, NAME:1=FILE")
	flags.StringVar(&m.ragged, ragged.Option, "", "the `INPUT` of batch and length that says which places are tokens, an "+
		"attention mask: outputs become 0 at the others, which need not be computed")
}

// declareOption declares the flag of an option (settings.Options), whose value goes where that points.
func declareOption(flags *pflag.FlagSet, name string, where any) {
	o := settings.FindOption(name)
	switch value := where.(type) {
	case *string:
		text, _ := o.Default.(string)
		flags.StringVar(value, o.Flag, text, o.Help())
	case *[]string:
		if list, ok := o.Default.([]string); ok {
			flags.StringSliceVar(value, o.Flag, list, o.Help())
		} else { // a rule may have a comma in it
			flags.StringArrayVar(value, o.Flag, nil, o.Help())
		}
	case *int:
		flags.IntVar(value, o.Flag, o.Default.(int), o.Help())
	case *float64:
		flags.Float64Var(value, o.Flag, o.Default.(float64), o.Help())
	case *bool:
		flags.BoolVar(value, o.Flag, o.Default.(bool), o.Help())
	case *time.Duration:
		flags.DurationVar(value, o.Flag, time.Duration(o.Default.(float64)*float64(time.Second)), o.Help())
	default:
		panic(fmt.Sprintf("cli: no flag holds a %T", where))
	}
}

// declarePlacement declares those that say how it is placed.
func (m *modelFlags) declarePlacement(flags *pflag.FlagSet) {
	declareOption(flags, "backends", &m.backends)
	declareOption(flags, "devices", &m.devices)
	declareOption(flags, "pin", &m.pin)
	declareOption(flags, "forbid", &m.forbid)
	declareOption(flags, "exact", &m.exact)
	declareOption(flags, "target", &m.target)
	declareOption(flags, "threads", &m.threads)
	declareOption(flags, "opt_level", &m.optLevel)
	declareOption(flags, "tuning_log", &m.tuningLog)
	declareOption(flags, "store", &m.store)
	declareOption(flags, "samples", &m.samples)
	declareOption(flags, "exhaustive", &m.exhaustive)
	declareOption(flags, "skip_unusable", &m.skip)
	declareOption(flags, "retry_failures", &m.retry)
}

// declareStrict declares what ends a command where it would warn.
func (m *modelFlags) declareStrict(flags *pflag.FlagSet) { declareOption(flags, "strict", &m.strict) }

// declarePrecision declares those that say in which types parts may be computed: they need whole networks that run.
func (m *modelFlags) declarePrecision(flags *pflag.FlagSet) {
	declareOption(flags, "precision", &m.precision.Allowed)
	declareOption(flags, "max_error", &m.precision.MaxError)
	declareOption(flags, "error_measure", &m.precision.Measure)
	declareOption(flags, "calibration", &m.precision.Calibration)
	declareOption(flags, "calibration_method", &m.precision.CalibrationMethod)
	declareOption(flags, "bias_correction", &m.precision.BiasCorrection)
}

func (m *modelFlags) declareOutput(flags *pflag.FlagSet) {
	flags.BoolVar(&m.json, "json", false, "print JSON")
	flags.BoolVarP(&m.verbose, "verbose", "v", false, "print each measurement, region and limit")
	flags.BoolVarP(&m.quiet, "quiet", "q", false, "print no progress")
}

// workloadPrefix begins the names of built-in networks.
const workloadPrefix = "workload:"

var formats = []string{"onnx", "pt2", "relay", "tflite", "torchscript"}

func (m *modelFlags) checkNumbers() error {
	switch {
	case m.optLevel < 0 || m.optLevel > 4:
		return fmt.Errorf("--opt-level %d: TVM has levels 0 to 4", m.optLevel)
	case m.samples < 1:
		return fmt.Errorf("--repeat %d: at least one sample must be taken", m.samples)
	case m.quiet && m.verbose:
		return errors.New("--quiet and --verbose contradict each other")
	case m.tuningLog != "":
		if _, err := settings.TuningDigest(m.tuningLog); err != nil {
			return fmt.Errorf("--tuning-log: %w", err)
		}
	}
	return checkThreads(m.threads)
}

func (m *modelFlags) checkModel(model string) (err error) {
	if m.format != "" && !slices.Contains(formats, m.format) {
		if near := nearest.Word(m.format, formats); near != "" {
			return fmt.Errorf("--format %s is not known: did you mean %s?", m.format, near)
		}
		return fmt.Errorf("--format %s is not known (formats: %s)", m.format, strings.Join(formats, ", "))
	}
	if m.inputValues, err = inputValue.parse(m.values); err != nil {
		return err
	}
	if m.inputShapes, err = inputShape.parse(m.shapes); err != nil {
		return err
	}
	given, err := openDimensions.parse(m.dynamic)
	if err != nil {
		return err
	}
	if m.openAxes, err = open(given); err != nil {
		return err
	}
	if m.weights != "" {
		if err := weigh(m.openAxes, m.weights); err != nil {
			return err
		}
	}
	if name, isWorkload := strings.CutPrefix(model, workloadPrefix); isWorkload {
		switch {
		case name == "":
			return errors.New("workload: needs a name, as in workload:resnext50_32x4d")
		case m.params != "":
			return fmt.Errorf("%s brings its own parameters; --params goes with a Relay program", model)
		case m.format != "":
			return fmt.Errorf("%s is no file; --format does not go with it", model)
		}
		return nil
	}
	if err := checkReadable("model", model); err != nil {
		if _, statErr := os.Stat(model); errors.Is(statErr, os.ErrNotExist) && !strings.ContainsAny(model, "./") {
			return fmt.Errorf("%w (networks that are built in are named %sNAME)", err, workloadPrefix)
		}
		return err
	}
	if m.params != "" {
		return checkReadable("--params", m.params)
	}
	return nil
}

// usedFile is a file that a command reads or writes, and what for.
type usedFile struct{ what, path string }

// checkDifferent says which two of the files are the same one.
func checkDifferent(files ...usedFile) error {
	for i, f := range files {
		for _, other := range files[:i] {
			if f.path != "" && other.path != "" && sameFile(f.path, other.path) {
				return fmt.Errorf("%s and %s are the same file %s", other.what, f.what, f.path)
			}
		}
	}
	return nil
}

func (m *modelFlags) checkStore() error {
	if m.store == "" {
		path, err := cost.DefaultPath()
		if err != nil {
			return err
		}
		if err := checkStorePlace(path); err != nil {
			return fmt.Errorf("%w (--db FILE names another)", err)
		}
		return nil
	}
	info, err := os.Stat(m.store)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return atomicfile.CheckWritable(m.store)
	case err != nil:
		return fmt.Errorf("--db: %w", err)
	case info.IsDir():
		return fmt.Errorf("--db %s is a folder; give the name of a file", m.store)
	}
	file, err := os.OpenFile(m.store, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("--db: %w", err)
	}
	return file.Close()
}

// registerEnv names Python modules that register backends; the host imports them (python/collage/host.py).
const registerEnv = "COLLAGE_REGISTER"

// checkBackends says which of the backends are not known or cannot be used. Whether TVM can be used only the
// Python host knows.
func (m *modelFlags) checkBackends(s *Session) error {
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	var names []string
	for _, name := range m.backends {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if slices.Contains(names, name) {
			return fmt.Errorf("--backends names %s twice", name)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return errors.New("--backends is empty: name at least one (see collage backends)")
	}
	names, err := settings.WithDevices(names, m.devices)
	if err != nil {
		return asFlag(err)
	}
	m.backends = names
	vanished := false
	if err := m.checkRules(); err != nil {
		return err
	}
	for _, name := range names {
		backend, err := byoc.Lookup(name)
		if err != nil && !s.Hosted && os.Getenv(registerEnv) != "" {
			continue // the Python host knows more
		}
		if err != nil {
			return fmt.Errorf("--backends: %w", err)
		}
		err = checkUsable(s, "--backends", backend)
		switch {
		case err == nil:
		case m.strict && (m.skip || settings.MeasuredBefore(m.store, name)):
			return &settings.StrictError{Warning: err.Error()}
		case m.skip:
		case !settings.MeasuredBefore(m.store, name):
			return fmt.Errorf("%w\nTo go on without it: --skip-unusable", err)
		default:
			vanished = true
			if s.Hosted {
				fmt.Fprintln(s.Stderr, "collage: warning:", settings.VanishedWarning(name, backend.Probe().Reason))
			}
		}
	}
	m.skip = m.skip || vanished
	return nil
}

func checkUsable(s *Session, what string, backend byoc.Backend) error {
	if backend.Compiler() == "" && !s.Hosted {
		return nil
	}
	if probe := backend.Probe(); !probe.Usable && byoc.DeclarationOf(backend) == nil {
		return fmt.Errorf("%s: %s cannot be used: %s\nTo get it: %s", what, backend.Name(), probe.Reason, probe.Remedy)
	}
	return nil
}

// asFlag says of an option of settings.Precision which flag it is.
func asFlag(err error) error {
	var option *settings.OptionError
	if errors.As(err, &option) {
		flag := strings.ReplaceAll(option.Option, "_", "-")
		if option.Option == "devices" {
			flag = settings.FindOption(option.Option).Flag
		}
		return fmt.Errorf("--%s %s", flag, option.Reason)
	}
	return err
}

// checkRules looks at what is pinned and forbidden. Whether it fits the network is told when that is read.
func (m *modelFlags) checkRules() error {
	if err := m.precision.Validate(); err != nil {
		return asFlag(err)
	}
	if m.precision.Calibration != "" {
		if m.precision.Limit() == (cost.Limit{}) {
			return errors.New("--calibration goes with --max-error, or with a --precision other than f32")
		}
		if _, err := os.Stat(m.precision.Calibration); err != nil {
			return fmt.Errorf("--calibration: %w", err)
		}
	}
	offered, err := m.precision.Offered(m.backends)
	var unknown *byoc.UnknownBackendError
	if errors.As(err, &unknown) {
		offered = m.backends // of which checkBackends tells
	} else if err != nil {
		return asFlag(err)
	}
	for _, list := range []struct {
		flag   string
		texts  []string
		forbid bool
	}{{"--pin", m.pin, false}, {"--forbid", m.forbid, true}} {
		for _, text := range list.texts {
			rule, err := plan.ParseRule(text, list.forbid)
			if err != nil {
				return fmt.Errorf("%s: %w", list.flag, err)
			}
			if !slices.Contains(offered, rule.Backend) {
				return fmt.Errorf("%s %s: %s is not among the backends that may be used (%s)", list.flag,
					quoteIfNeeded(text),
					rule.Backend, strings.Join(m.backends, ", "))
			}
		}
	}
	return nil
}

// begin prepares the long part of a command: the interpreter, the progress on the terminal, what to tell on an
// interrupt.
func (m *modelFlags) begin(s *Session, model, unfinished string) (compile.Options, error) {
	python, err := install.Python()
	if err != nil {
		return compile.Options{}, err
	}
	store, err := cost.StorePath(m.store)
	if err != nil {
		return compile.Options{}, err
	}
	printer := progress.New(s.Stderr, m.quiet, m.verbose)
	printer.Record(m.recorder)
	s.beforeError = printer.Stop
	s.setInterruptNote(fmt.Sprintf("%s; what was measured is kept in %s", unfinished, store))
	return compile.Options{
		Model: model, Params: m.params, InputShapes: m.inputShapes, InputValues: m.inputValues,
		Dynamic: m.openAxes, Ragged: m.ragged,
		Format: m.format, Options: decide.Options{
			Backends: m.backends, Pin: m.pin, Forbid: m.forbid, Exact: m.exact, Precision: m.precision,
			Target: m.target, Threads: m.threads,
			OptLevel: m.optLevel, TuningLog: m.tuningLog, Store: m.store, Samples: m.samples, Exhaustive: m.exhaustive,
			SkipUnusable: m.skip, RetryFailures: m.retry, Strict: m.strict, Python: python, Progress: printer,
			Trace: m.recorder,
		},
	}, nil
}
