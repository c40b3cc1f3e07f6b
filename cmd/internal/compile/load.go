// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/plan"
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

// Alone writes the executable of a model that has all that a backend can take on that backend, and the rest on TVM; nothing
// is searched or measured. It returns the plan. Looked at are the model (Model or Module and what belongs to it), Output,
// Target, Threads, OptLevel, DisabledPasses, TuningLog and Progress; intermediate files stand in Temporary.
func Alone(ctx context.Context, options Options, backend string) (*plan.Plan, error) {
	options.Backends = []string{"tvm"}
	if backend != "tvm" {
		options.Backends = append(options.Backends, backend)
	}
	c := &compilation{Options: options, ctx: ctx}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&ModelInfo{}); err != nil {
		return nil, err
	}
	f, err := c.single(backend)
	if err != nil {
		return nil, err
	}
	c.target = f.plan.Environment.Target
	if err := c.buildOne(f); err != nil {
		return nil, err
	}
	if _, err := c.export(f); err != nil {
		return nil, err
	}
	return f.plan, nil
}
