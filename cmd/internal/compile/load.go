// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
)

// Load reads the model of the options and normalises it, as Compile does. The caller releases the module. Looked at are
// Model, Params, InputShapes, Format and Progress.
func Load(ctx context.Context, options Options) (*bridge.Object, *ModelInfo, error) {
	c := begin(ctx, options)
	info := &ModelInfo{}
	if err := c.load(info); err != nil {
		return nil, nil, err
	}
	return c.module, info, nil
}

// Alone writes the executable of a model that has all that a backend can take on that backend, and the rest on TVM;
// nothing is searched or measured. It returns the plan. Looked at are the model (Model or Module and what belongs to
// it), Output, Target, Threads, OptLevel, DisabledPasses, TuningLog and Progress; intermediate files stand in
// Temporary.
func Alone(ctx context.Context, options Options, backend string) (*plan.Plan, error) {
	options.Backends = []string{"tvm"}
	if backend != "tvm" {
		options.Backends = append(options.Backends, backend)
	}
	c := begin(ctx, options)
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&ModelInfo{}); err != nil {
		return nil, err
	}
	alone, err := decide.Alone(ctx, c.module, c.Options.Options, backend)
	if err != nil {
		return nil, err
	}
	return alone.Plan, c.export(&Result{}, alone)
}
