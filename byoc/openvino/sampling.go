// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"

	"github.com/collage-tvm/collage/relay"
)

// samplings look between the elements of images.
func samplings() map[string]*operator {
	return map[string]*operator{
		"vision.roi_align": {checkRegions, writeRegions, "float32, static shapes, layout NCHW, the mean of the samples"},
		"image.grid_sample": {checkGrid, writeGrid,
			"float32, static shapes, layout NCHW, bilinear or bicubic; bicubic with zeros outside only"},
	}
}

func checkRegions(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	if err := c.ranks(4, 2); err != nil {
		return err
	}
	if c.in[1].Shape[1] != 5 {
		return c.refuse("has regions of the shape %s; five numbers each are supported", shapeText(c.in[1].Shape))
	}
	if err := c.layout("layout", "NCHW"); err != nil {
		return err
	}
	if mode, _ := c.attrs.String("mode"); mode != "avg" {
		return c.refuse("takes the %s of the samples; OpenVINO's is another", mode)
	}
	if _, ok := c.attrs.Float("spatial_scale"); !ok {
		return c.refuse("has no attribute spatial_scale")
	}
	return nil
}

func writeRegions(w *writer, c *call, in []port) []port {
	scale, _ := c.attrs.Float("spatial_scale")
	samples, _ := c.attrs.Int("sample_ratio")
	count := c.in[1].Shape[0]
	column := func(from, to int64) port {
		return w.one("Slice", "opset8", tensor("float32", count, to-from), nil, in[1], w.ints(from), w.ints(to),
			w.ints(1), w.ints(1))
	}
	images := w.convert(w.reshape(column(0, 1), count), "int32")
	attrs := []xml.Attr{attrInts("pooled_h", c.out[0].Shape[2]), attrInts("pooled_w", c.out[0].Shape[3]),
		attrInts("sampling_ratio", max(samples, 0)), attr("spatial_scale", number32(scale)), attr("mode", "avg"),
		attr("aligned_mode", "asymmetric")}
	return []port{w.one("ROIAlign", "opset9", c.out[0], attrs, in[0], column(1, 5), images)}
}

func checkGrid(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	if err := c.ranks(4, 4); err != nil {
		return err
	}
	if err := c.layout("layout", "NCHW"); err != nil {
		return err
	}
	method, _ := c.attrs.String("method")
	padding, _ := c.attrs.String("padding_mode")
	switch {
	case method == "nearest":
		return c.refuse("takes the nearest element, which depends on how a place is rounded")
	case method != "bilinear" && method != "bicubic":
		return c.refuse("has the method %q", method)
	case padding != "zeros" && padding != "border" && padding != "reflection":
		return c.refuse("has the padding_mode %q", padding)
	case method == "bicubic" && padding != "zeros":
		return c.refuse("is bicubic with the padding_mode %s: TVM moves the place into the image, OpenVINO each of the "+
			"elements around it", padding)
	}
	return nil
}

func writeGrid(w *writer, c *call, in []port) []port {
	method, _ := c.attrs.String("method")
	padding, _ := c.attrs.String("padding_mode")
	shape := c.in[1].Shape
	grid := w.one("Transpose", "opset1", relay.Tensor("float32", shape[0], shape[2], shape[3], shape[1]), nil, in[1],
		w.ints(0, 2, 3, 1))
	attrs := []xml.Attr{attrBool("align_corners", c.truth("align_corners")), attr("mode", method),
		attr("padding_mode", padding)}
	return []port{w.one("GridSample", "opset9", c.out[0], attrs, in[0], grid)}
}
