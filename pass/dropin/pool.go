// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/relay"
)

// poolEstimator measures in worker processes, where TVM's own estimator compiles with nvcc and loads the result into
// this process.
type poolEstimator struct {
	pool  *measure.Pool
	store *cost.Store
	env   cost.Environment
}

// newPoolEstimator starts no worker yet. The native target is compiled for; without one, this processor.
func newPoolEstimator(cfg *pass.Config, targets []*target) (*poolEstimator, error) {
	python := cfg.Python
	if python == "" {
		python = os.Getenv("COLLAGE_PYTHON")
	}
	if python == "" {
		return nil, errors.New("candidates are measured by Python workers, and no interpreter is known: set " +
			"COLLAGE_PYTHON")
	}
	settings := measure.Settings{Target: "llvm", OptLevel: 3, DisabledPasses: cfg.DisabledPasses, Threads: cfg.Threads,
		Samples: cfg.Samples}
	if settings.DisabledPasses == nil {
		settings.DisabledPasses = pass.DefaultDisabledPasses()
	}
	var tuned string
	if cfg.TuningLog != "" {
		digest, err := pass.TuningDigest(cfg.TuningLog)
		if err != nil {
			return nil, &pass.OptionError{Option: "tuning_log", Reason: "cannot be used: " + err.Error()}
		}
		if settings.TuningLog, err = filepath.Abs(cfg.TuningLog); err != nil {
			return nil, err
		}
		tuned = pass.Tuned(digest)
	}
	if native := slices.IndexFunc(targets, func(t *target) bool { return !t.external }); native >= 0 {
		settings.Target = targets[native].object.Text()
	}
	if cfg.OptLevel != nil {
		settings.OptLevel = *cfg.OptLevel
	}
	if settings.Threads == 0 {
		settings.Threads = runtime.NumCPU()
	}
	tvm, err := byoc.Lookup("tvm")
	if err != nil {
		return nil, err
	}
	disabled := slices.Sorted(slices.Values(settings.DisabledPasses))
	e := &poolEstimator{env: cost.Environment{Target: settings.Target, Device: cost.Device(), TVM: tvm.Probe().Version,
		Threads: settings.Threads, Options: strings.Join(
			append([]string{fmt.Sprintf("O%d", settings.OptLevel)}, disabled...), " -") + tuned}}
	path := cfg.Store
	if path == "" {
		if path, err = cost.DefaultPath(); err != nil {
			return nil, err
		}
	}
	if e.store, err = cost.OpenStore(path); err != nil {
		return nil, err
	}
	e.pool, err = measure.NewPool(measure.Options{Settings: settings, Python: python, Env: pass.WorkerEnvironment(),
		Store: e.store, Reference: "tvm", RetryFailures: cfg.RetryFailures, Poll: bridge.CheckSignals,
		BuildTimeout: cfg.BuildTimeout, RunTimeout: cfg.RunTimeout})
	if err != nil {
		e.store.Close()
		return nil, err
	}
	return e, nil
}

func (e *poolEstimator) close() error { return errors.Join(e.pool.Close(), e.store.Close()) }

// Estimate is not asked: the pool measures functions, not modules.
func (e *poolEstimator) Estimate(_, _ *bridge.Object) (float64, error) {
	return 0, errors.New("the worker pool measures candidates, not modules")
}

// estimate measures an option's region. symbol is its name where it is an external code generator's.
func (e *poolEstimator) estimate(f *function, o *option, symbol string) (float64, error) {
	function, err := o.workload.flat(f.graph, symbol)
	if err != nil {
		return 0, err
	}
	defer function.Release()
	v, err := bridge.Global("node.SaveJSON", function)
	if err != nil {
		return 0, err
	}
	text, err := v.Str()
	if err != nil {
		return 0, err
	}
	backend := "tvm"
	composites := make([]string, len(o.group.Parts))
	if o.external() {
		backend = o.target.name
		for i, p := range o.group.Parts {
			composites[i] = p.Composite
		}
	}
	digest := sha256.Sum256([]byte(o.group.Label + "\x00" +
		f.graph.Key(o.nodes, o.nodes[len(o.nodes)-1], relay.KeyOptions{})))
	key := cost.Key{Structure: "dropin:" + hex.EncodeToString(digest[:]), Backend: backend,
		Composite: strings.Join(composites, "+"), Environment: e.env}
	workload := &cost.Workload{Function: text, Compiler: o.workload.compiler}
	costs, err := e.pool.Estimate(context.Background(),
		[]cost.Request{{Key: key, Label: o.group.Label + " on " + o.target.name,
			Build: func() (*cost.Workload, error) { return workload, nil }}})
	if err != nil {
		return 0, err
	}
	return costs[0].Estimate() / 1e3, nil
}
