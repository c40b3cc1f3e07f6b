// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// The operators of this file give a tensor another shape.

func concatenate(a arguments) Value {
	parts, axis, ok := partsOf(a, 0)
	if !ok {
		return Value{}
	}
	out := slices.Clone(parts[0].Shape)
	items := slices.Clone(parts[0].Items)
	for _, p := range parts[1:] {
		for d, extent := range p.Shape {
			if _, number := extent.Value(); d != axis && number {
				out[d] = extent // all are the same when the network runs: a number says most
			}
		}
		out[axis] = out[axis].Plus(p.Shape[axis])
		if items != nil && p.Items != nil {
			items = append(items, p.Items...)
		} else {
			items = nil
		}
	}
	if len(out) != 1 {
		items = nil
	}
	return of(out, items)
}

func stack(a arguments) Value {
	parts, axis, ok := partsOf(a, 1)
	if !ok {
		return Value{}
	}
	out := slices.Insert(slices.Clone(parts[0].Shape), axis, Constant(int64(len(parts))))
	if len(out) != 1 {
		return sized(out)
	}
	var items []Expression
	for _, p := range parts {
		if len(p.Items) != 1 {
			return sized(out)
		}
		items = append(items, p.Items[0])
	}
	return of(out, items)
}

// partsOf are the tensors of the tuple that a call reads, all of one rank, and its axis; more is by how many dimensions
// the result has more than they.
func partsOf(a arguments, more int) (parts []Value, axis int, ok bool) {
	if len(a.in) != 1 || len(a.in[0].Fields) == 0 {
		return nil, 0, false
	}
	parts = a.in[0].Fields
	for _, p := range parts {
		if !p.known || len(p.Shape) != len(parts[0].Shape) {
			return nil, 0, false
		}
	}
	at, ok := a.attrs.Int("axis")
	if !ok {
		return nil, 0, false
	}
	axis, ok = axisOf(at, len(parts[0].Shape)+more)
	return parts, axis, ok
}

func split(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		at, ok := a.attrs.Int("axis")
		axis, ok2 := axisOf(at, len(v.Shape))
		if !ok || !ok2 {
			return Value{}
		}
		count, equal := a.attrs.Int("indices_or_sections")
		cuts, listed := a.attrs.Ints("indices_or_sections")
		var fields []Value
		with := func(extent Expression) {
			shape := slices.Clone(v.Shape)
			shape[axis] = extent
			fields = append(fields, sized(shape))
		}
		switch {
		case equal && count > 0:
			part, ok := v.Shape[axis].Over(Constant(count))
			if !ok {
				return Value{}
			}
			for range count {
				with(part)
			}
		case listed:
			from := int64(0)
			for _, cut := range cuts {
				if cut < from {
					return Value{}
				}
				with(Constant(cut - from))
				from = cut
			}
			with(v.Shape[axis].Minus(Constant(from)))
		}
		return Value{Fields: fields}
	})
}

// reshape reads the attribute "newshape" as TVM does: 0 is as in the data unless zero is a size, -1 what is left over, -2
// all the rest of the data's, -3 two of the data's as one.
func reshape(a arguments) Value {
	wanted, ok := a.attrs.Ints("newshape")
	if !ok {
		return Value{}
	}
	zero, _ := a.attrs.Bool("allowzero")
	return withFirst(a, func(v Value) Value {
		var out Extents
		from, open := 0, -1
		rest := func() Extents { return v.Shape[min(from, len(v.Shape)):] }
		for i := 0; i < len(wanted); i++ {
			switch d := wanted[i]; {
			case d > 0 || d == 0 && zero:
				out = append(out, Constant(d))
				from++
			case d == nextOne && len(rest()) > 0:
				out = append(out, rest()[0])
				from++
			case d == leftOver && open < 0:
				open = len(out)
				out = append(out, Constant(1))
				from++
			case d == -2:
				out = append(out, rest()...)
				from = len(v.Shape)
			case d == together && len(rest()) > 1:
				out = append(out, rest()[0].Times(rest()[1]))
				from += 2
			case d == apart && len(rest()) > 0 && i+2 < len(wanted):
				two, ok := inTwo(rest()[0], wanted[i+1], wanted[i+2])
				if !ok {
					return Value{}
				}
				out = append(out, two...)
				from++
				i += 2
			default:
				return Value{}
			}
		}
		return filled(v, out, open)
	})
}

// inTwo is a dimension taken apart into two, one of which may be what is left over.
func inTwo(of Expression, first, second int64) (Extents, bool) {
	a, b := Constant(first), Constant(second)
	var ok bool
	switch {
	case first == leftOver && second > 0:
		a, ok = of.Over(b)
	case first > 0 && second == leftOver:
		b, ok = of.Over(a)
	default:
		ok = first > 0 && second > 0
	}
	return Extents{a, b}, ok
}

// filled is a tensor in another shape, of which the dimension open (-1 for none) is what the others leave.
func filled(v Value, out Extents, open int) Value {
	if open >= 0 {
		others := slices.Delete(slices.Clone(out), open, open+1).elements()
		whole, rest := v.Shape.elements().divide(others)
		if !rest.Equal(Expression{}) {
			var ok bool
			if whole, ok = v.Shape.elements().Over(others); !ok {
				return Value{}
			}
		}
		out[open] = whole
	}
	return of(out, v.Items)
}

// dynamicReshape has its shape as an argument: 0 is as in the data, unless zero is a size, and -1 what is left over.
func dynamicReshape(a arguments) Value {
	to, ok := a.at(1)
	if !ok || to.Items == nil {
		return Value{}
	}
	zero, _ := a.attrs.Bool("allowzero")
	return withFirst(a, func(v Value) Value {
		out, open := make(Extents, len(to.Items)), -1
		for d, extent := range to.Items {
			out[d] = extent
			low, _ := extent.Bounds()
			switch value, known := extent.Value(); {
			case known && value == -1 && open < 0:
				open, out[d] = d, Constant(1)
			case known && value == 0 && !zero && d < len(v.Shape):
				out[d] = v.Shape[d]
			case low < 1 && (!zero || low < 0):
				return Value{} // it may be 0 or -1 when the network runs, and means something else then
			}
		}
		return filled(v, out, open)
	})
}

func expandDims(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		at, ok := a.attrs.Int("axis")
		count, ok2 := a.attrs.Int("num_newaxis")
		axis, ok3 := axisOf(at, len(v.Shape)+1)
		if !ok || !ok2 || !ok3 || count < 0 || count > mostItems {
			return Value{}
		}
		return of(slices.Insert(slices.Clone(v.Shape), axis, slices.Repeat(Extents{Constant(1)}, int(count))...), v.Items)
	})
}

func squeeze(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		axes, ok := a.attrs.Ints("axis")
		given, there := a.attrs.Get("axis")
		all := there && given == nil
		if !ok && !all {
			return Value{}
		}
		var gone []int
		for _, at := range axes {
			axis, ok := axisOf(at, len(v.Shape))
			if !ok {
				return Value{}
			}
			gone = append(gone, axis)
		}
		var out Extents
		for d, extent := range v.Shape {
			value, number := extent.Value()
			if all && !number {
				return Value{}
			}
			if !(slices.Contains(gone, d) || all && value == 1) {
				out = append(out, extent)
			}
		}
		return of(out, v.Items)
	})
}

func transpose(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		out := make(Extents, len(v.Shape))
		axes, ok := a.attrs.Ints("axes")
		if given, there := a.attrs.Get("axes"); there && given == nil || ok && len(axes) == 0 {
			for d := range out {
				out[d] = v.Shape[len(out)-1-d]
			}
			return sized(out)
		}
		if !ok || len(axes) != len(out) {
			return Value{}
		}
		for d, at := range axes {
			axis, ok := axisOf(at, len(out))
			if !ok {
				return Value{}
			}
			out[d] = v.Shape[axis]
		}
		return sized(out)
	})
}

// stridedSlice has its bounds as attributes.
func stridedSlice(a arguments) Value {
	begin, ok := a.attrs.Ints("begin")
	end, ok2 := a.attrs.Ints("end")
	by, ok3 := a.attrs.Ints("strides")
	mode, ok4 := a.attrs.String("slice_mode")
	if !ok || !ok2 || !ok3 || !ok4 || mode != "end" {
		return Value{}
	}
	axes, given := a.attrs.Ints("axes")
	if !given {
		for i := range min(len(begin), len(end)) {
			axes = append(axes, int64(i))
		}
	}
	if len(by) < len(axes) {
		by = append(slices.Clone(by), slices.Repeat([]int64{1}, len(axes)-len(by))...)
	}
	if len(begin) != len(axes) || len(end) != len(axes) {
		return Value{}
	}
	constants := func(list []int64) []Expression {
		out := make([]Expression, len(list))
		for i, value := range list {
			out[i] = Constant(value)
		}
		return out
	}
	return withFirst(a, func(v Value) Value { return sliced(v, axes, constants(begin), constants(end), constants(by)) })
}

// dynamicSlice has its bounds as arguments, for all dimensions in order.
func dynamicSlice(a arguments) Value {
	begin, ok := a.at(1)
	end, ok2 := a.at(2)
	by, ok3 := a.at(3)
	mode, ok4 := a.attrs.String("slice_mode")
	if !ok || !ok2 || !ok3 || !ok4 || mode != "end" || begin.Items == nil || end.Items == nil {
		return Value{}
	}
	return withFirst(a, func(v Value) Value {
		strides := by.Items
		if len(strides) == 0 && by.Items == nil {
			return Value{}
		}
		if len(strides) == 1 {
			strides = slices.Repeat(strides, len(begin.Items))
		}
		if len(begin.Items) != len(end.Items) || len(strides) != len(end.Items) {
			return Value{}
		}
		axes := make([]int64, len(begin.Items))
		for i := range axes {
			axes[i] = int64(i)
		}
		return sliced(v, axes, begin.Items, end.Items, strides)
	})
}

// sliceLike cuts the first argument to the size of the second, along all dimensions or some.
func sliceLike(a arguments) Value {
	like, ok := a.at(1)
	axes, given := a.attrs.Ints("axes")
	return withFirst(a, func(v Value) Value {
		if !ok {
			return Value{}
		}
		if !given || len(axes) == 0 {
			for i := range v.Shape {
				axes = append(axes, int64(i))
			}
		}
		begin, by := make([]Expression, len(axes)), make([]Expression, len(axes))
		end := make([]Expression, len(axes))
		for i := range axes {
			axis, ok := axisOf(axes[i], len(v.Shape))
			if !ok || axis >= len(like.Shape) {
				return Value{}
			}
			begin[i], end[i], by[i] = Constant(0), like.Shape[axis], Constant(1)
		}
		return sliced(v, axes, begin, end, by)
	})
}

// sliced cuts as TVM does: bounds are counted from the end where they are negative, and pulled into the tensor.
func sliced(v Value, axes []int64, begin, end, by []Expression) Value {
	out := slices.Clone(v.Shape)
	items := v.Items
	for i := range axes {
		axis, ok := axisOf(axes[i], len(out))
		step, known := by[i].Value()
		if !ok || !known || step < 1 {
			return Value{}
		}
		from, ok := bound(begin[i], v.Shape[axis])
		to, ok2 := bound(end[i], v.Shape[axis])
		if !ok || !ok2 {
			return Value{}
		}
		extent, ok := Max(to.Minus(from), Constant(0)).Plus(Constant(step - 1)).Over(Constant(step))
		if !ok {
			return Value{}
		}
		out[axis] = extent
		first, f := from.Value()
		last, t := to.Value()
		if items == nil || len(v.Shape) != 1 || !f || !t {
			items = nil
			continue
		}
		taken := []Expression{} // none is known, too
		for at := first; at < last; at += step {
			taken = append(taken, items[at])
		}
		items = taken
	}
	return of(out, items)
}

// bound pulls a slice's bound into a dimension; false where nobody can say on which side of 0 it is.
func bound(index, extent Expression) (Expression, bool) {
	low, high := index.Bounds()
	switch value, known := index.Value(); {
	case known && value == math.MinInt64:
		return Expression{}, true
	case known && value == math.MaxInt64:
		return extent, true
	case high < 0:
		return Max(index.Plus(extent), Expression{}), true
	case low >= 0:
		return Min(index, extent), true
	}
	return Expression{}, false
}

// toShape is an operator whose result has the shape that the argument number at gives.
func toShape(at int) operator {
	return func(a arguments) Value {
		to, ok := a.at(at)
		if !ok || to.Items == nil || slices.ContainsFunc(to.Items, func(e Expression) bool {
			low, _ := e.Bounds()
			return low < 0
		}) {
			return Value{}
		}
		return sized(slices.Clone(to.Items))
	}
}

func pad(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		given, ok := a.attrs.Get("pad_width")
		widths, list := given.([]any)
		if !ok || !list || len(widths) != len(v.Shape) {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		for d, width := range widths {
			pair, list := width.([]any)
			if !list || len(pair) != 2 {
				return Value{}
			}
			before, ok := pair[0].(int64)
			behind, ok2 := pair[1].(int64)
			if !ok || !ok2 {
				return Value{}
			}
			out[d] = out[d].Plus(Constant(before)).Plus(Constant(behind))
		}
		return sized(out)
	})
}

// dynamicPad has its widths as an argument, [rank, 2].
func dynamicPad(a arguments) Value {
	widths, ok := a.at(1)
	return withFirst(a, func(v Value) Value {
		if !ok || len(widths.Items) != 2*len(v.Shape) {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		for d := range out {
			out[d] = out[d].Plus(widths.Items[2*d]).Plus(widths.Items[2*d+1])
		}
		return sized(out)
	})
}

// window is a convolution or a pool over data with channels in the second dimension: the sizes of what it moves over.
// The number of channels is the type's.
func window(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		spatial := len(v.Shape) - 2
		if spatial < 1 || !channelsSecond(a.attrs) {
			return Value{}
		}
		kernel, ok := a.attrs.Ints("kernel_size")
		if !ok || len(kernel) == 0 {
			kernel, ok = a.attrs.Ints("pool_size")
		}
		if weight, there := a.at(1); there && len(weight.Shape) == len(v.Shape) {
			kernel = nil
			for _, extent := range weight.Shape[2:] {
				size, known := extent.Value()
				if !known {
					return Value{}
				}
				kernel = append(kernel, size)
			}
			ok = true
		}
		m, ok2 := a.movement(spatial)
		up, _ := a.attrs.Bool("ceil_mode")
		if !ok || !ok2 || up || len(kernel) != spatial {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		for d := range spatial {
			reach := (kernel[d]-1)*m.dilation[d] + 1
			room := v.Shape[2+d].Plus(Constant(m.padding[d] + m.padding[spatial+d] - reach))
			// No window fits where room is negative: the network does not run at such sizes.
			steps, ok := room.overAsItRuns(Constant(m.strides[d]))
			if _, high := room.Bounds(); !ok || high < 0 {
				return Value{}
			}
			out[2+d] = steps.Plus(Constant(1))
		}
		return sized(out)
	})
}

// movement is how windows go over the last axes of a tensor: steps and distances within a window along each, padding in
// front along each, and then behind.
type movement struct{ strides, padding, dilation []int64 }

// movement is a convolution's or a pool's over so many axes, whose attributes may say one number for several; false
// where they say another number of numbers.
func (a arguments) movement(spatial int) (m movement, ok bool) {
	m.strides, _ = a.attrs.Ints("strides")
	m.padding, _ = a.attrs.Ints("padding")
	m.dilation, _ = a.attrs.Ints("dilation")
	if len(m.strides) == 1 {
		m.strides = slices.Repeat(m.strides, spatial)
	}
	if len(m.padding) == spatial {
		m.padding = slices.Concat(m.padding, m.padding)
	} else if len(m.padding) == 1 {
		m.padding = slices.Repeat(m.padding, 2*spatial)
	}
	if len(m.dilation) == 0 {
		m.dilation = slices.Repeat([]int64{1}, spatial)
	}
	return m, len(m.strides) == spatial && len(m.padding) == 2*spatial && len(m.dilation) == spatial
}

func channelsSecond(attrs *relay.Attrs) bool {
	layout, ok := attrs.String("data_layout")
	if !ok {
		layout, ok = attrs.String("layout")
	}
	return ok && len(layout) > 2 && layout[:2] == "NC"
}
