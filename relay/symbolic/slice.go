// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// writtenSlice are the bounds of a strided_slice for all dimensions of its data, in order.
func writtenSlice(n *relay.Node, data Value) (begin, end, by []any, ok bool) {
	low, ok := n.Attrs.Ints("begin")
	high, ok2 := n.Attrs.Ints("end")
	strides, _ := n.Attrs.Ints("strides")
	axes, given := n.Attrs.Ints("axes")
	mode, _ := n.Attrs.String("slice_mode")
	if !ok || !ok2 || mode != "end" || len(low) != len(high) {
		return nil, nil, nil, false
	}
	for range data.Shape {
		begin, end, by = append(begin, int64(0)), append(end, int64(math.MaxInt64)), append(by, int64(1))
	}
	for i := range low {
		at := int64(i)
		if given && len(axes) == len(low) {
			at = axes[i]
		}
		axis, ok := axisOf(at, len(data.Shape))
		if !ok {
			return nil, nil, nil, false
		}
		begin[axis], end[axis] = low[i], high[i]
		switch {
		case len(strides) == 1:
			by[axis] = strides[0]
		case len(strides) > 0:
			by[axis] = strides[i]
		}
	}
	return begin, end, by, true
}

// takeFew writes a slice that is of the same size whatever the open dimension is that it cuts as items that are taken:
// TVM's type of these is of that size, and that of a slice along an open dimension is not, which keeps it from building
// what comes behind. false where the slice is no such one.
func (s *settler) takeFew(id relay.NodeID, n *relay.Node, data, result Value, begin, end, by []any) bool {
	type taken struct {
		axis  int
		items []int64
		mode  string
	}
	var few []taken
	begin, end, by = slices.Clone(begin), slices.Clone(end), slices.Clone(by)
	for d := range begin {
		count, known := result.Shape[d].Value()
		_, fixed := data.Shape[d].Value()
		from := begin[d].(int64)
		if fixed || !known || count == 0 || count > mostItems {
			continue
		}
		one := taken{axis: d, mode: "clip"}
		if from < 0 { // counted from the end
			if least, _ := data.Shape[d].Bounds(); least < -from {
				continue
			}
			one.mode = "wrap"
		}
		for i := range count {
			one.items = append(one.items, from+i*by[d].(int64))
		}
		few = append(few, one)
		begin[d], end[d], by[d] = int64(0), int64(math.MaxInt64), int64(1)
	}
	if len(few) == 0 {
		return false
	}
	rest := false // that the slice cuts
	for d := range begin {
		extent, fixed := data.Shape[d].Value()
		whole := end[d].(int64) == math.MaxInt64 || fixed && end[d].(int64) >= extent
		rest = rest || begin[d].(int64) != 0 || by[d].(int64) != 1 || !whole
	}
	s.r.Replace(id, n.Inputs[:1], func(now []*bridge.Object) (*bridge.Object, error) {
		value := now[0]
		var err error
		if rest {
			if value, err = s.called(id, "relay.op._make.strided_slice", value, begin, end, by, "end", nil); err != nil {
				return nil, err
			}
		}
		for _, one := range few {
			indices, err := s.whole(one.items)
			if err != nil {
				return nil, err
			}
			if value, err = s.called(id, "relay.op._make.take", value, indices, int64(0), int64(one.axis), one.mode); err != nil {
				return nil, err
			}
		}
		return value, nil
	})
	return true
}

// whole is a constant of int64 numbers.
func (s *settler) whole(items []int64) (*bridge.Object, error) {
	var data []byte
	for _, item := range items {
		data = binary.LittleEndian.AppendUint64(data, uint64(item))
	}
	made, err := constantOf(relay.Tensor("int64", int64(len(items))), data)
	if err == nil {
		s.made = append(s.made, made)
	}
	return made, err
}
