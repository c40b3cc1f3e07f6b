// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// There are two ways to write the same quantised network. One has operators on whole numbers (ONNX's QLinearConv,
// TVM's qnn.conv2d, whose sums qnn.requantize brings to the next scale); the other has operators on float32, and
// between them quantisations and the way back (QDQ). Backends read the second one: what stands between is float32 for
// those that compute so, and those that multiply bytes find the bytes again. So Normalise writes the first one as the
// second one, whoever computes it (RATIONALE.md says why always).

// quantisedForm writes the operators of TVM's quantisation dialect that compute as operators on float32 between
// quantisations and the way back. What it does not know stays. The module, which has types as the one has that comes
// in, is the caller's; it may be the same.
func quantisedForm(mod *bridge.Object) (*bridge.Object, error) {
	read, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer read.Release()
	if !slices.ContainsFunc(read.Functions, func(g *relay.Graph) bool {
		return slices.ContainsFunc(g.Nodes, func(n relay.Node) bool { return strings.HasPrefix(n.Op, "qnn.") })
	}) {
		return mod.Retain()
	}
	written, err := rewriteCalls(mod, func(g *relay.Graph, r *relay.Rewriter) error {
		if g.Attrs["Compiler"] != "" || relay.IsSet(g.Attrs["Primitive"]) {
			return nil
		}
		m := maker{g: g, made: map[string]*bridge.Object{}}
		for id := range g.Nodes {
			if f := inSteps(g, relay.NodeID(id)); f != nil {
				var needs []relay.NodeID
				f.needs(&needs)
				r.Replace(relay.NodeID(id), needs, func(now []*bridge.Object) (*bridge.Object, error) {
					given := make(map[relay.NodeID]*bridge.Object, len(needs))
					for i, v := range needs {
						given[v] = now[i]
					}
					return m.make(f, given)
				})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer written.Release()
	return runPass(written, "InferType")
}

// sameOperators are operators of the dialect by what they are between steps.
var sameOperators = map[string]string{
	"qnn.add": "add", "qnn.subtract": "subtract", "qnn.mul": "multiply", "qnn.tanh": "tanh", "qnn.sigmoid": "sigmoid",
	"qnn.exp": "exp", "qnn.sqrt": "sqrt", "qnn.rsqrt": "rsqrt", "qnn.erf": "erf", "qnn.abs": "abs", "qnn.log": "log",
}

// inSteps is what stands for a node in the form between steps; nil where it stays.
func inSteps(g *relay.Graph, id relay.NodeID) *form {
	n := &g.Nodes[id]
	if n.Kind != relay.KindCall || n.Callee != relay.NoNode {
		return nil
	}
	axis, _ := n.Attrs.Int("axis")
	in := func(i int) *form { return given(n.Inputs[i]) }
	steps := func(f *form, scale, zero int) *form {
		if f == nil || !isByte(n.Type) {
			return nil
		}
		return call("relay.qnn.op._make.quantize", f, in(scale), in(zero), int64(-1), n.Type.DType)
	}
	switch n.Op {
	case "qnn.requantize":
		if number(g, n.Inputs[3]) != number(g, n.Inputs[3]) {
			return nil // a scale for each channel of the result
		}
		return steps(wide(g, n.Inputs[0], meant(g, n, 1, 2, axis)), 3, 4)
	case "qnn.dequantize":
		if !n.Type.IsTensor("float32") {
			return nil // other operators expect what it says
		}
		// What only one reads stays as it stands there; all others read the same.
		f := wide(g, n.Inputs[0], meant(g, n, 1, 2, axis))
		if f != nil && (f.text != "relay.qnn.op._make.dequantize" || len(g.Consumers(n.Inputs[0])) > 1) {
			return f
		}
	case "multiply":
		return scaled(g, n)
	case "qnn.concatenate":
		return concatenated(g, n, axis, steps)
	case "qnn.add", "qnn.subtract", "qnn.mul":
		left, _ := n.Attrs.Int("lhs_axis")
		right, _ := n.Attrs.Int("rhs_axis")
		a, b := wide(g, n.Inputs[0], meant(g, n, 2, 3, left)), wide(g, n.Inputs[1], meant(g, n, 4, 5, right))
		if a == nil || b == nil {
			return nil
		}
		return steps(call("relay.op._make."+sameOperators[n.Op], a, b), 6, 7)
	default:
		if op := sameOperators[n.Op]; op != "" {
			if f := wide(g, n.Inputs[0], meant(g, n, 1, 2, -1)); f != nil {
				return steps(call("relay.op._make."+op, f), 3, 4)
			}
		}
	}
	return nil
}

// scaled is a product of whole numbers whose scale comes behind it (ONNX's MatMulInteger and ConvInteger, and QGemm
// that gives float32). One that is known only when the data are there, as dynamic quantisation has it, goes to the
// data: at the weights it would have them computed at each call.
func scaled(g *relay.Graph, n *relay.Node) *form {
	sums := &g.Nodes[n.Inputs[0]]
	if !n.Type.IsTensor("float32") || sums.Op != "cast" || !g.Nodes[sums.Inputs[0]].Type.IsTensor("int32") ||
		!slices.Equal(n.Type.Shape, sums.Type.Shape) {
		return nil
	}
	b := by{zero: float(0), none: true, axis: int64(len(n.Type.Shape) - 1), unknown: map[relay.NodeID]bool{}}
	constant := func(v relay.NodeID) bool {
		c, t := g.Nodes[v].Constant, g.Nodes[v].Type
		if c == nil || !t.IsTensor("float32") {
			return false
		}
		b.scale, b.value = given(v), number(g, v)
		if math.IsNaN(b.value) {
			if len(t.Shape) != 1 {
				return false
			}
			b.length = t.Shape[0]
			return true
		}
		b.scale = float(b.value)
		return true
	}
	single := func(v relay.NodeID) bool {
		elements, static := g.Nodes[v].Type.NumElements()
		return static && elements == 1 && len(g.Nodes[v].Type.Shape) == 0
	}
	by := n.Inputs[1]
	if constant(by) {
		return wide(g, sums.Inputs[0], b)
	}
	if of := &g.Nodes[by]; of.Op == "multiply" {
		for i := range 2 {
			if constant(of.Inputs[i]) && single(of.Inputs[1-i]) {
				b.data = given(of.Inputs[1-i])
				return wide(g, sums.Inputs[0], b)
			}
		}
	}
	if !single(by) {
		return nil
	}
	b.scale, b.value, b.length, b.data = float(1), 1, 0, given(by)
	return wide(g, sums.Inputs[0], b)
}

// concatenated joins what each part stands for.
func concatenated(g *relay.Graph, n *relay.Node, axis int64, steps func(f *form, scale, zero int) *form) *form {
	parts, scales, zeros := &g.Nodes[n.Inputs[0]], &g.Nodes[n.Inputs[1]], &g.Nodes[n.Inputs[2]]
	for _, tuple := range []*relay.Node{parts, scales, zeros} {
		if tuple.Kind != relay.KindTuple || len(tuple.Inputs) != len(parts.Inputs) {
			return nil
		}
	}
	joined := &form{text: "tuple"}
	for i, part := range parts.Inputs {
		f := wide(g, part, by{scale: given(scales.Inputs[i]), value: number(g, scales.Inputs[i]), zero: given(zeros.Inputs[i]),
			from: number(g, zeros.Inputs[i]), axis: -1})
		if f == nil {
			return nil
		}
		joined.args = append(joined.args, f)
	}
	return steps(call("relay.op._make.concatenate", joined, axis), 3, 4)
}

// by says what whole numbers stand for: (number - zero) * scale.
type by struct {
	scale, zero *form
	value, from float64 // of scale and zero, where they are constants of one number; not numbers else
	length      int64   // of how many numbers scale is, where that is no single one, along axis
	axis        int64
	none        bool // zero is 0
	spread      bool // zero is several numbers, along axis
	varies      bool // scale is no constant
	// data is a further scale, one number that is no constant, of what is multiplied; nil where there is none.
	data *form
	// unknown are sums of which is known that they are no product's with what is added to it.
	unknown map[relay.NodeID]bool
}

// meant is what a call says in its arguments of numbers.
func meant(g *relay.Graph, n *relay.Node, scale, zero int, axis int64) by {
	s, z := n.Inputs[scale], n.Inputs[zero]
	b := by{scale: given(s), zero: given(z), value: number(g, s), from: number(g, z), axis: axis,
		varies: g.Nodes[s].Kind != relay.KindConstant, unknown: map[relay.NodeID]bool{}}
	b.none = b.from == 0
	if !math.IsNaN(b.value) && !math.IsNaN(b.from) {
		b.axis = -1
	}
	if t := g.Nodes[s].Type; t != nil && len(t.Shape) == 1 && t.Shape[0] != 1 {
		b.length = t.Shape[0]
	}
	if t := g.Nodes[z].Type; t != nil && len(t.Shape) == 1 && t.Shape[0] != 1 {
		b.spread = true
	}
	return b
}

// number is the value of a constant of one number; not a number for all else.
func number(g *relay.Graph, id relay.NodeID) float64 {
	if c := g.Nodes[id].Constant; c != nil {
		return c.Scalar
	}
	return math.NaN()
}

func isByte(t *relay.Type) bool { return t.IsTensor("int8") || t.IsTensor("uint8") }

// moves are operators on one tensor that do nothing to numbers but leave some out.
var moves = []string{"reshape", "transpose", "nn.batch_flatten", "squeeze", "expand_dims", "strided_slice", "copy",
	"nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "layout_transform"}

// wide is, in float32, what whole numbers stand for: bytes, or the sums of a product of bytes with what is added to
// them. nil where that is not known, for sums which are no such.
func wide(g *relay.Graph, v relay.NodeID, b by) *form {
	n := &g.Nodes[v]
	bytes := isByte(n.Type)
	if n.Kind == relay.KindCall && n.Callee == relay.NoNode {
		switch {
		case slices.Contains(moves, n.Op) && len(n.Inputs) == 1 && b.length == 0 && !b.spread:
			if f := wide(g, n.Inputs[0], b); f != nil {
				return &form{text: "again", node: v, args: []any{f}}
			}
		case bytes:
			if f := bounded(g, v, b); f != nil {
				return f
			}
		case n.Type.IsTensor("int32") && b.none && !b.varies:
			if b.unknown[v] {
				return nil
			}
			f := summed(g, v, b)
			b.unknown[v] = f == nil
			return f
		}
	}
	if !bytes {
		return nil
	}
	return call("relay.qnn.op._make.dequantize", given(v), b.scale, b.zero, b.axis, "float32")
}

// bounded is wide of bytes that are cut off, or have a border of equal ones; nil of others.
func bounded(g *relay.Graph, v relay.NodeID, b by) *form {
	n := &g.Nodes[v]
	if math.IsNaN(b.value) || math.IsNaN(b.from) {
		return nil
	}
	switch n.Op {
	case "clip":
		low, ok := n.Attrs.Float("a_min")
		high, ok2 := n.Attrs.Float("a_max")
		f := wide(g, n.Inputs[0], b)
		if !ok || !ok2 || f == nil {
			return nil
		}
		return call("relay.op._make.clip", f, (low-b.from)*b.value, (high-b.from)*b.value)
	case "nn.pad":
		border := number(g, n.Inputs[1])
		mode, _ := n.Attrs.String("pad_mode")
		f := wide(g, n.Inputs[0], b)
		if math.IsNaN(border) || mode != "constant" || f == nil {
			return nil
		}
		return call("relay.op.nn._make.pad", f, attribute{v, "pad_width"}, float((border-b.from)*b.value), mode)
	}
	return nil
}

// summed is wide of sums of products.
func summed(g *relay.Graph, v relay.NodeID, b by) *form {
	n := &g.Nodes[v]
	switch n.Op {
	case "qnn.conv2d", "qnn.dense":
		return multiplied(g, v, b)
	case "nn.bias_add", "add":
		if b.data != nil {
			return nil
		}
		for i := range 2 {
			f := wide(g, n.Inputs[i], b)
			if f == nil || !g.Nodes[n.Inputs[1-i]].Type.IsTensor("int32") {
				continue
			}
			other := &g.Nodes[n.Inputs[1-i]]
			scale := b.scale
			if b.length > 0 {
				if elements, static := other.Type.NumElements(); !static || elements != b.length ||
					n.Op == "add" && !alongAxis(other.Type.Shape, n.Type.Shape, b) {
					return nil
				}
				scale = call("relay.op._make.reshape", scale, sizes(other.Type.Shape), false)
			}
			added := call("relay.op._make.multiply", call("relay.ir.cast", given(n.Inputs[1-i]), "float32"), scale)
			if n.Op == "add" {
				return call("relay.op._make.add", f, added)
			}
			return &form{text: "again", node: v, args: []any{f, added}}
		}
	}
	return nil
}

// alongAxis says that what has one number for each place along the axis is laid out so that it is added there.
func alongAxis(shape, whole []int64, b by) bool {
	axis := b.axis
	if axis < 0 {
		axis += int64(len(whole))
	}
	at := axis - int64(len(whole)-len(shape))
	return at >= 0 && at < int64(len(shape)) && shape[at] == b.length
}

// alongChannels says that an axis of a product's result is that of its channels.
func alongChannels(n *relay.Node, axis int64) bool {
	rank := len(n.Type.Shape)
	if axis < 0 {
		axis += int64(rank)
	}
	layout, ok := n.Attrs.String("out_layout")
	if layout == "" {
		layout, ok = n.Attrs.String("data_layout")
	}
	if !ok {
		return axis == int64(rank-1) // a dense layer
	}
	return len(layout) == rank && axis == int64(strings.IndexByte(layout, 'C'))
}

// multiplied is a convolution or a product: data by its own scale, weights by what is missing to that of the sums. What
// padding adds is 0 in either form.
func multiplied(g *relay.Graph, v relay.NodeID, b by) *form {
	n := &g.Nodes[v]
	data := meant(g, n, 4, 2, -1)
	weight := g.Nodes[n.Inputs[1]].Type
	if math.IsNaN(data.value) || data.value == 0 || !isByte(weight) || !isByte(g.Nodes[n.Inputs[0]].Type) {
		return nil
	}
	axis := int64(0) // of the channels of what comes out, in the weight
	if layout, ok := n.Attrs.String("kernel_layout"); ok {
		axis = int64(slices.Index([]byte(layout), 'O'))
	}
	channels := b.length
	if zero := g.Nodes[n.Inputs[3]].Type; channels == 0 && zero != nil && len(zero.Shape) == 1 && zero.Shape[0] != 1 {
		channels = zero.Shape[0]
	}
	if channels > 0 && (axis < 0 || weight.Shape[axis] != channels) || b.length > 0 && !alongChannels(n, b.axis) {
		return nil
	}
	scale := call("relay.op._make.divide", b.scale, data.scale)
	if b.data != nil {
		scale, data.scale, data.value = b.scale, b.data, math.NaN()
	}
	f := wide(g, n.Inputs[0], data)
	w := call("relay.qnn.op._make.dequantize", given(n.Inputs[1]), scale, given(n.Inputs[3]), axis, "float32")
	attr := func(name string) attribute { return attribute{v, name} }
	if n.Op == "qnn.dense" {
		return call("relay.op.nn._make.dense", f, w, attr("units"), "")
	}
	return call("relay.op.nn._make.conv2d", f, w, attr("strides"), attr("padding"), attr("dilation"), attr("groups"),
		attr("channels"), attr("kernel_size"), attr("data_layout"), attr("kernel_layout"), attr("out_layout"), "")
}
