// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"slices"

	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// find decides which networks are compared in the end, and has them built.
func (c *decision) find() (err error) {
	switch {
	case !c.chooses():
		if err := c.placeAlone(); err != nil {
			return err
		}
		return c.build()
	case c.machine != nil:
		if err := c.placeOnMachine(); err != nil {
			return err
		}
		return c.build()
	default:
		err = c.search()
	}
	if err != nil {
		c.graph.close()
	}
	return err
}

// placeAlone decides the one placement that there is where there is nothing to choose between: one backend, or none
// that takes all. TVM alone needs no decision; it is built even where it may not be chosen: outputs are held against
// its.
func (c *decision) placeAlone() error {
	// The placement's module says at which level it was made; else it may be the same one.
	module, err := placing.WithLevel(c.module, settings.OperatorLevel)
	if err != nil {
		return err
	}
	c.reference = &finalist{name: "tvm", module: module, eligible: slices.Contains(c.Backends, "tvm") &&
		!c.constrained()}
	f, err := c.placement()
	if err != nil {
		return err
	}
	if c.reference.eligible {
		c.reference.plan = f.plan // all of it is on TVM
		c.finalists = append(c.finalists, c.reference)
	}
	c.finalists = append(c.finalists, f)
	return nil
}

// noTimeToMeasure is said where the time ended the measuring of parts.
const noTimeToMeasure = "There was no time to measure all that decides: some of it was placed by what is believed."

// byBounds says that something was placed of which no more is known than a lower bound.
func byBounds(p *plan.Plan) bool {
	for i := range p.Regions {
		for k := range p.Regions[i].Candidates {
			if p.Regions[i].Candidates[k].Cost.Origin == cost.Bounded {
				return true
			}
		}
	}
	return false
}

// constrained says that only the placement keeps to what was asked for.
func (c *decision) constrained() bool { return len(c.Pin)+len(c.Forbid) > 0 }

// single gives everything that a backend can take to it, and the rest to TVM.
func (c *decision) single(name string) (*finalist, error) {
	config := c.config()
	config.Only, config.Precision = name, settings.Precision{} // it says by itself in what parts are computed
	module, p, err := network.Place(c.module, config)
	if err != nil {
		return nil, err
	}
	return &finalist{name: name, module: module, plan: p, eligible: true}, nil
}

// placementConfig is the configuration of the placement's search, with its progress shown.
func (c *decision) placementConfig() settings.Config {
	config := c.config()
	config.Pin, config.Forbid = c.Pin, c.Forbid
	show := measuring(c.Progress, &c.placing)
	config.Progress = func(e settings.Event) {
		if !c.opening {
			show(e)
		}
	}
	return config
}

// measuring shows candidates as they are measured, in a step that begins with the first of them.
func measuring(shown *progress.Printer, step **progress.Step) func(settings.Event) {
	return func(e settings.Event) {
		if e.Stage != settings.StageMeasure || e.Total == 0 {
			return
		}
		if *step == nil {
			*step = shown.Start("measuring candidates", e.Total)
		}
		(*step).At(e.Done, e.Label)
		if e.Cost != nil && e.Cost.Failed() {
			shown.Detail("%s: %s", e.Label, e.Cost.Failure)
		} else if e.Cost != nil {
			shown.Detail("%s: %.4g ms (%s)", e.Label, e.Cost.Estimate(), e.Cost.Origin)
		}
	}
}

// donePlacing ends the step of the placement; where nothing was measured, one begins for that.
func donePlacing(shown *progress.Printer, step *progress.Step, p *plan.Plan) {
	if step == nil {
		step = shown.Start("placing", 0)
	}
	n := p.Candidates
	step.Done("%d candidates, %d different computations: %d measured now, %d from the store, %d failed; %s", n.Proposed,
		n.Distinct, n.Measured, n.Stored, n.Failed, p)
}

// machineShare is how much of the time candidates alone have where no search among whole networks follows: half, as
// what is placed is built and run, with every backend alone. At twice of it nothing would be left for that.
const machineShare = 0.5

// placement is what costs of parts that were measured alone decide, as far as there is time to measure them.
func (c *decision) placement() (*finalist, error) {
	config := c.placementConfig()
	if len(c.Backends) == 1 && c.Backends[0] == "tvm" && !c.constrained() && !c.Prices {
		// With TVM alone there is nothing to choose, so nothing is measured.
		config.Only = "tvm"
	}
	if c.budget != nil {
		free := c.budget.Left() - c.budget.Writing()
		if !c.placeOnly {
			free = partsTime(free, machineShare) // what is placed has yet to be built and run
		}
		until, done := context.WithTimeout(c.ctx, free)
		defer done()
		config.Until = until
	}
	module, p, err := network.Place(c.module, config)
	if err != nil {
		return nil, err
	}
	if config.Until != nil && config.Until.Err() != nil && byBounds(p) {
		c.warn("%s", c.hurry(noTimeToMeasure))
	}
	donePlacing(c.Progress, c.placing, p)
	p.Module.Name = c.Name
	c.target = p.Environment.Target
	return &finalist{name: plan.PlacementName, module: module, plan: p, eligible: true}, c.ctx.Err()
}
