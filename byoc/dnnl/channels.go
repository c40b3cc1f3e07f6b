// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
)

// The axes of NHWC in oneDNN's order, which is that of NCHW, and the way back.
var (
	fromChannelsLast = []int64{0, 3, 1, 2}
	toChannelsLast   = []int64{0, 2, 3, 1}
)

// channelsFirst brings what stands around strips in NHWC, as TensorFlow's networks do, into the order of NCHW, with
// transposes at the border. In the runtime they cost nothing: a transpose says how a tensor is seen, and channels that
// lie innermost, as strips have them, stay there. It runs before fuse, which asks what strips can do.
//
// What is turned is turned with all images that it reads or makes, through whatever can be.
func (l *lowering) channelsFirst() {
	inside := l.turned()
	if len(inside) == 0 {
		return
	}
	t := &turning{l: l, seen: map[region.ValueID]region.ValueID{}, there: map[region.ValueID]bool{}}
	for _, o := range l.ops {
		if inside[o] {
			t.turn(o)
			continue
		}
		for _, v := range slices.Concat(o.in, o.operands()) {
			t.back(v, o.of)
		}
		t.ops = append(t.ops, o)
	}
	for _, v := range l.p.Outputs {
		t.back(v, nil)
	}
	l.ops = t.ops
}

// turned are the operations that are to work in the order of NCHW: those that hang together by images, where one of
// them is in NHWC and one goes strip by strip.
func (l *lowering) turned() map[*operation]bool {
	with := map[region.ValueID][]*operation{}
	for _, o := range l.ops {
		if l.turnable(o) {
			for _, v := range l.images(o) {
				with[v] = append(with[v], o)
			}
		}
	}
	met, all := map[*operation]bool{}, map[*operation]bool{}
	for _, first := range l.ops {
		if met[first] || !l.turnable(first) {
			continue
		}
		group := []*operation{first}
		met[first] = true
		strips, last := false, false
		for i := 0; i < len(group); i++ {
			strips = strips || native.OnStrips(group[i].kernel)
			last = last || l.isChannelsLast(group[i])
			for _, v := range l.images(group[i]) {
				for _, o := range with[v] {
					if !met[o] {
						met[o] = true
						group = append(group, o)
					}
				}
			}
		}
		for _, o := range group {
			if strips && last {
				all[o] = true
			}
		}
	}
	return all
}

// turnable says that an operation can as well be written in the order of NCHW: it is in NHWC, or in no order.
func (l *lowering) turnable(o *operation) bool {
	switch o.kind {
	case "conv", "deconv", "upsampled_conv", "pool", "resample":
		return slices.Equal(o.perm, fromChannelsLast)
	case "eltwise", "binary", "concat":
		return l.types[o.out].Rank() == 4
	}
	return false
}

// isChannelsLast says that an operation is in NHWC; of what is in no order that is what strips could not do otherwise.
func (l *lowering) isChannelsLast(o *operation) bool {
	switch o.kind {
	case "eltwise":
		return false
	case "binary":
		return o.kernel == native.StripsKernel && !l.sameShape(o.in[0], o.in[1]) && l.factors(o) == noValue
	case "concat":
		return o.kernel == native.StripsKernel && slices.Equal(o.axes, []int64{3})
	}
	return true
}

// images are the tensors of four dimensions that an operation reads or makes, without weights.
func (l *lowering) images(o *operation) []region.ValueID {
	return slices.DeleteFunc(append(o.data(), o.out), func(v region.ValueID) bool { return l.types[v].Rank() != 4 })
}

// turning rewrites operations.
type turning struct {
	l *lowering
	// seen is by value of NHWC the same in the order of NCHW; there are those in seen that can be read in NHWC, too.
	seen  map[region.ValueID]region.ValueID
	there map[region.ValueID]bool
	ops   []*operation
}

// turn writes an operation in the order of NCHW.
func (t *turning) turn(o *operation) {
	l := t.l
	data := len(o.in)
	if o.weightDims != nil {
		data = 1
	}
	o.in, o.post = slices.Clone(o.in), slices.Clone(o.post)
	for i, v := range o.in[:data] {
		o.in[i] = t.read(v, o.of)
	}
	for i, p := range o.post {
		if p.operand != noValue {
			o.post[i].operand = t.read(p.operand, o.of)
		}
	}
	if o.kind == "concat" {
		o.axes = []int64{int64(slices.Index(fromChannelsLast, o.axes[0]))}
	}
	o.perm = nil
	t.seen[o.out] = l.permuted(o.out, fromChannelsLast)
	o.out = t.seen[o.out]
	t.ops = append(t.ops, o)
}

// read gives what a turned operation reads for a value; what has fewer dimensions is broadcast along the same axes as
// before.
func (t *turning) read(v region.ValueID, of []int) region.ValueID {
	l := t.l
	if turned, ok := t.seen[v]; ok {
		return turned
	}
	from, shape := v, l.types[v].Shape
	if len(shape) < 4 {
		if len(shape) == 0 || len(shape) == 1 && shape[0] == 1 {
			return v
		}
		from = l.value(l.types[v].DType, append(slices.Repeat([]int64{1}, 4-len(shape)), shape...)...)
		t.ops = append(t.ops, &operation{kind: "reshape", in: []region.ValueID{v}, out: from, of: of})
	}
	turned := l.permuted(from, fromChannelsLast)
	t.ops = append(t.ops, &operation{kind: "transpose", perm: fromChannelsLast, in: []region.ValueID{from}, out: turned,
		of: of})
	t.seen[v], t.there[v] = turned, true
	return turned
}

// back has a value in NHWC that only turned operations have made.
func (t *turning) back(v region.ValueID, of []int) {
	if turned, ok := t.seen[v]; ok && !t.there[v] {
		t.ops = append(t.ops, &operation{kind: "transpose", perm: toChannelsLast, in: []region.ValueID{turned}, out: v,
			of: of})
		t.there[v] = true
	}
}

// permuted adds a value for another one whose axes are exchanged.
func (l *lowering) permuted(v region.ValueID, perm []int64) region.ValueID {
	shape := make([]int64, len(perm))
	for i, axis := range perm {
		shape[i] = l.types[v].Shape[axis]
	}
	return l.value(l.types[v].DType, shape...)
}
