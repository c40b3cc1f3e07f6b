// SPDX-License-Identifier: Apache-2.0

package fold

import "slices"

// compact are the strides, in items, of a tensor without gaps.
func compact(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	step := int64(1)
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = step
		step *= shape[d]
	}
	return strides
}

// broadcastShape is the shape that two shapes are broadcast to; false where they do not fit.
func broadcastShape(a, b []int64) ([]int64, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	shape := slices.Clone(a)
	for i, d := range b {
		at := len(a) - len(b) + i
		switch {
		case shape[at] == d || d == 1:
		case shape[at] == 1:
			shape[at] = d
		default:
			return nil, false
		}
	}
	return shape, true
}

// broadcastStrides are the strides with which a tensor of one shape is read as one of another that it is broadcast to.
func broadcastStrides(from, to []int64) ([]int64, bool) {
	if len(from) > len(to) {
		return nil, false
	}
	strides := make([]int64, len(to))
	for i, step := range compact(from) {
		at := len(to) - len(from) + i
		switch from[i] {
		case to[at]:
			strides[at] = step
		case 1:
		default:
			return nil, false
		}
	}
	return strides, true
}

// rows calls row for each innermost row of a shape, in order: at are the operands' first items in it, n its length,
// step the operands' distances between neighbours. There is at least one dimension, and no call where there are no
// items. Neighbouring dimensions that all operands step through evenly count as one.
func rows(shape []int64, strides [][]int64, offset []int64, row func(at []int64, n int64, step []int64)) {
	if slices.Contains(shape, 0) {
		return
	}
	shape, strides = merge(shape, strides)
	last := len(shape) - 1
	step := make([]int64, len(strides))
	for k := range strides {
		step[k] = strides[k][last]
	}
	at := slices.Clone(offset)
	index := make([]int64, last)
	for {
		row(at, shape[last], step)
		d := last - 1
		for ; d >= 0; d-- {
			index[d]++
			for k := range at {
				at[k] += strides[k][d]
			}
			if index[d] < shape[d] {
				break
			}
			for k := range at {
				at[k] -= strides[k][d] * shape[d]
			}
			index[d] = 0
		}
		if d < 0 {
			return
		}
	}
}

// merge leaves out dimensions of extent 1 and joins those that all operands step through evenly.
func merge(shape []int64, strides [][]int64) ([]int64, [][]int64) {
	var extents []int64
	steps := make([][]int64, len(strides))
	for d := range shape {
		if shape[d] == 1 {
			continue
		}
		joins := len(extents) > 0
		for k := range strides {
			joins = joins && steps[k][len(extents)-1] == strides[k][d]*shape[d]
		}
		if !joins {
			extents = append(extents, shape[d])
			for k := range strides {
				steps[k] = append(steps[k], strides[k][d])
			}
			continue
		}
		at := len(extents) - 1
		extents[at] *= shape[d]
		for k := range strides {
			steps[k][at] = strides[k][d]
		}
	}
	if len(extents) == 0 {
		extents = []int64{1}
		for k := range steps {
			steps[k] = []int64{0}
		}
	}
	return extents, steps
}

// view copies the items of t that stand at offset and strides, as a compact tensor of that shape.
func view(t *Tensor, shape, strides []int64, offset int64) (*Tensor, error) {
	out, err := newTensor(t.DType, shape)
	if err != nil {
		return nil, err
	}
	switch itemSize(t.DType) {
	case 1:
		copyView(items[uint8](out), items[uint8](t), shape, strides, offset)
	case 2:
		copyView(items[uint16](out), items[uint16](t), shape, strides, offset)
	case 4:
		copyView(items[uint32](out), items[uint32](t), shape, strides, offset)
	case 8:
		copyView(items[uint64](out), items[uint64](t), shape, strides, offset)
	default:
		return nil, errLeft
	}
	return out, nil
}

func copyView[T any](to, from []T, shape, strides []int64, offset int64) {
	done := 0
	rows(shape, [][]int64{strides}, []int64{offset}, func(at []int64, n int64, step []int64) {
		run := to[done : done+int(n)]
		done += int(n)
		if step[0] == 1 {
			copy(run, from[at[0]:])
			return
		}
		for i := range run {
			run[i] = from[at[0]+int64(i)*step[0]]
		}
	})
}

// broadcast makes a tensor of f of the items of two tensors, which are broadcast to each other.
func broadcast[T, R any](a, b *Tensor, dtype string, f func(x, y T) R) (*Tensor, error) {
	shape, ok := broadcastShape(a.Shape, b.Shape)
	if !ok {
		return nil, errLeft
	}
	out, err := newTensor(dtype, shape)
	if err != nil {
		return nil, err
	}
	left, _ := broadcastStrides(a.Shape, shape)
	right, _ := broadcastStrides(b.Shape, shape)
	x, y, to := items[T](a), items[T](b), items[R](out)
	done := 0
	rows(shape, [][]int64{left, right}, []int64{0, 0}, func(at []int64, n int64, step []int64) {
		run := to[done : done+int(n)]
		done += int(n)
		i, j := at[0], at[1]
		for k := range run {
			run[k] = f(x[i], y[j])
			i += step[0]
			j += step[1]
		}
	})
	return out, nil
}
