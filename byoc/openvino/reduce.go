// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

func reductions() map[string]*operator {
	all := map[string]*operator{}
	for name, kind := range map[string]string{"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax",
		"min": "ReduceMin", "prod": "ReduceProd"} {
		all[name] = &operator{checkReduction("float32"), writeReduction(kind), float32Static}
	}
	for name, kind := range map[string]string{"all": "ReduceLogicalAnd", "any": "ReduceLogicalOr"} {
		all[name] = &operator{checkReduction("bool"), writeReduction(kind), "bool, static shapes"}
	}
	for name, mode := range map[string]string{"argmax": "max", "argmin": "min"} {
		all[name] = &operator{checkArg, writeArg(mode), "float32 to int32, along one axis or all, static shapes"}
	}
	all["variance"] = &operator{checkReduction("float32"), writeVariance, float32Static}
	return all
}

// reduceAxes are the axes that a reduction goes over, by its attributes axis and exclude.
func (c *call) reduceAxes() ([]int64, bool) {
	rank := len(c.in[0].Shape)
	axes, ok := c.axes(rank)
	if !ok || !c.truth("exclude") {
		return axes, ok
	}
	var rest []int64
	for i := range rank {
		if !slices.Contains(axes, int64(i)) {
			rest = append(rest, int64(i))
		}
	}
	return rest, true
}

func checkReduction(dtype string) func(c *call) error {
	return func(c *call) error {
		if err := c.static(dtype); err != nil {
			return err
		}
		if axes, ok := c.reduceAxes(); !ok || len(axes) == 0 {
			return c.refuse("goes over no axis of %s", shapeText(c.in[0].Shape))
		}
		return nil
	}
}

func writeReduction(kind string) func(w *writer, c *call, in []port) []port {
	return func(w *writer, c *call, in []port) []port {
		axes, _ := c.reduceAxes()
		return []port{w.one(kind, "opset1", c.out[0], []xml.Attr{attrBool("keep_dims", c.truth("keepdims"))}, in[0],
			w.ints(axes...))}
	}
}

// writeVariance writes the mean of the squared distances from a given mean, as the pattern that OpenVINO makes one
// kernel of with the rest of a normalisation.
func writeVariance(w *writer, c *call, in []port) []port {
	axes, _ := c.reduceAxes()
	data, mean := in[0], in[1]
	difference := w.binary("Subtract", data.typ, data, mean)
	square := w.binary("Power", data.typ, difference, w.scalar("float32", 2))
	keep := []xml.Attr{attrBool("keep_dims", c.truth("keepdims"))}
	variance := w.one("ReduceMean", "opset1", c.out[0], keep, square, w.ints(axes...))
	if c.truth("unbiased") {
		n := 1.0
		for _, a := range axes {
			n *= float64(c.in[0].Shape[a])
		}
		variance = w.binary("Multiply", c.out[0], variance, w.scalar("float32", n/(n-1)))
	}
	return []port{variance}
}

func checkArg(c *call) error {
	if err := c.static("float32", "int32"); err != nil {
		return err
	}
	if c.in[0].DType != "float32" || c.out[0].DType != "int32" {
		return c.refuse("gives %s of %s; only int32 of float32 is supported", c.out[0].DType, c.in[0].DType)
	}
	rank := len(c.in[0].Shape)
	if axes, ok := c.reduceAxes(); !ok || rank == 0 || len(axes) != 1 && len(axes) != rank {
		return c.refuse("goes over some axes of %s, neither one nor all", shapeText(c.in[0].Shape))
	}
	if c.truth("select_last_index") {
		return c.refuse("asks for the last of equal elements")
	}
	return nil
}

func writeArg(mode string) func(w *writer, c *call, in []port) []port {
	return func(w *writer, c *call, in []port) []port {
		axes, _ := c.reduceAxes()
		data, axis := in[0], axes[0]
		if len(axes) > 1 {
			elements, _ := data.typ.NumElements()
			data, axis = w.reshape(data, elements), 0
		}
		kept := reduced(data.typ, []int64{axis}, true)
		// stable: of equal elements the first, as in Relay.
		attrs := []xml.Attr{attrInts("axis", axis), attr("mode", mode), attr("sort", "value"),
			attr("index_element_type", "i32"), attrBool("stable", true)}
		found := w.layer("TopK", "opset11", attrs, []port{data, w.number(relay.Tensor("int64"), 1)}, kept,
			tensor("int32", kept.Shape...))
		return []port{w.reshape(found[1], c.out[0].Shape...)}
	}
}
