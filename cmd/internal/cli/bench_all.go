// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/plan"
)

// peersPythonEnv names the interpreter of engines that the one with TVM has not.
const peersPythonEnv = "COLLAGE_PEERS_PYTHON"

// paperNetworks are those of the paper.
var paperNetworks = []string{"bert_full", "dcgan", "nasneta", "resnet50_3d", "resnext50_32x4d"}

var benchAllCommand = Command{
	Name:      "bench all",
	Arguments: "[MODEL ...]",
	Short:     "whole networks beside the engines that people use",
	Long: `Runs the paper's five networks, and any MODEL given, as Collage compiles them and on every peer that is installed: on the
same threads, with the same inputs, in float32, outputs compared with TVM's. Each engine is a process of its own, which is
stopped while it is not its turn; turns go round (A B C, B C A, ...). The table has medians, and ratios turn by turn with their
intervals. What is not installed is named, with how to get it.

tvm is plain TVM, untuned; tvm-collage TVM's own CollagePartition with oneDNN (it searches for minutes a network, so name it
in --peers); torch PyTorch as it is; torch-compile its compiler with frozen weights.

With --executables, NAME.tar or NAME.so in that folder is taken for the network NAME, and what has to be compiled is kept there
with its plan. Engines that the Python with TVM has not are looked for in the one that COLLAGE_PEERS_PYTHON names, or in
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
		flags.StringSliceVar(&a.networks, "networks", paperNetworks, "built-in networks, as `NAMES` with commas; none for only the models given")
		flags.IntVar(&a.rounds, "rounds", 15, "give each engine `N` turns")
		flags.DurationVar(&a.turn, "turn", 300*time.Millisecond, "a turn lasts at least `TIME`, and three calls")
		flags.StringVar(&a.executables, "executables", "", "take executables from `FOLDER`, and keep there what is compiled")
		flags.DurationVar(&a.searchLimit, "prototype-limit", 30*time.Minute, "give tvm-collage's search at most `TIME` a network")
		a.declareModel(flags)
		a.declarePlacement(flags)
		flags.Lookup("backends").DefValue = "all that can be used"
		flags.IntVar(&a.compileRounds, "compile-rounds", 20, "compiling, run the finished networks `N` times each")
		flags.StringVar(&a.level, "level", string(compile.GraphLevel), "compiling, search up to `LEVEL`: graph or operator")
		flags.DurationVar(&a.searchTime, "search-time", graphlevel.DefaultTime, "compiling, the graph level's search takes about `TIME` a network")
		flags.Uint64Var(&a.seed, "seed", 0, "`SEED` of the search's random numbers")
		a.output.declare(flags)
		a.flags = flags
		return a
	},
}

type benchAllAction struct {
	modelFlags
	flags                 *pflag.FlagSet
	peers, networks       []string
	rounds, compileRounds int
	turn, searchLimit     time.Duration
	level                 string
	searchTime            time.Duration
	seed                  uint64
	executables           string
	output                benchOutput
	// runs are the networks of Check.
	runs []bench.Network
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
	case a.rounds < 1:
		return fmt.Errorf("--rounds %d: at least one turn must be run", a.rounds)
	case a.compileRounds < 1:
		return fmt.Errorf("--compile-rounds %d: at least one round must be run", a.compileRounds)
	case a.level != string(compile.GraphLevel) && a.level != string(compile.OperatorLevel):
		return fmt.Errorf("--level %s: it is graph or operator", quoteIfNeeded(a.level))
	case a.searchTime <= 0:
		return fmt.Errorf("--search-time %v: name some time, as in 90s; --level operator does without", a.searchTime)
	case a.turn < 0 || a.turn > time.Minute:
		return fmt.Errorf("--turn %v: a turn lasts up to a minute", a.turn)
	}
	for _, name := range a.peers {
		if !slices.Contains(peerNames(), name) {
			if near := nearest.Word(name, peerNames()); near != "" {
				return fmt.Errorf("--peers: unknown engine %q: did you mean %q?", name, near)
			}
			return fmt.Errorf("--peers: unknown engine %q (known: %s)", name, strings.Join(peerNames(), ", "))
		}
	}
	if err := a.output.check(); err != nil {
		return err
	}
	if err := a.collect(args); err != nil {
		return err
	}
	if a.executables != "" {
		if info, err := os.Stat(a.executables); err != nil || !info.IsDir() {
			return fmt.Errorf("--executables %s: there is no such folder", a.executables)
		}
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	if a.flags.Changed("backends") {
		return a.checkBackends(s)
	}
	names, _, err := usableBackends()
	a.backends = names
	return err
}

// collect makes the list of networks.
func (a *benchAllAction) collect(models []string) error {
	a.runs = nil
	if !slices.Equal(a.networks, []string{"none"}) {
		for _, name := range a.networks {
			a.runs = append(a.runs, bench.Network{Name: name, Model: workloadPrefix + name})
		}
	}
	for _, model := range models {
		if err := a.checkModel(model); err != nil {
			return err
		}
		name, isWorkload := strings.CutPrefix(model, workloadPrefix)
		n := bench.Network{Name: name, Model: model}
		if !isWorkload {
			path, err := filepath.Abs(model)
			if err != nil {
				return err
			}
			n = bench.Network{Name: strings.TrimSuffix(filepath.Base(model), filepath.Ext(model)), Model: path, Params: a.params,
				Format: a.format, InputShapes: a.inputShapes}
		}
		a.runs = append(a.runs, n)
	}
	if len(a.runs) == 0 {
		return errors.New("there is no network to run: name a MODEL, or some in --networks")
	}
	seen := map[string]bool{}
	for _, n := range a.runs {
		if seen[n.Name] {
			return fmt.Errorf("two networks are named %s; rename a file", n.Name)
		}
		seen[n.Name] = true
	}
	return nil
}

func (a *benchAllAction) Run(s *Session, _ []string) error {
	a.verbose, a.quiet = a.output.verbose, a.output.quiet
	options, err := a.begin(s, a.runs[0].Model, "no report was written")
	if err != nil {
		return err
	}
	temporary, err := s.temporaryFolder()
	if err != nil {
		return err
	}
	options.Temporary, options.Rounds = temporary, a.compileRounds
	threads := a.threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	options.Threads = threads
	options.Level, options.SearchTime, options.Seed = compile.Level(a.level), a.searchTime, a.seed
	for i := range a.runs {
		if err := a.executable(s, options, &a.runs[i], temporary); err != nil {
			return fmt.Errorf("%s: %w", a.runs[i].Name, err)
		}
	}
	report, err := bench.RunNetworks(s.Context, a.runs, bench.NetworkOptions{Peers: a.peers, Rounds: a.rounds, Threads: threads,
		Turn: a.turn, Python: options.Python, EnginesPython: peersPython(options.Python), Env: pass.WorkerEnvironment(),
		Keep: a.keep(), SearchLimit: a.searchLimit, Temporary: temporary, Progress: options.Progress})
	if err != nil {
		return err
	}
	return a.output.write(s, report)
}

// keep is the folder of executables as an absolute path; "" for none.
func (a *benchAllAction) keep() string {
	if a.executables == "" {
		return ""
	}
	path, err := filepath.Abs(a.executables)
	if err != nil {
		return ""
	}
	return path
}

// executable finds the network's executable, or compiles it.
func (a *benchAllAction) executable(s *Session, options compile.Options, n *bench.Network, temporary string) error {
	folder := a.keep()
	if folder != "" {
		for _, ext := range []string{".tar", ".so"} {
			path := filepath.Join(folder, n.Name+ext)
			if _, err := os.Stat(path); err == nil {
				n.Executable = path
				// A plan beside it says what it is; without one that is not known.
				if p, err := plan.ReadFile(filepath.Join(folder, n.Name+".plan.json")); err == nil {
					n.Describe(p)
				}
				return nil
			}
		}
	} else {
		folder = temporary
	}
	n.Executable = filepath.Join(folder, n.Name+".tar")
	options.Model, options.Params, options.Format, options.InputShapes = n.Model, n.Params, n.Format, n.InputShapes
	options.Output = n.Executable
	result, err := compile.Compile(s.Context, options)
	if err != nil {
		return err
	}
	n.Describe(result.Plan)
	return writePlan(filepath.Join(folder, n.Name+".plan.json"), result.Plan)
}

// peersPython is the interpreter of engines that are installed apart; "" where there is none.
func peersPython(python string) string {
	if named := os.Getenv(peersPythonEnv); named != "" {
		return named
	}
	beside := filepath.Join(filepath.Dir(python), "..", "..", ".venv-peers", "bin", "python")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return ""
}
