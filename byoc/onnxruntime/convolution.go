// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// spaces are the letters of the spatial dimensions in Relay's layouts.
var spaces = map[int]string{1: "W", 2: "HW", 3: "DHW"}

// window are the attributes that convolutions and pools share, one number for each spatial dimension; pads are begins,
// then ends.
type window struct {
	kernel, strides, dilation, pads []int64
	// ceil asks for ceil_mode (pools).
	ceil bool
}

// window reads them; kernel is left to the caller.
func (c *call) window(n int) (w window, err error) {
	if w.strides, err = c.spread("strides", n, 1); err != nil {
		return w, err
	}
	if w.dilation, err = c.spread("dilation", n, 1); err != nil {
		return w, err
	}
	if w.pads, err = c.padding(n); err != nil {
		return w, err
	}
	for i := range n {
		if w.strides[i] < 1 || w.dilation[i] < 1 {
			return w, fmt.Errorf("%s has strides %v and dilation %v, which must be at least 1", c.name, w.strides,
				w.dilation)
		}
	}
	for _, p := range w.pads {
		if p < 0 {
			return w, fmt.Errorf("%s has negative padding %v", c.name, w.pads)
		}
	}
	return w, nil
}

// reach is how far the kernel spans in dimension i.
func (w *window) reach(i int) int64 { return w.dilation[i]*(w.kernel[i]-1) + 1 }

func (w *window) attributes() []attribute {
	return []attribute{{"kernel_shape", w.kernel}, {"strides", w.strides}, {"dilations", w.dilation}, {"pads", w.pads}}
}

// convolutions are nn.convNd and nn.convNd_transpose.
func convolutions() map[string]rule {
	all := map[string]rule{}
	for n, space := range spaces {
		all[fmt.Sprintf("nn.conv%dd", n)] = rule{
			check: func(c *call) error { _, err := c.convolution(n); return err },
			emit: func(w *writer, o *operation) error {
				win, err := o.convolution(n)
				if err != nil {
					return err
				}
				w.emit("Conv", o.in, o.out, append(win.attributes(), attribute{"group", o.int("groups", 1)})...)
				return nil
			},
			merge:  mergeBias,
			limits: fmt.Sprintf("float32, NC%s, OI%s; any groups, strides, dilation and padding", space, space),
		}
		all[fmt.Sprintf("nn.conv%dd_transpose", n)] = rule{
			check: func(c *call) error { _, _, err := c.transposed(n); return err },
			emit: func(w *writer, o *operation) error {
				win, extra, err := o.transposed(n)
				if err != nil {
					return err
				}
				w.emit("ConvTranspose", o.in, o.out, append(win.attributes(), attribute{"group", o.int("groups", 1)},
					attribute{"output_padding", extra})...)
				return nil
			},
			merge:  mergeBias,
			limits: fmt.Sprintf("float32, NC%s, IO%s; output_padding below the stride", space, space),
		}
	}
	return all
}

// convolution checks a convolution of n dimensions.
func (c *call) convolution(n int) (w window, err error) {
	space := spaces[n]
	if err := c.convolutionBasics(n); err != nil {
		return w, err
	}
	if err := c.layout("kernel_layout", "OI"+space); err != nil {
		return w, err
	}
	if w, err = c.window(n); err != nil {
		return w, err
	}
	weight, groups := c.args[1].Shape, c.int("groups", 1)
	if groups < 1 || weight[1]*groups != c.args[0].Shape[1] || weight[0]%groups != 0 {
		return w, fmt.Errorf("%s has weights of the shape %s for %d groups of %d channels", c.name, shapeText(weight),
			groups,
			c.args[0].Shape[1])
	}
	w.kernel = weight[2:]
	for i := range n {
		want := (c.args[0].Shape[2+i]+w.pads[i]+w.pads[n+i]-w.reach(i))/w.strides[i] + 1
		if c.result().Shape[2+i] != want {
			return w, fmt.Errorf("%s makes the shape %s, from its attributes %d follows in dimension %d", c.name,
				shapeText(c.result().Shape), want, 2+i)
		}
	}
	return w, nil
}

// transposed checks a transposed convolution and gives its output padding beside.
func (c *call) transposed(n int) (w window, extra []int64, err error) {
	if err := c.convolutionBasics(n); err != nil {
		return w, nil, err
	}
	// Relay's weights are input by output channels, whichever of the two names the layout has.
	if layout := c.text("kernel_layout", "IO"+spaces[n]); layout != "IO"+spaces[n] {
		return w, nil, fmt.Errorf("%s has kernel_layout=%q; ONNX's is IO%s", c.name, layout, spaces[n])
	}
	if w, err = c.window(n); err != nil {
		return w, nil, err
	}
	if extra, err = c.spread("output_padding", n, 0); err != nil {
		return w, nil, err
	}
	weight, groups := c.args[1].Shape, c.int("groups", 1)
	if groups < 1 || weight[0] != c.args[0].Shape[1] || weight[1]*groups != c.result().Shape[1] {
		return w, nil, fmt.Errorf("%s has weights of the shape %s for %d groups of %d channels", c.name,
			shapeText(weight), groups,
			c.args[0].Shape[1])
	}
	w.kernel = weight[2:]
	for i := range n {
		want := (c.args[0].Shape[2+i]-1)*w.strides[i] - w.pads[i] - w.pads[n+i] + w.reach(i) + extra[i]
		if c.result().Shape[2+i] != want {
			return w, nil, fmt.Errorf("%s makes the shape %s, from its attributes %d follows in dimension %d", c.name,
				shapeText(c.result().Shape), want, 2+i)
		}
		if extra[i] < 0 || extra[i] >= max(w.strides[i], w.dilation[i]) {
			return w, nil, fmt.Errorf("%s has output_padding %v, which must be below the strides %v", c.name, extra,
				w.strides)
		}
	}
	return w, extra, nil
}

// convolutionBasics are the checks that both kinds share.
func (c *call) convolutionBasics(n int) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	for _, t := range []int{len(c.args[0].Shape), len(c.args[1].Shape), len(c.result().Shape)} {
		if t != n+2 {
			return fmt.Errorf("%s has a tensor of %d dimensions, %d are expected", c.name, t, n+2)
		}
	}
	if err := c.sameOutDType(); err != nil {
		return err
	}
	layout := "NC" + spaces[n]
	if err := c.layout("data_layout", layout); err != nil {
		return err
	}
	return c.layout("out_layout", layout)
}

// mergeBias takes a bias that is added to the channels of a convolution or the columns of a dense layer, and that is a
// constant, into the operator.
func mergeBias(w *writer, o *operation, i int) int {
	k := w.onlyReader(i)
	if k < 0 {
		return i
	}
	at := callOfOp(w.p, &w.p.Ops[k]).biasOf(o.call)
	if at < 0 {
		return i
	}
	o.in = append(o.in, w.bias(o.call, w.p.Ops[k].Args[at]))
	w.take(k)
	return k
}

// bias gives a bias of a product's channels as a tensor of one dimension.
func (w *writer) bias(of *call, v region.ValueID) string {
	if len(w.p.Values[v].Type.Shape) != 1 {
		return w.reshaped(w.name(v), of.result().Shape[of.channel()])
	}
	return w.name(v)
}

// channel is the axis of the channels that a convolution makes, or of a dense layer's columns.
func (c *call) channel() int64 {
	if !strings.Contains(c.name, "conv") {
		return int64(len(c.result().Shape)) - 1
	}
	return 1
}

// biasOf says which of its arguments an add is a bias with, a constant for each channel of the product that its other
// argument is; -1 where it is no such add.
func (c *call) biasOf(product *call) int {
	if c.name != "add" && c.name != "nn.bias_add" || len(c.args) != 2 {
		return -1
	}
	bias := 1
	if c.name == "add" && c.constants[1] == relay.NoNode {
		bias = 0
	}
	whole, channel := product.result().Shape, product.channel()
	if _, err := supported(c); err != nil || c.constants[bias] == relay.NoNode || !slices.Equal(c.result().Shape, whole) {
		return -1
	}
	if c.name == "nn.bias_add" {
		if axis, err := c.axis("axis", 1, len(whole)); err != nil || axis != channel {
			return -1
		}
		return bias
	}
	shape := c.args[bias].Shape
	at := len(whole) - len(shape) // broadcasting aligns the last dimensions
	for d, extent := range shape {
		if int64(d+at) == channel && extent != whole[channel] || int64(d+at) != channel && extent != 1 {
			return -1
		}
	}
	if int64(at) > channel {
		return -1
	}
	return bias
}
