// SPDX-License-Identifier: Apache-2.0

package compile

import "github.com/collage-tvm/collage/pass/decide"

// replay builds what a plan says, and measures nothing.
func (c *compilation) replay() (*Result, error) {
	result := &Result{}
	// What cannot be built at all is said before the model is read.
	if err := c.Options.Options.Adopt(c.Replay); err != nil {
		return nil, err
	}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&result.Model); err != nil {
		return nil, err
	}
	built, err := decide.Replay(c.ctx, c.module, c.Replay, c.Options.Options)
	if err != nil {
		return nil, c.located(err, result.Model.Format)
	}
	return result, c.export(result, built)
}
