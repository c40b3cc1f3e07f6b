// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"slices"
	"strings"
)

// The operators of this file make images, or other tensors, larger or smaller. Numbers that do not depend on the data's
// sizes, as of channels, are the type's.

// upsampled is nn.upsampling: sides that are so many times as long. What is no whole number is a symbol of its own.
func upsampled(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		layout, ok := a.attrs.String("layout")
		out := slices.Clone(v.Shape)
		for _, side := range []struct{ letter, scale string }{{"D", "scale_d"}, {"H", "scale_h"}, {"W", "scale_w"}} {
			axis := strings.Index(layout, side.letter)
			if axis < 0 {
				continue
			}
			scale, known := a.attrs.Float(side.scale)
			if !ok || !known || axis >= len(out) || scale != float64(int64(scale)) || scale < 1 {
				return Value{}
			}
			out[axis] = out[axis].Times(Constant(int64(scale)))
		}
		return sized(out)
	})
}

// resized is image.resize1d, 2d and 3d: the type has numbers for the sides.
func resized(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		layout, ok := a.attrs.String("layout")
		if !ok || len(layout) != len(v.Shape) {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		for axis, letter := range layout {
			if strings.ContainsRune("DHW", letter) {
				out[axis] = Constant(1)
			}
		}
		return sized(out)
	})
}

// transposed is a transposed convolution over data with channels in the second dimension.
func transposed(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		spatial := len(v.Shape) - 2
		if spatial < 1 || !channelsSecond(a.attrs) {
			return Value{}
		}
		m, ok := a.movement(spatial)
		more, ok2 := a.attrs.Ints("output_padding")
		weight, ok3 := a.at(1)
		if !ok || !ok2 || !ok3 || len(more) != spatial || len(weight.Shape) != len(v.Shape) {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		for d := range spatial {
			kernel, known := weight.Shape[2+d].Value()
			if !known {
				return Value{}
			}
			reach := (kernel-1)*m.dilation[d] + 1 + more[d] - m.padding[d] - m.padding[spatial+d]
			out[2+d] = out[2+d].Minus(Constant(1)).Times(Constant(m.strides[d])).Plus(Constant(reach))
		}
		return sized(out)
	})
}

// fromChannels is nn.depth_to_space: blocks of channels become places.
func fromChannels(a arguments) Value {
	return inBlocks(a, times, Expression.Over)
}

// intoChannels is nn.space_to_depth.
func intoChannels(a arguments) Value {
	return inBlocks(a, Expression.Over, times)
}

func inBlocks(a arguments, side, channels func(a, by Expression) (Expression, bool)) Value {
	return withFirst(a, func(v Value) Value {
		layout, ok := a.attrs.String("layout")
		by, ok2 := a.attrs.Int("block_size")
		if !ok || !ok2 || by < 1 || len(layout) != len(v.Shape) {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		for axis, letter := range layout {
			switch letter {
			case 'H', 'W':
				out[axis], ok = side(out[axis], Constant(by))
			case 'C':
				out[axis], ok = channels(out[axis], Constant(by*by))
			}
			if !ok {
				return Value{}
			}
		}
		return sized(out)
	})
}

// repeated is repeat along an axis.
func repeated(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		count, ok := a.attrs.Int("repeats")
		at, ok2 := a.attrs.Int("axis")
		axis, ok3 := axisOf(at, len(v.Shape))
		if !ok || !ok2 || !ok3 || count < 1 {
			return Value{}
		}
		out := slices.Clone(v.Shape)
		out[axis] = out[axis].Times(Constant(count))
		return sized(out)
	})
}

// tiled is tile: all of a tensor, so many times along each axis, from behind.
func tiled(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		counts, ok := a.attrs.Ints("reps")
		rank := max(len(counts), len(v.Shape))
		if !ok || rank > mostItems {
			return Value{}
		}
		out := slices.Concat(slices.Repeat(Extents{Constant(1)}, rank-len(v.Shape)), v.Shape)
		for i, by := range counts {
			axis := rank - len(counts) + i
			out[axis] = out[axis].Times(Constant(by))
		}
		return sized(out)
	})
}
