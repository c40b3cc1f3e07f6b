// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// selections take elements out of a tensor.
func selections() map[string]*operator {
	return map[string]*operator{
		"strided_slice": {checkSlice, writeSlice, movableStatic + ", constant bounds"},
		"take":          {checkTake, writeTake, movableStatic + ", indices int32 or int64"},
		"gather":        {checkGather, writeGather, movableStatic + ", indices int32 or int64"},
	}
}

// slice is one dimension of a strided slice, within the bounds of the data.
type slice struct{ axis, begin, end, step int64 }

// slices reads the attributes of strided_slice as Relay means them.
func (c *call) slices() ([]slice, bool) {
	shape := c.in[0].Shape
	begin, ok := c.list("begin")
	end, okEnd := c.list("end")
	steps, _ := c.list("strides")
	axes, hasAxes := c.list("axes")
	if !ok || !okEnd {
		return nil, false
	}
	mode, _ := c.attrs.String("slice_mode")
	var all []slice
	for i := range max(len(begin), len(end)) {
		s := slice{axis: int64(i), step: 1}
		if hasAxes {
			if i >= len(axes) {
				return nil, false
			}
			if s.axis = axes[i]; s.axis < 0 {
				s.axis += int64(len(shape))
			}
		}
		if s.axis < 0 || int(s.axis) >= len(shape) {
			return nil, false
		}
		d := shape[s.axis]
		if mode != "size" && len(steps) > 0 {
			s.step = steps[min(i, len(steps)-1)]
			if len(steps) > 1 && i >= len(steps) {
				s.step = 1
			}
		}
		if s.step == 0 {
			return nil, false
		}
		at := func(v int64) int64 {
			if v < 0 {
				v += d
			}
			if s.step < 0 {
				return min(max(v, -1), d-1)
			}
			return min(max(v, 0), d)
		}
		if s.end = d; s.step < 0 {
			s.begin, s.end = d-1, -1
		}
		if i < len(begin) {
			s.begin = at(begin[i])
		}
		switch {
		case i >= len(end):
		case mode == "size" && end[i] < 0:
			s.end = d
		case mode == "size":
			s.end = min(s.begin+end[i], d)
		default:
			s.end = at(end[i])
		}
		all = append(all, s)
	}
	return all, true
}

// length is how many elements the slice takes.
func (s slice) length() int64 {
	if s.step < 0 {
		return max(0, (s.begin-s.end-s.step-1)/-s.step)
	}
	return max(0, (s.end-s.begin+s.step-1)/s.step)
}

func checkSlice(c *call) error {
	if err := moves(c); err != nil {
		return err
	}
	if len(c.in) != 1 {
		return c.refuse("has bounds that are computed")
	}
	list, ok := c.slices()
	if !ok {
		return c.refuse("has no usable attributes begin and end")
	}
	shape := slices.Clone(c.in[0].Shape)
	for _, s := range list {
		shape[s.axis] = s.length()
	}
	if !slices.Equal(shape, c.out[0].Shape) {
		return c.refuse("gives the shape %s, where %s follows from its attributes", shapeText(c.out[0].Shape),
			shapeText(shape))
	}
	return nil
}

func writeSlice(w *writer, c *call, in []port) []port {
	list, _ := c.slices()
	var begin, end, step, axes []int64
	for _, s := range list {
		if s.begin == 0 && s.step == 1 && s.end == c.in[0].Shape[s.axis] {
			continue
		}
		if s.end < 0 { // before the first: as OpenVINO counts from the back, one that is clamped
			s.end = -c.in[0].Shape[s.axis] - 1
		}
		begin, end, step, axes = append(begin, s.begin), append(end, s.end), append(step, s.step), append(axes, s.axis)
	}
	if len(axes) == 0 {
		return in
	}
	return []port{w.one("Slice", "opset8", c.out[0], nil, in[0], w.ints(begin...), w.ints(end...), w.ints(step...),
		w.ints(axes...))}
}

// checkIndexed checks data and indices.
func checkIndexed(c *call) error {
	if len(c.in) != 2 || c.in[0] == nil || c.in[1] == nil {
		return c.refuse("has arguments that are no two tensors")
	}
	if err := c.indices(1); err != nil {
		return err
	}
	data := *c
	data.in = c.in[:1]
	return moves(&data)
}

func checkTake(c *call) error {
	if err := checkIndexed(c); err != nil {
		return err
	}
	if v, _ := c.attrs.Get("axis"); v != nil {
		if _, err := c.axis("axis", len(c.in[0].Shape)); err != nil {
			return err
		}
	}
	if batch, _ := c.attrs.Int("batch_dims"); batch != 0 {
		return c.refuse("has batch_dims %d; only 0 is supported", batch)
	}
	if mode, _ := c.attrs.String("mode"); mode != "clip" && mode != "fast" {
		return c.refuse("has the mode %q; clip and fast are supported", mode)
	}
	return nil
}

// axisOrRow gives the data of a call and its axis; where it has none, all elements in one row.
func (w *writer) axisOrRow(c *call, data port) (port, int) {
	if v, _ := c.attrs.Get("axis"); v != nil {
		axis, _ := c.axis("axis", len(c.in[0].Shape))
		return data, axis
	}
	elements, _ := data.typ.NumElements()
	return w.reshape(data, elements), 0
}

func writeTake(w *writer, c *call, in []port) []port {
	data, axis := w.axisOrRow(c, in[0])
	indices := in[1]
	if mode, _ := c.attrs.String("mode"); mode == "clip" {
		// OpenVINO counts negative indices from the back, Relay takes them for the first.
		t := indices.typ
		indices = w.binary("Maximum", t, indices, w.scalar(t.DType, 0))
		indices = w.binary("Minimum", t, indices, w.scalar(t.DType, float64(data.typ.Shape[axis]-1)))
	}
	return []port{w.one("Gather", "opset8", c.out[0], []xml.Attr{attr("batch_dims", "0")}, data, indices,
		w.number(relay.Tensor("int64"), float64(axis)))}
}

func checkGather(c *call) error {
	if err := checkIndexed(c); err != nil {
		return err
	}
	return c.indicesAlong()
}

// indicesAlong checks that indices have the data's extents but along the axis.
func (c *call) indicesAlong() error {
	axis, err := c.axis("axis", len(c.in[0].Shape))
	if err != nil {
		return err
	}
	for i, d := range c.in[0].Shape {
		if i != axis && c.in[1].Shape[i] != d {
			return c.refuse("has indices of the shape %s for %s", shapeText(c.in[1].Shape), shapeText(c.in[0].Shape))
		}
	}
	return nil
}

func writeGather(w *writer, c *call, in []port) []port {
	axis, _ := c.axis("axis", len(c.in[0].Shape))
	return []port{w.one("GatherElements", "opset6", c.out[0], []xml.Attr{attrInts("axis", int64(axis))}, in[0], in[1])}
}
