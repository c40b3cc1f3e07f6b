// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// Settle gives each function of a module the form that it would have with fixed sizes, as far as its dimensions tell: a
// reshape to a shape that is computed becomes one with the shape as an attribute, a broadcast or a slice that changes
// nothing goes, and what is computed of sizes alone and is always the same becomes a constant. inputs names the open
// dimensions of main's parameters, which main says from then on (SizesAttr). A module without open dimensions stays the same. The module must have types and is
// unchanged; the new one, which is the caller's, needs types for what is new. Errors name the operator.
func Settle(mod *bridge.Object, inputs Inputs) (*bridge.Object, error) {
	m, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	var changed []relay.GlobalFunction
	for _, g := range m.Functions {
		if g.Attrs["Compiler"] != "" || relay.IsSet(g.Attrs["Primitive"]) || !HasOpen(g) {
			continue
		}
		named := inputs
		if g.Name != "main" || inputs == nil {
			if named, err = InputsOf(g); err != nil {
				return nil, err
			}
		}
		function, err := settled(g, named)
		if err != nil {
			return nil, fmt.Errorf("working out open dimensions: function %s: %w", g.Name, err)
		}
		defer function.Release()
		if g.Name == "main" && inputs != nil {
			if function, err = relay.WithAttr(function, SizesAttr, inputs.Text()); err != nil {
				return nil, err
			}
			defer function.Release()
		}
		if !function.Same(g.Function()) {
			changed = append(changed, relay.GlobalFunction{Var: m.GlobalVar(g.Name), Function: function})
		}
	}
	if len(changed) == 0 {
		return mod.Retain()
	}
	return m.Replace(changed)
}

// HasOpen says that some tensor of a function has a dimension that is not known before it runs.
func HasOpen(g *relay.Graph) bool {
	return slices.ContainsFunc(g.Nodes, func(n relay.Node) bool { return IsOpen(n.Type) })
}

// IsOpen says that a tensor, or one of a tuple's, has such a dimension.
func IsOpen(t *relay.Type) bool {
	return t != nil && (t.Kind == relay.TypeTensor && slices.Contains(t.Shape, relay.AnyDim) ||
		t.Kind == relay.TypeTuple && slices.ContainsFunc(t.Fields, IsOpen))
}

func settled(g *relay.Graph, inputs Inputs) (*bridge.Object, error) {
	a, err := Analyse(g, inputs)
	if err != nil {
		return nil, err
	}
	s := settler{Analysis: a, r: relay.NewRewriter(g)}
	defer s.release()
	for id := range g.Nodes {
		if n := &g.Nodes[id]; n.Kind == relay.KindCall && n.Callee == relay.NoNode {
			s.settle(relay.NodeID(id), n)
		}
	}
	function, err := s.r.Function()
	if err != nil || function.Same(g.Function()) {
		return function, err
	}
	defer function.Release()
	return withoutResultType(function)
}

// withoutResultType is a function whose result's type is yet to be inferred: it was of before.
func withoutResultType(function *bridge.Object) (*bridge.Object, error) {
	fields := map[string]any{}
	for _, name := range []string{"params", "body", "type_params", "attrs", "span"} {
		field, err := function.Attr(name)
		if err != nil {
			return nil, err
		}
		fields[name] = field
	}
	v, err := bridge.Global("relay.ir.Function", fields["params"], fields["body"], nil, fields["type_params"],
		fields["attrs"], fields["span"])
	if err != nil {
		return nil, err
	}
	return v.Object()
}

// settler replaces the calls of one function.
type settler struct {
	*Analysis
	r    *relay.Rewriter
	made []*bridge.Object
}

// release gives back what was made; what was built of it lives on in TVM.
func (s *settler) release() {
	s.r.Release()
	for _, o := range s.made {
		o.Release()
	}
}

func (s *settler) settle(id relay.NodeID, n *relay.Node) {
	v := s.values[id]
	if !v.known {
		return
	}
	if len(v.Items) > 0 && s.constantItems(id, n, v) {
		return
	}
	if len(n.Inputs) == 0 {
		return
	}
	data := s.values[n.Inputs[0]]
	if !data.known {
		return
	}
	switch n.Op {
	case "reshape", "dyn.reshape", "dyn.broadcast_to", "broadcast_to", "dyn.strided_slice":
		if data.Shape.Equal(v.Shape) && (n.Op != "dyn.strided_slice" || s.isWhole(n, data)) {
			s.r.Replace(id, n.Inputs[:1], func(now []*bridge.Object) (*bridge.Object, error) { return now[0], nil })
			return
		}
	}
	switch n.Op {
	case "dyn.reshape":
		if to, ok := newShape(data.Shape, v.Shape); ok {
			s.instead(id, n.Inputs[:1], "relay.op._make.reshape", to, false)
			return
		}
		if s.writeLike(id, n, data.Shape, v.Shape) {
			return
		}
	case "dyn.broadcast_to":
		if to, ok := numbers(v.Shape); ok {
			s.instead(id, n.Inputs[:1], "relay.op._make.broadcast_to", to)
			return
		}
	case "dyn.strided_slice":
		if begin, end, by, ok := s.fixedSlice(n, data); ok {
			if !s.takeFew(id, n, data, v, begin, end, by) {
				s.instead(id, n.Inputs[:1], "relay.op._make.strided_slice", begin, end, by, "end", nil)
			}
			return
		}
	case "strided_slice":
		if begin, end, by, ok := writtenSlice(n, data); ok && s.takeFew(id, n, data, v, begin, end, by) {
			return
		}
	}
	if n.Op == "nn.conv1d" {
		s.flatImage(id, n, data)
	}
	if strings.HasPrefix(n.Op, "dyn.") {
		s.tell(id, n.Type, v.Shape)
	}
}

// flatImage writes a convolution along an open dimension as one of an image of one line: of these TVM has kernels for any
// width, of those it has none that it can build.
func (s *settler) flatImage(id relay.NodeID, n *relay.Node, data Value) {
	if len(data.Shape) != 3 || !hasOpenWidth(&s.g.Nodes[n.Inputs[0]]) {
		return
	}
	m, fits := arguments{attrs: n.Attrs}.movement(1)
	kernel, _ := n.Attrs.Ints("kernel_size")
	groups, ok := n.Attrs.Int("groups")
	channels, ok2 := n.Attrs.Int("channels")
	layout, _ := n.Attrs.String("data_layout")
	weights, _ := n.Attrs.String("kernel_layout")
	outLayout, _ := n.Attrs.String("out_layout")
	dtype, _ := n.Attrs.String("out_dtype")
	if !ok || !ok2 || !fits || len(kernel) != 1 ||
		layout != "NCW" || weights != "OIW" || outLayout != "" && outLayout != "NCW" {
		return
	}
	line := func(along int64) []any { return []any{int64(1), along} }
	s.r.Replace(id, n.Inputs, func(now []*bridge.Object) (*bridge.Object, error) {
		args := make([]any, 0, len(now))
		for _, o := range now {
			image, err := s.called(id, "relay.op._make.expand_dims", o, int64(2), int64(1))
			if err != nil {
				return nil, err
			}
			args = append(args, image)
		}
		image, err := s.called(id, "relay.op.nn._make.conv2d", append(args, line(m.strides[0]),
			[]any{int64(0), m.padding[0], int64(0), m.padding[1]}, line(m.dilation[0]), groups, channels, line(kernel[0]), "NCHW",
			"OIHW", "", dtype)...)
		if err != nil {
			return nil, err
		}
		return s.called(id, "relay.op._make.squeeze", image, []any{int64(2)})
	})
}

func hasOpenWidth(n *relay.Node) bool {
	return n.Type != nil && len(n.Type.Shape) == 3 && n.Type.Shape[2] == relay.AnyDim
}

// tell has a reshape, which computes nothing, say which dimensions of an operator's result are numbers: TVM's type of what
// takes a shape as an argument has none, nor has what comes behind it.
func (s *settler) tell(id relay.NodeID, t *relay.Type, extents Extents) {
	to, ok := newShape(extents, extents)
	more := false
	for d, extent := range extents {
		_, number := extent.Value()
		more = more || number && t.Shape[d] == relay.AnyDim
	}
	if !ok || !more {
		return
	}
	s.r.Wrap(id, func(expr *bridge.Object) (*bridge.Object, error) {
		return s.called(id, "relay.op._make.reshape", expr, to, false)
	})
}

// isWhole says that a slice takes all of its data from the front, one after the other: a size alone does not tell that.
func (s *settler) isWhole(n *relay.Node, data Value) bool {
	begin, end, by := s.values[n.Inputs[1]].Items, s.values[n.Inputs[2]].Items, s.values[n.Inputs[3]].Items
	return each(begin, 0) && each(by, 1) && len(begin) == len(data.Shape) && len(end) == len(begin)
}

func each(items []Expression, value int64) bool {
	return items != nil && !slices.ContainsFunc(items, func(e Expression) bool { return !e.Equal(Constant(value)) })
}

// fixedSlice are the bounds of a slice, where they are numbers or the ends of their dimensions.
func (s *settler) fixedSlice(n *relay.Node, data Value) (begin, end, by []any, ok bool) {
	starts, ends, strides := s.values[n.Inputs[1]].Items, s.values[n.Inputs[2]].Items, s.values[n.Inputs[3]].Items
	mode, _ := n.Attrs.String("slice_mode")
	if mode != "end" || starts == nil || len(ends) != len(starts) || len(starts) > len(data.Shape) {
		return nil, nil, nil, false
	}
	if len(strides) == 1 {
		strides = slices.Repeat(strides, len(starts))
	}
	if len(strides) != len(starts) {
		return nil, nil, nil, false
	}
	for i := range starts {
		from, ok := starts[i].Value()
		to, ok2 := ends[i].Value()
		step, ok3 := strides[i].Value()
		if !ok2 && ends[i].Equal(data.Shape[i]) {
			to, ok2 = math.MaxInt64, true
		}
		if !ok || !ok2 || !ok3 || step < 1 {
			return nil, nil, nil, false
		}
		begin, end, by = append(begin, from), append(end, to), append(by, step)
	}
	return begin, end, by, true
}

// numbers are extents that are all known.
func numbers(extents Extents) ([]any, bool) {
	out := make([]any, len(extents))
	for d, extent := range extents {
		value, ok := extent.Value()
		if !ok {
			return nil, false
		}
		out[d] = value
	}
	return out, true
}

// instead has a call replaced by what a function of TVM's makes of the rewritten deps and of further arguments; the
// expression that it is instead of gives its span.
func (s *settler) instead(id relay.NodeID, deps []relay.NodeID, function string, more ...any) {
	s.r.Replace(id, deps, func(now []*bridge.Object) (*bridge.Object, error) {
		args := make([]any, 0, len(now)+len(more))
		for _, o := range now {
			args = append(args, o)
		}
		return s.called(id, function, append(args, more...)...)
	})
}

// called is what a function of TVM's makes of arguments, with the span of the node that it stands for.
func (s *settler) called(id relay.NodeID, function string, args ...any) (*bridge.Object, error) {
	out, err := calledFor(s.g.Handle(id), function, args...)
	if err == nil {
		s.made = append(s.made, out)
	}
	return out, err
}

// calledFor is what a function of TVM's makes of arguments, with the span of the expression that it stands for. It is
// the caller's.
func calledFor(expr *bridge.Object, function string, args ...any) (*bridge.Object, error) {
	v, err := bridge.Global(function, args...)
	if err != nil {
		return nil, err
	}
	call, err := v.Object()
	if err != nil {
		return nil, err
	}
	defer call.Release()
	span, err := expr.Attr("span")
	if err != nil {
		return nil, err
	}
	if v, err = bridge.Global("relay.ir.CallWithFields", call, nil, nil, nil, nil, nil, span); err != nil {
		return nil, err
	}
	return v.Object()
}

// constantItems puts a constant in the place of a shape, or of a part of one, that is the same whatever the open
// dimensions are.
func (s *settler) constantItems(id relay.NodeID, n *relay.Node, v Value) bool {
	shape, ok := numbers(v.Shape)
	items, ok2 := numbers(Extents(v.Items))
	size := map[string]int{"int64": 8, "int32": 4}[n.Type.DType]
	if !ok || !ok2 || size == 0 || strings.HasPrefix(n.Op, "annotation.") {
		return false
	}
	data := make([]byte, 0, size*len(items))
	for _, item := range items {
		value := item.(int64)
		if size == 4 {
			if int64(int32(value)) != value {
				return false
			}
			data = binary.NativeEndian.AppendUint32(data, uint32(int32(value)))
			continue
		}
		data = binary.NativeEndian.AppendUint64(data, uint64(value))
	}
	extents := make([]int64, len(shape))
	for d := range shape {
		extents[d] = shape[d].(int64)
	}
	s.r.Replace(id, nil, func([]*bridge.Object) (*bridge.Object, error) {
		dtype, err := bridge.ParseDataType(n.Type.DType)
		if err != nil {
			return nil, err
		}
		array, err := bridge.Empty(extents, dtype, bridge.CPU())
		if err != nil {
			return nil, err
		}
		defer array.Release()
		if err := array.CopyFromBytes(data); err != nil {
			return nil, err
		}
		constant, err := relay.NewConstant(array)
		if err == nil {
			s.made = append(s.made, constant)
		}
		return constant, err
	})
	return true
}
