// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// take picks slices of a tensor along an axis, or items of it as if it had one dimension.
func take(t, indices *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	mode, _ := attrs.String("mode")
	batch, ok := attrs.Int("batch_dims")
	where, ok2 := indices.integers()
	if !ok || !ok2 || batch != 0 {
		return nil, errLeft
	}
	axis := 0
	if at, given := attrs.Get("axis"); given && at == nil {
		t = &Tensor{DType: t.DType, Shape: []int64{t.len()}, data: t.data}
	} else {
		n, ok := at.(int64)
		var within bool
		if axis, within = axisOf(n, len(t.Shape)); !ok || !within {
			return nil, errLeft
		}
	}
	extent := t.Shape[axis]
	where = slices.Clone(where)
	for i, at := range where {
		switch inside := at >= 0 && at < extent; {
		case inside:
		case extent == 0 || mode != "clip" && mode != "wrap":
			return nil, errLeft // what lies beside the tensor
		case mode == "clip":
			where[i] = min(max(at, 0), extent-1)
		default:
			where[i] = (at%extent + extent) % extent
		}
	}
	out, err := newTensor(t.DType, slices.Concat(t.Shape[:axis], indices.Shape, t.Shape[axis+1:]))
	if err != nil || out.len() == 0 {
		return out, err
	}
	blocks, _ := elements(t.Shape[:axis])
	block := int64(len(t.data)) / blocks
	size := block / extent
	to := out.data
	for i := range blocks {
		for _, at := range where {
			copy(to, t.data[i*block+at*size:][:size])
			to = to[size:]
		}
	}
	return out, nil
}

// gather picks single items along an axis: out[i][j] is data[indices[i][j]][j] for axis 0.
func gather(t, indices *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	at, ok := attrs.Int("axis")
	axis, ok2 := axisOf(at, len(t.Shape))
	where, ok3 := indices.integers()
	if !ok || !ok2 || !ok3 || len(indices.Shape) != len(t.Shape) {
		return nil, errLeft
	}
	for d, n := range indices.Shape {
		if d != axis && n != t.Shape[d] {
			return nil, errLeft
		}
	}
	out, err := newTensor(t.DType, indices.Shape)
	if err != nil {
		return nil, err
	}
	size, steps, from := itemSize(t.DType), compact(indices.Shape), compact(t.Shape)
	for i, index := range where {
		if index < 0 || index >= t.Shape[axis] {
			return nil, errLeft
		}
		item := index * from[axis]
		for d, n := range indices.Shape {
			if d != axis {
				item += int64(i) / steps[d] % n * from[d]
			}
		}
		copy(out.data[int64(i)*size:], t.data[item*size:][:size])
	}
	return out, nil
}
