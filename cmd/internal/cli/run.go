// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/deployment"
	"github.com/collage-tvm/collage/cmd/internal/install"
	"github.com/collage-tvm/collage/cmd/internal/runmodel"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/internal/npz"
)

var runCommand = Command{
	Name:      "run",
	Arguments: "MODEL [--inputs FILE] [--outputs FILE]",
	Short:     "run an exported model and take its time",
	Long: `Runs a model that collage compile (or tvmc compile, for the CPU) wrote, or the folder of one that collage package
wrote, and takes its time. The process loads
TVM's runtime library and the runtime plug-ins that the model names, and neither Python nor TVM's compiler.

Inputs are read from an .npz file (numpy.savez) with one array for each input, named, shaped and typed as the
model wants it; without one, random values are taken. Outputs are written as output_0, output_1 and so on, the
names that tvmc run gives them.`,
	Examples: []string{
		"run model.tar --inputs x.npz --outputs y.npz",
		"run model.so --repeat 100 --threads 4 --json",
	},
	New: func(flags *pflag.FlagSet) Action {
		a := &runAction{}
		flags.StringVar(&a.inputs, "inputs", "", "read the inputs from `FILE` (.npz); without it they are random")
		flags.StringVar(&a.outputs, "outputs", "", "write the outputs to `FILE` (.npz)")
		flags.IntVar(&a.repeat, "repeat", 10, "time `N` calls")
		flags.IntVar(&a.warmup, "warmup", 3, "make `N` calls before, untimed")
		flags.IntVar(&a.threads, "threads", 0, "use `N` threads; 0 for what the model was compiled for")
		flags.Uint64Var(&a.seed, "seed", 0, "`SEED` of the random inputs")
		flags.StringVar(&a.runtime, "tvm-runtime", "",
			"TVM's runtime library, `FILE`; without it, $COLLAGE_TVM_RUNTIME or the tvm package's")
		flags.BoolVar(&a.json, "json", false, "print JSON")
		return a
	},
}

type runAction struct {
	inputs, outputs, runtime string
	repeat, warmup, threads  int
	seed                     uint64
	json                     bool
}

// runReport is what --json prints.
type runReport struct {
	Model   string `json:"model"`
	Bytes   int64  `json:"model_bytes"`
	Runtime string `json:"tvm_runtime"`
	// Plugins are the runtime plug-ins that the model needs.
	Plugins []string `json:"plugins"`
	// Threads is what --threads asked for; 0 for what the model was compiled for.
	Threads int                   `json:"threads"`
	Inputs  []runmodel.TensorInfo `json:"inputs"`
	// InputsFrom is the file, or "random".
	InputsFrom string                `json:"inputs_from"`
	Seed       *uint64               `json:"seed,omitempty"`
	Outputs    []runmodel.TensorInfo `json:"outputs"`
	OutputsTo  string                `json:"outputs_to,omitempty"`
	Latency    *runmodel.Timings     `json:"latency"`
}

func (a *runAction) Check(_ *Session, args []string) error {
	if err := expect(&runCommand, args, "MODEL"); err != nil {
		return err
	}
	switch {
	case a.repeat < 1:
		return fmt.Errorf("--repeat %d: at least one call must be made", a.repeat)
	case a.warmup < 0:
		return fmt.Errorf("--warmup %d: cannot be negative", a.warmup)
	}
	if err := checkThreads(a.threads); err != nil {
		return err
	}
	if err := checkModelOrPackage(args[0]); err != nil {
		return err
	}
	if a.inputs != "" {
		if err := checkReadable("inputs", a.inputs); err != nil {
			return err
		}
	}
	if a.outputs != "" {
		return atomicfile.CheckWritable(a.outputs)
	}
	return nil
}

func (a *runAction) Run(s *Session, args []string) error {
	report := runReport{Model: args[0], Threads: a.threads, OutputsTo: a.outputs, InputsFrom: a.inputs}
	if err := a.setThreads(); err != nil {
		return err
	}
	files, err := a.open(s, args[0])
	if err != nil {
		return err
	}
	report.Bytes = files.Size
	if report.Runtime, err = a.loadRuntime(s); err != nil {
		return err
	}
	model, err := runmodel.Load(files)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	report.Inputs, report.Outputs, report.Plugins = model.Inputs, model.Outputs, model.PluginNames()
	if report.Plugins == nil {
		report.Plugins = []string{}
	}

	inputs, err := a.readInputs(model.Inputs, &report)
	if err != nil {
		return err
	}
	if err := model.SetInputs(inputs); err != nil {
		return err
	}
	if report.Latency, err = model.Time(s.Context, a.repeat, a.warmup); err != nil {
		return err
	}
	if report.Outputs, err = model.Produced(); err != nil {
		return err
	}
	if a.outputs != "" {
		outputs, err := model.GetOutputs()
		if err != nil {
			return err
		}
		if err := npz.Write(a.outputs, outputs); err != nil {
			return err
		}
	}
	if a.json {
		return s.printJSON(report)
	}
	return report.print(s)
}

// setThreads has models use so many threads as were asked for: the pools read it when they start.
func (a *runAction) setThreads() error {
	if a.threads == 0 {
		return nil
	}
	for _, name := range []string{"COLLAGE_NUM_THREADS", "TVM_NUM_THREADS"} {
		if err := os.Setenv(name, strconv.Itoa(a.threads)); err != nil {
			return err
		}
	}
	return nil
}

// checkModelOrPackage looks at a MODEL that may be the folder that collage package wrote.
func checkModelOrPackage(path string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return checkReadable("model", path)
	}
	if _, err := deployment.Read(path); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

// open gives the files of a model, or of the one in a package's folder, whose libraries go before this installation's.
func (a *runAction) open(s *Session, model string) (*runmodel.Files, error) {
	if info, err := os.Stat(model); err != nil || !info.IsDir() {
		folder, err := s.temporaryFolder()
		if err != nil {
			return nil, err
		}
		return runmodel.Open(model, folder)
	}
	files, err := deployment.Open(model)
	if err != nil {
		return nil, err
	}
	libraries, err := filepath.Abs(deployment.LibraryFolder(model))
	if err != nil {
		return nil, err
	}
	if a.runtime == "" && os.Getenv(install.RuntimeEnv) == "" {
		a.runtime = libraries
	}
	if os.Getenv(byoc.PluginDirEnv) == "" {
		err = os.Setenv(byoc.PluginDirEnv, libraries)
	}
	return files, err
}

// loadRuntime loads TVM's runtime library and gives its path. In the Python host TVM is there already.
func (a *runAction) loadRuntime(s *Session) (string, error) {
	if bridge.Loaded() {
		return bridge.LibraryPath(), nil
	}
	path, err := install.TVMRuntime(s.Context, a.runtime)
	if err != nil {
		return "", err
	}
	if err := bridge.Load(path); err != nil {
		return "", fmt.Errorf("TVM's runtime library does not load: %w", err)
	}
	return path, nil
}

func (a *runAction) readInputs(wanted []runmodel.TensorInfo, report *runReport) ([]npz.Array, error) {
	if a.inputs == "" {
		report.InputsFrom, report.Seed = "random", &a.seed
		return runmodel.RandomInputs(wanted, a.seed)
	}
	arrays, err := npz.Read(a.inputs)
	if err != nil {
		return nil, err
	}
	if err := runmodel.CheckInputs(wanted, arrays); err != nil {
		return nil, fmt.Errorf("%s: %w", a.inputs, err)
	}
	return arrays, nil
}

func (r *runReport) print(s *Session) error {
	w := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("model", "%s (%s)", r.Model, sizeText(r.Bytes))
	line("TVM runtime", "%s", r.Runtime)
	if len(r.Plugins) > 0 {
		line("plug-ins", "%s", strings.Join(r.Plugins, ", "))
	} else {
		line("plug-ins", "none")
	}
	from := "from " + r.InputsFrom
	if r.Seed != nil {
		from = fmt.Sprintf("random values, seed %d (--inputs gives real ones)", *r.Seed)
	}
	for i, in := range r.Inputs {
		name := ""
		if i == 0 {
			name = "inputs"
		}
		line(name, "%s %s", in, from)
	}
	for i, out := range r.Outputs {
		name, to := "", ""
		if i == 0 {
			name = "outputs"
		}
		if r.OutputsTo != "" {
			to = " to " + r.OutputsTo
		}
		line(name, "%s%s", out, to)
	}
	l := r.Latency
	line("latency", "median %s ms, 10 %% of calls under %s, 90 %% under %s (%d calls after %d untimed)",
		milliseconds(l.Median),
		milliseconds(l.Low), milliseconds(l.High), len(l.Samples), l.Warmup)
	return w.Flush()
}

// milliseconds has three significant digits where there are.
func milliseconds(ms float64) string {
	switch {
	case ms >= 100:
		return strconv.FormatFloat(ms, 'f', 0, 64)
	case ms >= 10:
		return strconv.FormatFloat(ms, 'f', 1, 64)
	case ms >= 1:
		return strconv.FormatFloat(ms, 'f', 2, 64)
	}
	return strconv.FormatFloat(ms, 'f', 4, 64)
}

func sizeText(bytes int64) string {
	switch {
	case bytes >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func checkThreads(n int) error {
	if n < 0 || n > 4096 {
		return fmt.Errorf("--threads %d: not a number of threads (0 for all that the machine has)", n)
	}
	return nil
}

// checkReadable says why a file cannot be read, in one line that names what it is for.
func checkReadable(what, path string) error {
	file, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: no such file %s", what, path)
		}
		return fmt.Errorf("%s: cannot read %s: %w", what, path, withoutPath(err))
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%s: %s is a folder, not a file", what, filepath.Clean(path))
	}
	return nil
}
