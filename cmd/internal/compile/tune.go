// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/plan"
)

// Tuning is a model that has been placed, for TVM's tuners. Release it.
type Tuning struct {
	// Plan is the operator level's placement.
	Plan *plan.Plan
	// Tunables are worth tuning, those first that promise most.
	Tunables []pass.Tunable

	c *compilation
}

// TuneOptions say how one computation is tuned.
type TuneOptions struct {
	// Tuner is one of python/collage/tune.py's; "" lets it choose.
	Tuner string
	// Trials are made at most, those of earlier runs included.
	Trials int
	// Log is the tuning log, TrialsLog AutoTVM's file of all trials.
	Log, TrialsLog string
	// Progress is told after each trial; milliseconds is the best time so far, 0 where there is none. An error of it ends
	// the search.
	Progress func(done, total int, milliseconds float64) error
}

// TuneResult is what became of one computation.
type TuneResult struct {
	Tuner string   `json:"tuner"`
	Tasks []string `json:"tasks"`
	// Trials were made, those of earlier runs included; Failed of them did not work.
	Trials int `json:"trials"`
	Failed int `json:"failed"`
	// Default and Tuned are the milliseconds of the computation as TVM makes it by itself, and with what was found.
	Default float64 `json:"default_ms"`
	Tuned   float64 `json:"tuned_ms"`
	// Kept says that the log has what was found; it has not where that is no faster.
	Kept bool `json:"kept"`
}

// OpenTuning reads and places a model and says what is worth tuning. Looked at are the options of Decide.
func OpenTuning(ctx context.Context, options Options) (*Tuning, error) {
	c := &compilation{Options: options, ctx: ctx}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&ModelInfo{}); err != nil {
		return nil, err
	}
	config, step := c.placementConfig()
	placed, p, err := pass.Partition(c.module, config)
	if err != nil {
		c.module.Release()
		return nil, err
	}
	placed.Release()
	c.donePlacing(step(), p)
	c.plan, c.target = p, p.Environment.Target
	return &Tuning{Plan: p, Tunables: pass.Tunables(p), c: c}, nil
}

// Release frees the model.
func (t *Tuning) Release() { t.c.module.Release() }

// Tune has TVM tune one of the Tunables.
func (t *Tuning) Tune(tunable *pass.Tunable, options TuneOptions) (*TuneResult, error) {
	w, err := pass.TunableWorkload(t.c.module, tunable)
	if err != nil {
		return nil, err
	}
	tell := func(args []bridge.Value) (any, error) {
		if err := t.c.ctx.Err(); err != nil {
			return nil, err
		}
		if len(args) != 3 {
			return nil, fmt.Errorf("TypeError: the progress of tuning takes 3 arguments, got %d", len(args))
		}
		done, err := args[0].Int()
		if err != nil {
			return nil, err
		}
		total, err := args[1].Int()
		if err != nil {
			return nil, err
		}
		best, err := args[2].Float()
		if err != nil {
			return nil, err
		}
		return nil, options.Progress(int(done), int(total), best)
	}
	spec, err := json.Marshal(map[string]any{
		"function": w.Function, "constants": w.Constants, "target": t.c.target, "opt_level": t.c.OptLevel,
		"disabled_passes": disabledPasses, "threads": t.c.Threads, "tuner": options.Tuner, "trials": options.Trials,
		"log": options.Log, "trials_log": options.TrialsLog,
	})
	if err != nil {
		return nil, err
	}
	value, err := bridge.Global("collage.host.tune", string(spec), tell)
	if t.c.ctx.Err() != nil {
		return nil, t.c.ctx.Err()
	}
	if err != nil {
		return nil, plainError(err)
	}
	text, err := value.Str()
	if err != nil {
		return nil, err
	}
	result := &TuneResult{}
	if err := json.Unmarshal([]byte(text), result); err != nil {
		return nil, fmt.Errorf("the Python host's account of tuning is not readable: %w", err)
	}
	return result, nil
}
