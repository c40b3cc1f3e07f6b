// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
)

// operation is one operator of the program that the runtime reads (byoc/runtime/dnnl_program.h says what the fields
// mean).
type operation struct {
	kind string
	// kernel is the one of our own that does it; "" for oneDNN's.
	kernel    string
	algorithm string
	in        []region.ValueID
	out       region.ValueID
	// more are results beside out: matmul is then several layers of one left side, whose weights and biases follow one
	// another in in. Only merge, and sums for normalisations, make such.
	more []region.ValueID
	// perm are the axes of the data in the order batch, channels, space, or those of a transpose; nil for as they are.
	perm, axes                         []int64
	strides, dilation, padding, window []int64
	// scale is how often each pixel of the data is repeated before a convolution.
	scale []int64
	// weightDims, weightStrides and weightOffset are how the plain weight is seen, or a part of it.
	weightDims, weightStrides []int64
	weightOffset              int64
	// views are how attention sees query, key, value, result and masks (native.Placement).
	views []strides
	// attention is what an attention is made of, and arguments are the values of its sides, as views has them.
	attention *native.AttentionLayer
	arguments []region.ValueID
	// parts, times and backward are a recurrent layer's.
	parts, times           []int64
	backward               bool
	transposeA, transposeB bool
	// bf16 says that data and weights of a convolution or product are rounded to bfloat16.
	bf16 bool
	// bias says that in[2] is one value for each channel.
	bias bool
	// unbiased says that a variance is divided by one less than the number of elements.
	unbiased bool
	// unscaled and unshifted say that a normalisation has no gain or shift, groups of how many groups of channels it
	// is. What stands behind them in in is added to the data first; more is that sum, where it is wanted.
	unscaled, unshifted  bool
	groups               int64
	alpha, beta, epsilon float64
	post                 []postOp
	// of are the groups that it does (groups.go), ascending.
	of []int
}

// strides are how an operation sees a plain value, or the part of it that begins at offset: dimensions and steps in
// elements.
type strides struct {
	dims, steps []int64
	offset      int64
}

// postOp is done to an operation's result before it is stored.
type postOp struct {
	function    string
	alpha, beta float64
	// operand is the right side of a binary function; noValue for an elementwise one.
	operand region.ValueID
}

const noValue region.ValueID = -1

// data are the tensors that an operation computes with, without weights.
func (o *operation) data() []region.ValueID {
	in := o.in
	if o.weightDims != nil || o.kind == "matmul" {
		in = in[:1]
	}
	return slices.Concat(in, o.operands())
}

// operands are what its post-operations read.
func (o *operation) operands() []region.ValueID {
	var list []region.ValueID
	for _, p := range o.post {
		if p.operand != noValue {
			list = append(list, p.operand)
		}
	}
	return list
}

// reads says how often an operation reads a value.
func (o *operation) reads(v region.ValueID) int {
	count := 0
	for _, in := range o.in {
		if in == v {
			count++
		}
	}
	for _, p := range o.post {
		if p.operand == v {
			count++
		}
	}
	return count
}
