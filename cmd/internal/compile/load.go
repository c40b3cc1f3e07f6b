// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"

	"github.com/collage-tvm/collage/bridge"
)

// Load reads the model of the options and normalises it, as Compile does. The caller releases the module. Looked at are
// Model, Params, InputShapes, Format and Progress.
func Load(ctx context.Context, options Options) (*bridge.Object, *ModelInfo, error) {
	c := &compilation{Options: options, ctx: ctx}
	info := &ModelInfo{}
	if err := c.load(info); err != nil {
		return nil, nil, err
	}
	return c.module, info, nil
}
