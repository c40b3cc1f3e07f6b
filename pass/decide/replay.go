// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/plan"
)

// Replay builds what a plan says, and measures nothing. Its outputs are compared with plain TVM's, unless NoVerify.
// Target, Threads and OptLevel are the plan's; of the other options those that say how to build are looked at, and
// Store, RetryFailures and Exact as pass.Replay does.
func Replay(ctx context.Context, module *bridge.Object, p *plan.Plan, options Options) (*Decision, error) {
	c := &decision{Options: options, ctx: ctx, module: module, target: p.Environment.Target}
	if p.Precision != nil {
		c.Precision = pass.Precision{Allowed: p.Precision.Allowed, MaxError: p.Precision.MaxError,
			Measure: p.Precision.Measure, Calibration: options.Precision.Calibration}
	}
	if err := c.lookAtForm(); err != nil {
		return nil, err
	}
	if c.machine == nil {
		if err := c.take(); err != nil {
			return nil, err
		}
	}
	if err := c.sameData(p); err != nil {
		return nil, err
	}
	placed, err := pass.Replay(module, p, pass.Config{Exact: c.Exact, Store: c.Store, RetryFailures: c.RetryFailures})
	if err != nil {
		return nil, err
	}
	f := &finalist{name: plan.PlacementName, module: placed, plan: p, eligible: true}
	if kept := p.Kept(); kept != nil {
		f.name = kept.Name
	}
	if err := ctx.Err(); err != nil {
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
	return &Decision{Plan: p, Chosen: f.name, Why: why, Agreement: c.agreement, Path: f.path, Bytes: f.bytes}, nil
}

// verify compares the outputs of what a plan says with plain TVM's.
func (c *decision) verify(f *finalist) error {
	if c.NoVerify || f.regions() == 0 {
		return nil
	}
	c.reference = &finalist{name: referenceName, module: c.module}
	if err := c.buildOne(c.reference); err != nil {
		return err
	}
	c.finalists, c.Rounds = []*finalist{f}, 1
	if err := c.compare(); err != nil {
		return err
	}
	if f.failure != nil {
		return fmt.Errorf("the plan's executable is not kept: %s", f.failure)
	}
	return nil
}
