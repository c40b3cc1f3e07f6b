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

// sums has normalisations make the sums that they read: a residual value, a bias, a number for each channel of an
// image. It runs after fuse, so that products and convolutions, which add on the way out for less, come first. A sum
// that is read elsewhere, too, is stored on the way. What images are that lie in blocks of channels, in which they are
// added for less than they are laid out anew for both sides, the runtime sees: it adds them before then.
func (l *lowering) sums() {
	defer l.follow()()
	for i := 0; i < len(l.ops); i++ {
		if l.takeSum(l.ops[i]) {
			i = -1
		}
	}
}

// takesSums says that an operation is a normalisation that has room for what is added first.
func (o *operation) takesSums() bool {
	return o.kernel == native.NormKernel && len(o.more) == 0 && len(o.in)-o.ownArguments() < maxAddends
}

// leftToNorm says that a sum of what a convolution makes and of a number for each channel is made by a normalisation
// that reads it. On the way out kernels of our own add tensors of the result's shape only, and a bias, and oneDNN's
// what all images share: the rest would take a pass behind them.
func (l *lowering) leftToNorm(o, sum *operation, addend region.ValueID) bool {
	if o.weightDims == nil || sum.algorithm != "add" || sum.kernel != "" || addend == noValue ||
		l.sameShape(addend, sum.out) {
		return false
	}
	if l.perChannel(o, addend) && (o.kernel == "" || !o.bias && len(o.post) == 0) {
		return false
	}
	return slices.ContainsFunc(l.ops, func(norm *operation) bool {
		return norm.takesSums() && norm.in[0] == sum.out && norm.reads(sum.out) == 1 && norm.isOfImages() &&
			native.OfChannels(l.types[addend].Shape, l.types[sum.out].Shape, norm.channels())
	})
}

// isOfImages says that a normalisation is one of images, not of rows; channels is then the axis of their channels.
func (o *operation) isOfImages() bool { return o.kind == "group_norm" || o.kind == "channel_scale" }

func (o *operation) channels() int64 {
	switch {
	case o.kind == "channel_scale":
		return o.axes[0]
	case o.perm != nil:
		return o.perm[1]
	}
	return 1
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
	if !l.sameShape(whole, value) || !l.sameShape(other, value) && !l.isPartOf(other, o) {
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

// isPartOf says that a value is one row of what a normalisation reads, which is added to all, or of images a number for
// each channel.
func (l *lowering) isPartOf(v region.ValueID, o *operation) bool {
	data, shape := l.types[o.out].Shape, l.types[v].Shape
	if o.isOfImages() {
		return l.types[v].DType == "float32" && native.OfChannels(shape, data, o.channels())
	}
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
