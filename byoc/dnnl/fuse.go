// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// maxPostOps is how much is hung on one operation; oneDNN takes up to 32.
const maxPostOps = 8

// fuse joins layers that have weights with the pointwise operators behind them, whatever candidates both belong to. It
// only says what could be done on the way out: the runtime asks oneDNN, and what its good kernels cannot do is done
// behind them after all.
func (l *lowering) fuse() {
	defer l.follow()()
	for slices.ContainsFunc(l.ops, func(o *operation) bool { return l.absorb(o) || l.hoist(o) }) {
	}
}

// onlyReader is the operation that alone reads an operation's result, once; nil if there is none, or the result leaves
// the region.
func (l *lowering) onlyReader(o *operation) *operation {
	if slices.Contains(l.p.Outputs, o.out) {
		return nil
	}
	var reader *operation
	for _, other := range l.ops {
		switch other.reads(o.out) {
		case 0:
		case 1:
			if reader != nil {
				return nil
			}
			reader = other
		default:
			return nil
		}
	}
	return reader
}

// takesPostOps says that an operation has a primitive for which work on the way out is worth while.
func (o *operation) takesPostOps() bool {
	switch o.kind {
	case "conv", "deconv", "upsampled_conv", "matmul", "pool":
		return len(o.post) < maxPostOps
	}
	return o.kernel == native.NormKernel && len(o.post) < maxPostOps
}

// rightSide is the other argument of a pointwise operation that reads v, noValue for an elementwise one; ok says that
// the operation is pointwise and can be done to v.
func (o *operation) rightSide(v region.ValueID) (other region.ValueID, ok bool) {
	switch {
	case len(o.post) > 0:
	case o.kind == "eltwise":
		return noValue, true
	case o.kind == "binary" && o.in[0] == v:
		return o.in[1], true
	case o.kind == "binary" && o.algorithm != "subtract" && o.algorithm != "divide":
		return o.in[0], true
	}
	return noValue, false
}

// absorb joins an operation with the only one that reads its result, if that can be done.
func (l *lowering) absorb(o *operation) bool {
	if !o.takesPostOps() {
		return false
	}
	reader := l.onlyReader(o)
	if reader == nil || !slices.Equal(l.types[reader.out].Shape, l.types[o.out].Shape) {
		return false
	}
	operand, ok := reader.rightSide(o.out)
	if !ok || l.leftToNorm(o, reader, operand) {
		return false
	}
	both := *o
	switch {
	case operand == noValue:
		both.post = append(slices.Clone(o.post),
			postOp{function: reader.algorithm, alpha: reader.alpha, beta: reader.beta, operand: noValue})
	case reader.algorithm == "add" && o.kind != "pool" && o.kernel != native.NormKernel && len(o.post) == 0 &&
		!o.bias && l.perChannel(o, operand):
		both.bias = true
		both.in = append(slices.Clone(o.in), operand)
	default:
		both.post = append(slices.Clone(o.post), postOp{function: reader.algorithm, operand: operand})
	}
	if native.OnStrips(o.kernel) && l.role(&both) == barrier {
		return false // strips do little on the way out, and nothing behind it
	}
	if o.kernel == native.NormKernel && !l.normPosts(&both) {
		return false // nothing is gained where it has to be done behind it
	}
	// All that both read is there where the second one stands.
	both.out = reader.out
	both.of = union(o.of, reader.of)
	*o = both
	at := slices.Index(l.ops, o)
	l.ops[slices.Index(l.ops, reader)] = o
	l.ops = slices.Delete(l.ops, at, at+1)
	return true
}

// hoist moves a pointwise operation from behind a reshape to before it, where that brings it to an operation that can
// absorb it: dense layers of sequences are written as a product, a reshape, and then the activation.
func (l *lowering) hoist(o *operation) bool {
	if !o.takesPostOps() {
		return false
	}
	shape := l.onlyReader(o)
	if shape == nil || shape.kind != "reshape" {
		return false
	}
	reader := l.onlyReader(shape)
	if reader == nil || !slices.Equal(l.types[reader.out].Shape, l.types[shape.out].Shape) {
		return false
	}
	operand, ok := reader.rightSide(shape.out)
	if !ok {
		return false
	}
	inner := l.types[o.out]
	result := l.value(inner.DType, inner.Shape...)
	moved := &operation{kind: reader.kind, algorithm: reader.algorithm, alpha: reader.alpha, beta: reader.beta,
		in: []region.ValueID{o.out}, out: result, of: reader.of}
	before := []*operation{moved}
	if operand != noValue {
		seen, how := l.through(operand, shape.out, o.out)
		if !how {
			return false
		}
		if !slices.Equal(seen.Shape, l.types[operand].Shape) {
			view := l.value(seen.DType, seen.Shape...)
			before = []*operation{{kind: "reshape", in: []region.ValueID{operand}, out: view, of: reader.of}, moved}
			operand = view
		}
		moved.in = append(moved.in, operand)
	}
	// What the reader reads is there where it stands, so that is where all goes.
	outer := &operation{kind: "reshape", in: []region.ValueID{result}, out: reader.out, of: shape.of}
	at := slices.Index(l.ops, reader)
	l.ops = slices.Replace(l.ops, at, at+1, append(before, outer)...)
	l.ops = slices.DeleteFunc(l.ops, func(other *operation) bool { return other == shape })
	return true
}

// through says how the other side of a pointwise operation must be seen before a reshape of from to to is made: as a
// tensor of to's shape where it has from's, as a row where it is broadcast along all axes but an equal last one, as it
// is where it is a number.
func (l *lowering) through(operand, from, to region.ValueID) (*relay.Type, bool) {
	t, outer, inner := l.types[operand], l.types[from].Shape, l.types[to].Shape
	switch {
	case slices.Equal(t.Shape, outer):
		return relay.Tensor(t.DType, inner...), true
	case relay.Elements(t.Shape) == 1:
		return relay.Tensor(t.DType, 1), true
	case len(t.Shape) > 0 && relay.Elements(t.Shape) == t.Shape[len(t.Shape)-1] && len(t.Shape) <= len(outer) &&
		len(inner) > 0 &&
		outer[len(outer)-1] == inner[len(inner)-1] && t.Shape[len(t.Shape)-1] == inner[len(inner)-1]:
		return relay.Tensor(t.DType, inner[len(inner)-1]), true
	}
	return nil, false
}

// perChannel says that a value holds one number for each channel of an operation's result.
func (l *lowering) perChannel(o *operation, v region.ValueID) bool {
	out, shape := l.types[o.out].Shape, l.types[v].Shape
	channel := len(out) - 1
	if o.kind != "matmul" {
		channel = 1
		if o.perm != nil {
			channel = int(o.perm[1])
		}
	}
	offset := len(out) - len(shape)
	if offset > channel {
		return false
	}
	for i, d := range shape {
		want := int64(1)
		if i+offset == channel {
			want = out[channel]
		}
		if d != want {
			return false
		}
	}
	return true
}
