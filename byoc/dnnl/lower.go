// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// lowering turns the operators of a region into operations.
type lowering struct {
	p *region.Program
	// types are those of the program's values and of values that were added.
	types []*relay.Type
	ops   []*operation
	// stripRanges are pairs: the first of operations that may be run strip by strip together, and how many they are.
	stripRanges []int64
	// nodes says which value a node of the group that is being lowered stands for.
	nodes map[relay.NodeID]region.ValueID
	// made are constants of its own, by value: their elements, little-endian.
	made map[region.ValueID][]byte
	// packed are the values that may have the rows of tokens alone (ragged.go); tokensOf is the input that says which
	// rows these are.
	packed   map[region.ValueID]packed
	tokensOf region.ValueID
	// groups are the names of the composite functions and single operators, in order; current is the one that is being
	// lowered.
	groups  []string
	current int
}

// lower gives the region's operations in order. The error says which operator the runtime would not understand.
func lower(p *region.Program) (*lowering, error) {
	l := &lowering{p: p, made: map[region.ValueID][]byte{}}
	for _, v := range p.Values {
		l.types = append(l.types, v.Type)
	}
	var of []int
	l.groups, of = p.Groups()
	for _, item := range recurrent.Schedule(p) {
		if item.Layer != nil {
			var groups []int
			for _, op := range item.Layer.Ops {
				groups = append(groups, of[op]) // ascending, as the operators are
			}
			groups = slices.Compact(groups)
			l.current = groups[len(groups)-1]
			l.recurrentLayer(item.Layer, groups)
			continue
		}
		// A group is lowered when its last operator can be.
		first, last := item.Op, item.Op
		if last+1 < len(p.Ops) && of[last+1] == of[last] {
			continue
		}
		for first > 0 && of[first-1] == of[last] {
			first--
		}
		l.current = of[last]
		if err := l.group(p.Ops[first : last+1]); err != nil {
			return nil, &region.OpError{Op: last, Err: err}
		}
	}
	return l, nil
}

// group lowers the operators of one composite function, or a single one.
func (l *lowering) group(ops []region.Op) error {
	g := l.p.Graph
	last := &ops[len(ops)-1]
	rule, name, root := index().Operator(last.Name), last.Name, last.Node
	if c := last.CompositeIndex; c >= 0 {
		name = l.p.Composites[c]
		if name == native.Attention || name == native.CausalAttention {
			return l.attention(name, ops)
		}
		rule = index().Composite(name)
		root = g.Scopes[g.Nodes[last.Node].Scope].Root
	}
	if rule == nil {
		return fmt.Errorf("the oneDNN runtime knows no %s", name)
	}
	return l.match(rule, name, root, ops)
}

// match lowers operators that a rule's pattern must match, all of them, with the root.
func (l *lowering) match(rule *onednn.Rule, name string, root relay.NodeID, ops []region.Op) error {
	g := l.p.Graph
	last := &ops[len(ops)-1]
	l.nodes = map[relay.NodeID]region.ValueID{root: last.Results[0]}
	l.bind(ops)
	limits := rule.Correct
	if limits == nil {
		limits = rule.Limits
	}
	refusal := fmt.Errorf("its body is not what the name says")
	for _, m := range g.Match(rule.Shape, root) {
		if len(ops) > 1 && !coversAll(m, ops) {
			continue
		}
		if err := limits(g, m); err != nil {
			refusal = err
			continue
		}
		layer, err := rule.Read(g, m)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		first := len(l.ops)
		if err := l.layer(layer, last); err != nil {
			return err
		}
		for _, o := range l.ops[first:] {
			o.kernel = rule.Kernel
			o.bf16 = rule.BF16 && (o.kind == "conv" || o.kind == "deconv" || o.kind == "matmul")
		}
		return nil
	}
	return fmt.Errorf("%s: %w", name, refusal)
}

// bind notes which values the nodes stand for that operators read and make.
func (l *lowering) bind(ops []region.Op) {
	for _, op := range ops {
		inputs := l.p.Graph.Nodes[op.Node].Inputs
		for i, in := range inputs {
			if len(inputs) == len(op.Args) {
				l.nodes[in] = op.Args[i]
			}
		}
		l.nodes[op.Node] = op.Results[0]
	}
}

func coversAll(m *relay.Match, ops []region.Op) bool {
	return !slices.ContainsFunc(ops, func(op region.Op) bool { return !m.Covers(op.Node) })
}

// add appends an operation.
func (l *lowering) add(o *operation) {
	o.of = []int{l.current}
	l.ops = append(l.ops, o)
}

// value adds a value of the program's own.
func (l *lowering) value(dtype string, shape ...int64) region.ValueID {
	l.types = append(l.types, relay.Tensor(dtype, shape...))
	return region.ValueID(len(l.types) - 1)
}

// of are the values of nodes.
func (l *lowering) of(nodes ...relay.NodeID) []region.ValueID {
	list := make([]region.ValueID, len(nodes))
	for i, n := range nodes {
		list[i] = l.nodes[n]
	}
	return list
}

// layer lowers one layer, whose result is that of op.
func (l *lowering) layer(layer onednn.Layer, op *region.Op) error {
	out := op.Results[0]
	switch y := layer.(type) {
	case *onednn.Convolution:
		l.convolution(y, out)
	case *onednn.Product:
		o := &operation{kind: "matmul", in: l.of(y.Left, y.Right), out: out, transposeA: y.TransposeA,
			transposeB: y.TransposeB}
		l.epilogue(o, y.Epilogue)
		l.add(o)
	case *onednn.Elementwise:
		l.elementwise(y, out)
	case *onednn.Binary:
		l.binary(y.Function, l.nodes[y.Left], l.nodes[y.Right], out)
	case *biasAdd:
		l.biasAdd(y, out)
	case *onednn.Pool:
		l.pool(y, out)
	case *onednn.Softmax:
		l.add(&operation{kind: "softmax", axes: []int64{y.Axis}, in: l.of(y.Data), out: out})
	case *onednn.LayerNorm:
		l.add(&operation{kind: "layer_norm", epsilon: y.Epsilon, in: l.of(y.Data, y.Gamma, y.Beta), out: out})
	case *onednn.BatchNorm:
		l.add(&operation{kind: "batch_norm", epsilon: y.Epsilon, in: l.of(y.Data, y.Gamma, y.Beta, y.Mean, y.Variance),
			out: out})
	case *reshape:
		l.add(&operation{kind: "reshape", in: slices.Clone(op.Args[:1]), out: out})
	case *transpose:
		l.add(&operation{kind: "transpose", perm: y.axes, in: l.of(y.data), out: out})
	case *onednn.Concatenation:
		l.add(&operation{kind: "concat", axes: []int64{y.Axis}, in: slices.Clone(op.Args), out: out})
	case *reduce:
		l.add(&operation{kind: "reduce", algorithm: y.function, axes: y.axes, in: l.of(y.data), out: out})
	case *variance:
		l.add(&operation{kind: "variance", unbiased: y.unbiased, axes: y.axes, in: l.of(y.data, y.mean), out: out})
	case *native.Norm:
		l.norm(y, out)
	case *native.Padding:
		l.add(&operation{kind: "clear_padding", in: l.of(y.Data, y.Valid), out: out})
	case *resize:
		l.add(&operation{kind: "resample", algorithm: y.method, perm: canonical(y.layout), in: l.of(y.data), out: out})
	default:
		return fmt.Errorf("the layer %T is not known", layer)
	}
	return nil
}

// functions are a function in the runtime's words, one behind the other.
func functions(e *onednn.Elementwise) []postOp {
	p := postOp{function: e.Function, alpha: e.Alpha, beta: e.Beta, operand: noValue}
	switch e.Function {
	case "swish":
		p.alpha = 1 // x * sigmoid(alpha * x)
	case "hardsigmoid":
		p.function = "linear"
		return []postOp{p, {function: "clip", beta: 1, operand: noValue}}
	}
	return []postOp{p}
}

// elementwise lowers a function that stands by itself.
func (l *lowering) elementwise(e *onednn.Elementwise, out region.ValueID) {
	list, from := functions(e), l.nodes[e.Data]
	for i, p := range list {
		to := out
		if i < len(list)-1 {
			to = l.value(l.types[out].DType, l.types[out].Shape...)
		}
		l.add(&operation{kind: "eltwise", algorithm: p.function, alpha: p.alpha, beta: p.beta,
			in: []region.ValueID{from}, out: to})
		from = to
	}
}

// epilogue gives an operation, which has data and weight, what happens to its result.
func (l *lowering) epilogue(o *operation, e onednn.Epilogue) {
	if e.Bias != relay.NoNode {
		o.bias = true
		o.in = append(o.in, l.nodes[e.Bias])
	}
	if e.Sum != relay.NoNode {
		o.post = append(o.post, postOp{function: "add", operand: l.nodes[e.Sum]})
	}
	if e.Activation != nil {
		o.post = append(o.post, functions(e.Activation)...)
	}
}

// canonical are the axes of a layout in oneDNN's order: batch, channels, space. nil where they stand so.
func canonical(layout string) []int64 {
	var space []int64
	for i, letter := range layout {
		if letter != 'N' && letter != 'C' {
			space = append(space, int64(i))
		}
	}
	axes := append([]int64{int64(strings.IndexByte(layout, 'N')), int64(strings.IndexByte(layout, 'C'))}, space...)
	if slices.IsSorted(axes) {
		return nil
	}
	return axes
}

func (l *lowering) convolution(c *onednn.Convolution, out region.ValueID) {
	o := &operation{
		kind: "conv", algorithm: "direct", in: l.of(c.Data, c.Weight), out: out, perm: canonical(c.DataLayout),
		strides: c.Strides, dilation: c.Dilation, padding: slices.Clone(c.Padding),
	}
	switch {
	case c.Transposed:
		o.kind = "deconv"
	case c.Scale != nil:
		o.kind, o.scale = "upsampled_conv", c.Scale
	}
	o.weightDims, o.weightStrides = weightView(c, l.types[o.in[1]].Shape)
	if o.kind == "conv" { // of upsampled tensors the sizes are not the ones that the taps meet
		o.trim(spaceOf(l.types[o.in[0]].Shape, o.perm), spaceOf(l.types[out].Shape, o.perm), l.freeSpace(o))
	}
	l.epilogue(o, c.Epilogue)
	l.add(o)
}

// freeSpace says of each spatial axis of what an operation reads whether it may have another size when it runs.
func (l *lowering) freeSpace(o *operation) []bool {
	axes := make([]int64, len(l.types[o.in[0]].Shape))
	for axis := range axes {
		axes[axis] = int64(axis)
	}
	var free []bool
	for _, axis := range spaceOf(axes, o.perm) {
		free = append(free, l.p.IsFree(o.in[0], int(axis)))
	}
	return free
}

// spaceOf are the spatial sizes of a tensor, whose axes perm puts in oneDNN's order.
func spaceOf(shape, perm []int64) []int64 {
	if perm == nil {
		return shape[2:]
	}
	var space []int64
	for _, axis := range perm[2:] {
		space = append(space, shape[axis])
	}
	return space
}

// weightView gives dimensions in oneDNN's order (groups where there are any, output channels, input channels, space)
// and the strides by which they lie in the plain weight.
func weightView(c *onednn.Convolution, shape []int64) (dims, strides []int64) {
	stride := make([]int64, len(shape))
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		stride[i] = step
		step *= shape[i]
	}
	at := func(letter byte) int { return strings.IndexByte(c.KernelLayout, letter) }
	o, i := at('O'), at('I')
	outs, ins := shape[o], shape[i]
	if c.Groups > 1 {
		// The groups are counted in the outputs of a convolution, in the inputs of a transposed one.
		split := o
		if c.Transposed {
			split = i
			ins /= c.Groups
		} else {
			outs /= c.Groups
		}
		dims, strides = append(dims, c.Groups), append(strides, shape[split]/c.Groups*stride[split])
	}
	dims, strides = append(dims, outs, ins), append(strides, stride[o], stride[i])
	for axis := range shape {
		if axis != o && axis != i {
			dims, strides = append(dims, shape[axis]), append(strides, stride[axis])
		}
	}
	return dims, strides
}

func (l *lowering) pool(p *onednn.Pool, out region.ValueID) {
	algorithm := "max_pool"
	if p.Kind == "avg" {
		algorithm = "avg_pool"
		if p.IncludePadding {
			algorithm = "avg_pool_padded"
		}
	}
	l.add(&operation{
		kind: "pool", algorithm: algorithm, in: l.of(p.Data), out: out, perm: canonical(p.Layout),
		window: p.Size, strides: p.Strides, dilation: p.Dilation, padding: p.Padding,
	})
}

// biasAdd gives the bias the shape in which it is broadcast along the right axis.
func (l *lowering) biasAdd(b *biasAdd, out region.ValueID) {
	data, bias := l.nodes[b.data], l.nodes[b.bias]
	rank := int64(l.types[data].Rank())
	axis := b.axis
	if axis < 0 {
		axis += rank
	}
	if axis < rank-1 {
		shape := slices.Repeat([]int64{1}, int(rank-axis))
		shape[0] = l.types[bias].Shape[0]
		column := l.value(l.types[bias].DType, shape...)
		l.add(&operation{kind: "reshape", in: []region.ValueID{bias}, out: column})
		bias = column
	}
	l.binary("add", data, bias, out)
}

// binary lowers an operator on two tensors. One that is a single number makes it an elementwise function, which can be
// fused with anything.
func (l *lowering) binary(function string, left, right, out region.ValueID) {
	if p, of, ok := l.byNumber(function, left, right); ok && slices.Equal(l.types[of].Shape, l.types[out].Shape) {
		l.add(&operation{kind: "eltwise", algorithm: p.function, alpha: p.alpha, beta: p.beta, in: []region.ValueID{of},
			out: out})
		return
	}
	l.add(&operation{kind: "binary", algorithm: function, in: []region.ValueID{left, right}, out: out})
}

// byNumber writes a binary operator of which one side is a number as a function of the other side.
func (l *lowering) byNumber(function string, left, right region.ValueID) (p postOp, of region.ValueID, ok bool) {
	number, of := l.number(right), left
	swapped := math.IsNaN(number)
	if swapped {
		number, of = l.number(left), right
	}
	if math.IsNaN(number) {
		return p, noValue, false
	}
	linear := func(alpha, beta float64) (postOp, region.ValueID, bool) {
		return postOp{function: "linear", alpha: alpha, beta: beta, operand: noValue}, of, true
	}
	switch {
	case function == "add":
		return linear(1, number)
	case function == "multiply":
		return linear(number, 0)
	case function == "subtract" && swapped:
		return linear(-1, number)
	case function == "subtract":
		return linear(1, -number)
	case function == "divide" && !swapped && isPowerOfTwo(number):
		return linear(1/number, 0)
	}
	return p, noValue, false
}

// isPowerOfTwo says that dividing by a number is the same as multiplying by its inverse.
func isPowerOfTwo(v float64) bool {
	fraction, _ := math.Frexp(math.Abs(v))
	return fraction == 0.5
}

// number is the value of a constant of one element; NaN for anything else.
func (l *lowering) number(v region.ValueID) float64 {
	if int(v) >= len(l.p.Values) || l.p.Values[v].Constant == relay.NoNode {
		return math.NaN()
	}
	c := l.p.Graph.Nodes[l.p.Values[v].Constant].Constant
	if c == nil || math.IsInf(c.Scalar, 0) {
		return math.NaN()
	}
	return c.Scalar
}
