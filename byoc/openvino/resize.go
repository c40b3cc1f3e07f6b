// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// resize is one of Relay's operators that change the size of images.
type resize struct {
	dims   int
	layout string
}

func resizes() map[string]*operator {
	all := map[string]*operator{}
	for dims, layout := range map[int]string{1: "NCW", 2: "NCHW", 3: "NCDHW"} {
		r := resize{dims, layout}
		all[fmt.Sprintf("image.resize%dd", dims)] = &operator{r.check, r.write, "float32, static shapes, layout " +
			layout}
	}
	all["nn.upsampling"] = &operator{resize{2, "NCHW"}.check, resize{2, "NCHW"}.write,
		"float32, static shapes, layout NCHW"}
	return all
}

// how is the way in which a resize finds its elements, in OpenVINO's words.
type how struct {
	mode, transformation, nearest string
	alpha                         float64
}

// how reads the attributes.
func (r resize) how(c *call) (h how, err error) {
	method, _ := c.attrs.String("method")
	rounding := ""
	if c.op == "nn.upsampling" {
		method = strings.TrimPrefix(method, "bi")
		h.transformation, h.alpha = "asymmetric", -0.5
		if c.truth("align_corners") {
			h.transformation = "align_corners"
		}
	} else {
		h.transformation, _ = c.attrs.String("coordinate_transformation_mode")
		rounding, _ = c.attrs.String("rounding_method")
		h.alpha, _ = c.attrs.Float("cubic_alpha")
		if exclude, _ := c.attrs.Int("cubic_exclude"); exclude != 0 {
			return h, c.refuse("leaves out what lies outside (cubic_exclude)")
		}
	}
	if !slices.Contains([]string{"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"}, h.transformation) {
		return h, c.refuse("has the coordinate transformation %q", h.transformation)
	}
	if rounding == "" {
		rounding = "floor"
		if h.transformation == "align_corners" {
			rounding = "round"
		}
	}
	switch method {
	case "nearest_neighbor":
		h.mode = "nearest"
		// TVM's "round" rounds halves away from zero; no coordinate is below -0.5.
		h.nearest = map[string]string{"round": "round_prefer_ceil", "floor": "floor", "ceil": "ceil",
			"round_prefer_floor": "round_prefer_floor", "round_prefer_ceil": "round_prefer_ceil"}[rounding]
		if h.nearest == "" {
			return h, c.refuse("has the rounding %q", rounding)
		}
	case "linear":
		h.mode, h.nearest = "linear_onnx", "floor"
	case "cubic":
		h.mode, h.nearest = "cubic", "floor"
	default:
		return h, c.refuse("has the method %q", method)
	}
	return h, nil
}

func (r resize) check(c *call) error {
	if err := floats(c); err != nil {
		return err
	}
	if err := c.ranks(r.dims + 2); err != nil {
		return err
	}
	if err := c.layout("layout", r.layout); err != nil {
		return err
	}
	h, err := r.how(c)
	if err != nil {
		return err
	}
	if h.mode == "cubic" && r.dims != 2 {
		return c.refuse("is cubic in %d dimensions; only two are supported", r.dims)
	}
	if h.mode == "nearest" && (h.nearest == "floor" || h.nearest == "ceil") && h.transformation != "asymmetric" {
		// TVM moves the coordinate by 1e-5 before it rounds down or up.
		return c.refuse("rounds %s after %s; only after asymmetric it is the same in OpenVINO", h.nearest,
			h.transformation)
	}
	if h.mode == "nearest" {
		return r.exact(c)
	}
	return nil
}

// exact refuses scales that are not whole for nearest neighbours: which neighbour is nearest would depend on how a
// coordinate is rounded in float32.
func (r resize) exact(c *call) error {
	h, err := r.how(c)
	if err != nil {
		return err
	}
	for i := 2; i < r.dims+2; i++ {
		from, to := c.in[0].Shape[i], c.out[0].Shape[i]
		if to%from != 0 && from%to != 0 {
			return c.refuse("takes nearest neighbours from %d to %d; only whole scales are supported", from, to)
		}
		// TVM divides whole numbers then, and with that rounds down whatever it was told.
		if r.dims == 2 && to > from && h.transformation == "asymmetric" && h.nearest != "floor" {
			return c.refuse("enlarges %d to %d with the rounding %s; only floor is supported", from, to, h.nearest)
		}
	}
	return nil
}

func (r resize) write(w *writer, c *call, in []port) []port {
	h, _ := r.how(c)
	data := in[0]
	spatial, first := c.out[0].Shape[2:], int64(2)
	result := c.out[0]
	if r.dims == 1 { // there are kernels for two dimensions and more
		data = w.reshape(data, slices.Insert(slices.Clone(data.typ.Shape), 2, 1)...)
		spatial = []int64{1, spatial[0]}
		result = tensor("float32", slices.Insert(slices.Clone(result.Shape), 2, 1)...)
	}
	zeros := slices.Repeat([]int64{0}, len(result.Shape))
	axes := make([]int64, len(spatial))
	for i := range axes {
		axes[i] = first + int64(i)
	}
	attrs := []xml.Attr{attr("mode", h.mode), attr("shape_calculation_mode", "sizes"),
		attr("coordinate_transformation_mode", h.transformation), attr("nearest_mode", h.nearest),
		attr("antialias", "false"),
		attrInts("pads_begin", zeros...), attrInts("pads_end", zeros...),
		attr("cube_coeff", strconv.FormatFloat(h.alpha, 'g', -1, 64))}
	resized := w.one("Interpolate", "opset11", result, attrs, data, w.ints(spatial...), w.ints(axes...))
	return []port{w.reshape(resized, c.out[0].Shape...)}
}
