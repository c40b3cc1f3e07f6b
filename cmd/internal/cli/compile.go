// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/cmd/internal/atomicfile"
	"github.com/collage-tvm/collage/cmd/internal/nearest"
)

var compileCommand = Command{
	Name:      "compile",
	Arguments: "MODEL -o FILE [--backends tvm,dnnl]",
	Short:     "place a network on backends, compile it, keep what runs fastest",
	Long: `Reads a network, measures what each of its parts takes on each backend, places every operator where that is
cheapest, and has TVM compile the result. The placement is then run in turn with each backend by itself and with TVM
alone, and the fastest of them is written. Outputs are checked against TVM's before anything is kept.

MODEL is an ONNX file, a Relay program (text or JSON; its parameters with --params), a TorchScript file (where torch
is installed), or workload:NAME for a network that is built in.

FILE ends in .tar (what collage run and tvmc run take) or in .so (a graph executor factory for TVM's load_module).

What was measured is kept in the cost store and is not measured again, also after an interrupt.`,
	Examples: []string{
		"compile model.onnx --backends tvm,dnnl -o model.tar",
		"compile model.onnx --input-shape data:1,3,224,224 -o model.so",
		"compile network.relay --params network.params -o model.tar --plan-out plan.json",
		"compile workload:resnext50_32x4d -o model.tar --json",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &compileAction{}
		flags.StringVarP(&a.output, "output", "o", "", "write the executable to `FILE` (.tar or .so)")
		flags.StringSliceVar(&a.backends, "backends", []string{"tvm", "dnnl"}, "the backends that may be used, as `NAMES` with commas")
		flags.StringVar(&a.params, "params", "", "parameters of a Relay program, from `FILE`")
		flags.StringVar(&a.format, "format", "", "`FORMAT` of MODEL where its name does not tell: onnx, relay or torchscript")
		flags.StringArrayVar(&a.shapes, "input-shape", nil, "fix an input's shape, as `NAME:1,3,224,224`; may be repeated")
		flags.StringVar(&a.target, "target", "", "TVM's `TARGET`; without it, this machine's processor")
		flags.IntVar(&a.threads, "threads", 0, "the executable uses `N` threads; 0 for all that the machine has")
		flags.IntVar(&a.optLevel, "opt-level", 3, "TVM's optimisation `LEVEL`, 0 to 4")
		flags.StringVar(&a.store, "db", "", "the cost store, `FILE` (.jsonl); without it, the user's")
		flags.StringVar(&a.planOut, "plan-out", "", "write the plan to `FILE` (JSON)")
		flags.IntVar(&a.samples, "repeat", 10, "take `N` samples of each candidate")
		flags.IntVar(&a.rounds, "rounds", 20, "run the finished networks `N` times each, in turn")
		flags.BoolVar(&a.retry, "retry-failures", false, "measure candidates again that failed before")
		flags.BoolVar(&a.json, "json", false, "print JSON")
		flags.BoolVarP(&a.verbose, "verbose", "v", false, "print each measurement, region and limit")
		flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no progress")
		return a
	},
}

type compileAction struct {
	output, params, format, target, store, planOut string
	backends, shapes                               []string
	threads, optLevel, samples, rounds             int
	retry, json, verbose, quiet                    bool

	inputShapes map[string][]int64
}

// workloadPrefix begins the names of built-in networks.
const workloadPrefix = "workload:"

var formats = []string{"onnx", "relay", "torchscript"}

func (a *compileAction) Check(s *Session, args []string) error {
	if err := expect(&compileCommand, args, "MODEL"); err != nil {
		return err
	}
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if err := a.checkModel(args[0]); err != nil {
		return err
	}
	if err := a.checkOutputs(args[0]); err != nil {
		return err
	}
	return a.checkBackends(s)
}

func (a *compileAction) checkNumbers() error {
	switch {
	case a.optLevel < 0 || a.optLevel > 4:
		return fmt.Errorf("--opt-level %d: TVM has levels 0 to 4", a.optLevel)
	case a.samples < 1:
		return fmt.Errorf("--repeat %d: at least one sample must be taken", a.samples)
	case a.rounds < 1:
		return fmt.Errorf("--rounds %d: at least one round must be run", a.rounds)
	case a.quiet && a.verbose:
		return errors.New("--quiet and --verbose contradict each other")
	}
	return checkThreads(a.threads)
}

func (a *compileAction) checkModel(model string) (err error) {
	if a.format != "" && !slices.Contains(formats, a.format) {
		if near := nearest.Word(a.format, formats); near != "" {
			return fmt.Errorf("--format %s is not known: did you mean %s?", a.format, near)
		}
		return fmt.Errorf("--format %s is not known (formats: %s)", a.format, strings.Join(formats, ", "))
	}
	if a.inputShapes, err = parseShapes(a.shapes); err != nil {
		return err
	}
	if name, isWorkload := strings.CutPrefix(model, workloadPrefix); isWorkload {
		switch {
		case name == "":
			return errors.New("workload: needs a name, as in workload:resnext50_32x4d")
		case a.params != "":
			return fmt.Errorf("%s brings its own parameters; --params goes with a Relay program", model)
		case a.format != "":
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
	if a.params != "" {
		return checkReadable("--params", a.params)
	}
	return nil
}

// checkOutputs looks at every file that will be written, and that none of them is one that is read.
func (a *compileAction) checkOutputs(model string) error {
	if a.output == "" {
		return errors.New("where to write the executable is missing: -o FILE.tar or -o FILE.so")
	}
	if ext := filepath.Ext(a.output); ext != ".tar" && ext != ".so" {
		return fmt.Errorf("-o %s: the name must end in .tar (for collage run and tvmc run) or .so (for TVM's load_module)", a.output)
	}
	if err := atomicfile.CheckWritable(a.output); err != nil {
		return err
	}
	files := []struct{ what, path string }{{"MODEL", model}, {"--params", a.params}, {"--db", a.store}, {"-o", a.output},
		{"--plan-out", a.planOut}}
	for i, f := range files {
		for _, other := range files[:i] {
			if f.path != "" && other.path != "" && sameFile(f.path, other.path) {
				return fmt.Errorf("%s and %s are the same file %s", other.what, f.what, f.path)
			}
		}
	}
	if a.planOut != "" {
		if err := atomicfile.CheckWritable(a.planOut); err != nil {
			return err
		}
	}
	if a.store != "" {
		return a.checkStore()
	}
	return nil
}

func (a *compileAction) checkStore() error {
	info, err := os.Stat(a.store)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return atomicfile.CheckWritable(a.store)
	case err != nil:
		return fmt.Errorf("--db: %w", err)
	case info.IsDir():
		return fmt.Errorf("--db %s is a folder; give the name of a file", a.store)
	}
	file, err := os.OpenFile(a.store, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("--db: %w", err)
	}
	return file.Close()
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(infoA, infoB)
	}
	absoluteA, errA := filepath.Abs(a)
	absoluteB, errB := filepath.Abs(b)
	return errA == nil && errB == nil && absoluteA == absoluteB
}

// checkBackends says which of the backends are not known or cannot be used. Whether TVM can be used only the
// Python host knows.
func (a *compileAction) checkBackends(s *Session) error {
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	var names []string
	for _, name := range a.backends {
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
	a.backends = names
	for _, name := range names {
		backend, err := byoc.Lookup(name)
		if err != nil {
			return fmt.Errorf("--backends: %w", err)
		}
		if backend.Compiler() == "" && !s.Hosted {
			continue
		}
		if probe := backend.Probe(); !probe.Usable {
			return fmt.Errorf("--backends: %s cannot be used: %s\nTo get it: %s", name, probe.Reason, probe.Remedy)
		}
	}
	return nil
}

// parseShapes reads "name:1,3,224,224"; the name may hold colons (TensorFlow's do).
func parseShapes(texts []string) (map[string][]int64, error) {
	shapes := map[string][]int64{}
	for _, text := range texts {
		i := strings.LastIndexByte(text, ':')
		if i <= 0 {
			return nil, fmt.Errorf("--input-shape %s: give it as NAME:1,3,224,224", quoteIfNeeded(text))
		}
		name, list := text[:i], strings.Trim(text[i+1:], "[]() ")
		if _, twice := shapes[name]; twice {
			return nil, fmt.Errorf("--input-shape gives the shape of %s twice", name)
		}
		shape := []int64{}
		for field := range strings.SplitSeq(list, ",") {
			if field = strings.TrimSpace(field); field == "" && list == "" {
				continue
			}
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("--input-shape %s: %q is not a size (a whole number from 1 up)", text, field)
			}
			shape = append(shape, n)
		}
		shapes[name] = shape
	}
	return shapes, nil
}
