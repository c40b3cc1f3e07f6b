// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
)

// Measurements say how the times of a report were taken: how many in its run and how many are from the store, and how
// busy the machine was during the run.
type Measurements struct {
	Measured int          `json:"measured"`
	Stored   int          `json:"stored"`
	Load     machine.Load `json:"load"`
}

// take loads the options' model and has measure take parts of it by themselves, in the workers that measure for collage
// compile, on the options' backends and TVM. what names the parts for the line of progress. The module is released
// after the call.
func (m *Measurements) take(ctx context.Context, o *compile.Options, what string,
	measure func(*bridge.Object, settings.Config) error) error {
	module, _, err := compile.Load(ctx, *o)
	if err != nil {
		return err
	}
	defer module.Release()
	level := o.OptLevel
	var step *progress.Step
	config := settings.Config{Backends: withBaseline(o.Backends), Target: o.Target, Store: o.Store, Threads: o.Threads,
		Context: ctx, OptLevel: &level, Samples: o.Samples, RetryFailures: o.RetryFailures, Precision: o.Precision,
		SkipUnusable: o.SkipUnusable,
		Python:       o.Python, Progress: func(e settings.Event) {
			if e.Stage != settings.StageMeasure || e.Total == 0 {
				return
			}
			if step == nil {
				step = o.Progress.Start("measuring "+what, e.Total)
			}
			step.At(e.Done, e.Label)
			switch {
			case e.Cost == nil:
			case e.Cost.Origin == cost.Measured:
				m.Measured++
			default:
				m.Stored++
			}
		}}
	meter := machine.StartMeter()
	if err := measure(module, config); err != nil {
		return err
	}
	m.Load = meter.Stop()
	step.Done("%d measured, %d from the store", m.Measured, m.Stored)
	return nil
}
