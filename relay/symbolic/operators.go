// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// arguments are what is known of a call's arguments, and its attributes.
type arguments struct {
	in    []Value
	attrs *relay.Attrs
}

// first is the first argument, if it is a tensor.
func (a arguments) first() (Value, bool) { return a.at(0) }

func (a arguments) at(i int) (Value, bool) {
	if i >= len(a.in) || !a.in[i].known {
		return Value{}, false
	}
	return a.in[i], true
}

// sized is a tensor of which the extents are known.
func sized(extents Extents) Value { return Value{Shape: extents, known: true} }

// of is a tensor whose items are known, if they are few.
func of(extents Extents, items []Expression) Value {
	if len(items) > mostItems {
		items = nil
	}
	return Value{Shape: extents, Items: items, known: true}
}

// operator gives what a call computes of its arguments; the zero Value where nothing is known.
type operator func(arguments) Value

// operators are those whose results' dimensions follow from their arguments'. Of others the types' numbers are known, and
// what is open is a symbol of its own.
var operators map[string]operator

func init() {
	operators = map[string]operator{
		"shape_of": shapeOf, "ndarray_size": func(a arguments) Value {
			return withFirst(a, func(v Value) Value { return of(nil, []Expression{v.Shape.elements()}) })
		},
		"cast": sameItems, "copy": sameItems, "annotation.stop_fusion": sameItems, "collage.keep_scale": sameItems,
		"cast_like": sameItems, "slice_like": sliceLike,
		"where": where, "concatenate": concatenate, "stack": stack, "split": split,
		"reshape": reshape, "dyn.reshape": dynamicReshape, "reshape_like": reshapedLike,
		"expand_dims": expandDims, "squeeze": squeeze, "transpose": transpose, "strided_slice": stridedSlice, "dyn.strided_slice": dynamicSlice,
		"take": take, "gather": gather, "gather_nd": gatherND, "scatter_elements": scatterElements,
		"cumsum": cumulative, "cumprod": cumulative, "dyn.broadcast_to": toShape(1), "dyn.full": toShape(1), "dyn.zeros": toShape(0),
		"dyn.ones": toShape(0), "arange": arange,
		"nn.dense": dense, "nn.batch_matmul": batchMatmul, "nn.matmul": matmul,
		"nn.batch_flatten": batchFlatten, "nn.bias_add": same, "nn.layer_norm": same, "nn.batch_norm": inTuple,
		"nn.conv1d": window, "nn.conv2d": window, "nn.conv3d": window,
		"nn.max_pool1d": window, "nn.max_pool2d": window, "nn.max_pool3d": window,
		"nn.avg_pool1d": window, "nn.avg_pool2d": window, "nn.avg_pool3d": window,
		"nn.global_avg_pool2d": firstTwo, "nn.global_max_pool2d": firstTwo,
		"nn.adaptive_avg_pool1d": firstTwo, "nn.adaptive_avg_pool2d": firstTwo, "nn.adaptive_max_pool2d": firstTwo,
		"nn.pad": pad, "dyn.nn.pad": dynamicPad,
		"nn.upsampling": upsampled, "nn.upsampling3d": upsampled,
		"image.resize1d": resized, "image.resize2d": resized, "image.resize3d": resized,
		"nn.conv1d_transpose": transposed, "nn.conv2d_transpose": transposed, "nn.conv3d_transpose": transposed,
		"nn.depth_to_space": fromChannels, "nn.space_to_depth": intoChannels, "repeat": repeated, "tile": tiled,
	}
	for _, name := range strings.Fields(elementwise) {
		operators[name] = same
	}
	for _, name := range strings.Fields(reductions) {
		operators[name] = reduce
	}
	for name, combine := range combined {
		operators[name] = reducing(combine.two, combine.none)
	}
	for _, name := range strings.Fields(otherBinary) {
		operators[name] = broadcasting(nil)
	}
	for name, compute := range arithmetic {
		operators[name] = broadcasting(compute)
	}
}

// Operators whose result is as large as their first argument.
const elementwise = `abs negative exp log log2 log10 sqrt rsqrt erf tanh sigmoid sin cos tan sinh cosh asin acos atan
	asinh acosh atanh ceil floor round trunc sign clip fixed_point_multiply isnan isinf isfinite logical_not bitwise_not
	nn.relu nn.leaky_relu nn.prelu nn.softmax nn.log_softmax nn.fast_softmax fast_erf fast_exp fast_tanh
	nn.instance_norm nn.group_norm nn.l2_normalize nn.lrn reverse zeros_like ones_like full_like scatter_nd sequence_mask
	qnn.quantize qnn.dequantize qnn.requantize`

const reductions = `mean any all argmax argmin variance logsumexp`

// combined is what reductions whose results may be sizes make of items, and of none: nil where they make nothing of that.
var combined = map[string]struct {
	two  func(a, b Expression) Expression
	none []Expression
}{
	"sum": {Expression.Plus, []Expression{Constant(0)}}, "prod": {Expression.Times, []Expression{Constant(1)}},
	"max": {Max, nil}, "min": {Min, nil},
}

// Operators that broadcast, and whose results are no sizes.
const otherBinary = `power logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift
	floor_mod mod trunc_mod`

// arithmetic is what broadcasting operators give for two numbers; false where nobody can say.
var arithmetic = map[string]func(a, b Expression) (Expression, bool){
	"add":          func(a, b Expression) (Expression, bool) { return a.Plus(b), true },
	"subtract":     func(a, b Expression) (Expression, bool) { return a.Minus(b), true },
	"multiply":     times,
	"divide":       Expression.Over,
	"floor_divide": Expression.Over,
	"trunc_divide": Expression.Over,
	"maximum":      func(a, b Expression) (Expression, bool) { return Max(a, b), true },
	"minimum":      func(a, b Expression) (Expression, bool) { return Min(a, b), true },
	"equal":        comparison(func(low, high int64) (yes, no bool) { return low == 0 && high == 0, low > 0 || high < 0 }),
	"not_equal":    comparison(func(low, high int64) (yes, no bool) { return low > 0 || high < 0, low == 0 && high == 0 }),
	"less":         comparison(func(low, high int64) (yes, no bool) { return high < 0, low >= 0 }),
	"less_equal":   comparison(func(low, high int64) (yes, no bool) { return high <= 0, low > 0 }),
	"greater":      comparison(func(low, high int64) (yes, no bool) { return low > 0, high <= 0 }),
	"greater_equal": comparison(func(low, high int64) (yes, no bool) {
		return low >= 0, high < 0
	}),
}

func times(a, b Expression) (Expression, bool) { return a.Times(b), true }

// comparison is 1 or 0 where the bounds of the difference of two numbers tell it.
func comparison(decide func(low, high int64) (yes, no bool)) func(a, b Expression) (Expression, bool) {
	return func(a, b Expression) (Expression, bool) {
		switch yes, no := decide(a.Minus(b).Bounds()); {
		case yes:
			return Constant(1), true
		case no:
			return Constant(0), true
		}
		return Expression{}, false
	}
}

func (a *Analysis) call(n *relay.Node) Value {
	compute := operators[n.Op]
	if compute == nil {
		return Value{}
	}
	return compute(a.arguments(n))
}

// arguments are those of a call, as far as they are known.
func (a *Analysis) arguments(n *relay.Node) arguments {
	args := arguments{in: make([]Value, len(n.Inputs)), attrs: n.Attrs}
	for i, in := range n.Inputs {
		args.in[i] = a.values[in]
	}
	return args
}

func withFirst(a arguments, then func(Value) Value) Value {
	if v, ok := a.first(); ok {
		return then(v)
	}
	return Value{}
}

func same(a arguments) Value { return withFirst(a, func(v Value) Value { return sized(v.Shape) }) }

func sameItems(a arguments) Value { return withFirst(a, func(v Value) Value { return v }) }

// cumulative has the shape of its data, unless it has no axis.
func cumulative(a arguments) Value {
	if axis, _ := a.attrs.Get("axis"); axis == nil {
		return Value{}
	}
	return same(a)
}

func inTuple(a arguments) Value { return Value{Fields: []Value{same(a), {}, {}}} }

func firstTwo(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		out := slices.Clone(v.Shape)
		for d := 2; d < len(out); d++ { // the type has numbers for these
			out[d] = Constant(1)
		}
		return sized(out)
	})
}

func shapeOf(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		return of(Extents{Constant(int64(len(v.Shape)))}, slices.Clone(v.Shape))
	})
}

// broadcast is the extents of what operators give that repeat dimensions of the size 1. Two sizes that are not known to
// be the same are so when the network runs, or one of them is 1: the greater one is right, as long as none is 0.
func broadcast(a, b Extents) Extents {
	rank := max(len(a), len(b))
	out := make(Extents, rank)
	for d := range out {
		i, j := d-rank+len(a), d-rank+len(b)
		switch {
		case i < 0:
			out[d] = b[j]
		case j < 0:
			out[d] = a[i]
		default:
			out[d] = common(a[i], b[j])
		}
	}
	return out
}

func common(a, b Expression) Expression {
	if value, ok := a.Value(); ok && value == 1 {
		return b
	} else if ok {
		return a
	}
	if value, ok := b.Value(); ok && value != 1 {
		return b
	} else if ok {
		return a
	}
	if a.Equal(b) {
		return a
	}
	if least, _ := a.Bounds(); least < 1 {
		return unclear(a, b)
	}
	if least, _ := b.Bounds(); least < 1 {
		return unclear(a, b)
	}
	return Max(a, b)
}

// unclear is the size of two that are broadcast where one may be 0.
func unclear(a, b Expression) Expression {
	a, b = inOrder(a, b)
	return opaque(broadcastOf, a, b, 0, Unbounded)
}

// broadcasting is an operator of two tensors; compute, where it is not nil, gives an item of two.
func broadcasting(compute func(a, b Expression) (Expression, bool)) operator {
	return func(args arguments) Value {
		a, ok := args.at(0)
		b, ok2 := args.at(1)
		if !ok || !ok2 {
			return Value{}
		}
		out := sized(broadcast(a.Shape, b.Shape))
		if compute == nil || a.Items == nil || b.Items == nil || len(out.Shape) > 1 {
			return out
		}
		count := max(len(a.Items), len(b.Items))
		if len(a.Items) != count && len(a.Items) != 1 || len(b.Items) != count && len(b.Items) != 1 {
			return out
		}
		items := make([]Expression, count)
		for i := range items {
			if items[i], ok = compute(a.Items[i%len(a.Items)], b.Items[i%len(b.Items)]); !ok {
				return out
			}
		}
		out.Items = items
		return out
	}
}

func where(args arguments) Value {
	condition, ok := args.at(0)
	a, ok2 := args.at(1)
	b, ok3 := args.at(2)
	if !ok || !ok2 || !ok3 {
		return Value{}
	}
	out := sized(broadcast(broadcast(a.Shape, b.Shape), condition.Shape))
	if condition.Items == nil || a.Items == nil || b.Items == nil || len(out.Shape) > 1 {
		return out
	}
	count := max(len(condition.Items), len(a.Items), len(b.Items))
	items := make([]Expression, count)
	for i := range items {
		which, known := condition.Items[i%len(condition.Items)].Value()
		if !known {
			return out
		}
		items[i] = b.Items[i%len(b.Items)]
		if which != 0 {
			items[i] = a.Items[i%len(a.Items)]
		}
	}
	out.Items = items
	return out
}

func reduce(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		keep, _ := a.attrs.Bool("keepdims")
		exclude, _ := a.attrs.Bool("exclude")
		var axes []int
		if given, ok := a.attrs.Get("axis"); ok && given != nil {
			list, ok := a.attrs.Ints("axis")
			if one, single := a.attrs.Int("axis"); single {
				list, ok = []int64{one}, true
			}
			if !ok {
				return Value{}
			}
			for _, at := range list {
				axis, ok := axisOf(at, len(v.Shape))
				if !ok {
					return Value{}
				}
				axes = append(axes, axis)
			}
		}
		var out Extents
		for d, extent := range v.Shape {
			gone := axes == nil || slices.Contains(axes, d) != exclude
			switch {
			case !gone:
				out = append(out, extent)
			case keep:
				out = append(out, Constant(1))
			}
		}
		return sized(out)
	})
}

// reducing is a reduction; of a vector of known items it gives one, and of no items none.
func reducing(two func(a, b Expression) Expression, none []Expression) operator {
	return func(a arguments) Value {
		return withFirst(a, func(v Value) Value {
			out := reduce(a)
			if count, ok := out.Shape.elements().Value(); !out.known || !ok || count != 1 || len(v.Shape) != 1 || v.Items == nil {
				return out
			}
			if len(v.Items) == 0 {
				out.Items = none
				return out
			}
			all := v.Items[0]
			for _, item := range v.Items[1:] {
				all = two(all, item)
			}
			out.Items = []Expression{all}
			return out
		})
	}
}

// axisOf counts an axis from the front.
func axisOf(at int64, rank int) (int, bool) {
	if at < 0 {
		at += int64(rank)
	}
	return int(at), at >= 0 && at < int64(rank)
}

func dense(a arguments) Value {
	data, ok := a.at(0)
	weight, ok2 := a.at(1)
	if !ok || !ok2 || len(data.Shape) == 0 || len(weight.Shape) != 2 {
		return Value{}
	}
	return sized(append(slices.Clone(data.Shape[:len(data.Shape)-1]), weight.Shape[0]))
}

func matmul(a arguments) Value {
	return products(a, "transpose_a", "transpose_b", 2)
}

func batchMatmul(a arguments) Value {
	return products(a, "transpose_a", "transpose_b", 3)
}

func products(a arguments, turnA, turnB string, rank int) Value {
	x, ok := a.at(0)
	y, ok2 := a.at(1)
	if !ok || !ok2 || len(x.Shape) != rank || len(y.Shape) != rank {
		return Value{}
	}
	rows, _ := matrixAxes(a, turnA, rank)
	_, columns := matrixAxes(a, turnB, rank)
	return sized(append(broadcast(x.Shape[:rank-2], y.Shape[:rank-2]), x.Shape[rows], y.Shape[columns]))
}

// matrixAxes are which axes of an argument of so many are its matrices' rows and columns; turned is the attribute that
// says that they are transposed.
func matrixAxes(a arguments, turned string, rank int) (rows, columns int) {
	if is, _ := a.attrs.Bool(turned); is {
		return rank - 1, rank - 2
	}
	return rank - 2, rank - 1
}

func batchFlatten(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		if len(v.Shape) == 0 {
			return Value{}
		}
		return sized(Extents{v.Shape[0], v.Shape[1:].elements()})
	})
}

func arange(a arguments) Value {
	start, ok := a.at(0)
	stop, ok2 := a.at(1)
	step, ok3 := a.at(2)
	if !ok || !ok2 || !ok3 || len(start.Items) != 1 || len(stop.Items) != 1 || len(step.Items) != 1 {
		return Value{}
	}
	if by, known := step.Items[0].Value(); !known || by != 1 {
		return Value{}
	}
	return sized(Extents{Max(stop.Items[0].Minus(start.Items[0]), Constant(0))})
}

func take(a arguments) Value {
	data, ok := a.at(0)
	indices, ok2 := a.at(1)
	at, ok3 := a.attrs.Int("axis")
	batch, _ := a.attrs.Int("batch_dims")
	if !ok || !ok2 || !ok3 || batch != 0 {
		return Value{}
	}
	axis, ok := axisOf(at, len(data.Shape))
	if !ok {
		return Value{}
	}
	out := sized(slices.Concat(data.Shape[:axis], indices.Shape, data.Shape[axis+1:]))
	if len(data.Shape) == 1 && data.Items != nil && indices.Items != nil {
		out.Items = taken(data.Items, indices.Items)
	}
	return out
}

// taken are the items at indices; nil where an index is unknown or none.
func taken(items, indices []Expression) []Expression {
	out := make([]Expression, 0, len(indices))
	for _, index := range indices {
		at, known := index.Value()
		if !known || at < 0 || at >= int64(len(items)) {
			return nil
		}
		out = append(out, items[at])
	}
	return out
}

func gather(a arguments) Value {
	data, ok := a.at(0)
	indices, ok2 := a.at(1)
	if !ok || !ok2 {
		return Value{}
	}
	out := sized(slices.Clone(indices.Shape))
	if len(data.Shape) == 1 && data.Items != nil && indices.Items != nil {
		out.Items = taken(data.Items, indices.Items)
	}
	return out
}

// gatherND takes items, or blocks of them, at indices whose first dimension runs over the data's dimensions.
func gatherND(a arguments) Value {
	data, ok := a.at(0)
	indices, ok2 := a.at(1)
	batch, ok3 := a.attrs.Int("batch_dims")
	if !ok || !ok2 || !ok3 || len(indices.Shape) == 0 {
		return Value{}
	}
	deep, known := indices.Shape[0].Value()
	if !known || batch < 0 || batch+deep > int64(len(data.Shape)) {
		return Value{}
	}
	return sized(slices.Concat(indices.Shape[1:], data.Shape[batch+deep:]))
}

// scatterElements writes items of a vector: ONNX's Slice, as TVM reads it, writes the ends of its axes into a shape.
func scatterElements(a arguments) Value {
	return withFirst(a, func(v Value) Value {
		out := sized(v.Shape)
		indices, ok := a.at(1)
		updates, ok2 := a.at(2)
		how, _ := a.attrs.String("reduction")
		if !ok || !ok2 || len(v.Shape) != 1 || v.Items == nil || indices.Items == nil || how != "update" ||
			len(updates.Items) != len(indices.Items) {
			return out
		}
		items := slices.Clone(v.Items)
		for i, index := range indices.Items {
			at, known := index.Value()
			if known && at < 0 {
				at += int64(len(items))
			}
			if !known || at < 0 || at >= int64(len(items)) {
				return out
			}
			items[at] = updates.Items[i]
		}
		out.Items = items
		return out
	})
}
