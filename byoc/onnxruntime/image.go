// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"math"
)

// images are the operators that scale pictures.
func images() map[string]rule {
	resize := rule{
		check: func(c *call) error { _, err := c.resize(); return err },
		emit: func(w *writer, o *operation) error {
			r, err := o.resize()
			if err != nil {
				return err
			}
			attributes := []attribute{{"mode", r.mode}, {"coordinate_transformation_mode", r.coordinates}}
			if r.mode == "nearest" {
				attributes = append(attributes, attribute{"nearest_mode", r.rounding})
			}
			if r.mode == "cubic" {
				attributes = append(attributes, attribute{"cubic_coeff_a", r.alpha},
					attribute{"exclude_outside", int64(0)})
			}
			w.emit("Resize", []string{o.in[0], "", "", w.ints(o.result().Shape...)}, o.out, attributes...)
			return nil
		},
		limits: "float32, NCHW; nearest only where rounding cannot differ",
	}
	return map[string]rule{"image.resize2d": resize, "nn.upsampling": resize}
}

// resizing is a resize in ONNX's words.
type resizing struct {
	mode, coordinates, rounding string
	alpha                       float32
}

// resize checks image.resize2d and nn.upsampling.
func (c *call) resize() (r resizing, err error) {
	if len(c.args) == 0 || len(c.args[0].Shape) != 4 {
		return r, fmt.Errorf("%s works on something else than pictures of four dimensions", c.name)
	}
	if err := c.dtype("the data", c.args[0], onlyFloat); err != nil {
		return r, err
	}
	if err := c.dtype("the result", c.result(), onlyFloat); err != nil {
		return r, err
	}
	if err := c.layout("layout", "NCHW"); err != nil {
		return r, err
	}
	method := c.text("method", "linear")
	r.coordinates, r.alpha = c.text("coordinate_transformation_mode", "half_pixel"),
		float32(c.float("cubic_alpha", -0.5))
	rounding := c.text("rounding_method", "")
	if c.name == "nn.upsampling" {
		method = map[string]string{"nearest_neighbor": "nearest_neighbor", "bilinear": "linear",
			"bicubic": "cubic"}[c.text("method", "")]
		r.coordinates, r.alpha, rounding = "asymmetric", -0.5, ""
		if c.flag("align_corners", false) {
			r.coordinates = "align_corners"
		}
	}
	switch r.coordinates {
	case "half_pixel", "align_corners", "asymmetric":
	default:
		return r, fmt.Errorf("%s has coordinate_transformation_mode=%q", c.name, r.coordinates)
	}
	for i := 2; i < 4; i++ {
		if r.coordinates == "align_corners" && c.result().Shape[i] == 1 {
			return r, fmt.Errorf("%s aligns the corners of one value", c.name)
		}
	}
	switch method {
	case "nearest_neighbor":
		r.mode = "nearest"
		return r, c.rounding(&r, rounding)
	case "linear":
		r.mode = "linear"
	case "cubic":
		r.mode = "cubic"
		if c.int("cubic_exclude", 0) != 0 {
			return r, fmt.Errorf("%s leaves out what is outside (cubic_exclude), which TVM and ONNX do in different "+
				"ways", c.name)
		}
	default:
		return r, fmt.Errorf("%s has the method %q", c.name, c.text("method", ""))
	}
	return r, nil
}

// rounding says how the nearest value is chosen, and refuses sizes for which a coordinate comes so near to where the
// choice changes that the last bit of a float decides.
func (c *call) rounding(r *resizing, method string) error {
	if method == "" {
		method = "floor"
		if r.coordinates == "align_corners" {
			method = "round"
		}
	}
	edge := 0.5 // where the choice changes, as a fraction
	switch method {
	case "floor", "ceil":
		r.rounding, edge = method, 0
	case "round", "round_prefer_ceil":
		r.rounding = "round_prefer_ceil"
	case "round_prefer_floor":
		r.rounding = "round_prefer_floor"
	default:
		return fmt.Errorf("%s has rounding_method=%q", c.name, method)
	}
	for i := 2; i < 4; i++ {
		in, out := c.args[0].Shape[i], c.result().Shape[i]
		if r.coordinates == "asymmetric" && method == "floor" && out%in == 0 {
			continue // both count whole steps
		}
		for x := range out {
			at := coordinate(r.coordinates, float64(x), float64(in), float64(out))
			if apart := math.Abs(at - edge - math.Round(at-edge)); apart < 1e-3 && at > -0.4 && at < float64(in)-0.6 {
				return fmt.Errorf("%s goes from %d to %d values, where the nearest to some of them depends on how "+
					"numbers are rounded",
					c.name, in, out)
			}
		}
	}
	return nil
}

// coordinate is where output x lies in the input.
func coordinate(mode string, x, in, out float64) float64 {
	switch mode {
	case "half_pixel":
		return (x+0.5)*in/out - 0.5
	case "align_corners":
		return x * (in - 1) / (out - 1)
	}
	return x * in / out
}
