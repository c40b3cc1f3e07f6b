// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// maxAddends is how many tensors the kernel of normalisations adds to its data first, maxNormOperands how many it adds
// on the way out.
const (
	maxAddends      = 4
	maxNormOperands = 4
)

// norm lowers a normalisation for the kernel of our own.
func (l *lowering) norm(y *native.Norm, out region.ValueID) {
	o := &operation{kind: y.Kind, in: l.of(y.Data), out: out, epsilon: y.Epsilon, unbiased: y.Unbiased,
		groups: y.Groups}
	if y.Gain != relay.NoNode {
		o.in = append(o.in, l.nodes[y.Gain])
	}
	if y.Shift != relay.NoNode {
		o.in = append(o.in, l.nodes[y.Shift])
	}
	if y.Addend != relay.NoNode {
		o.in = append(o.in, l.nodes[y.Addend])
	}
	o.unscaled, o.unshifted = y.Gain == relay.NoNode, y.Shift == relay.NoNode
	switch {
	case y.Kind == "group_norm":
		o.perm = channelsSecond(l.types[out].Rank(), y.Axes[0])
	case y.Kind == "channel_scale" || len(y.Axes) > 1:
		o.axes = y.Axes // else it is the last one
	}
	if y.Activation != nil {
		o.post = append(o.post, functions(y.Activation)...)
	}
	l.add(o)
}

// channelsSecond is the order of axes with that of the channels in the second place; nil where it stands there.
func channelsSecond(rank int, channels int64) []int64 {
	if channels == 1 {
		return nil
	}
	order := []int64{0, channels}
	for axis := range int64(rank) {
		if axis != 0 && axis != channels {
			order = append(order, axis)
		}
	}
	return order
}

// normPosts says that what is hung on a normalisation is done on the way out: functions of one number, and sums with
// tensors of its shape.
func (l *lowering) normPosts(o *operation) bool {
	added := 0
	for _, p := range o.post {
		switch {
		case p.operand == noValue && isStripFunction(p.function):
		case p.function == "add" && p.operand != noValue && l.sameShape(p.operand, o.out) && added < maxNormOperands:
			added++
		default:
			return false
		}
	}
	return true
}

// sums has normalisations of rows make the sums that they read: a residual value, a bias. It runs after fuse, so that
// products and convolutions, which add on the way out for less, come first. A sum that is read elsewhere, too, is
// stored on the way. Normalisations of images are left alone: what they read may lie in blocks of channels, in which it
// is added for less than it is laid out anew for both sides.
func (l *lowering) sums() {
	defer l.follow()()
	for i := 0; i < len(l.ops); i++ {
		if l.takeSum(l.ops[i]) {
			i = -1
		}
	}
}

// takesSums says that an operation is a normalisation of rows that has room for what is added first.
func (o *operation) takesSums() bool {
	return o.kernel == native.NormKernel && slices.Contains([]string{"layer_norm", "standardise", "rms_norm"},
		o.kind) &&
		len(o.more) == 0 && len(o.in)-o.ownArguments() < maxAddends
}

// takeSum joins a normalisation with the sum that makes its data, if that can be done.
func (l *lowering) takeSum(o *operation) bool {
	if !o.takesSums() {
		return false
	}
	value := o.in[0]
	sum := l.maker(value)
	if !l.isSum(value) || o.reads(value) > 1 {
		return false
	}
	whole, other := sum.in[0], sum.in[1]
	if !l.sameShape(whole, value) || !l.isSum(whole) && l.isSum(other) && l.sameShape(other, value) {
		whole, other = other, whole // a sum within the sum is then taken, too
	}
	if !l.sameShape(whole, value) || !l.sameShape(other, value) && !l.isRowOf(other, o) {
		return false
	}
	kept := slices.Contains(l.p.Outputs, value) || l.onlyReader(sum) == nil
	at := o.ownArguments()
	if kept && len(o.in) > at {
		return false // what is kept would be a sum in between
	}
	// Where somebody reads the sum before, it has to be there by then.
	from, to := slices.Index(l.ops, sum), slices.Index(l.ops, o)
	moved := slices.ContainsFunc(l.ops[from+1:to], func(between *operation) bool { return between.reads(value) > 0 })
	if moved && slices.ContainsFunc(l.ops[from+1:to], func(between *operation) bool {
		return slices.ContainsFunc(append([]region.ValueID{between.out}, between.more...),
			func(v region.ValueID) bool { return o.reads(v) > 0 })
	}) {
		return false
	}
	both := *o
	both.in = slices.Concat([]region.ValueID{whole}, o.in[1:at], []region.ValueID{other}, o.in[at:])
	if kept {
		both.more = []region.ValueID{value}
	}
	both.of = union(o.of, sum.of)
	*o = both
	l.ops = slices.Delete(l.ops, from, from+1)
	if moved {
		l.ops = slices.Delete(l.ops, to-1, to)
		l.ops = slices.Insert(l.ops, from, o)
	}
	return true
}

// isSum says that a value is made by an addition that no kernel of our own was chosen for.
func (l *lowering) isSum(v region.ValueID) bool {
	o := l.maker(v)
	return o != nil && o.kind == "binary" && o.algorithm == "add" && o.kernel == "" && len(o.post) == 0
}

// ownArguments is how many of its arguments a normalisation has of itself: the data, a gain, a shift.
func (o *operation) ownArguments() int {
	own := 3
	if o.unscaled {
		own--
	}
	if o.unshifted {
		own--
	}
	return own
}

// isRowOf says that a value is one row of what a normalisation reads, which is added to all.
func (l *lowering) isRowOf(v region.ValueID, o *operation) bool {
	data, shape := l.types[o.out].Shape, l.types[v].Shape
	first := len(data) - 1
	if len(o.axes) > 0 {
		first = int(o.axes[0])
	}
	for i := range data {
		at := i - (len(data) - len(shape))
		given, want := int64(1), int64(1)
		if at >= 0 {
			given = shape[at]
		}
		if i >= first {
			want = data[i]
		}
		if given != want {
			return false
		}
	}
	return l.types[v].DType == "float32" && len(shape) <= len(data)
}
