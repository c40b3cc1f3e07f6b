// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/region"
)

// maxPostOps is how much is hung on one operation; oneDNN takes up to 32.
const maxPostOps = 8

// fuse joins layers that have weights with the pointwise operators behind them, whatever candidates both belong to. It
// only says what could be done on the way out: the runtime asks oneDNN, and what its good kernels cannot do is done
// behind them after all.
func (l *lowering) fuse() {
	for {
		if !slices.ContainsFunc(l.ops, l.absorb) {
			return
		}
	}
}

// absorb joins an operation with the only one that reads its result, if that can be done.
func (l *lowering) absorb(o *operation) bool {
	switch o.kind {
	case "conv", "deconv", "matmul":
	default:
		return false
	}
	if len(o.post) >= maxPostOps || slices.Contains(l.p.Outputs, o.out) {
		return false
	}
	var reader *operation
	for _, other := range l.ops {
		switch other.reads(o.out) {
		case 0:
		case 1:
			if reader != nil {
				return false
			}
			reader = other
		default:
			return false
		}
	}
	if reader == nil || len(reader.post) > 0 || !onednn.SameShape(l.types[reader.out].Shape, l.types[o.out].Shape) {
		return false
	}
	switch reader.kind {
	case "eltwise":
		o.post = append(o.post, postOp{function: reader.algorithm, alpha: reader.alpha, beta: reader.beta, operand: noValue})
	case "binary":
		operand := reader.in[1]
		if operand == o.out {
			if reader.algorithm == "subtract" || reader.algorithm == "divide" {
				return false
			}
			operand = reader.in[0]
		}
		if reader.algorithm == "add" && len(o.post) == 0 && !o.bias && l.perChannel(o, operand) {
			o.bias = true
			o.in = append(o.in, operand)
		} else {
			o.post = append(o.post, postOp{function: reader.algorithm, operand: operand})
		}
	default:
		return false
	}
	// All that both read is there where the second one stands.
	o.out = reader.out
	at := slices.Index(l.ops, o)
	l.ops[slices.Index(l.ops, reader)] = o
	l.ops = slices.Delete(l.ops, at, at+1)
	return true
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
