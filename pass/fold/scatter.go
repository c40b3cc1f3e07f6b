// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// scatter puts slices into a tensor: with indices of the shape [M, Y...] and updates of [Y..., rest of the tensor's],
// the slice at indices[0][y], ..., indices[M-1][y] becomes updates[y]. What is said twice of one place is left to TVM.
func scatter(t, indices, updates *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	mode, _ := attrs.String("mode")
	where, ok := indices.integers()
	if !ok || mode != "update" || len(indices.Shape) == 0 || updates.DType != t.DType {
		return nil, errLeft
	}
	depth := indices.Shape[0]
	if depth < 1 || depth > int64(len(t.Shape)) ||
		!slices.Equal(updates.Shape, slices.Concat(indices.Shape[1:], t.Shape[depth:])) {
		return nil, errLeft
	}
	out, err := newTensor(t.DType, t.Shape)
	if err != nil || out.len() == 0 {
		return out, err
	}
	copy(out.data, t.data)
	slots, _ := elements(t.Shape[:depth])
	size := int64(len(t.data)) / slots
	steps, count := compact(t.Shape[:depth]), int64(len(where))/depth
	seen := make([]bool, slots)
	for y := range count {
		slot := int64(0)
		for d := range depth {
			at := where[d*count+y]
			if at < 0 || at >= t.Shape[d] {
				return nil, errLeft // what lies beside the tensor
			}
			slot += at * steps[d]
		}
		if seen[slot] {
			return nil, errLeft
		}
		seen[slot] = true
		copy(out.data[slot*size:][:size], updates.data[y*size:])
	}
	return out, nil
}
