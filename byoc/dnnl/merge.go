// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// merge makes dense layers for the product kernel that read the same tensor one operation with several results, as the
// query, the key and the value of attention are made: one step instead of three, whose work divides better among
// threads. The idea is that of TVM's CombineParallelDense, but weights and results stay apart. It runs after fuse;
// layers are alike if what is hung on them is.
func (l *lowering) merge() {
	defer l.follow()()
	merged := false
	for i := 0; i < len(l.ops); i++ {
		first := l.ops[i]
		if !l.mergeable(first) {
			continue
		}
		for k := i + 1; k < len(l.ops); k++ {
			other := l.ops[k]
			if !l.mergeable(other) || !l.alike(first, other) {
				continue
			}
			merged = true
			first.in = append(first.in, other.in[1:]...)
			first.more = append(first.more, other.out)
			first.of = union(first.of, other.of)
			l.ops = slices.Delete(l.ops, k, k+1)
			k--
		}
	}
	if merged {
		l.sweep() // reshapes of what is now read once
	}
}

// mergeable says that an operation is a dense layer that could stand wherever its left side is there.
func (l *lowering) mergeable(o *operation) bool {
	return o.kind == "matmul" && o.kernel == native.ProductKernel && !o.transposeA && len(l.types[o.out].Shape) == 2 &&
		!slices.ContainsFunc(o.in[1:], func(v region.ValueID) bool { return !l.isConstant(v) }) &&
		!slices.ContainsFunc(o.post, func(p postOp) bool { return p.operand != noValue })
}

// alike says that two dense layers differ in their weights and biases only. Their left sides may be the same tensor
// reshaped twice.
func (l *lowering) alike(a, b *operation) bool {
	return l.unshaped(a.in[0]) == l.unshaped(b.in[0]) && slices.Equal(l.types[a.in[0]].Shape, l.types[b.in[0]].Shape) &&
		a.transposeB == b.transposeB && a.bias == b.bias && a.bf16 == b.bf16 && slices.Equal(a.post, b.post)
}

// unshaped follows a value back through reshapes.
func (l *lowering) unshaped(v region.ValueID) region.ValueID {
	for o := l.maker(v); o != nil && o.kind == "reshape"; o = l.maker(v) {
		v = o.in[0]
	}
	return v
}

// isConstant says that a value is a constant of the region.
func (l *lowering) isConstant(v region.ValueID) bool {
	_, made := l.made[v]
	return made || int(v) < len(l.p.Values) && l.p.Values[v].Constant != relay.NoNode
}
