// SPDX-License-Identifier: Apache-2.0

// Package workers says how worker processes are started, for what their costs are valid, and opens what candidates are
// measured with: OpenMeasuring.
package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
)

// canonicalTarget is the target with all that it implies, so that two spellings of one target share their costs.
func canonicalTarget(target string) (string, error) {
	v, err := bridge.Global("target.Target", target)
	if err != nil {
		return "", fmt.Errorf("the target %q: %w", target, err)
	}
	o, err := v.Object()
	if err != nil {
		return "", err
	}
	defer o.Release()
	return o.Text(), nil
}

// Environment is the part of the costs' keys that does not depend on the backend.
func Environment(cfg *settings.Config, backends []byoc.Backend) (cost.Environment, error) {
	target, err := canonicalTarget(cfg.Target)
	if err != nil {
		return cost.Environment{}, err
	}
	env := cost.Environment{Target: target, Device: cost.Device(), Threads: cfg.Threads, Options: buildOptions(cfg)}
	for _, b := range backends {
		if b.TakesAnything() {
			env.TVM = b.Probe().Version
		}
	}
	if env.TVM == "" {
		tvm, err := byoc.Lookup("tvm")
		if err != nil {
			return cost.Environment{}, err
		}
		env.TVM = tvm.Probe().Version
	}
	return env, nil
}

// buildOptions says what else changes the code that relay.build makes.
func buildOptions(cfg *settings.Config) string {
	text := fmt.Sprintf("O%d", *cfg.OptLevel)
	disabled := slices.Clone(cfg.DisabledPasses)
	slices.Sort(disabled)
	for _, name := range slices.Compact(disabled) {
		text += " -" + name
	}
	return text + settings.Tuned(cfg.DigestOfLog)
}

func LibraryOf(b byoc.Backend) string {
	probe := b.Probe()
	parts := append([]string{probe.Library, probe.Version}, probe.Features...)
	if r, ok := b.(byoc.Remote); ok {
		parts = append(parts, r.Hardware())
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// Python is the interpreter of the workers.
func Python(cfg *settings.Config) (string, error) {
	if cfg.Python != "" {
		return cfg.Python, nil
	}
	if named := os.Getenv("COLLAGE_PYTHON"); named != "" {
		return named, nil
	}
	return "", errors.New("candidates are measured by Python workers, and no interpreter is known: set COLLAGE_PYTHON " +
		"or Config.Python to one that has tvm and collage")
}

// Ask has another engine answer what a network's outputs are (witness.Ask), in the workers' environment. The
// interpreter is as Config.Python.
func Ask(interpreter string, question json.RawMessage, folder string) (*witness.Witness, error) {
	interpreter, err := Python(&settings.Config{Python: interpreter})
	if err != nil {
		return nil, err
	}
	return witness.Ask(interpreter, WorkerEnvironment(), question, folder)
}

// workerPath is what WorkerPathFunction was given.
var workerPath atomic.Pointer[[]string]

// WorkerEnvironment is what the workers' environment has beside this process's: PYTHONPATH with the folders of
// WorkerPathFunction in front, and without relative folders, since workers run in a folder of their own; and how the
// backends that were registered from Python are set up there.
func WorkerEnvironment() []string {
	var folders []string
	if set := workerPath.Load(); set != nil {
		folders = append(folders, *set...)
	}
	folders = append(folders, filepath.SplitList(os.Getenv("PYTHONPATH"))...)
	for i, folder := range folders {
		if absolute, err := filepath.Abs(folder); err == nil {
			folders[i] = absolute
		}
	}
	environment := []string{workerMark + "=1"}
	if len(folders) > 0 {
		environment = append(environment, "PYTHONPATH="+strings.Join(folders, string(filepath.ListSeparator)))
	}
	var setups []string
	for _, b := range byoc.All() {
		if w, ok := b.(byoc.WorkerSetup); ok && w.WorkerSetup() != "" {
			setups = append(setups, w.WorkerSetup())
		}
	}
	if len(setups) > 0 {
		environment = append(environment, workerBackends+"=["+strings.Join(setups, ",")+"]")
	}
	return environment
}

// The variables by which collage.workerside (Python) knows that it is in a worker, and what it has to set up there.
const (
	workerMark     = "COLLAGE_WORKER"
	workerBackends = "COLLAGE_WORKER_BACKENDS"
)

// SetWorkerPath has the workers' Python look in these folders first (WorkerPathFunction).
func SetWorkerPath(folders []string) { workerPath.Store(&folders) }
