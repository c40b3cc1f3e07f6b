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

// openRules are the operators that may have open dimensions; nil where all are written without any size. Each must have
// a shape function in TVM or of ours (python/collage/shape_functions.py): TVM works out how large results are.
var openRules map[string]func(c *call) error

func init() {
	openRules = map[string]func(c *call) error{
		"nn.prelu": fixedBut(0), "nn.bias_add": nil, "where": nil, "cast": nil, "clip": nil, "nn.leaky_relu": nil,
		"not_equal": nil, "rsqrt": nil, "isnan": nil,
		"nn.softmax": nil, "nn.log_softmax": nil, "nn.layer_norm": nil,
		"sum": nil, "mean": nil, "max": nil, "min": nil, "prod": nil, "variance": (*call).reducedAlongFixed,
		"nn.dense": nil, "nn.matmul": nil, "nn.batch_matmul": nil,
		"transpose": nil, "concatenate": nil, "layout_transform": nil,
		"take": (*call).takenOfFixed, "strided_slice": (*call).slicedAlongFixed,
		"nn.conv1d": fixedBut(0), "nn.conv2d": fixedBut(0), "nn.conv3d": fixedBut(0),
		"nn.max_pool2d": fixedBut(0), "nn.avg_pool2d": fixedBut(0), "nn.global_avg_pool2d": fixedBut(0),
		"nn.global_max_pool2d": fixedBut(0),
	}
	for name := range unaryOps {
		openRules[name] = nil
	}
	for name := range binaryOps {
		openRules[name] = nil
	}
	for _, name := range []string{"reshape", "nn.batch_flatten", "expand_dims", "squeeze"} {
		openRules[name] = func(c *call) error { _, err := c.openTarget(); return err }
	}
}

// isOpen says that some of a call's tensors has a dimension that is known only when it runs.
func (c *call) isOpen() bool {
	return slices.ContainsFunc(slices.Concat(c.args, c.results), isOpen)
}

func isOpen(t *relay.Type) bool { return slices.Contains(t.Shape, relay.AnyDim) }

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

// fixedBut allows the dimension axis alone to be open.
func fixedBut(axis int) func(c *call) error {
	return func(c *call) error {
		for _, t := range slices.Concat(c.args, c.results) {
			for d, extent := range t.Shape {
				if extent == relay.AnyDim && d != axis {
					return fmt.Errorf("%s is written with the sizes of its tensors; the dimension %d of %s is known only when it "+
						"runs", c.name, d, shapeText(t.Shape))
				}
			}
		}
		return nil
	}
}

// openTarget is region.OpenTarget of a call.
func (c *call) openTarget() ([]int64, error) {
	return region.OpenTarget(c.name, c.attrs, c.args[0], c.result())
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
	if isOpen(c.args[0]) {
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
	begins, _ := c.attrs.Ints("begin")
	axes, ok := c.attrs.Ints("axes")
	for a := range begins {
		at := int64(a)
		if ok && a < len(axes) {
			at = axes[a]
		}
		if at < 0 {
			at += int64(len(c.args[0].Shape))
		}
		if at < 0 || at >= int64(len(c.args[0].Shape)) || c.args[0].Shape[at] == relay.AnyDim {
			return fmt.Errorf("strided_slice along a dimension of %s whose size is known only when it runs",
				shapeText(c.args[0].Shape))
		}
	}
	return nil
}
