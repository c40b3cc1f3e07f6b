// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// Replay builds what a plan says, and measures nothing. Its outputs are compared with plain TVM's, unless NoVerify. Of
// the options those that say how to build are looked at (the rest is the plan's: Adopt), and Store, RetryFailures and
// Exact as placing.Replay does. Warnings say where this machine is another than the plan's.
func Replay(ctx context.Context, module *bridge.Object, p *plan.Plan, options Options) (*Decision, error) {
	c, f, err := replay(ctx, module, p, options)
	if err != nil {
		return nil, err
	}
	if err := c.buildOne(f); err != nil {
		return nil, err
	}
	if err := c.verify(f); err != nil {
		return nil, err
	}
	if err := c.examineKept(f); err != nil {
		return nil, err
	}
	why := fmt.Sprintf("%s is built, as the plan says; nothing was measured.", capital(f.title()))
	return &Decision{Plan: p, Chosen: f.name, Why: why, Notes: c.notes, Warnings: c.warnings, Agreement: c.agreement,
		Path: f.path, Bytes: f.bytes}, nil
}

// ReplayModule is what placing.Replay's users get (collage.replay, the pass): the module, with what Replay says and
// refuses. With Config.Verify it is built, and so is plain TVM, and their outputs are compared; a plan that gives
// everything to TVM needs no comparison.
func ReplayModule(module *bridge.Object, p *plan.Plan, config settings.Config) (out *bridge.Object, err error) {
	shown, heard := config.Display()
	defer func() {
		if err = heard(err); err != nil {
			out = nil
		}
	}()
	options := OptionsOf(config)
	options.NoVerify, options.Progress = !config.Verify, shown
	options.otherData = true
	if config.Verify && p.Outlined() > 0 {
		if options.Build = hostBuild(); options.Build == nil {
			return nil, errors.New("comparing outputs needs Python's part of Collage in this process, which builds: " +
				"import collage there, or replay without verify")
		}
		var err error
		if options.Temporary, err = os.MkdirTemp("", "collage-replay-"); err != nil {
			return nil, fmt.Errorf("making a folder for what is built on the way: %w", err)
		}
		defer os.RemoveAll(options.Temporary)
	}
	c, f, err := replay(config.Context, module, p, options)
	if err != nil {
		return nil, err
	}
	for _, warning := range c.warnings {
		if err := config.Warning(warning); err != nil {
			return nil, err
		}
	}
	if options.Build == nil {
		return f.module, nil
	}
	err = c.hold(f)
	if part := (*placing.NotWholeError)(nil); errors.As(err, &part) {
		return f.module, config.Warning(fmt.Sprintf("%v; the outputs were not compared with TVM's", part))
	}
	if err != nil {
		return nil, err
	}
	return f.module, nil
}

// hold builds plain TVM and what a plan says, and compares their outputs. The error is a *placing.NotWholeError where
// plain TVM cannot be built for its virtual machine, or does not run there.
func (c *decision) hold(f *finalist) error {
	if err := c.buildReference(); err != nil {
		if c.machine == nil || errors.Is(err, bridge.ErrInterrupted) || c.ctx.Err() != nil || atomicfile.IsDiskFull(err) {
			return err
		}
		return c.notOnMachine("build it for", err)
	}
	if err := c.buildOne(f); err != nil {
		return err
	}
	return c.verify(f)
}

// replay writes the placement of a plan into a module, and builds nothing. With Strict a warning is its error.
func replay(ctx context.Context, module *bridge.Object, p *plan.Plan, options Options) (*decision, *finalist, error) {
	c := &decision{Options: options, ctx: ctx, module: module}
	if err := c.Adopt(p); err != nil {
		return nil, nil, err
	}
	c.target = c.Target
	for _, note := range staleNotes(p) {
		c.warn("%s", note)
	}
	if c.Build != nil {
		if err := c.readyToBuild(p); err != nil {
			return nil, nil, err
		}
	}
	if c.stopped != nil {
		return nil, nil, c.stopped
	}
	placed, err := placing.Replay(module, p, settings.Config{Exact: c.Exact, Store: c.Store,
		RetryFailures: c.RetryFailures})
	if err != nil {
		return nil, nil, err
	}
	f := &finalist{name: plan.PlacementName, module: placed, plan: p, eligible: true}
	if kept := p.Kept(); kept != nil {
		f.name = kept.Name
	}
	return c, f, ctx.Err()
}

// readyToBuild finds out what runs the network, and on what its outputs are compared.
func (c *decision) readyToBuild(p *plan.Plan) error {
	c.plainDoubt = p.Doubt
	if p.Precision != nil {
		c.Precision = settings.Precision{Allowed: p.Precision.Allowed, MaxError: p.Precision.MaxError,
			Measure: p.Precision.Measure, Calibration: c.Precision.Calibration}
	} else if c.Precision.Limit() == (cost.Limit{}) {
		c.Precision.Calibration = "" // no errors are taken
	}
	if err := c.lookAtForm(); err != nil {
		return err
	}
	if c.machine == nil {
		if err := c.take(); err != nil {
			return err
		}
	}
	return c.sameData(p)
}

// levelOf is the optimisation level in a cost's options ("O3 -AlterOpLayout").
var levelOf = regexp.MustCompile(`^O([0-4])\b`)

// Adopt takes from a plan what it was made for: OptLevel, DisabledPasses, Target, Threads and Backends. What was tuned
// for it must be in TuningLog, and nothing else. Errors that are the caller's to mend are *placing.ReplayError and
// *settings.OptionError.
func (o *Options) Adopt(p *plan.Plan) error {
	level := levelOf.FindStringSubmatch(p.Environment.Options)
	if level == nil {
		return &placing.ReplayError{Reason: fmt.Sprintf("it does not say for which optimisation level it is: its options "+
			"are %q", p.Environment.Options)}
	}
	o.OptLevel, _ = strconv.Atoi(level[1])
	o.DisabledPasses = []string{} // nil stands for the default
	for _, word := range strings.Fields(p.Environment.Options) {
		if name, disabled := strings.CutPrefix(word, "-"); disabled {
			o.DisabledPasses = append(o.DisabledPasses, name)
		}
	}
	o.Target, o.Threads = p.Environment.Target, p.Environment.Threads
	if err := o.checkTuned(p); err != nil {
		return err
	}
	o.Backends = nil
	for _, b := range p.Backends {
		o.Backends = append(o.Backends, b.Name)
	}
	return nil
}

// checkTuned makes sure that what was tuned for the plan is here, and nothing else.
func (o *Options) checkTuned(p *plan.Plan) error {
	digest := ""
	if o.TuningLog != "" {
		var err error
		if digest, err = settings.TuningDigest(o.TuningLog); err != nil {
			return &settings.OptionError{Option: "tuning_log (--tuning-log)", Reason: "cannot be used: " + err.Error()}
		}
	}
	_, wanted, tuned := strings.Cut(p.Environment.Options, strings.TrimRight(settings.Tuned(strings.Repeat("x", 16)), "x"))
	reason := ""
	switch {
	case tuned && digest == "":
		reason = fmt.Sprintf("is missing: the plan was made with a tuning log (SHA-256 %s...)", wanted)
	case tuned && !strings.HasPrefix(digest, wanted):
		reason = fmt.Sprintf("is another one: the plan was made with another tuning log (SHA-256 %s...) than %s (%s...)",
			wanted, o.TuningLog, digest[:16])
	case !tuned && digest != "":
		reason = "is for another plan: the plan was made without a tuning log; leave it out, or make a plan with it " +
			"(collage plan)"
	default:
		return nil
	}
	return &settings.OptionError{Option: "tuning_log (--tuning-log)", Reason: reason}
}

// staleNotes say where this machine is another than the one that the plan's costs are from.
func staleNotes(p *plan.Plan) []string {
	var differences []string
	if here := cost.Device(); here != p.Environment.Device {
		differences = append(differences, fmt.Sprintf("its costs are from %s, this machine is %s", p.Environment.Device,
			here))
	}
	for _, b := range p.Backends {
		backend, err := byoc.Lookup(b.Name)
		if err != nil || b.Regions == 0 {
			continue
		}
		if here := plan.NewBackend(backend); here.Version != b.Version || here.Library != b.Library {
			differences = append(differences,
				fmt.Sprintf("it was made with %s %s, here is %s %s", b.Library, b.Version, here.Library,
					here.Version))
		} else if here.Hardware != b.Hardware && here.Hardware != "" && b.Hardware != "" {
			differences = append(differences, fmt.Sprintf("it was made for the device %s, here is %s", b.Hardware, here.Hardware))
		}
	}
	if len(differences) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Another placement than the plan's may be faster here: %s.",
		strings.Join(differences, "; "))}
}

// buildReference builds plain TVM.
func (c *decision) buildReference() error {
	c.reference = &finalist{name: referenceName, module: c.module}
	return c.buildOne(c.reference)
}

// verify compares the outputs of what a plan says with plain TVM's.
func (c *decision) verify(f *finalist) error {
	if c.NoVerify || f.regions() == 0 {
		return nil
	}
	if c.reference == nil {
		if err := c.buildReference(); err != nil {
			return err
		}
	}
	c.finalists, c.Rounds = []*finalist{f}, 1
	if err := c.compare(); err != nil {
		return err
	}
	if f.failure != nil {
		return &placing.ReplayError{Reason: "its executable is not kept: " + f.failure.String()}
	}
	return nil
}
