// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"

	"github.com/collage-tvm/collage/relay"
)

// orders put elements in order, or add them up as they follow one another.
func orders() map[string]*operator {
	const limits = "float32 or int32, places as int32 or int64, static shapes"
	return map[string]*operator{
		"topk":    {checkTopK, writeTopK, limits},
		"sort":    {checkTopK, writeTopK, "float32 or int32, static shapes"},
		"argsort": {checkTopK, writeTopK, limits},
		"cumsum":  {checkCumsum, writeCumsum, "float32 or int32, static shapes"},
	}
}

// ordered says which of its results a call gives: the values in order, the places where they stood, or both.
func (c *call) ordered() (values, places bool) {
	switch kind, _ := c.attrs.String("ret_type"); {
	case c.op == "sort", c.op == "topk" && kind == "values":
		return true, false
	case c.op == "argsort", c.op == "topk" && kind == "indices":
		return false, true
	}
	return true, true
}

func checkTopK(c *call) error {
	if err := c.tensor(c.in[0], "argument 1", []string{"float32", "int32"}); err != nil {
		return err
	}
	values, places := c.ordered()
	var want [][]string
	if values {
		want = append(want, []string{c.in[0].DType})
	}
	if places {
		want = append(want, []string{"int32", "int64"})
	}
	if len(c.out) != len(want) {
		return c.refuse("gives %d results where %d are expected", len(c.out), len(want))
	}
	for i, t := range c.out { // all of them are written, used or not
		if err := c.tensor(t, "result", want[i]); err != nil {
			return err
		}
	}
	_, err := c.axis("axis", len(c.in[0].Shape))
	return err
}

func writeTopK(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.in[0].Shape))
	mode := "max"
	if c.truth("is_ascend") {
		mode = "min"
	}
	values, places := c.ordered()
	shape, placesType := c.out[0].Shape, "int32"
	if places {
		placesType = c.out[len(c.out)-1].DType
	}
	// stable: of equal elements the first comes first, as in Relay.
	attrs := []xml.Attr{attrInts("axis", int64(axis)), attr("mode", mode), attr("sort", "value"),
		attr("index_element_type", elements[placesType].attribute), attrBool("stable", true)}
	found := w.layer("TopK", "opset11", attrs,
		[]port{in[0], w.number(relay.Tensor("int64"), float64(shape[axis]))},
		tensor(c.in[0].DType, shape...), tensor(placesType, shape...))
	if !values {
		return found[1:]
	}
	return found // where only the values are asked for, the places behind them are read by nobody
}

func checkCumsum(c *call) error {
	if err := numbers(c); err != nil {
		return err
	}
	if v, _ := c.attrs.Get("axis"); v == nil {
		return nil
	}
	_, err := c.axis("axis", len(c.in[0].Shape))
	return err
}

func writeCumsum(w *writer, c *call, in []port) []port {
	data, axis := w.axisOrRow(c, in[0])
	exclusive, _ := c.attrs.Int("exclusive")
	sum := w.one("CumSum", "opset3", tensor(data.typ.DType, data.typ.Shape...),
		[]xml.Attr{attrBool("exclusive", exclusive != 0 || c.truth("exclusive")), attrBool("reverse", false)},
		data, w.number(relay.Tensor("int64"), float64(axis)))
	return []port{w.reshape(sum, c.out[0].Shape...)}
}
