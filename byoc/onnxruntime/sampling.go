// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
)

// samplings look between the elements of images.
func samplings() map[string]rule {
	return map[string]rule{
		"vision.roi_align": {check: checkRegions, emit: emitRegions, limits: "float32, NCHW; the mean of the samples"},
		"image.grid_sample": {check: checkGrid, emit: emitGrid,
			limits: "float32, NCHW; bilinear, or bicubic with zeros outside"},
	}
}

func checkRegions(c *call) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	if len(c.args[0].Shape) != 4 || len(c.args[1].Shape) != 2 || c.args[1].Shape[1] != 5 {
		return fmt.Errorf("%s has regions of the shape %s in %s", c.name, shapeText(c.args[1].Shape),
			shapeText(c.args[0].Shape))
	}
	if err := c.layout("layout", "NCHW"); err != nil {
		return err
	}
	if mode := c.text("mode", "avg"); mode != "avg" {
		return fmt.Errorf("%s takes the %s of the samples; ONNX Runtime's is another", c.name, mode)
	}
	return nil
}

func emitRegions(w *writer, o *operation) error {
	column := func(from, to int64) string {
		return w.value("Slice", []string{o.in[1], w.ints(from), w.ints(to), w.ints(1)})
	}
	images := w.value("Cast", []string{w.reshaped(column(0, 1), -1)}, attribute{"to", int64(elementTypes["int64"])})
	shape := o.result().Shape
	w.emit("RoiAlign", []string{o.in[0], column(1, 5), images}, o.out, attribute{"mode", "avg"},
		attribute{"coordinate_transformation_mode", "output_half_pixel"}, attribute{"output_height", shape[2]},
		attribute{"output_width", shape[3]}, attribute{"sampling_ratio", max(o.int("sample_ratio", -1), 0)},
		attribute{"spatial_scale", float32(o.float("spatial_scale", 1))})
	return nil
}

// gridModes are ONNX's names of Relay's methods.
var gridModes = map[string]string{"bilinear": "linear", "bicubic": "cubic"}

func checkGrid(c *call) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	if len(c.args[0].Shape) != 4 || len(c.args[1].Shape) != 4 {
		return fmt.Errorf("%s works on something else than pictures of four dimensions", c.name)
	}
	if err := c.layout("layout", "NCHW"); err != nil {
		return err
	}
	method, padding := c.text("method", "bilinear"), c.text("padding_mode", "zeros")
	switch {
	case method == "nearest":
		return fmt.Errorf("%s takes the nearest value, which depends on how numbers are rounded", c.name)
	case gridModes[method] == "":
		return fmt.Errorf("%s has the method %q", c.name, method)
	case !slices.Contains([]string{"zeros", "border", "reflection"}, padding):
		return fmt.Errorf("%s has padding_mode=%q", c.name, padding)
	case method == "bicubic" && padding != "zeros":
		return fmt.Errorf("%s is bicubic with padding_mode=%q: TVM moves the place into the picture, ONNX Runtime each "+
			"of the values around it", c.name, padding)
	}
	return nil
}

func emitGrid(w *writer, o *operation) error {
	grid := w.value("Transpose", []string{o.in[1]}, attribute{"perm", []int64{0, 2, 3, 1}})
	w.emit("GridSample", []string{o.in[0], grid}, o.out, attribute{"mode", gridModes[o.text("method", "bilinear")]},
		attribute{"padding_mode", o.text("padding_mode", "zeros")},
		attribute{"align_corners", bit(o.flag("align_corners", true))})
	return nil
}
