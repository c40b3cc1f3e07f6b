// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"
)

// convolution is one of Relay's convolutions.
type convolution struct {
	dims       int
	transposed bool
	// data is the layout of the data; kernels are those of the weights. Relay's names of the weights of a transposed
	// convolution differ from version to version, but the input channels always come first.
	data    string
	kernels []string
}

func convolutions() map[string]*operator {
	all := map[string]*operator{}
	for name, c := range map[string]convolution{
		"nn.conv1d":           {1, false, "NCW", []string{"OIW"}},
		"nn.conv2d":           {2, false, "NCHW", []string{"OIHW"}},
		"nn.conv3d":           {3, false, "NCDHW", []string{"OIDHW"}},
		"nn.conv1d_transpose": {1, true, "NCW", []string{"IOW", "OIW"}},
		"nn.conv2d_transpose": {2, true, "NCHW", []string{"IOHW", "OIHW"}},
		"nn.conv3d_transpose": {3, true, "NCDHW", []string{"IODHW", "OIDHW"}},
	} {
		all[name] = &operator{c.check, c.write, "float32, static shapes, layout " + c.data}
	}
	return all
}

func (v convolution) check(c *call) error {
	if err := c.static("float32"); err != nil {
		return err
	}
	if err := c.ranks(v.dims+2, v.dims+2); err != nil {
		return err
	}
	if err := c.layout("data_layout", v.data); err != nil {
		return err
	}
	if err := c.layout("out_layout", v.data); err != nil {
		return err
	}
	if err := c.layout("kernel_layout", v.kernels...); err != nil {
		return err
	}
	if err := c.untuned(); err != nil {
		return err
	}
	for _, name := range []string{"strides", "dilation"} {
		if _, err := c.spatial(name, v.dims); err != nil {
			return err
		}
	}
	if _, _, err := c.paddings(v.dims); err != nil {
		return err
	}
	groups, ok := c.attrs.Int("groups")
	in, out := c.in[0].Shape[1], c.out[0].Shape[1]
	if !ok || groups < 1 || in%groups != 0 || out%groups != 0 {
		return c.refuse("has %d groups for %d input and %d output channels", groups, in, out)
	}
	want := [2]int64{out, in / groups}
	if v.transposed {
		want = [2]int64{in, out / groups}
		if dilation, _ := c.spatial("dilation", v.dims); slices.Max(dilation) > 1 {
			return c.refuse("has the dilation %s; transposed convolutions are supported without", shapeText(dilation))
		}
	}
	if w := c.in[1].Shape; w[0] != want[0] || w[1] != want[1] {
		return c.refuse("has weights of the shape %s; for %d input and %d output channels in %d groups they must "+
			"begin with %d, %d",
			shapeText(w), in, out, groups, want[0], want[1])
	}
	return v.checkWindows(c)
}

// checkWindows makes sure that along each dimension some window meets the data. OpenVINO's kernels for AVX-512 crash
// where none does and anything follows the convolution.
func (v convolution) checkWindows(c *call) error {
	if v.transposed {
		return nil
	}
	strides, _ := c.spatial("strides", v.dims)
	dilation, _ := c.spatial("dilation", v.dims)
	begin, _, _ := c.paddings(v.dims)
	meets := func(i int) bool {
		for o := range c.out[0].Shape[2+i] {
			for k := range c.in[1].Shape[2+i] {
				if at := o*strides[i] + k*dilation[i] - begin[i]; at >= 0 && at < c.in[0].Shape[2+i] {
					return true
				}
			}
		}
		return false
	}
	for i := range v.dims {
		if !meets(i) {
			return c.refuse("has windows that all lie wholly in the padding")
		}
	}
	return nil
}

// stridesWouldMove says whether OpenVINO (2026.4.1) would take strides to the wrong side of a padding. What a kernel of
// one element steps over need not be computed: OpenVINO leaves it out in front of the elementwise layers that the
// convolution reads, by a pool of one element, whether the strides are the convolution's own or those of one behind it.
// But it does so where the convolution pads, too, or reads what is padded, and then other elements are left out. It
// looks at convolutions without groups only; with one group, the same is written as a convolution with groups.
func stridesWouldMove(w *writer, data, weight port, begin, end []int64) bool {
	ones := !slices.ContainsFunc(weight.typ.Shape[2:], func(n int64) bool { return n != 1 })
	return ones && (slices.Max(begin) > 0 || slices.Max(end) > 0 || w.padded[data.layer])
}

func (v convolution) write(w *writer, c *call, in []port) []port {
	strides, _ := c.spatial("strides", v.dims)
	dilation, _ := c.spatial("dilation", v.dims)
	begin, end, _ := c.paddings(v.dims)
	groups, _ := c.attrs.Int("groups")
	attrs := []xml.Attr{attrInts("strides", strides...), attrInts("dilations", dilation...),
		attrInts("pads_begin", begin...),
		attrInts("pads_end", end...), attr("auto_pad", "explicit")}
	kind := "Convolution"
	if v.transposed {
		kind = "ConvolutionBackpropData"
		if extra, ok := c.list("output_padding"); ok && len(extra) == v.dims {
			attrs = append(attrs, attrInts("output_padding", extra...))
		}
	}
	data, weight := in[0], in[1]
	if groups > 1 || !v.transposed && stridesWouldMove(w, data, weight, begin, end) {
		kind = "Group" + kind
		shape := weight.typ.Shape
		weight = w.reshape(weight, append([]int64{groups, shape[0] / groups}, shape[1:]...)...)
	}
	return []port{w.one(kind, "opset1", c.out[0], attrs, data, weight)}
}
