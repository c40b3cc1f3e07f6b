// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// Planned is the plan of what the operator level places, within Options.SearchTime: plain TVM and every backend alone
// are run for what parts take in place, as Decide does it, and what is placed by that is not. There are no finalists.
// Where there is nothing to choose between, and where the network cannot be run as a whole, it is placed by what parts
// take alone, and so it is where costs are declared (byoc.Declare). The notes are as in a Decision.
func Planned(ctx context.Context, module *bridge.Object, options Options) (*plan.Plan, []string, error) {
	options.Level, options.Settle = settings.OperatorLevel, true
	if options.Precision.Allowed == "" {
		options.Precision.Allowed = settings.PrecisionF32 // how far off it is would be measured of what is placed
	}
	c := begun(module, options)
	c.placeOnly = true
	decided, err := c.under(ctx, func() (*Decision, error) {
		if c.chooses() && settings.DeclaredAmong(c.Backends) == "" {
			err := placing.Whole(module)
			if err == nil {
				var decided *Decision
				if decided, err = c.plannedInContext(); err == nil {
					return decided, nil
				}
			}
			part := (*placing.NotWholeError)(nil)
			if !errors.As(err, &part) { // TVM may turn out not to build it, too
				return nil, err
			}
			c.note("%v; it was placed by what its parts take alone.", part)
		}
		f, err := c.placement()
		if err != nil {
			return nil, err
		}
		f.module.Release()
		f.plan.Notes = c.lasting()
		return &Decision{Plan: f.plan, Notes: c.notes}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return decided.Plan, decided.Notes, nil
}

// PlannedBy is Planned with the options of a settings.Config, for callers in this process (collage.plan).
func PlannedBy(mod *bridge.Object, config settings.Config) (*plan.Plan, error) {
	shown, heard := config.Display()
	options := OptionsOf(config)
	options.Progress = shown
	options.start()
	done, err := options.inProcess()
	if err != nil {
		return nil, heard(err)
	}
	defer done()
	p, _, err := Planned(config.Context, mod, options)
	if err = heard(err); err != nil {
		return nil, err
	}
	return p, nil
}

// plannedInContext is Planned where whole networks are run.
func (c *decision) plannedInContext() (*Decision, error) {
	if err := c.offer(); err != nil {
		return nil, err
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	defer c.graph.close()
	return c.planOpened()
}

// planOpened is plannedInContext with the network and the lane there.
func (c *decision) planOpened() (*Decision, error) {
	_, err := c.learnPlaces()
	if err != nil {
		return nil, err
	}
	placed := c.graph.result.Placed
	if placed == nil {
		placed = c.graph.network.placed()
	}
	if c.plan, err = c.graph.network.Plan(placed, c.graph.result); err != nil {
		return nil, err
	}
	c.plan.Module.Name = c.Name // and no error: what was placed is not run
	if len(c.graph.result.Trials) > 0 {
		c.plan.GraphLevel = c.graphRecord()
		c.graph.network.Exchange(placed, c.graph.result, c.plan)
	}
	if late := c.overrun(); late != "" {
		c.warn("%s", c.hurry(late))
	}
	c.plan.Notes = c.lasting()
	return &Decision{Plan: c.plan, Notes: c.notes, Warnings: c.warnings}, c.ctx.Err()
}
