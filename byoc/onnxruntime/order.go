// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"

	"github.com/collage-tvm/collage/relay"
)

// orders put elements in order, or add them up as they follow one another.
func orders() map[string]rule {
	all := map[string]rule{}
	for _, name := range []string{"topk", "sort", "argsort"} {
		all[name] = rule{check: checkTopK, emit: emitTopK, limits: either(numbers) + "; places as int32 or int64"}
	}
	all["cumsum"] = rule{check: func(c *call) error { _, err := c.summed(); return err }, emit: emitCumsum,
		limits: either(numbers)}
	return all
}

// ordered says which of its results a call gives: the values in order, the places where they stood, or both.
func (c *call) ordered() (values, places bool) {
	switch kind := c.text("ret_type", "both"); {
	case c.name == "sort", c.name == "topk" && kind == "values":
		return true, false
	case c.name == "argsort", c.name == "topk" && kind == "indices":
		return false, true
	}
	return true, true
}

func checkTopK(c *call) error {
	if err := c.arity(1); err != nil {
		return err
	}
	if err := c.dtype("the data", c.args[0], numbers...); err != nil {
		return err
	}
	values, places := c.ordered()
	if want := int(bit(values) + bit(places)); len(c.results) != want {
		return fmt.Errorf("%s makes %d tensors, %d are expected", c.name, len(c.results), want)
	}
	if values && c.result().DType != c.args[0].DType {
		return fmt.Errorf("%s makes %s of %s", c.name, c.result().DType, c.args[0].DType)
	}
	if places {
		if err := c.dtype("the places", c.results[len(c.results)-1], "int32", "int64"); err != nil {
			return err
		}
	}
	_, err := c.axis("axis", -1, len(c.args[0].Shape))
	return err
}

// emitTopK writes a TopK, which puts the first of equal elements first, as Relay does.
func emitTopK(w *writer, o *operation) error {
	axis, err := o.axis("axis", -1, len(o.args[0].Shape))
	if err != nil {
		return err
	}
	values, places := o.ordered()
	out := []string{w.another(), w.another()}
	if values {
		out[0] = o.out[0]
	}
	last := len(o.out) - 1
	narrow := places && o.results[last].DType != "int64"
	if places && !narrow {
		out[1] = o.out[last]
	}
	w.emit("TopK", []string{o.in[0], w.ints(o.result().Shape[axis])}, out, attribute{"axis", axis},
		attribute{"largest", bit(!o.flag("is_ascend", o.int("is_ascend", 0) != 0))}, attribute{"sorted", int64(1)})
	if narrow {
		w.emit("Cast", out[1:], o.out[last:], attribute{"to", int64(elementTypes[o.results[last].DType])})
	}
	return nil
}

// summed checks cumsum and gives its axis, -1 for the flat tensor.
func (c *call) summed() (int64, error) {
	if err := c.unary(numbers...); err != nil {
		return 0, err
	}
	if value, _ := c.attrs.Get("axis"); value == nil {
		return -1, nil
	}
	return c.axis("axis", 0, len(c.args[0].Shape))
}

func emitCumsum(w *writer, o *operation) error {
	axis, err := o.summed()
	if err != nil {
		return err
	}
	data := o.in[0]
	if axis < 0 {
		data, axis = w.reshaped(data, relay.Elements(o.args[0].Shape)), 0
	}
	exclusive := o.flag("exclusive", o.int("exclusive", 0) != 0)
	w.emit("CumSum", []string{data, w.filled("int64", nil, float64(axis))}, o.out,
		attribute{"exclusive", bit(exclusive)})
	return nil
}
