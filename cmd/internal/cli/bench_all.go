// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

var benchAllCommand = Command{
	Name:      "bench all",
	Arguments: "[MODEL ...]",
	Short:     "whole networks beside the engines that people use",
	Long: `Runs the paper's five networks, and any MODEL given, as Collage compiles them and on every peer that is installed: on the
same threads, with the same inputs, in float32, outputs compared with TVM's. Each engine is a process of its own, which is
stopped while it is not its turn; turns go round (A B C, B C A, ...). The table has medians, and ratios turn by turn with their
intervals. What is not installed is named, with how to get it.

tvm is plain TVM, untuned; tvm-collage TVM's own CollagePartition with oneDNN (it searches for minutes a network, so name it
in --peers); torch PyTorch as it is; torch-compile its compiler with frozen weights. Of those that compute more narrowly,
openvino-default is OpenVINO in the type that it chooses, openvino-int8 a model that NNCF has quantised, onnxruntime-int8
ONNX Runtime's static quantisation, torch-bf16 PyTorch's autocast.

Beside the peers, --alone runs backends of Collage alone, nothing searched, and --before what an earlier checkout of Collage
makes of the same networks with the backends that it takes by itself.

With --executables, NAME.tar or NAME.so in that folder is taken for the network NAME, and what has to be compiled is kept there
with its plan, and with what the engines took. --resume goes on where such a run was interrupted: networks that were run in the
same way on this machine are not run again. One that cannot be compiled or run is told, and the others follow; the exit code is
2 then. Where MODEL is NAME.onnx or NAME.WORD.onnx and NAME.pt2 lies beside it, torch and torch-compile run that. Engines that the Python with TVM has not are looked for in the one that COLLAGE_PEERS_PYTHON names, or in
.venv-peers beside its own virtual environment (make peers).`,
	Examples: []string{
		"bench all --rounds 21 --json all.json --svg all.svg",
		"bench all --networks bert_full,dcgan --peers tvm,openvino --threads 2",
		"bench all model.onnx --networks none --executables built",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &benchAllAction{}
		flags.StringSliceVar(&a.peers, "peers", []string{"tvm", "onnxruntime", "openvino", "torch", "torch-compile"},
			"the engines, as `NAMES` with commas; of "+strings.Join(peerNames(), ", "))
		a.benchNetworks.declare(flags)
		flags.StringVar(&a.executables, "executables", "",
			"take executables from `FOLDER`, and keep there what is compiled")
		flags.BoolVar(&a.resume, "resume", false, "do not run networks again that --executables has the figures of")
		flags.DurationVar(&a.searchLimit, "prototype-limit", 30*time.Minute,
			"give tvm-collage's search at most `TIME` a network")
		flags.StringSliceVar(&a.others.alone, "alone", nil,
			"also run each of these backends alone, as `NAMES` with commas")
		flags.StringVar(&a.others.before, "before", "",
			"also run what an earlier checkout of Collage, set up in `FOLDER`, makes of the networks")
		flags.BoolVar(&a.others.ablation, "ablation", false,
			"also run what parts of the search find, and each backend alone")
		flags.Lookup("ablation").Hidden = true // it is for those who work on the search: make bench-ablation
		a.declarePlacement(flags)
		a.declarePrecision(flags)
		flags.Lookup("backends").DefValue = "all that can be used"
		flags.IntVar(&a.compileRounds, "compile-rounds", 20, "compiling, run the finished networks `N` times each")
		flags.StringVar(&a.level, "level", string(settings.GraphLevel),
			"compiling, search up to `LEVEL`: graph or operator")
		flags.DurationVar(&a.searchTime, "search-time", settings.DefaultSearchTime,
			"compiling takes at most `TIME` a network")
		a.flags = flags
		return a
	},
}

type benchAllAction struct {
	benchNetworks
	flags         *pflag.FlagSet
	peers         []string
	others        benchOthers
	resume        bool
	compileRounds int
	searchLimit   time.Duration
	level         string
	searchTime    time.Duration
}

func peerNames() []string {
	var names []string
	for _, p := range bench.Peers {
		names = append(names, p.Name)
	}
	return names
}

func (a *benchAllAction) Check(s *Session, args []string) error {
	if err := a.checkNumbers(); err != nil {
		return err
	}
	switch {
	case a.compileRounds < 1:
		return fmt.Errorf("--compile-rounds %d: at least one round must be run", a.compileRounds)
	case a.level != string(settings.GraphLevel) && a.level != string(settings.OperatorLevel):
		return fmt.Errorf("--level %s: it is graph or operator", quoteIfNeeded(a.level))
	case a.searchTime <= 0:
		return fmt.Errorf("--search-time %v: name some time, as in 90s", a.searchTime)
	case a.resume && a.executables == "":
		return errors.New("--resume: name the folder that has the figures in --executables")
	}
	for _, name := range a.peers {
		if !slices.Contains(peerNames(), name) {
			if near := nearest.Word(name, peerNames()); near != "" {
				return fmt.Errorf("--peers: unknown engine %q: did you mean %q?", name, near)
			}
			return fmt.Errorf("--peers: unknown engine %q (known: %s)", name, strings.Join(peerNames(), ", "))
		}
	}
	if err := a.check(args); err != nil {
		return err
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	if err := a.checkAllBackends(s, a.flags); err != nil {
		return err
	}
	if a.others.ablation {
		a.others.alone = slices.DeleteFunc(slices.Clone(a.backends), func(name string) bool { return name == "tvm" })
		if a.skip {
			a.others.alone = slices.DeleteFunc(a.others.alone, func(name string) bool { return !usable(name) })
		}
	}
	return a.others.check()
}

// narrow says for the report how Collage was allowed to compute; "" for float32.
func (a *benchAllAction) narrow() string {
	limit := a.precision.Limit()
	if limit == (cost.Limit{}) {
		return ""
	}
	return fmt.Sprintf("up to %s, off by %g (%s) at most", cmp.Or(a.precision.Allowed, settings.PrecisionF32), limit.Most,
		cost.MeasureText(limit.Measure))
}

func (a *benchAllAction) Run(s *Session, _ []string) error {
	options, err := a.beginRuns(s)
	if err != nil {
		return err
	}
	options.Rounds = a.compileRounds
	options.Level, options.SearchTime = settings.Level(a.level), a.searchTime
	run := a.networkOptions(options)
	run.Narrow = a.narrow()
	run.Peers, run.Others, run.Keep, run.SearchLimit = a.peers, a.others.columns(), a.keep(), a.searchLimit
	run.Resume, run.Make = a.resume, func(ctx context.Context, n *bench.Network) error {
		if err := a.executable(ctx, options, n); err != nil {
			return err
		}
		return a.others.build(ctx, options, n, a.folder(options))
	}
	report, err := bench.RunNetworks(s.Context, a.runs, run)
	if report == nil || err != nil && len(report.Networks) == 0 {
		return err
	}
	// What was taken before an interrupt is not lost.
	if err != nil {
		s.setInterruptNote(fmt.Sprintf("the report has %d of %d networks", len(report.Networks), len(a.runs)))
	}
	if err := errors.Join(a.output.write(s, report), err); err != nil {
		return err
	}
	if failed := report.Summary.Failed; len(failed) > 0 {
		return fmt.Errorf("%d of %d networks could not be compiled or run: %s", len(failed), len(a.runs),
			strings.Join(failed, ", "))
	}
	return nil
}

// executable finds the network's executable, or compiles it.
func (a *benchAllAction) executable(ctx context.Context, options compile.Options, n *bench.Network) error {
	if a.findExecutable(n) {
		return nil
	}
	folder := a.folder(options)
	options.Output = filepath.Join(folder, n.Name+".tar")
	if a.others.ablation {
		if err := emptyStore(&options); err != nil {
			return err
		}
	}
	if err := compileKept(ctx, modelOf(options, n), filepath.Join(folder, n.Name+".plan.json")); err != nil {
		return err
	}
	n.Executable = options.Output
	p, err := plan.ReadFile(filepath.Join(folder, n.Name+".plan.json"))
	if err == nil {
		n.Describe(p)
	}
	return err
}

// folder is where executables are kept, for as long as the command runs where the user named none.
func (a *benchAllAction) folder(options compile.Options) string {
	if folder := a.keep(); folder != "" {
		return folder
	}
	return options.Temporary
}
