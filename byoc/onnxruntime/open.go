// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// ONNX Runtime takes dimensions that are known only when it runs, and finds all sizes by itself. What we write must not
// depend on them: openRules says of which operators that holds, and when.

// openRules are the operators that may have open dimensions; nil where all are written without any size. Each must
// have a shape function in TVM or of ours (python/collage/shape_functions.py): TVM works out how large results are.
var openRules map[string]func(c *call) error

func init() {
	openRules = map[string]func(c *call) error{
		"nn.prelu": (*call).onlyBatch, "nn.bias_add": nil, "where": nil, "cast": nil, "clip": nil, "nn.leaky_relu": nil,
		"not_equal": nil, "rsqrt": nil, "isnan": nil,
		"nn.softmax": nil, "nn.log_softmax": nil, "nn.layer_norm": nil,
		"sum": nil, "mean": nil, "max": nil, "min": nil, "prod": nil, "variance": (*call).reducedAlongFixed,
		"nn.dense": nil, "nn.matmul": nil, "nn.batch_matmul": nil,
		"transpose": nil, "concatenate": nil, "layout_transform": nil,
		"take": (*call).takenOfFixed, "strided_slice": (*call).slicedAlongFixed,
		"nn.conv1d": (*call).onlyBatch, "nn.conv2d": (*call).onlyBatch, "nn.conv3d": (*call).onlyBatch,
		"nn.max_pool2d": (*call).onlyBatch, "nn.avg_pool2d": (*call).onlyBatch, "nn.global_avg_pool2d": (*call).onlyBatch,
		"nn.global_max_pool2d": (*call).onlyBatch,
	}
	for name := range unaryOps {
		openRules[name] = nil
	}
	for name := range binaryOps {
		openRules[name] = nil
	}
	for _, name := range []string{"reshape", "reshape_like", "nn.batch_flatten", "expand_dims", "squeeze"} {
		openRules[name] = func(c *call) error { _, err := c.openTarget(); return err }
	}
}

// isOpen says that some of a call's tensors has a dimension that is known only when it runs.
func (c *call) isOpen() bool {
	return slices.ContainsFunc(slices.Concat(c.args, c.results), func(t *relay.Type) bool {
		return region.OpenDimensions(t) > 0
	})
}

// mayBeOpen says why a call cannot be written with its open dimensions; nil where it can.
func (c *call) mayBeOpen() error {
	check, ok := openRules[c.name]
	if !ok {
		return fmt.Errorf("%s is written with the sizes of its tensors, and those of %s are known only when it runs", c.name,
			shapeText(c.result().Shape))
	}
	if check == nil {
		return nil
	}
	return check(c)
}

// onlyBatch allows the first dimension alone to be open.
func (c *call) onlyBatch() error {
	if t := region.OpenBesideBatch(slices.Concat(c.args, c.results)); t != nil {
		return fmt.Errorf("%s is written with the sizes of its tensors, and one of %s but for the batch is known only when it "+
			"runs", c.name, shapeText(t.Shape))
	}
	return nil
}

// openTarget is region.OpenTarget of a call.
func (c *call) openTarget() ([]region.Extent, error) {
	return region.OpenTarget(c.name, c.attrs, c.args, c.result())
}

// reshapeOpen writes a call that gives its data a shape with open dimensions.
func (o *operation) reshapeOpen(w *writer) error {
	target, err := o.openTarget()
	if err != nil {
		return err
	}
	if region.InPlace(target) {
		w.emit("Reshape", []string{o.in[0], w.ints(region.Numbers(target)...)}, o.out)
		return nil
	}
	var sizes []string
	for _, extent := range target {
		if extent.Number != 0 {
			sizes = append(sizes, w.ints(extent.Number))
			continue
		}
		sizes = append(sizes, w.value("Shape", []string{o.in[extent.Of]}, attribute{"start", int64(extent.Axis)},
			attribute{"end", int64(extent.Axis + 1)}))
	}
	w.emit("Reshape", []string{o.in[0], w.stacked(sizes)}, o.out)
	return nil
}

// reducedAlongFixed: a variance is divided by the number of what it is of.
func (c *call) reducedAlongFixed() error {
	axes, err := c.reduced()
	if err != nil {
		return err
	}
	for _, a := range axes {
		if c.args[0].Shape[a] == relay.AnyDim {
			return fmt.Errorf("%s is over the dimension %d of %s, whose size is known only when it runs", c.name, a,
				shapeText(c.args[0].Shape))
		}
	}
	return nil
}

// takenOfFixed: indices are clipped to the size of the data.
func (c *call) takenOfFixed() error {
	if region.OpenDimensions(c.args[0]) > 0 {
		return fmt.Errorf("take is written with the size of its data, and that of %s is known only when it runs",
			shapeText(c.args[0].Shape))
	}
	return nil
}

// slicedAlongFixed: the bounds along an axis depend on its size.
func (c *call) slicedAlongFixed() error {
	if mode := c.text("slice_mode", "end"); mode != "end" {
		return fmt.Errorf("strided_slice has the mode %q", mode)
	}
	if region.SlicesOpen(c.attrs, c.args[0]) {
		return fmt.Errorf("strided_slice along a dimension of %s whose size is known only when it runs",
			shapeText(c.args[0].Shape))
	}
	return nil
}
