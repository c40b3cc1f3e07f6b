// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
)

// factor is a part of an axis: so many steps, each so many elements further on.
type factor struct{ extent, stride int64 }

// strided says where the elements of a value lie within another one, its base, which is in plain order. Each axis is a
// list of factors, the outermost first, as reshapes make and transposes move them: the 16 rows of [2, 64, 8, 32] seen as
// [0, 2, 1, 3] and then as [16, 64, 32] are an axis of the factors (2, 64*256) and (8, 32).
type strided struct {
	base region.ValueID
	axes [][]factor
}

// plain is a value seen as itself.
func plain(base region.ValueID, shape []int64) strided {
	s := strided{base: base, axes: make([][]factor, len(shape))}
	stride := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		s.axes[i] = []factor{{shape[i], stride}}
		stride *= shape[i]
	}
	return s
}

// permuted has axis axes[i] as axis i.
func (s strided) permuted(axes []int64) strided {
	out := strided{base: s.base, axes: make([][]factor, len(axes))}
	for i, axis := range axes {
		out.axes[i] = s.axes[axis]
	}
	return out
}

// reshaped is the same elements in the same order with other dimensions; ok is false where a dimension would begin or end
// within a factor that cannot be divided so.
func (s strided) reshaped(shape []int64) (out strided, ok bool) {
	all := slices.Concat(s.axes...)
	out = strided{base: s.base, axes: make([][]factor, len(shape))}
	for i := len(shape) - 1; i >= 0; i-- {
		for left := shape[i]; left > 1; {
			if len(all) == 0 {
				return out, false
			}
			last := &all[len(all)-1]
			if left%last.extent == 0 {
				out.axes[i] = append([]factor{*last}, out.axes[i]...)
				left /= last.extent
				all = all[:len(all)-1]
				continue
			}
			if last.extent%left != 0 {
				return out, false
			}
			out.axes[i] = append([]factor{{left, last.stride}}, out.axes[i]...)
			all = slices.Clone(all)
			all[len(all)-1] = factor{last.extent / left, last.stride * left}
			left = 1
		}
	}
	return out, true
}

// joined are the factors of an axis with neighbours made one where the steps go on evenly.
func joined(axis []factor) []factor {
	var out []factor
	for _, f := range axis {
		if f.extent == 1 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].stride == f.extent*f.stride {
			out[n-1] = factor{out[n-1].extent * f.extent, f.stride}
			continue
		}
		out = append(out, f)
	}
	return out
}

// even is the one stride of an axis; that of an axis of one element is 0. ok is false where it has several.
func even(axis []factor) (stride int64, ok bool) {
	switch f := joined(axis); len(f) {
	case 0:
		return 0, true
	case 1:
		return f[0].stride, true
	}
	return 0, false
}

// halves divides an axis into an outer one and an inner one of the given extent, each with an even stride.
func halves(axis []factor, inner int64) (outerStride, innerStride int64, ok bool) {
	extent := int64(1)
	for _, f := range axis {
		extent *= f.extent
	}
	if extent%inner != 0 {
		return 0, 0, false
	}
	split, ok := strided{axes: [][]factor{axis}}.reshaped([]int64{extent / inner, inner})
	if !ok {
		return 0, 0, false
	}
	outerStride, outerOK := even(split.axes[0])
	innerStride, innerOK := even(split.axes[1])
	return outerStride, innerStride, outerOK && innerOK
}

// before is how the argument of a reshape or a transpose is seen, where the result is seen as s.
func (l *lowering) before(o *operation, s strided) (strided, bool) {
	switch o.kind {
	case "reshape":
		return s.reshaped(l.types[o.in[0]].Shape)
	case "transpose":
		inverse := make([]int64, len(o.perm))
		for i, axis := range o.perm {
			inverse[axis] = int64(i)
		}
		return s.permuted(inverse), true
	}
	return s, false
}

// seen follows a value back through reshapes and transposes, as far as their results are views of their arguments.
func (l *lowering) seen(v region.ValueID) strided {
	if o := l.maker(v); o != nil && len(o.post) == 0 {
		switch o.kind {
		case "reshape":
			if s, ok := l.seen(o.in[0]).reshaped(l.types[v].Shape); ok {
				return s
			}
		case "transpose":
			return l.seen(o.in[0]).permuted(o.perm)
		}
	}
	return plain(v, l.types[v].Shape)
}

// maker is the operation whose result a value is; nil for inputs and constants.
func (l *lowering) maker(v region.ValueID) *operation {
	for _, o := range l.ops {
		if o.out == v {
			return o
		}
	}
	return nil
}
