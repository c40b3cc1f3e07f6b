// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
)

// Foreseen is what Decide would do with a module, or what Replay would build.
type Foreseen struct {
	// Forecast is what there would be to decide; nil for a plan.
	Forecast *placing.Forecast
	// Notes are what can be said before anything is measured.
	Notes []string
}

// Foresee says what Decide would have to decide with these options, or with a plan whether Replay would take it. Nothing
// is built, measured or written. Errors are theirs, as far as they come before any building.
func Foresee(ctx context.Context, module *bridge.Object, options Options, p *plan.Plan) (*Foreseen, error) {
	if p != nil {
		options.Build = nil
		c, f, err := replay(ctx, module, p, options)
		if err != nil {
			return nil, err
		}
		f.module.Release()
		return &Foreseen{Notes: c.notes}, nil
	}
	c := begun(module, options)
	if err := c.lookAtForm(); err != nil {
		return nil, err
	}
	c.notes = nil
	if c.machine != nil {
		c.note("TVM's virtual machine would run it, since %s %s; whole networks are not searched then, and it would be placed "+
			"by what its parts take alone.", c.machine.Where, c.machine.Reason)
	}
	if err := c.offer(); err != nil {
		return nil, err
	}
	c.ctx = ctx
	if c.stopped != nil {
		return nil, c.stopped
	}
	config := c.config()
	config.Pin, config.Forbid = c.Pin, c.Forbid
	forecast, err := placing.Foresee(module, config)
	if err != nil {
		return nil, err
	}
	return &Foreseen{Forecast: forecast, Notes: c.notes}, ctx.Err()
}
