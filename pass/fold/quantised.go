// SPDX-License-Identifier: Apache-2.0

package fold

import "github.com/collage-tvm/collage/relay"

// dequantise gives the numbers that bytes stand for, as TVM's canonical form of qnn.dequantize computes them: (t -
// zero) in int32, times the scale. Scale and zero are one number, or one for each place along an axis.
func dequantise(t, scale, zero *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	out, _ := attrs.String("out_dtype")
	axis, ok := attrs.Int("axis")
	if !ok || out != "float32" || scale.DType != "float32" {
		return nil, errLeft
	}
	if axis < 0 {
		axis += int64(len(t.Shape))
	}
	along := func(one *Tensor) (*Tensor, error) {
		if one.len() == 1 {
			return &Tensor{DType: one.DType, Shape: []int64{}, data: one.data}, nil
		}
		if axis < 0 || axis >= int64(len(t.Shape)) || len(one.Shape) != 1 || one.Shape[0] != t.Shape[axis] {
			return nil, errLeft
		}
		shape := make([]int64, len(t.Shape))
		for i := range shape {
			shape[i] = 1
		}
		shape[axis] = one.Shape[0]
		return &Tensor{DType: one.DType, Shape: shape, data: one.data}, nil
	}
	value, err := cast(t, "int32")
	for _, side := range []struct {
		op    string
		right *Tensor
		dtype string
	}{{"subtract", zero, "int32"}, {"multiply", scale, "float32"}} {
		if err != nil {
			return nil, err
		}
		right, err := along(side.right)
		if err != nil {
			return nil, err
		}
		if right, err = cast(right, side.dtype); err != nil {
			return nil, err
		}
		if value, err = cast(value, side.dtype); err != nil {
			return nil, err
		}
		if value, err = binary(side.op, value, right); err != nil {
			return nil, err
		}
	}
	return value, err
}
