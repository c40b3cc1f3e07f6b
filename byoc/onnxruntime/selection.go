// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// selections are the operators that take a part of a tensor, or surround it.
func selections() map[string]rule {
	return map[string]rule{
		"strided_slice": {
			check: func(c *call) error { _, err := c.slice(); return err },
			emit:  emitSlice, limits: "known bounds",
		},
		"slice_like": {
			check: func(c *call) error {
				if err := c.arity(2); err != nil {
					return err
				}
				return c.dtype("the data", c.args[0], anything...)
			},
			emit: func(w *writer, o *operation) error {
				var begins, axes []int64
				for a := range o.result().Shape {
					begins, axes = append(begins, 0), append(axes, int64(a))
				}
				w.emit("Slice", []string{o.in[0], w.ints(begins...), w.ints(o.result().Shape...), w.ints(axes...)},
					o.out)
				return nil
			},
			limits: "any type",
		},
		"reverse": {
			check: func(c *call) error {
				if err := c.unary(anything...); err != nil {
					return err
				}
				_, err := c.axis("axis", 0, len(c.args[0].Shape))
				return err
			},
			emit: func(w *writer, o *operation) error {
				axis, err := o.axis("axis", 0, len(o.args[0].Shape))
				n := o.args[0].Shape[axis]
				w.emit("Slice", []string{o.in[0], w.ints(n - 1), w.ints(-n - 1), w.ints(axis), w.ints(-1)}, o.out)
				return err
			},
			limits: "any type",
		},
		"take": {check: func(c *call) error { _, err := c.taken(); return err }, emit: emitTake,
			limits: "indices of int32 or int64"},
		"gather": {check: checkGather, emit: emitGather, limits: "indices of int32 or int64"},
		"nn.pad": {check: func(c *call) error { _, err := c.padded(); return err }, emit: emitPad,
			limits: "constant, edge or reflect"},
	}
}

// ranges is a slice: for each axis of axes where it begins, where it ends and its step, as ONNX wants them.
type ranges struct{ begins, ends, axes, steps []int64 }

// slice brings the bounds of strided_slice into one form. Where it ends follows from the result's shape.
func (c *call) slice() (r ranges, err error) {
	if err := c.unary(anything...); err != nil {
		return r, err
	}
	begins, ok := c.attrs.Ints("begin")
	if !ok {
		return r, fmt.Errorf("%s: the attribute begin is no list of known numbers", c.name)
	}
	axes, ok := c.attrs.Ints("axes")
	if !ok {
		for a := range begins {
			axes = append(axes, int64(a))
		}
	}
	steps, _ := c.attrs.Ints("strides")
	if len(axes) != len(begins) {
		return r, fmt.Errorf("%s has %d bounds for %d axes", c.name, len(begins), len(axes))
	}
	for i, a := range axes {
		shape := c.args[0].Shape
		if a < 0 {
			a += int64(len(shape))
		}
		if a < 0 || a >= int64(len(shape)) {
			return r, fmt.Errorf("%s has an axis that is not one of %d dimensions", c.name, len(shape))
		}
		step := int64(1)
		if c.text("slice_mode", "end") == "end" {
			if i < len(steps) {
				step = steps[i]
			} else if len(steps) == 1 {
				step = steps[0]
			}
		}
		begin, n, count := begins[i], shape[a], c.result().Shape[a]
		if begin < 0 {
			begin += n
		}
		if step == 0 {
			return r, fmt.Errorf("%s has a step of 0", c.name)
		}
		if step > 0 {
			begin = min(max(begin, 0), n)
		} else {
			begin = min(max(begin, -1), n-1)
		}
		last := begin + (count-1)*step
		if begin < 0 || begin >= n || last < 0 || last >= n {
			return r, fmt.Errorf("%s takes %d values from %d by %d of %d", c.name, count, begins[i], step, n)
		}
		end := last + 1
		if step < 0 {
			if end = last - 1; end < 0 {
				end = -n - 1 // -1 would mean the last value
			}
		}
		r.begins, r.ends = append(r.begins, begin), append(r.ends, end)
		r.axes, r.steps = append(r.axes, a), append(r.steps, step)
	}
	return r, nil
}

func emitSlice(w *writer, o *operation) error {
	r, err := o.slice()
	if err != nil {
		return err
	}
	w.emit("Slice", []string{o.in[0], w.ints(r.begins...), w.ints(r.ends...), w.ints(r.axes...), w.ints(r.steps...)},
		o.out)
	return nil
}

// taken checks take and gives its axis, -1 for the flat tensor.
func (c *call) taken() (int64, error) {
	if err := c.arity(2); err != nil {
		return 0, err
	}
	if err := c.dtype("the data", c.args[0], anything...); err != nil {
		return 0, err
	}
	if err := c.dtype("the indices", c.args[1], "int32", "int64"); err != nil {
		return 0, err
	}
	if c.int("batch_dims", 0) != 0 {
		return 0, fmt.Errorf("take has batch_dims=%d; ONNX has none", c.int("batch_dims", 0))
	}
	if mode := c.text("mode", "clip"); mode != "clip" && mode != "fast" && mode != "wrap" {
		return 0, fmt.Errorf("take has the mode %q", mode)
	}
	if value, _ := c.attrs.Get("axis"); value == nil {
		return -1, nil
	}
	return c.axis("axis", 0, len(c.args[0].Shape))
}

// emitTake writes a Gather. What Relay does with indices out of range is done to them before: ONNX Runtime would fail.
func emitTake(w *writer, o *operation) error {
	axis, err := o.taken()
	if err != nil {
		return err
	}
	data, n := o.in[0], relay.Elements(o.args[0].Shape)
	if axis < 0 {
		data, axis = w.reshaped(data, n), 0
	} else {
		n = o.args[0].Shape[axis]
	}
	indices, dtype := o.in[1], o.args[1].DType
	switch o.text("mode", "clip") {
	case "clip":
		indices = w.value("Clip", []string{indices, w.filled(dtype, nil, 0), w.filled(dtype, nil, float64(n-1))})
	case "wrap":
		indices = w.value("Mod", []string{indices, w.filled(dtype, nil, float64(n))})
	}
	w.emit("Gather", []string{data, indices}, o.out, attribute{"axis", axis})
	return nil
}

func checkGather(c *call) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.dtype("the data", c.args[0], anything...); err != nil {
		return err
	}
	if err := c.dtype("the indices", c.args[1], "int32", "int64"); err != nil {
		return err
	}
	_, err := c.axis("axis", 0, len(c.args[0].Shape))
	return err
}

func emitGather(w *writer, o *operation) error {
	axis, err := o.axis("axis", 0, len(o.args[0].Shape))
	w.emit("GatherElements", o.in, o.out, attribute{"axis", axis})
	return err
}

// padded checks nn.pad and gives how much is added: begins, then ends.
func (c *call) padded() ([]int64, error) {
	if err := c.arity(2); err != nil {
		return nil, err
	}
	if err := c.allDTypes("float32", "float64", "int32", "int64", "int8", "uint8", "uint32", "uint64",
		"bool"); err != nil {
		return nil, err
	}
	mode := c.text("pad_mode", "constant")
	if !slices.Contains([]string{"constant", "edge", "reflect"}, mode) {
		return nil, fmt.Errorf("nn.pad has the mode %q", mode)
	}
	if relay.Elements(c.args[1].Shape) != 1 {
		return nil, fmt.Errorf("nn.pad fills with a tensor of the shape %s", shapeText(c.args[1].Shape))
	}
	value, _ := c.attrs.Get("pad_width")
	list, _ := value.([]any)
	shape := c.args[0].Shape
	if len(list) != len(shape) {
		return nil, fmt.Errorf("nn.pad has %d pairs for %d dimensions", len(list), len(shape))
	}
	pads := make([]int64, 2*len(shape))
	for i, pair := range list {
		both, _ := pair.([]any)
		if len(both) != 2 {
			return nil, fmt.Errorf("nn.pad: the attribute pad_width is no list of pairs")
		}
		for side, v := range both {
			n, ok := v.(int64)
			if !ok || n < 0 {
				return nil, fmt.Errorf("nn.pad adds %v at dimension %d", v, i)
			}
			if mode == "reflect" && n >= shape[i] {
				return nil, fmt.Errorf("nn.pad reflects %d of %d values", n, shape[i])
			}
			pads[side*len(shape)+i] = n
		}
	}
	return pads, nil
}

func emitPad(w *writer, o *operation) error {
	pads, err := o.padded()
	if err != nil {
		return err
	}
	mode, in := o.text("pad_mode", "constant"), []string{o.in[0], w.ints(pads...)}
	if mode == "constant" {
		fill := o.in[1]
		if len(o.args[1].Shape) != 0 {
			fill = w.reshaped(fill)
		}
		in = append(in, fill)
	}
	w.emit("Pad", in, o.out, attribute{"mode", mode})
	return nil
}
