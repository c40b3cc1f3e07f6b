// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

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
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// modelFlags are the flags of the commands that place a model: which one it is, and how it is to be placed.
type modelFlags struct {
	params, format, target, store         string
	tuningLog                             string
	backends, shapes, values, pin, forbid []string
	dynamic                               []string
	threads, optLevel, samples            int
	exact                                 bool
	precision                             settings.Precision
	exhaustive, skip, retry               bool
	json, verbose, quiet                  bool

	inputShapes map[string][]int64
	inputValues map[string][]float64
	openAxes    map[string][]int64
}

// declareModel declares the flags that say what the model is.
func (m *modelFlags) declareModel(flags *pflag.FlagSet) {
	flags.StringVar(&m.params, "params", "", "parameters of a Relay program, from `FILE`")
	flags.StringVar(&m.format, "format", "", "`FORMAT` of MODEL where its name does not tell: onnx, pt2, relay, "+
		"tflite or torchscript")
	flags.StringArrayVar(&m.shapes, "input-shape", nil, "fix an input's shape, as `NAME:1,3,224,224`; may be repeated")
	flags.StringArrayVar(&m.values, "input-value", nil,
		"make a constant of an input of an ONNX model that says of which shape something is, as `NAME:2,2`; may be repeated")
	flags.StringArrayVar(&m.dynamic, "dynamic", nil, "leave dimensions of an input open that the model leaves open, as "+
		"`NAME:0,1`: TVM's virtual machine then runs it at any size, and --input-shape says at which it is tried; may be "+
		"repeated")
}

const targetHelp = "what to compile for: `TARGET` is x86-64-v2, x86-64-v3 (AVX2), x86-64-v4 (AVX-512), native (this " +
	"machine's processor, the " +
	"default) or a target of TVM's"

// declarePlacement declares those that say how it is placed.
func (m *modelFlags) declarePlacement(flags *pflag.FlagSet) {
	flags.StringSliceVar(&m.backends, "backends", settings.DefaultBackends,
		"the backends that may be used, as `NAMES` with commas")
	flags.StringArrayVar(&m.pin, "pin", nil, "put operators on a backend, as `WHAT=BACKEND`: nn.conv2d=dnnl, "+
		"%12=tvm, or what the "+
		"front end calls it; BACKEND.KERNEL (nn.conv2d=native.winograd) names one of its kernels; may be repeated")
	flags.StringArrayVar(&m.forbid, "forbid", nil,
		"keep operators off a backend or one of its kernels, as `WHAT=BACKEND` or BACKEND.KERNEL; "+
			"may be repeated")
	flags.BoolVar(&m.exact, "exact", false, "do without kernels that associate sums otherwise than a direct sum "+
		"does, as Winograd's do "+
		"(collage backends marks them): their rounding errors are larger")
	flags.StringVar(&m.target, "target", "", targetHelp)
	flags.IntVar(&m.threads, "threads", 0, "the executable uses `N` threads; 0 for all that the machine has")
	flags.IntVar(&m.optLevel, "opt-level", 3, "TVM's optimisation `LEVEL`, 0 to 4")
	flags.StringVar(&m.tuningLog, "tuning-log", "",
		"compile TVM's part with what its tuners found out: AutoTVM's `FILE`, or the "+
			"folder of a MetaSchedule database (see collage tune)")
	declareStore(flags, &m.store)
	flags.IntVar(&m.samples, "repeat", 10, "take `N` samples of each candidate")
	flags.BoolVar(&m.exhaustive, "exhaustive", false,
		"measure every candidate, those too that a lower bound leaves no chance")
	flags.BoolVar(&m.skip, "skip-unusable", false, "leave backends out that cannot be used here; the plan says why")
	flags.BoolVar(&m.retry, "retry-failures", false, "measure candidates again that failed before")
}

// declarePrecision declares those that say in which types parts may be computed: they need whole networks that run.
func (m *modelFlags) declarePrecision(flags *pflag.FlagSet) {
	flags.StringVar(&m.precision.Allowed, "precision", "", "the narrowest `TYPE` that parts may be computed in, where "+
		"that is quicker and the error is not too large: f32, bf16, int8, or auto for all that the backends have here "+
		"(f32; for a network that comes quantised bytes, too). f32 is held to plain TVM's answer within a tolerance: "+
		"kernels may add in another order")
	flags.Float64Var(&m.precision.MaxError, "max-error", 0, fmt.Sprintf("how far the outputs may be off plain TVM's in "+
		"float32, as a share `E` of them; 0 for %g where --precision is not f32 and for %g where the network comes "+
		"quantised, else for the tolerance that each part has", settings.DefaultMaxError, normalise.QuantisedMaxError))
	flags.StringVar(&m.precision.Measure, "error-measure", "", "the `MEASURE` of --max-error: l2 (the length of the "+
		"difference, the default), max (its greatest element), cosine, top1 (rows whose greatest element is another) or FILE.py:FUNCTION (def FUNCTION(ours, right))")
	flags.StringVar(&m.precision.Calibration, "calibration", "", "take errors on real inputs, of `FILE`.npz or of a folder "+
		"of such files with an array for each input, instead of random ones")
	flags.StringVar(&m.precision.CalibrationMethod, "calibration-method", "", "make scales of bytes by `METHOD` of "+
		"what is seen on inputs: mse, min-max, percentile (percentile:99.9 for another share than 99.99), entropy, or auto for the "+
		"one by which the outputs are off the least (auto)")
	flags.StringVar(&m.precision.BiasCorrection, "bias-correction", "", "`WHEN` what weights in bytes are off by in the mean "+
		"is taken off biases: on, off, or auto for where the outputs are off by less then (auto)")
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
	if m.openAxes, err = openDimensions.parse(m.dynamic); err != nil {
		return err
	}
	for name, axes := range m.openAxes {
		if len(axes) == 0 {
			return fmt.Errorf("--dynamic %s: names no dimension: give it as %s", name, openDimensions.example)
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
		if err := checkUsable(s, "--backends", backend); err != nil && !m.skip {
			if !settings.MeasuredBefore(m.store, name) {
				return fmt.Errorf("%w\nTo go on without it: --skip-unusable", err)
			}
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
	if probe := backend.Probe(); !probe.Usable {
		return fmt.Errorf("%s: %s cannot be used: %s\nTo get it: %s", what, backend.Name(), probe.Reason, probe.Remedy)
	}
	return nil
}

// asFlag says of an option of settings.Precision which flag it is.
func asFlag(err error) error {
	var option *settings.OptionError
	if errors.As(err, &option) {
		return fmt.Errorf("--%s %s", strings.ReplaceAll(option.Option, "_", "-"), option.Reason)
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
	store := m.store
	if store == "" {
		if store, err = cost.DefaultPath(); err != nil {
			return compile.Options{}, err
		}
	}
	printer := progress.New(s.Stderr, m.quiet, m.verbose)
	s.beforeError = printer.Stop
	s.setInterruptNote(fmt.Sprintf("%s; what was measured is kept in %s", unfinished, store))
	return compile.Options{
		Model: model, Params: m.params, InputShapes: m.inputShapes, InputValues: m.inputValues,
		Dynamic: m.openAxes,
		Format:  m.format, Options: decide.Options{
			Backends: m.backends, Pin: m.pin, Forbid: m.forbid, Exact: m.exact, Precision: m.precision,
			Target: m.target, Threads: m.threads,
			OptLevel: m.optLevel, TuningLog: m.tuningLog, Store: m.store, Samples: m.samples, Exhaustive: m.exhaustive,
			SkipUnusable: m.skip, RetryFailures: m.retry, Python: python, Progress: printer,
		},
	}, nil
}
