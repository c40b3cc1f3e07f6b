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
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/workers"
)

// peersPythonEnv names the interpreter of engines that the one with TVM has not.
const peersPythonEnv = "COLLAGE_PEERS_PYTHON"

// paperNetworks are those of the paper.
var paperNetworks = []string{"bert_full", "dcgan", "nasneta", "resnet50_3d", "resnext50_32x4d"}

// benchNetworks are the flags of the benchmarks that run whole networks.
type benchNetworks struct {
	modelFlags
	networks    []string
	rounds      int
	turn        time.Duration
	executables string
	output      benchOutput
	// runs are the networks, after check.
	runs []bench.Network
}

func (b *benchNetworks) declare(flags *pflag.FlagSet) {
	flags.StringSliceVar(&b.networks, "networks", paperNetworks,
		"built-in networks, as `NAMES` with commas; none for only the models given")
	flags.IntVar(&b.rounds, "rounds", 15, "give each engine `N` turns")
	flags.DurationVar(&b.turn, "turn", 300*time.Millisecond, "a turn lasts at least `TIME`, and three calls")
	b.declareModel(flags)
	b.output.declare(flags)
}

// check checks the flags, and makes the list of networks of them and of the models given.
func (b *benchNetworks) check(models []string) error {
	switch {
	case b.rounds < 1:
		return fmt.Errorf("--rounds %d: at least one turn must be run", b.rounds)
	case b.turn < 0 || b.turn > time.Minute:
		return fmt.Errorf("--turn %v: a turn lasts up to a minute", b.turn)
	}
	if err := b.output.check(); err != nil {
		return err
	}
	if err := b.collect(models); err != nil {
		return err
	}
	if b.executables != "" {
		if info, err := os.Stat(b.executables); err != nil || !info.IsDir() {
			return fmt.Errorf("--executables %s: there is no such folder", b.executables)
		}
	}
	return nil
}

// collect makes the list of networks.
func (b *benchNetworks) collect(models []string) error {
	b.runs = nil
	if !slices.Equal(b.networks, []string{"none"}) {
		for _, name := range b.networks {
			b.runs = append(b.runs, bench.Network{Name: name, Model: workloadPrefix + name})
		}
	}
	for _, model := range models {
		if err := b.checkModel(model); err != nil {
			return err
		}
		name, isWorkload := strings.CutPrefix(model, workloadPrefix)
		n := bench.Network{Name: name, Model: model}
		if !isWorkload {
			path, err := filepath.Abs(model)
			if err != nil {
				return err
			}
			n = bench.Network{Name: strings.TrimSuffix(filepath.Base(model), filepath.Ext(model)), Model: path,
				Given: model, Params: b.params, Format: b.format, InputShapes: b.inputShapes}
		}
		b.runs = append(b.runs, n)
	}
	if len(b.runs) == 0 {
		return errors.New("there is no network to run: name a MODEL, or some in --networks")
	}
	seen := map[string]bool{}
	for _, n := range b.runs {
		if seen[n.Name] {
			return fmt.Errorf("two networks are named %s; rename a file", n.Name)
		}
		seen[n.Name] = true
	}
	return nil
}

// checkAllBackends checks the backends that are named, or finds all that can be used.
func (b *benchNetworks) checkAllBackends(s *Session, flags *pflag.FlagSet) error {
	if flags.Changed("backends") {
		return b.checkBackends(s)
	}
	names, _, err := usableBackends()
	if b.backends = names; err != nil {
		return err
	}
	return b.checkRules()
}

// beginRuns begins the command's work; the options have a temporary folder and the number of threads.
func (b *benchNetworks) beginRuns(s *Session) (compile.Options, error) {
	b.verbose, b.quiet = b.output.verbose, b.output.quiet
	options, err := b.begin(s, b.runs[0].Model, "no report was written")
	if err != nil {
		return options, err
	}
	if options.Temporary, err = s.temporaryFolder(); err != nil {
		return options, err
	}
	if options.Threads == 0 {
		options.Threads = runtime.NumCPU()
	}
	return options, nil
}

// networkOptions say how the networks are run.
func (b *benchNetworks) networkOptions(options compile.Options) bench.NetworkOptions {
	return bench.NetworkOptions{Rounds: b.rounds, Turn: b.turn, Threads: options.Threads, Python: options.Python,
		EnginesPython: peersPython(options.Python), Env: workers.WorkerEnvironment(), Temporary: options.Temporary,
		Progress: options.Progress}
}

// modelOf are the options with a network as the model.
func modelOf(options compile.Options, n *bench.Network) compile.Options {
	options.Model, options.Params, options.Format, options.InputShapes = n.Model, n.Params, n.Format, n.InputShapes
	return options
}

// keep is the folder of executables as an absolute path; "" for none.
func (b *benchNetworks) keep() string {
	if b.executables == "" {
		return ""
	}
	path, err := filepath.Abs(b.executables)
	if err != nil {
		return ""
	}
	return path
}

// findExecutable looks for the network in the folder of executables.
func (b *benchNetworks) findExecutable(n *bench.Network) bool {
	folder := b.keep()
	if folder == "" {
		return false
	}
	for _, ext := range []string{".tar", ".so"} {
		path := filepath.Join(folder, n.Name+ext)
		if _, err := os.Stat(path); err == nil {
			n.Executable = path
			// A plan beside it says what it is; without one that is not known.
			if p, err := plan.ReadFile(filepath.Join(folder, n.Name+".plan.json")); err == nil {
				n.Describe(p)
			}
			return true
		}
	}
	return false
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
