// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"

	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
)

// find decides which networks are compared in the end, and has them built.
func (c *decision) find() error {
	if c.searchesGraph() {
		err := c.searchGraph()
		if err != nil {
			c.graph.close()
		}
		return err
	}
	if err := c.place(); err != nil {
		return err
	}
	return c.build()
}

// place decides the placements of the whole network that are to be built.
func (c *decision) place() error {
	// TVM alone needs no decision. It is built even where it may not be chosen: outputs are held against its.
	c.reference = &finalist{name: "tvm", module: c.module, eligible: slices.Contains(c.Backends, "tvm") && !c.constrained()}
	if !c.reference.eligible || len(c.Backends) == 1 {
		return c.placeAlone()
	}
	config := c.placementConfig()
	network, err := pass.Explore(c.module, config)
	if err != nil {
		return err
	}
	c.target = network.Target()
	plain, err := network.Reference()
	if err == nil {
		err = c.addPlaced(network, c.reference, plain)
	}
	if err != nil {
		return err
	}
	for _, b := range network.Backends() {
		if b.TakesAnything() {
			continue
		}
		if p := network.Single(b.Name()); p != nil {
			if err := c.addPlaced(network, &finalist{name: b.Name(), eligible: true}, p); err != nil {
				return err
			}
		}
	}
	f := &finalist{name: plan.PlacementName, eligible: true}
	if err := c.addPlaced(network, f, network.Placed); err != nil {
		return err
	}
	c.donePlacing(f.plan)
	return c.ctx.Err()
}

// placeAlone decides the one placement that there is where no backend alone stands against it.
func (c *decision) placeAlone() error {
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

// addPlaced makes a placement of a network a finalist: its module, where it has none, and its plan.
func (c *decision) addPlaced(network *pass.Network, f *finalist, p *genome.Placement) (err error) {
	if f.module == nil {
		if f.module, err = network.Module(p); err != nil {
			return err
		}
	}
	if f.plan, err = network.Plan(p, nil); err != nil {
		return err
	}
	f.plan.Module.Name = c.Name
	c.finalists = append(c.finalists, f)
	return nil
}

// constrained says that only the placement keeps to what was asked for.
func (c *decision) constrained() bool { return len(c.Pin)+len(c.Forbid) > 0 }

// single gives everything that a backend can take to it, and the rest to TVM.
func (c *decision) single(name string) (*finalist, error) {
	config := c.config()
	config.Only = name
	module, p, err := pass.Partition(c.module, config)
	if err != nil {
		return nil, err
	}
	return &finalist{name: name, module: module, plan: p, eligible: true}, nil
}

// placementConfig is the configuration of the placement's search, with its progress shown.
func (c *decision) placementConfig() pass.Config {
	config := c.config()
	config.Pin, config.Forbid = c.Pin, c.Forbid
	config.Progress = func(e pass.Event) {
		if e.Stage != pass.StageMeasure || e.Total == 0 || c.opening {
			return
		}
		if c.placing == nil {
			c.placing = c.Progress.Start("measuring candidates", e.Total)
		}
		c.placing.At(e.Done, e.Label)
		if e.Cost != nil && e.Cost.Failed() {
			c.Progress.Detail("%s: %s", e.Label, e.Cost.Failure)
		} else if e.Cost != nil {
			c.Progress.Detail("%s: %.4g ms (%s)", e.Label, e.Cost.Estimate(), e.Cost.Origin)
		}
	}
	return config
}

// donePlacing ends the step of the placement.
func (c *decision) donePlacing(p *plan.Plan) {
	step := c.placing
	if step == nil {
		step = c.Progress.Start("placing", 0)
	}
	n := p.Candidates
	step.Done("%d candidates, %d different computations: %d measured now, %d from the store, %d failed; %s", n.Proposed,
		n.Distinct, n.Measured, n.Stored, n.Failed, p)
}

// placement is what the operator level decides.
func (c *decision) placement() (*finalist, error) {
	config := c.placementConfig()
	if len(c.Backends) == 1 && c.Backends[0] == "tvm" && !c.constrained() && !c.Prices {
		// With TVM alone there is nothing to choose, so nothing is measured.
		config.Only = "tvm"
	}
	module, p, err := pass.Partition(c.module, config)
	if err != nil {
		return nil, err
	}
	c.donePlacing(p)
	p.Module.Name = c.Name
	c.target = p.Environment.Target
	return &finalist{name: plan.PlacementName, module: module, plan: p, eligible: true}, c.ctx.Err()
}
