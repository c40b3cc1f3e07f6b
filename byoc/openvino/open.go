// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// OpenVINO takes dimensions that are known only when it runs, and finds all sizes by itself. What we write must not
// depend on them: openChecks says of which operators that holds, and when.

// openChecks are the operators that may have open dimensions; nil where all are written without any size. Each must
// have a shape function in TVM or of ours (python/collage/shape_functions.py): TVM works out how large results are.
var openChecks map[string]func(c *call) error

func init() {
	openChecks = map[string]func(c *call) error{
		"where": nil, "cast": nil, "clip": nil, "nn.leaky_relu": nil, "nn.bias_add": nil, "nn.softmax": nil,
		"nn.log_softmax": nil, "nn.layer_norm": nil, "sum": nil, "mean": nil, "max": nil, "min": nil, "prod": nil,
		"variance": (*call).reducedAlongFixed, "transpose": nil, "concatenate": nil, "nn.dense": nil, "nn.matmul": nil,
		"nn.batch_matmul": nil, "take": (*call).takenOfFixed, "strided_slice": (*call).slicedAlongFixed,
		"nn.conv1d": onlyBatch, "nn.conv2d": onlyBatch, "nn.conv3d": onlyBatch, "nn.max_pool2d": onlyBatch,
		"nn.avg_pool2d": onlyBatch, "nn.global_avg_pool2d": onlyBatch, "nn.global_max_pool2d": onlyBatch,
	}
	for _, family := range []map[string]*operator{unaries(), binaries()} {
		for name := range family {
			if _, there := openChecks[name]; !there {
				openChecks[name] = nil
			}
		}
	}
	for _, name := range []string{"reshape", "reshape_like", "squeeze", "expand_dims", "nn.batch_flatten"} {
		openChecks[name] = func(c *call) error { _, err := c.openTarget(); return err }
	}
	for _, name := range writtenBySize {
		delete(openChecks, name)
	}
}

// writtenBySize are operators of these families that are written with the sizes of their tensors.
var writtenBySize = []string{"nn.prelu"}

// described is the operator with what openChecks says of it in its limits.
func (o *operator) described(name string) *operator {
	check, ok := openChecks[name]
	if !ok {
		return o
	}
	open := "open dimensions"
	if check != nil {
		open = "some open dimensions"
	}
	with := *o
	if with.limits = strings.Replace(o.limits, "static shapes", open, 1); with.limits == o.limits {
		with.limits += ", " + open
	}
	return &with
}

// isOpen says that some of a call's tensors has a dimension that is known only when it runs.
func (c *call) isOpen() bool {
	return slices.ContainsFunc(slices.Concat(c.in, c.out), func(t *relay.Type) bool {
		return t != nil && region.OpenDimensions(t) > 0
	})
}

// mayBeOpen says why a call cannot be written with its open dimensions; nil where it can.
func (c *call) mayBeOpen() error {
	check, ok := openChecks[c.op]
	if !ok {
		return c.refuse("is written with the sizes of its tensors, and those of %s are known only when it runs",
			relay.ShapeText(c.out[0].Shape))
	}
	if check == nil {
		return nil
	}
	return check(c)
}

// onlyBatch allows the first dimension alone to be open.
func onlyBatch(c *call) error {
	if t := region.OpenBesideBatch(slices.Concat(c.in, c.out)); t != nil {
		return c.refuse("is written with the sizes of its tensors, and one of %s but for the batch is known only when it "+
			"runs", relay.ShapeText(t.Shape))
	}
	return nil
}

// openTarget is region.OpenTarget of a call.
func (c *call) openTarget() ([]region.Extent, error) {
	return region.OpenTarget(c.op, c.attrs, c.in, c.out[0])
}

// reshapeOpen gives the first of some tensors a shape with open dimensions: target is region.OpenTarget's.
func (w *writer) reshapeOpen(in []port, t *relay.Type, target []region.Extent) port {
	shape := w.ints(region.Numbers(target)...)
	if !region.InPlace(target) {
		sizes := make([]port, len(target))
		one := relay.Tensor("int64", 1)
		for d, extent := range target {
			if sizes[d] = w.ints(extent.Number); extent.Number == 0 {
				all := w.one("ShapeOf", "opset3", relay.Tensor("int64", int64(len(in[extent.Of].typ.Shape))),
					[]xml.Attr{attr("output_type", "i64")}, in[extent.Of])
				sizes[d] = w.one("Gather", "opset8", one, []xml.Attr{attr("batch_dims", "0")}, all, w.ints(int64(extent.Axis)),
					w.number(relay.Tensor("int64"), 0))
			}
		}
		shape = w.one("Concat", "opset1", relay.Tensor("int64", int64(len(sizes))), []xml.Attr{attrInts("axis", 0)}, sizes...)
	}
	return w.one("Reshape", "opset1", t, []xml.Attr{attrBool("special_zero", true)}, in[0], shape)
}

// reducedAlongFixed: a variance is divided by the number of what it is of.
func (c *call) reducedAlongFixed() error {
	axes, ok := c.axes(len(c.in[0].Shape))
	if !ok || slices.ContainsFunc(axes, func(a int64) bool { return c.in[0].Shape[a] == relay.AnyDim }) {
		return c.refuse("is over dimensions of %s whose size is known only when it runs", relay.ShapeText(c.in[0].Shape))
	}
	return nil
}

// takenOfFixed: indices are clipped to the size of the data.
func (c *call) takenOfFixed() error {
	if region.OpenDimensions(c.in[0]) > 0 {
		return c.refuse("is written with the size of its data, and that of %s is known only when it runs",
			relay.ShapeText(c.in[0].Shape))
	}
	return nil
}

// slicedAlongFixed: the bounds along an axis depend on its size.
func (c *call) slicedAlongFixed() error {
	if region.SlicesOpen(c.attrs, c.in[0]) {
		return c.refuse("is along a dimension of %s whose size is known only when it runs", relay.ShapeText(c.in[0].Shape))
	}
	return nil
}
