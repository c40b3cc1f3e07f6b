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
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

var compileCommand = Command{
	Name:      "compile",
	Arguments: "MODEL -o FILE [--backends tvm,dnnl,native]",
	Short:     "place a network on backends, compile it, keep what runs fastest",
	Long: `Reads a network, measures what each of its parts takes on each backend, places every operator where that is
cheapest, and has TVM compile the result. The placement is then run in turn with each backend by itself and with TVM
alone, and the fastest of them is written. Outputs are checked against TVM's before anything is kept, and TVM's against
another engine's on the same inputs: ONNX Runtime's where it is installed (else those of onnx's reference evaluator, where
that is quick enough), PyTorch's and LiteRT's for files of theirs. Where they differ, the first operator that does is named.

MODEL is an ONNX file, a Relay program (text or JSON; its parameters with --params), a TorchScript file (where torch
is installed), a .pt2 file of torch.export (where torch and onnxscript are), a TensorFlow Lite file (where the package
tflite is), or workload:NAME for a network that is built in.

FILE ends in .tar (what collage run and tvmc run take) or in .so (a graph executor factory for TVM's load_module).

The search has two levels. Both build every backend alone first, with each part timed in its place, and then measure
by themselves the parts that might gain. The operator level places once by that and by what borders between backends
take. The graph level places again and again by what it learns from whole networks, and tries changes to the best,
until --trials are used up or nothing improves; --no-graph-search does without it. All of it takes --search-time at
most.

At the end it says in three lines what was gained, what runs where, and where the file is. --verbose has tables of the
regions, candidates and finalists; collage explain has those of a plan (--plan-out).

Ctrl-C ends the search, and the best network so far is written; a second one quits (exit code 130). What was measured is
kept in the cost store and is not measured again: a search that was stopped goes on from there.

With --plan nothing is measured and nothing chosen: what the plan says is built, and its outputs are compared with TVM's.
A plan that collage compile wrote is that of the network that was kept, whichever it was. A plan is refused where the
cost store knows that one of its candidates fails here (--retry-failures builds it all the same).

With --strict what would be a warning ends the command with exit code 3, and nothing is written: before anything is built
where it can be known then. With --dry-run the model is read, and what would be done with it is told.`,
	Examples: []string{
		"compile model.onnx --backends tvm,dnnl,native -o model.tar",
		"compile model.onnx --input-shape data:1,3,224,224 -o model.so",
		"compile network.relay --params network.params -o model.tar --plan-out plan.json",
		"compile model.onnx --pin nn.dense=dnnl --forbid %12=dnnl -o model.tar",
		"compile model.onnx --forbid nn.conv2d=native.winograd -o model.tar",
		"compile model.onnx --plan plan.json -o model.tar",
		"compile model.onnx --backends tvm,dnnl,mkl --dry-run",
		"compile model.onnx -o model.tar --report placement",
		"compile workload:resnext50_32x4d -o model.tar --json",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &compileAction{flags: flags}
		flags.StringVarP(&a.output, "output", "o", "", "write the executable to `FILE` (.tar or .so)")
		a.declareModel(flags)
		a.declarePlacement(flags)
		a.declareStrict(flags)
		a.declarePrecision(flags)
		declareOption(flags, "rounds", &a.rounds)
		declareOption(flags, "level", &a.level)
		flags.BoolVar(&a.noGraph, "no-graph-search", false, "the same as --level operator")
		declareOption(flags, "search_time", &a.searchTime)
		declareOption(flags, "trials", &a.trials)
		flags.StringVar(&a.memory, "memory-limit-executable", "",
			"keep no network that takes more than `SIZE` (512M, 2G) of memory when it runs")
		flags.StringVar(&a.planOut, "plan-out", "", "write the plan to `FILE` (JSON)")
		a.declarePage(flags)
		a.declareTrace(flags)
		a.declarePictures(flags)
		flags.StringVar(&a.planIn, "plan", "",
			"build the plan in `FILE`, measuring nothing; what is placed how stands there")
		flags.BoolVar(&a.noVerify, "no-verify", false,
			"with --plan: do not compare the outputs with TVM's, which takes a build of plain TVM")
		flags.BoolVar(&a.noCheckImport, "no-check-import", false,
			"do not hold what TVM read of a file against what ONNX Runtime (or onnx's reference evaluator) or PyTorch "+
				"makes of it")
		declareDryRun(flags, &a.dry)
		a.declareOutput(flags)
		return a
	},
}

type compileAction struct {
	modelFlags
	pageFlag
	pictureFlags
	flags                   *pflag.FlagSet
	output, planOut, planIn string
	rounds                  int
	level, memory           string
	noGraph, noVerify       bool
	noCheckImport, dry      bool
	searchTime              time.Duration
	trials                  int

	// memoryLimit is --memory-limit-executable in bytes.
	memoryLimit int64

	// replayed is the plan of --plan.
	replayed *plan.Plan
}

// decidedByPlan are the flags that --plan answers.
var decidedByPlan = []string{"backends", "device", "pin", "forbid", "target", "threads", "opt-level", "repeat", "exhaustive",
	"skip-unusable", "rounds", "level", "no-graph-search", "search-time", "trials", "memory-limit-executable",
	"precision", "max-error", "error-measure", "calibration-method", "bias-correction"}

func (a *compileAction) Check(s *Session, args []string) error {
	if err := expect(&compileCommand, args, "MODEL"); err != nil {
		return err
	}
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if a.rounds < 1 {
		return fmt.Errorf("--rounds %d: at least one round must be run", a.rounds)
	}
	if err := a.checkSearch(); err != nil {
		return err
	}
	if err := a.checkModel(args[0]); err != nil {
		return err
	}
	if err := a.checkOutputs(args[0]); err != nil {
		return err
	}
	if a.planIn != "" {
		return a.checkPlan(s)
	}
	if a.noVerify {
		return errors.New("--no-verify goes with --plan: outputs are compared before anything is chosen")
	}
	if err := a.checkBackends(s); err != nil {
		return err
	}
	asked := settings.Config{Strict: a.strict, Level: settings.Level(a.level), Precision: a.precision}
	if typed(a.flags, "trials") {
		asked.Trials = a.trials
	}
	return asked.CheckStrict()
}

// checkSearch looks at what is said about the graph level.
func (a *compileAction) checkSearch() (err error) {
	levels := []string{string(settings.GraphLevel), string(settings.OperatorLevel)}
	switch {
	case !slices.Contains(levels, a.level):
		if near := nearest.Word(a.level, levels); near != "" {
			return fmt.Errorf("--level %s is not known: did you mean %s?", quoteIfNeeded(a.level), near)
		}
		return fmt.Errorf("--level %s is not known (levels: %s)", quoteIfNeeded(a.level), strings.Join(levels, ", "))
	case a.noGraph && typed(a.flags, "level") && a.level == string(settings.GraphLevel):
		return errors.New("--level graph and --no-graph-search contradict each other")
	case a.searchTime <= 0:
		return fmt.Errorf("--search-time %v: name some time, as in 90s", a.searchTime)
	case a.trials < 0:
		return fmt.Errorf("--trials %d: name at least 1, or 0 for no limit", a.trials)
	}
	if a.noGraph {
		a.level = string(settings.OperatorLevel)
	}
	if a.memory != "" && a.level == string(settings.OperatorLevel) {
		return errors.New("--memory-limit-executable needs the graph level: leave --level operator " +
			"(--no-graph-search) out")
	}
	if a.memoryLimit, err = parseSize(a.memory); err != nil {
		return fmt.Errorf("--memory-limit-executable: %w", err)
	}
	return nil
}

// sizeUnits are what a size may end with.
var sizeUnits = map[string]float64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

// parseSize reads "512M"; "" is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	unit := strings.TrimLeft(text, "0123456789.")
	number, err := strconv.ParseFloat(text[:len(text)-len(unit)], 64)
	unit = strings.ToUpper(strings.TrimSpace(unit))
	factor, known := sizeUnits[strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "I")]
	if err != nil || !known || !(number*factor >= 1) || number*factor > 1<<60 {
		return 0, fmt.Errorf("%s is not a size: give it as 512M or 2G", quoteIfNeeded(text))
	}
	return int64(number * factor), nil
}

// checkPlan reads the plan that is to be built, and looks whether it can be built here.
func (a *compileAction) checkPlan(s *Session) (err error) {
	for _, name := range decidedByPlan {
		if typed(a.flags, name) {
			return fmt.Errorf("--%s does not go with --plan: the plan says it (collage plan makes another one)", name)
		}
	}
	if err := checkReadable("--plan", a.planIn); err != nil {
		return err
	}
	if a.replayed, err = plan.ReadFile(a.planIn); err != nil {
		return err
	}
	if err := builtin.RegisterAll(); err != nil {
		return err
	}
	for _, b := range a.replayed.Backends {
		if b.Regions == 0 {
			continue
		}
		backend, err := byoc.Lookup(b.Name)
		if err != nil && !s.Hosted && os.Getenv(registerEnv) != "" {
			continue // the Python host knows more
		}
		if err != nil {
			return fmt.Errorf("--plan %s: %w", a.planIn, err)
		}
		if err := checkUsable(s, "--plan "+a.planIn, backend); err != nil {
			return err
		}
	}
	return nil
}

// checkOutputs looks at every file that will be written, and that none of them is one that is read.
func (a *compileAction) checkOutputs(model string) error {
	if err := a.checkExecutable(); err != nil {
		return err
	}
	err := checkDifferent(usedFile{"MODEL", model}, usedFile{"--params", a.params}, usedFile{"--db", a.store},
		usedFile{"--plan", a.planIn}, usedFile{"-o", a.output}, usedFile{"--plan-out", a.planOut},
		usedFile{"--report", a.path()}, usedFile{"--trace", a.trace},
		usedFile{"--svg", a.svg}, usedFile{"--png", a.png})
	if err != nil {
		return err
	}
	if a.planOut != "" {
		if err := atomicfile.CheckWritable(a.planOut); err != nil {
			return err
		}
	}
	if err := a.checkPage(); err != nil {
		return err
	}
	if err := a.checkPictures(); err != nil {
		return err
	}
	if err := a.checkTrace(); err != nil {
		return err
	}
	return a.checkStore()
}

// checkExecutable looks at -o, which a dry run may do without.
func (a *compileAction) checkExecutable() error {
	if a.output == "" && a.dry {
		return nil
	}
	if a.output == "" {
		return errors.New("where to write the executable is missing: -o FILE.tar or -o FILE.so")
	}
	if ext := filepath.Ext(a.output); ext != ".tar" && ext != ".so" {
		return fmt.Errorf("-o %s: the name must end in .tar (for collage run and tvmc run) or .so (for TVM's "+
			"load_module)", a.output)
	}
	return atomicfile.CheckWritable(a.output)
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
