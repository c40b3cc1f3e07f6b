// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"errors"
	"runtime"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/settings"
)

// Measuring is what candidates are measured with: worker processes, and the store that has what is known. Close it.
type Measuring struct {
	*measure.Pool
	// Environment is what the costs' keys say beside the backend.
	Environment cost.Environment
	store       *cost.Store
}

// OpenMeasuring makes ready to measure candidates of modules that did not go through Normalise, as cfg says it; of its
// backends only those that take anything are looked at. No worker is started yet. Errors that are the caller's to mend
// are *OptionError.
func OpenMeasuring(cfg settings.Config) (*Measuring, error) {
	cfg, err := cfg.Resolved()
	if err != nil {
		return nil, err
	}
	env, err := Environment(&cfg, nil)
	if err != nil {
		return nil, err
	}
	m, err := MeasuringWith(&cfg, cfg.DisabledPasses, nil)
	if err != nil {
		return nil, err
	}
	m.Environment = env
	return m, nil
}

// MeasuringWith is OpenMeasuring for a configuration that is resolved, without the environment. disabled are the passes
// that builds leave out.
func MeasuringWith(cfg *settings.Config, disabled []string, progress func(measure.Event)) (*Measuring, error) {
	interpreter, err := Python(cfg)
	if err != nil {
		return nil, err
	}
	store, err := cost.OpenStore(cfg.Store)
	if err != nil {
		return nil, err
	}
	pool, err := measure.NewPool(measure.Options{
		Settings: measure.Settings{Target: cfg.Target, OptLevel: *cfg.OptLevel, DisabledPasses: disabled,
			TuningLog: cfg.TuningLog, Threads: cfg.Threads, Samples: cfg.Samples},
		Builders: min(runtime.NumCPU(), mostBuilders),
		Python:   interpreter, Env: WorkerEnvironment(), Store: store, Reference: "tvm",
		BuildTimeout: cfg.BuildTimeout, RunTimeout: cfg.RunTimeout, RetryFailures: cfg.RetryFailures,
		MemoryLimit: cfg.MemoryLimit, Trace: cfg.Recorder,
		Poll:     bridge.CheckSignals,
		Progress: progress,
	})
	if err != nil {
		store.Close()
		return nil, err
	}
	return &Measuring{Pool: pool, store: store}, nil
}

// Close ends the workers. What was measured is in the store.
func (m *Measuring) Close() error { return errors.Join(m.Pool.Close(), m.store.Close()) }

// mostBuilders is how many workers compile side by side at most: each holds some 300 MB.
const mostBuilders = 4
