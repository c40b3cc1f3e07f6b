// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// The functions of this file move items or give them another shape; their arguments are a call's attributes.

// reshape knows the dimensions 0 (as in the data, unless zero is a size), -1 (what is left over), -2 (all the rest of
// the data's) and -3 (two of the data's as one).
func reshape(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	wanted, ok := attrs.Ints("newshape")
	if !ok {
		return nil, errLeft
	}
	allowZero, _ := attrs.Bool("allowzero")
	var shape []int64
	from, open := 0, -1
	rest := func() []int64 { return t.Shape[min(from, len(t.Shape)):] }
	for _, d := range wanted {
		switch {
		case d > 0 || d == 0 && allowZero:
			shape = append(shape, d)
			from++
		case d == 0 && len(rest()) > 0:
			shape = append(shape, rest()[0])
			from++
		case d == -1 && open < 0:
			open = len(shape)
			shape = append(shape, 1)
			from++
		case d == -2:
			shape = append(shape, rest()...)
			from = len(t.Shape)
		case d == -3 && len(rest()) > 1:
			shape = append(shape, rest()[0]*rest()[1])
			from += 2
		default:
			return nil, errLeft
		}
	}
	if open >= 0 {
		known, ok := elements(shape)
		if !ok || known == 0 || t.len()%known != 0 {
			return nil, errLeft
		}
		shape[open] = t.len() / known
	}
	return t.shaped(shape)
}

func expandDims(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	at, ok := attrs.Int("axis")
	count, ok2 := attrs.Int("num_newaxis")
	axis, ok3 := axisOf(at, len(t.Shape)+1)
	if !ok || !ok2 || !ok3 || count < 0 {
		return nil, errLeft
	}
	return t.shaped(slices.Insert(slices.Clone(t.Shape), axis, slices.Repeat([]int64{1}, int(count))...))
}

func squeeze(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	axes, given, ok := axesOf(attrs, len(t.Shape))
	if !ok {
		return nil, errLeft
	}
	shape := []int64{}
	for d, n := range t.Shape {
		out := n == 1 && (!given || slices.Contains(axes, d))
		if given && slices.Contains(axes, d) && n != 1 {
			return nil, errLeft
		}
		if !out {
			shape = append(shape, n)
		}
	}
	return t.shaped(shape)
}

// axesOf reads the attribute "axis", a list of axes; given is false where it is null.
func axesOf(attrs *relay.Attrs, rank int) (axes []int, given, ok bool) {
	v, ok := attrs.Get("axis")
	if !ok || v == nil {
		return nil, false, ok
	}
	list, ok := attrs.Ints("axis")
	for _, a := range list {
		axis, within := axisOf(a, rank)
		ok = ok && within && !slices.Contains(axes, axis)
		axes = append(axes, axis)
	}
	return axes, true, ok
}

func transpose(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	rank := len(t.Shape)
	axes := make([]int, 0, rank)
	if v, ok := attrs.Get("axes"); ok && v == nil {
		for d := rank - 1; d >= 0; d-- {
			axes = append(axes, d)
		}
	} else if list, ok := attrs.Ints("axes"); ok && len(list) == rank {
		for _, a := range list {
			axis, within := axisOf(a, rank)
			if !within || slices.Contains(axes, axis) {
				return nil, errLeft
			}
			axes = append(axes, axis)
		}
	} else {
		return nil, errLeft
	}
	shape, strides, from := make([]int64, rank), make([]int64, rank), compact(t.Shape)
	for d, axis := range axes {
		shape[d], strides[d] = t.Shape[axis], from[axis]
	}
	return view(t, shape, strides, 0)
}

func broadcastTo(t *Tensor, shape []int64) (*Tensor, error) {
	strides, ok := broadcastStrides(t.Shape, shape)
	if !ok {
		return nil, errLeft
	}
	return view(t, shape, strides, 0)
}

// stridedSlice cuts as TVM does: bounds are counted from the end where they are negative, and pulled into the tensor.
func stridedSlice(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	begin, ok := attrs.Ints("begin")
	end, ok2 := attrs.Ints("end")
	by, ok3 := attrs.Ints("strides")
	mode, ok4 := attrs.String("slice_mode")
	if !ok || !ok2 || !ok3 || !ok4 || mode != "end" && mode != "size" {
		return nil, errLeft
	}
	axes := make([]int64, min(len(begin), len(end)))
	for i := range axes {
		axes[i] = int64(i)
	}
	if v, _ := attrs.Get("axes"); v != nil {
		if axes, ok = attrs.Ints("axes"); !ok {
			return nil, errLeft
		}
	} else if len(by) < len(axes) {
		by = append(slices.Clone(by), slices.Repeat([]int64{1}, len(axes)-len(by))...)
	}
	if len(begin) != len(axes) || len(end) != len(axes) || len(by) != len(axes) {
		return nil, errLeft
	}
	shape, strides, offset := slices.Clone(t.Shape), compact(t.Shape), int64(0)
	seen := map[int]bool{}
	for i := range axes {
		axis, within := axisOf(axes[i], len(t.Shape))
		if !within || seen[axis] {
			return nil, errLeft
		}
		seen[axis] = true
		extent, step, last := t.Shape[axis], by[i], end[i]
		if mode == "size" {
			step = 1
			if last < 0 {
				last = extent
			} else {
				last += begin[i]
			}
		}
		if step == 0 {
			return nil, errLeft
		}
		from, to := bound(begin[i], extent, step), bound(last, extent, step)
		if step > 0 && from > to || step < 0 && from < to {
			return nil, errLeft // TVM refuses it, and says so
		}
		distance := to - from
		if step < 0 {
			distance = -distance
		}
		size := step
		if size < 0 {
			size = -size
		}
		shape[axis] = (distance + size - 1) / size
		offset += from * strides[axis]
		strides[axis] *= step
	}
	return view(t, shape, strides, offset)
}

// bound pulls a slice's bound into a dimension.
func bound(index, extent, step int64) int64 {
	if index < 0 {
		index += extent
	}
	if step < 0 {
		return min(max(index, -1), extent-1)
	}
	return min(max(index, 0), extent)
}

func tile(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	times, ok := attrs.Ints("reps")
	if !ok || slices.ContainsFunc(times, func(n int64) bool { return n < 1 }) {
		return nil, errLeft
	}
	rank := max(len(times), len(t.Shape))
	from := append(slices.Repeat([]int64{1}, rank-len(t.Shape)), t.Shape...)
	times = append(slices.Repeat([]int64{1}, rank-len(times)), times...)
	shape, strides, whole := make([]int64, 2*rank), make([]int64, 2*rank), make([]int64, rank)
	for d, step := range compact(from) {
		shape[2*d], shape[2*d+1], strides[2*d+1] = times[d], from[d], step
		whole[d] = times[d] * from[d]
	}
	out, err := view(t, shape, strides, 0)
	if err != nil {
		return nil, err
	}
	return out.shaped(whole)
}

func repeat(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	times, ok := attrs.Int("repeats")
	at, ok2 := attrs.Int("axis")
	axis, ok3 := axisOf(at, len(t.Shape))
	if !ok || !ok2 || !ok3 || times < 1 {
		return nil, errLeft
	}
	strides := slices.Insert(compact(t.Shape), axis+1, 0)
	out, err := view(t, slices.Insert(slices.Clone(t.Shape), axis+1, times), strides, 0)
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(t.Shape)
	shape[axis] *= times
	return out.shaped(shape)
}

func reverse(t *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	at, ok := attrs.Int("axis")
	axis, ok2 := axisOf(at, len(t.Shape))
	if !ok || !ok2 {
		return nil, errLeft
	}
	strides := compact(t.Shape)
	offset := max(t.Shape[axis]-1, 0) * strides[axis]
	strides[axis] = -strides[axis]
	return view(t, t.Shape, strides, offset)
}

// concatenate joins tensors along an axis.
func concatenate(parts []*Tensor, at int64) (*Tensor, error) {
	if len(parts) == 0 {
		return nil, errLeft
	}
	axis, ok := axisOf(at, len(parts[0].Shape))
	if !ok {
		return nil, errLeft
	}
	shape := slices.Clone(parts[0].Shape)
	shape[axis] = 0
	for _, p := range parts {
		if p.DType != parts[0].DType || len(p.Shape) != len(shape) {
			return nil, errLeft
		}
		for d, n := range p.Shape {
			if d != axis && n != shape[d] {
				return nil, errLeft
			}
		}
		shape[axis] += p.Shape[axis]
	}
	out, err := newTensor(parts[0].DType, shape)
	if err != nil || out.len() == 0 {
		return out, err
	}
	blocks, _ := elements(shape[:axis])
	to := out.data
	for i := range blocks {
		for _, p := range parts {
			size := int64(len(p.data)) / blocks
			copy(to, p.data[i*size:(i+1)*size])
			to = to[size:]
		}
	}
	return out, nil
}

func stack(parts []*Tensor, at int64) (*Tensor, error) {
	if len(parts) == 0 {
		return nil, errLeft
	}
	axis, ok := axisOf(at, len(parts[0].Shape)+1)
	if !ok {
		return nil, errLeft
	}
	wider := make([]*Tensor, len(parts))
	for i, p := range parts {
		if !slices.Equal(p.Shape, parts[0].Shape) {
			return nil, errLeft
		}
		wider[i] = &Tensor{DType: p.DType, Shape: slices.Insert(slices.Clone(p.Shape), axis, 1), data: p.data}
	}
	return concatenate(wider, int64(axis))
}

// split cuts a tensor into equal parts, or at indices.
func split(t *Tensor, attrs *relay.Attrs) ([]*Tensor, error) {
	at, ok := attrs.Int("axis")
	axis, ok2 := axisOf(at, len(t.Shape))
	if !ok || !ok2 {
		return nil, errLeft
	}
	extent := t.Shape[axis]
	cuts, ok := attrs.Ints("indices_or_sections")
	if count, equal := attrs.Int("indices_or_sections"); equal {
		if count < 1 || extent%count != 0 {
			return nil, errLeft
		}
		cuts, ok = nil, true
		for i := int64(1); i < count; i++ {
			cuts = append(cuts, i*(extent/count))
		}
	}
	if !ok {
		return nil, errLeft
	}
	strides, begin := compact(t.Shape), int64(0)
	var parts []*Tensor
	for _, end := range append(slices.Clone(cuts), extent) {
		if end < begin || end > extent {
			return nil, errLeft
		}
		shape := slices.Clone(t.Shape)
		shape[axis] = end - begin
		part, err := view(t, shape, strides, begin*strides[axis])
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		begin = end
	}
	return parts, nil
}
