// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

func normalisations() map[string]*operator {
	return map[string]*operator{
		"nn.softmax":       {checkSoftmax, writeSoftmax("SoftMax", "opset8"), float32Static},
		"nn.log_softmax":   {checkSoftmax, writeSoftmax("LogSoftmax", "opset5"), float32Static},
		"nn.layer_norm":    {checkNorm(-1), writeLayerNorm, float32Static},
		"nn.instance_norm": {checkNorm(1), writeInstanceNorm, float32Static + ", channels in the second dimension"},
		"nn.group_norm":    {checkNorm(1), writeGroupNorm, float32Static + ", channels in the second dimension"},
		"nn.batch_norm": {checkBatchNorm, writeBatchNorm, float32Static +
			", channels in the second dimension, inference"},
		"nn.l2_normalize": {checkL2, writeL2, float32Static},
		"nn.lrn":          {checkLRN, writeLRN, float32Static + ", channels in the second dimension"},
	}
}

func checkSoftmax(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	_, err := c.axis("axis", len(c.in[0].Shape))
	return err
}

func writeSoftmax(kind, opset string) func(w *writer, c *call, in []port) []port {
	return func(w *writer, c *call, in []port) []port {
		axis, _ := c.axis("axis", len(c.in[0].Shape))
		return []port{w.one(kind, opset, c.out[0], []xml.Attr{attrInts("axis", int64(axis))}, in[0])}
	}
}

// checkNorm checks a normalisation with scale and shift along an axis: the one that it must be, or any (-1).
func checkNorm(must int) func(c *call) error {
	return func(c *call) error {
		if err := floats(c); err != nil {
			return err
		}
		axis, err := c.axis("axis", len(c.in[0].Shape))
		if err != nil {
			return err
		}
		if must >= 0 && (axis != must || len(c.in[0].Shape) < 3) {
			return c.refuse("has its channels in dimension %d of %s; only [n, c, ...] is supported", axis,
				shapeText(c.in[0].Shape))
		}
		for i, t := range c.in[1:] {
			if len(t.Shape) != 1 || t.Shape[0] != c.in[0].Shape[axis] {
				return c.refuse("has as argument %d a tensor of the shape %s for %d channels", i+2, shapeText(t.Shape),
					c.in[0].Shape[axis])
			}
		}
		return nil
	}
}

// mvn takes the mean away and divides by the deviation, over the axes.
func mvn(w *writer, c *call, data port, axes ...int64) port {
	epsilon, _ := c.attrs.Float("epsilon")
	attrs := []xml.Attr{attrBool("normalize_variance", true), attr("eps", number32(epsilon)),
		attr("eps_mode", "INSIDE_SQRT")}
	return w.one("MVN", "opset6", data.typ, attrs, data, w.ints(axes...))
}

// scaled multiplies by gamma and adds beta along an axis, as far as the attributes scale and center say.
func scaled(w *writer, c *call, p, gamma, beta port, axis int) port {
	rank := len(c.out[0].Shape)
	if c.truth("scale") {
		p = w.binary("Multiply", c.out[0], p, w.along(gamma, axis, rank))
	}
	if c.truth("center") {
		p = w.binary("Add", c.out[0], p, w.along(beta, axis, rank))
	}
	return p
}

func writeLayerNorm(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.in[0].Shape))
	return []port{scaled(w, c, mvn(w, c, in[0], int64(axis)), in[1], in[2], axis)}
}

func writeInstanceNorm(w *writer, c *call, in []port) []port {
	var axes []int64
	for i := 2; i < len(c.in[0].Shape); i++ {
		axes = append(axes, int64(i))
	}
	return []port{scaled(w, c, mvn(w, c, in[0], axes...), in[1], in[2], 1)}
}

// writeGroupNorm normalises rows of a group each. OpenVINO has GroupNormalization (opset12) for that, but 2026.4's
// plug-in for processors crashes while it compiles one of which the result goes into a sum or product with another
// computed value.
func writeGroupNorm(w *writer, c *call, in []port) []port {
	groups, _ := c.attrs.Int("num_groups")
	shape := c.in[0].Shape
	rows := w.reshape(in[0], shape[0], groups, relay.Elements(shape[1:])/groups)
	return []port{scaled(w, c, w.reshape(mvn(w, c, rows, 2), shape...), in[1], in[2], 1)}
}

func checkBatchNorm(c *call) error {
	if len(c.used) != 3 || c.used[1] || c.used[2] {
		return c.refuse("has its running mean or variance used; only what it gives in inference is supported")
	}
	if err := floats(c); err != nil {
		return err
	}
	if axis, err := c.axis("axis", len(c.in[0].Shape)); err != nil {
		return err
	} else if axis != 1 {
		return c.refuse("has its channels in dimension %d; only dimension 1 is supported", axis)
	}
	for i, t := range c.in[1:] {
		if len(t.Shape) != 1 || t.Shape[0] != c.in[0].Shape[1] {
			return c.refuse("has as argument %d a tensor of the shape %s for %d channels", i+2, shapeText(t.Shape),
				c.in[0].Shape[1])
		}
	}
	return nil
}

func writeBatchNorm(w *writer, c *call, in []port) []port {
	epsilon, _ := c.attrs.Float("epsilon")
	gamma, beta := in[1], in[2]
	if !c.truth("scale") {
		gamma = w.number(c.in[1], 1)
	}
	if !c.truth("center") {
		beta = w.number(c.in[2], 0)
	}
	return []port{w.one("BatchNormInference", "opset5", c.out[0], []xml.Attr{attr("epsilon", number32(epsilon))},
		in[0], gamma, beta, in[3], in[4])}
}

func checkL2(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	if _, ok := c.axes(len(c.in[0].Shape)); !ok {
		return c.refuse("has no usable attribute axis")
	}
	return nil
}

// axes reads the attribute axis as ascending dimensions, counted from the front; all of them where it is null.
func (c *call) axes(rank int) ([]int64, bool) {
	if v, _ := c.attrs.Get("axis"); v == nil {
		all := make([]int64, rank)
		for i := range all {
			all[i] = int64(i)
		}
		return all, true
	}
	list, ok := c.list("axis")
	if !ok {
		return nil, false
	}
	axes := slices.Clone(list)
	for i := range axes {
		if axes[i] < 0 {
			axes[i] += int64(rank)
		}
		if axes[i] < 0 || axes[i] >= int64(rank) {
			return nil, false
		}
	}
	slices.Sort(axes)
	return slices.Compact(axes), true
}

// writeL2 spells the norm out: OpenVINO's NormalizeL2 has kernels for few choices of axes.
func writeL2(w *writer, c *call, in []port) []port {
	epsilon, _ := c.attrs.Float("eps")
	axes, _ := c.axes(len(c.in[0].Shape))
	square := w.binary("Multiply", c.out[0], in[0], in[0])
	sum := w.one("ReduceSum", "opset1", reduced(c.in[0], axes, true), []xml.Attr{attrBool("keep_dims", true)}, square,
		w.ints(axes...))
	bounded := w.binary("Maximum", sum.typ, sum, w.scalar("float32", epsilon))
	return []port{w.binary("Divide", c.out[0], in[0], w.one("Sqrt", "opset1", sum.typ, nil, bounded))}
}

// reduced is the type of a tensor whose axes were reduced.
func reduced(t *relay.Type, axes []int64, keep bool) *relay.Type {
	var shape []int64
	for i, d := range t.Shape {
		switch {
		case !slices.Contains(axes, int64(i)):
			shape = append(shape, d)
		case keep:
			shape = append(shape, 1)
		}
	}
	return tensor(t.DType, shape...)
}

func checkLRN(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	size, ok := c.attrs.Int("size")
	axis, okAxis := c.attrs.Int("axis")
	if !ok || !okAxis || axis != 1 || len(c.in[0].Shape) != 4 || size%2 == 0 {
		return c.refuse("has the axis %d and the size %d for %s; only an odd size along dimension 1 of 4 is supported",
			axis, size, shapeText(c.in[0].Shape))
	}
	return nil
}

func writeLRN(w *writer, c *call, in []port) []port {
	size, _ := c.attrs.Int("size")
	alpha, _ := c.attrs.Float("alpha")
	beta, _ := c.attrs.Float("beta")
	bias, _ := c.attrs.Float("bias")
	attrs := []xml.Attr{attr("alpha", number32(alpha)), attr("beta", number32(beta)), attr("bias", number32(bias)),
		attrInts("size", size)}
	return []port{w.one("LRN", "opset1", c.out[0], attrs, in[0], w.ints(1))}
}
