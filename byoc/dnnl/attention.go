// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
)

// view is how an operation sees a plain value, or the part of it that begins at offset: dimensions and steps in elements.
type view struct {
	dims, strides []int64
	offset        int64
}

// attention is softmax(scale * query key^T + mask) value as it is found in a region: two batched products with a softmax
// between them, and what reshapes and transposes stand around it.
type attention struct {
	scores, softmax, mixed *operation
	// between are the operations from scores to softmax and from there to mixed, without these three.
	between []*operation
	scale   float64
	// mask is added to the scores where they have the shape masked; noValue without one.
	mask   region.ValueID
	masked []int64
}

// attend makes each attention one operation, if it is the backend native's (native.Attention): its operators have that
// kernel. It runs before fuse, which would hang parts of it on the products. What is left over is oneDNN's.
func (l *lowering) attend() {
	defer l.follow()()
	defer func() {
		for _, o := range l.ops {
			if o.kind != "attention" && o.kernel == native.AttentionKernel {
				o.kernel = ""
			}
		}
	}()
	found := false
	for i := 0; i < len(l.ops); i++ {
		if a := l.attentionAt(l.ops[i]); a != nil && l.replace(a) {
			found = true
			i = -1
		}
	}
	if found {
		l.sweep()
	}
}

// sweep removes operations whose results nobody reads.
func (l *lowering) sweep() {
	for i := len(l.ops) - 1; i >= 0; i-- {
		o := l.ops[i]
		needed := func(v region.ValueID) bool {
			return slices.Contains(l.p.Outputs, v) ||
				slices.ContainsFunc(l.ops, func(other *operation) bool { return other.reads(v) > 0 })
		}
		if !needed(o.out) && !slices.ContainsFunc(o.more, needed) {
			l.ops = slices.Delete(l.ops, i, i+1)
		}
	}
}

// attentionAt is the attention whose softmax an operation is, nil if it is that of none.
func (l *lowering) attentionAt(o *operation) *attention {
	if o.kind != "softmax" || o.kernel != native.AttentionKernel || len(o.post) > 0 {
		return nil
	}
	shape := l.types[o.out].Shape
	if len(shape) == 0 || o.axes[0] != int64(len(shape)-1) {
		return nil
	}
	a := &attention{softmax: o, scale: 1, mask: noValue}
	if !l.scoresOf(a, o.in[0], o) || !l.mixedOf(a) {
		return nil
	}
	t := l.types[a.scores.out]
	keys := t.Shape[len(t.Shape)-1]
	if !slices.Equal(t.Shape, l.types[a.mixed.in[0]].Shape) || shape[len(shape)-1] != keys {
		return nil
	}
	return a
}

// scoresOf goes back from the softmax to the product that makes the scores; reader alone may read v.
func (l *lowering) scoresOf(a *attention, v region.ValueID, reader *operation) bool {
	o := l.maker(v)
	if o == nil || o.kernel != native.AttentionKernel || l.onlyReader(o) != reader {
		return false
	}
	if o.kind == "matmul" {
		a.scores = o
		if o.bias || len(l.types[v].Shape) != 3 {
			return false
		}
		for i := len(o.post) - 1; i >= 0; i-- {
			p := o.post[i]
			if !l.scaled(a, p.function, p.alpha, p.beta, p.operand) && !l.masks(a, p.function, p.operand, l.types[v].Shape) {
				return false
			}
		}
		return true
	}
	if len(o.post) > 0 {
		return false
	}
	a.between = append(a.between, o)
	switch o.kind {
	case "reshape":
		return l.scoresOf(a, o.in[0], o)
	case "eltwise":
		return l.scaled(a, o.algorithm, o.alpha, o.beta, noValue) && l.scoresOf(a, o.in[0], o)
	case "binary":
		if l.scaled(a, o.algorithm, 0, 0, o.in[1]) {
			return l.scoresOf(a, o.in[0], o)
		}
		for i, side := range o.in {
			// Both sides may be products; the scores are the one that leads on.
			tried := *a
			tried.between = slices.Clone(a.between)
			if slices.Equal(l.types[side].Shape, l.types[v].Shape) && l.masks(&tried, o.algorithm, o.in[1-i], l.types[v].Shape) &&
				l.scoresOf(&tried, side, o) {
				*a = tried
				return true
			}
		}
	}
	return false
}

// scaled takes a multiplication of the scores into the scale. The division by a number that is no power of two becomes a
// multiplication, too: the scores are as exact as the sums that they are.
func (l *lowering) scaled(a *attention, function string, alpha, beta float64, operand region.ValueID) bool {
	switch {
	case operand == noValue && function == "linear" && beta == 0:
		a.scale *= alpha
	case operand != noValue && function == "divide" && !math.IsNaN(l.number(operand)) && l.number(operand) != 0:
		a.scale /= l.number(operand)
	default:
		return false
	}
	return true
}

// masks takes the addition of a tensor to scores of a shape as the mask. Going back from the softmax, it is met before the
// scale, which does not change it.
func (l *lowering) masks(a *attention, function string, operand region.ValueID, shape []int64) bool {
	if function != "add" || operand == noValue || a.mask != noValue || a.scale != 1 ||
		l.types[operand].DType != "float32" || len(l.types[operand].Shape) > len(shape) {
		return false
	}
	a.mask, a.masked = operand, shape
	return true
}

// mixedOf goes on from the softmax to the product with the values.
func (l *lowering) mixedOf(a *attention) bool {
	last := a.softmax
	next := l.onlyReader(last)
	for ; next != nil && next.kind == "reshape"; next = l.onlyReader(next) {
		a.between = append(a.between, next)
		last = next
	}
	if next == nil || next.kind != "matmul" || next.kernel != native.AttentionKernel || next.in[0] != last.out || next.transposeA || next.bias || len(next.post) > 0 ||
		len(l.types[next.out].Shape) != 3 {
		return false
	}
	a.mixed = next
	return true
}

// swapped exchanges the last two of three axes where that is asked for.
func swapped(s strided, swap bool) strided {
	if swap {
		return s.permuted([]int64{0, 2, 1})
	}
	return s
}

// replace writes an attention as one operation, if all that it reads and writes can be seen as the kernel sees it.
func (l *lowering) replace(a *attention) bool {
	for _, v := range []region.ValueID{a.scores.in[0], a.scores.in[1], a.mixed.in[1], a.mixed.out} {
		if l.types[v].DType != "float32" {
			return false
		}
	}
	// As deep as views go, or as the products have them.
	sides := []struct {
		value region.ValueID
		swap  bool
	}{{a.scores.in[0], a.scores.transposeA}, {a.scores.in[1], !a.scores.transposeB}, {a.mixed.in[1], a.mixed.transposeB}}
	deep, flat := make([]strided, len(sides)), make([]strided, len(sides))
	for i, side := range sides {
		deep[i] = swapped(l.seen(side.value), side.swap)
		flat[i] = swapped(plain(side.value, l.types[side.value].Shape), side.swap)
	}
	var mask *strided
	if a.mask != noValue {
		s, ok := l.maskSeen(a)
		if !ok {
			return false
		}
		mask = &s
	}
	// The result, as far on as the reshapes and transposes behind it only say where its elements go.
	chain := []*operation{a.mixed}
	for next := l.onlyReader(a.mixed); next != nil && (next.kind == "reshape" || next.kind == "transpose") && len(next.post) == 0; next = l.onlyReader(next) {
		chain = append(chain, next)
	}
	for ; len(chain) > 0; chain = chain[:len(chain)-1] {
		last := chain[len(chain)-1]
		result, ok := plain(last.out, l.types[last.out].Shape), true
		for i := len(chain) - 1; i > 0 && ok; i-- {
			result, ok = l.before(chain[i], result)
		}
		if !ok {
			continue
		}
		for _, in := range [][]strided{deep, flat} {
			if o := l.attentionOf(a, in, result, mask); o != nil {
				at := slices.Index(l.ops, last)
				l.ops[at] = o
				gone := slices.Concat(chain, a.between, []*operation{a.scores, a.softmax})
				l.ops = slices.DeleteFunc(l.ops, func(other *operation) bool { return slices.Contains(gone, other) })
				return true
			}
		}
	}
	return false
}

// maskSeen is the mask as [batch * heads, queries, keys], with step 0 along the axes along which it is broadcast.
func (l *lowering) maskSeen(a *attention) (strided, bool) {
	shape := l.types[a.mask].Shape
	missing := len(a.masked) - len(shape)
	own := plain(a.mask, shape)
	s := strided{base: a.mask, axes: make([][]factor, len(a.masked))}
	for i, d := range a.masked {
		switch {
		case i < missing || shape[i-missing] == 1:
			s.axes[i] = []factor{{d, 0}}
		case shape[i-missing] == d:
			s.axes[i] = own.axes[i-missing]
		default:
			return s, false
		}
	}
	return s.reshaped(l.types[a.scores.out].Shape)
}

// attentionOf is the operation on query, key and value that are seen so; nil where the kernel does not work so.
func (l *lowering) attentionOf(a *attention, in []strided, result strided, mask *strided) *operation {
	all := slices.Concat(in, []strided{result})
	if mask != nil {
		all = append(all, *mask)
	}
	// The first axis is batch and heads in one; how many heads there are is seen where they do not go on evenly.
	count := l.types[a.scores.out].Shape[0]
	heads := count
	for _, s := range all {
		if f := joined(s.axes[0]); len(f) > 1 {
			heads = f[len(f)-1].extent
		}
	}
	o := &operation{kind: "attention", kernel: native.AttentionKernel, out: result.base, alpha: a.scale}
	for i, s := range all {
		dims := []int64{count / heads, heads, extent(s.axes[1]), extent(s.axes[2])}
		batchStep, headStep, ok := halves(s.axes[0], heads)
		rowStep, rowsOK := even(s.axes[1])
		columnStep, columnsOK := even(s.axes[2])
		if !ok || !rowsOK || !columnsOK {
			return nil
		}
		switch i {
		case 0, 3: // query, result
			if columnStep != 1 && dims[3] > 1 {
				return nil
			}
		case 4: // mask
			if columnStep > 1 {
				return nil
			}
		}
		o.views = append(o.views, view{dims: dims, strides: []int64{batchStep, headStep, rowStep, columnStep}})
		if i != 3 {
			o.in = append(o.in, s.base)
		}
	}
	return o
}

// extent is the number of elements of an axis.
func extent(axis []factor) int64 {
	n := int64(1)
	for _, f := range axis {
		n *= f.extent
	}
	return n
}
