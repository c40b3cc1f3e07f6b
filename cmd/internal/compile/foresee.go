// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"

	"github.com/collage-tvm/collage/pass/decide"
)

// Forecast is what Compile would do.
type Forecast struct {
	decide.Foreseen
	// Model is what the front end said.
	Model ModelInfo
	// Witness says that there is a question for another engine, so that what TVM read would be held against its answer.
	Witness bool
}

// Foresee reads a model and says what Compile, or Decide, would do with it. Nothing is built, measured or written, and
// no other engine is asked. Errors are those that they would give before any building.
func Foresee(ctx context.Context, options Options) (*Forecast, error) {
	c := begin(ctx, options)
	if c.Replay != nil {
		if err := c.Options.Options.Adopt(c.Replay); err != nil {
			return nil, err
		}
	}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	forecast := &Forecast{}
	c.NoCheckImport = true // ask answers to that alone
	if err := c.load(&forecast.Model); err != nil {
		return nil, err
	}
	defer c.module.Release()
	forecast.Witness = c.asked && !options.NoCheckImport
	foreseen, err := decide.Foresee(ctx, c.module, c.Options.Options, c.Replay)
	if err != nil {
		return nil, err
	}
	forecast.Foreseen = *foreseen
	return forecast, nil
}
