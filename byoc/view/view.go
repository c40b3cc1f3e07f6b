// SPDX-License-Identifier: Apache-2.0

// Package view is how a tensor is seen in the memory of another one: what reshapes, transposes, broadcasts and slices
// only say about their arguments, so that a kernel that takes strides needs no copies.
//
// What comes in: shapes, and what is done to them, in order. What goes out: views, each axis with its strides.
package view

import "slices"

// Factor is a part of an axis: so many steps, each so many elements further on.
type Factor struct{ Extent, Stride int64 }

// View says where the elements of a tensor lie within another one that is in plain order: from the element Offset on.
// Each axis is a list of factors, the outermost first, as reshapes make and transposes move them: the 16 rows of [2,
// 64, 8, 32] seen as [0, 2, 1, 3] and then as [16, 64, 32] are an axis of the factors (2, 64*256) and (8, 32).
type View struct {
	Axes   [][]Factor
	Offset int64
}

// Plain is a tensor of a shape seen as itself.
func Plain(shape []int64) View {
	v := View{Axes: make([][]Factor, len(shape))}
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		v.Axes[i] = []Factor{{shape[i], stride}}
		stride *= shape[i]
	}
	return v
}

// Permuted has axis axes[i] as axis i.
func (v View) Permuted(axes []int64) View {
	out := View{Axes: make([][]Factor, len(axes)), Offset: v.Offset}
	for i, axis := range axes {
		out.Axes[i] = v.Axes[axis]
	}
	return out
}

// Reshaped is the same elements in the same order with other dimensions; ok is false where a dimension would begin or
// end within a factor that cannot be divided so.
func (v View) Reshaped(shape []int64) (out View, ok bool) {
	all := slices.Concat(v.Axes...)
	out = View{Axes: make([][]Factor, len(shape)), Offset: v.Offset}
	for i := len(shape) - 1; i >= 0; i-- {
		for left := shape[i]; left > 1; {
			if len(all) == 0 {
				return out, false
			}
			last := &all[len(all)-1]
			if left%last.Extent == 0 {
				out.Axes[i] = append([]Factor{*last}, out.Axes[i]...)
				left /= last.Extent
				all = all[:len(all)-1]
				continue
			}
			if last.Extent%left != 0 {
				return out, false
			}
			out.Axes[i] = append([]Factor{{left, last.Stride}}, out.Axes[i]...)
			all = slices.Clone(all)
			all[len(all)-1] = Factor{last.Extent / left, last.Stride * left}
			left = 1
		}
	}
	return out, !slices.ContainsFunc(all, func(f Factor) bool { return f.Extent > 1 })
}

// Broadcast repeats axes of one element, and all of the tensor, to a shape that has at least as many axes; ok is false
// where an axis is neither of that extent nor of one element.
func (v View) Broadcast(shape []int64) (out View, ok bool) {
	missing := len(shape) - len(v.Axes)
	if missing < 0 {
		return out, false
	}
	out = View{Axes: make([][]Factor, len(shape)), Offset: v.Offset}
	for i, extent := range shape {
		switch {
		case i >= missing && Extent(v.Axes[i-missing]) == extent:
			out.Axes[i] = v.Axes[i-missing]
		case i < missing || Extent(v.Axes[i-missing]) == 1:
			out.Axes[i] = []Factor{{extent, 0}}
		default:
			return out, false
		}
	}
	return out, true
}

// Repeated has each element of an axis so many times, one after the other.
func (v View) Repeated(axis int, times int64) View {
	out := View{Axes: slices.Clone(v.Axes), Offset: v.Offset}
	out.Axes[axis] = append(slices.Clone(v.Axes[axis]), Factor{times, 0})
	return out
}

// Tiled has an axis as a whole so many times.
func (v View) Tiled(axis int, times int64) View {
	out := View{Axes: slices.Clone(v.Axes), Offset: v.Offset}
	out.Axes[axis] = append([]Factor{{times, 0}}, v.Axes[axis]...)
	return out
}

// Part is so many elements of an axis from one of them on; ok is false where the axis has no even stride.
func (v View) Part(axis int, begin, extent int64) (out View, ok bool) {
	stride, ok := Even(v.Axes[axis])
	out = View{Axes: slices.Clone(v.Axes), Offset: v.Offset + begin*stride}
	out.Axes[axis] = []Factor{{extent, stride}}
	return out, ok
}

// Joined are the factors of an axis with neighbours made one where the steps go on evenly.
func Joined(axis []Factor) []Factor {
	var out []Factor
	for _, f := range axis {
		if f.Extent == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Stride == f.Extent*f.Stride {
			out[n-1] = Factor{out[n-1].Extent * f.Extent, f.Stride}
			continue
		}
		out = append(out, f)
	}
	return out
}

// Even is the one stride of an axis; that of an axis of one element is 0. ok is false where it has several.
func Even(axis []Factor) (stride int64, ok bool) {
	switch f := Joined(axis); len(f) {
	case 0:
		return 0, true
	case 1:
		return f[0].Stride, true
	}
	return 0, false
}

// Extent is the number of elements of an axis.
func Extent(axis []Factor) int64 {
	n := int64(1)
	for _, f := range axis {
		n *= f.Extent
	}
	return n
}
