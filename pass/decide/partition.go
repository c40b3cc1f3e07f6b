// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// OptionsOf are the Options of a settings.Config. What it leaves open has the defaults that the command line has.
func OptionsOf(config settings.Config) Options {
	options := Options{
		Name: config.ModuleName, Backends: config.Backends, Pin: config.Pin, Forbid: config.Forbid,
		Target:  config.Target,
		Threads: config.Threads, TuningLog: config.TuningLog, Store: config.Store, Samples: config.Samples,
		DisabledPasses: config.DisabledPasses, OptLevel: 3, Level: config.Level,
		SearchTime: time.Duration(config.SearchTime * float64(time.Second)), Trials: config.Trials,
		Rounds: config.Rounds, Exact: config.Exact, Precision: config.Precision, Exhaustive: config.Exhaustive, SkipUnusable: config.SkipUnusable,
		RetryFailures: config.RetryFailures, Strict: config.Strict, Python: config.Python,
		Trace: config.Recorder, Extension: ".so",
		Poll: bridge.CheckSignals,
	}
	if len(options.Backends) == 0 {
		options.Backends = settings.DefaultBackends
	}
	if names, err := settings.WithDevices(options.Backends, config.Devices); err == nil { // else Config.Validate tells
		options.Backends = names
	}
	if config.OptLevel != nil {
		options.OptLevel = *config.OptLevel
	}
	if options.Samples == 0 {
		options.Samples = measure.DefaultSamples
	}
	if options.Rounds == 0 {
		options.Rounds = settings.DefaultRounds
	}
	return options
}

// Partition is pass.Partition: the module has the regions of the network that was kept, and the plan is that network's.
// It decides by what the store has once everything was measured: the same costs give the same module, but for what
// TVM's virtual machine runs, whose finalists are run each time. Where there is nothing to choose between (TVM is not
// offered, or nothing else is) it is network.Place, and so it is, with a warning, where the network cannot be run as a
// whole (placing.NotWholeError): TVM does not build it, not for its virtual machine either, or cannot run it there at
// the sizes that open dimensions are tried at, or that is needed and no Python host is in the process, which builds for
// it. Ctrl-C in Python ends the search, and what was the fastest until then is taken (Ending.Watch).
func Partition(mod *bridge.Object, config settings.Config) (out *bridge.Object, p *plan.Plan, err error) {
	shown, heard := config.Display()
	defer func() {
		if out, err = unlessFailed(out, heard(err)); err != nil {
			p = nil
		}
	}()
	options := OptionsOf(config)
	options.Progress = shown
	options.start()
	until, done := context.WithTimeout(config.Context, options.Budget.Left())
	defer done()
	config.Until = until // where it is placed by its parts alone
	if !options.chooses() {
		if config.Limit() != (cost.Limit{}) {
			return nil, nil, &settings.OptionError{Option: "precision or max_error",
				Reason: "needs tvm and another backend to " +
					"choose between: else no network is run, and nothing tells how far off it is"}
		}
		return placeParts(mod, config, shown)
	}
	options.Settle = true
	end, err := options.inProcess()
	if err != nil {
		return nil, nil, err
	}
	defer end()
	decided, err := Decide(config.Context, mod, options)
	if part := (*placing.NotWholeError)(nil); errors.As(err, &part) {
		if err := config.Warning(fmt.Sprintf("%v; it is placed by what its parts take alone", part)); err != nil {
			return nil, nil, err
		}
		config.Precision = settings.Precision{} // nothing would tell how far off the whole is
		return placeParts(mod, config, shown)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, warning := range decided.Warnings {
		if err := config.Warning(warning); err != nil {
			return nil, nil, err
		}
	}
	// What the search has just run does not fail here.
	out, err = placing.Replay(mod, decided.Plan, settings.Config{Exact: config.Exact, RetryFailures: true})
	if err != nil {
		return nil, nil, fmt.Errorf("what was decided cannot be written down, which is a defect of Collage: %w", err)
	}
	return out, decided.Plan, nil
}

// inProcess sets what a decision needs in a process of Python's: what is shown of it, a folder for what is built on the
// way, who builds for TVM's virtual machine, and what Ctrl-C does. Call done when all is decided: it removes the folder
// and gives Ctrl-C back.
func (o *Options) inProcess() (done func(), err error) {
	o.Progress.Record(o.Trace)
	if o.Temporary, err = os.MkdirTemp("", "collage-decide-"); err != nil {
		return nil, fmt.Errorf("making a folder for what is built on the way: %w", err)
	}
	o.Build = hostBuild()
	o.Ending = &Ending{}
	release, err := o.Ending.Watch()
	if err != nil {
		_ = os.RemoveAll(o.Temporary)
		return nil, err
	}
	return func() {
		release()
		_ = os.RemoveAll(o.Temporary)
	}, nil
}

// Parts is network.Place, shown as Config.Display has it.
func Parts(mod *bridge.Object, config settings.Config) (*bridge.Object, *plan.Plan, error) {
	shown, heard := config.Display()
	out, p, err := placeParts(mod, config, shown)
	if out, err = unlessFailed(out, heard(err)); err != nil {
		return nil, nil, err
	}
	return out, p, nil
}

// Annotated is network.Annotated, shown in the same way.
func Annotated(mod *bridge.Object, config settings.Config) (*bridge.Object, error) {
	shown, heard := config.Display()
	step := shown.Start("placing", 0)
	out, err := network.Annotated(mod, config)
	switch {
	case err != nil:
		shown.Stop()
	case config.Only != "":
		step.Done("all that %s takes", config.Only)
	default:
		step.Done("by the costs that were given")
	}
	return unlessFailed(out, heard(err))
}

// unlessFailed is the module, or the error, with which the module, where there is one, is given back.
func unlessFailed(out *bridge.Object, err error) (*bridge.Object, error) {
	if err != nil && out != nil {
		out.Release()
		out = nil
	}
	return out, err
}

// placeParts is network.Place with its progress shown, and a warning where the time ended the measuring.
func placeParts(
	mod *bridge.Object, config settings.Config, shown *progress.Printer,
) (*bridge.Object, *plan.Plan, error) {
	shown.Record(config.Recorder)
	var step *progress.Step
	show, also := measuring(shown, &step), config.Progress
	config.Progress = func(e settings.Event) {
		if show(e); also != nil {
			also(e)
		}
	}
	out, p, err := network.Place(mod, config)
	if err != nil {
		shown.Stop()
		return nil, nil, err
	}
	donePlacing(shown, step, p)
	if config.Until != nil && config.Until.Err() != nil && byBounds(p) {
		if err := config.Warning(noTimeToMeasure); err != nil {
			out.Release()
			return nil, nil, err
		}
	}
	return out, p, nil
}
