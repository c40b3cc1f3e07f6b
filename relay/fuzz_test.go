// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// strangeTexts are strings that would make two keys alike if they were not quoted.
var strangeTexts = []string{"", "NCHW", `"`, "\n", `", b="`, "1", "1.0", "null", "[1, 2]", "é", "\xff"}

// graphOf makes a graph of what the bytes say, four for a node. Equal bytes make equal graphs.
func graphOf(bytes []byte) *Graph {
	m := NewGraph("fuzz")
	t := []*Type{Tensor("float32", 4), Tensor("float32", 2, 2), Tensor("int8", 4), Tensor("float32"),
		Tensor("float32", AnyDim)}
	ids := []NodeID{m.Var([]int64{4}, "float32"), m.Var([]int64{4}, "float32")}
	used := map[NodeID]bool{}
	for bytes = bytes[:min(len(bytes), 80)]; len(bytes) >= 4; bytes = bytes[4:] {
		pick := func(b byte) NodeID {
			id := ids[int(b)%len(ids)]
			used[id] = true
			return id
		}
		what, a, b, knob := bytes[0]%10, bytes[1], bytes[2], bytes[3]
		typ := t[int(knob)%len(t)]
		var id NodeID
		switch what {
		case 0:
			id = m.Call([]string{"nn.relu", "tanh", "exp"}[knob%3], t[0], nil, pick(a))
		case 1:
			id = m.Call([]string{"add", "multiply"}[knob%2], typ, nil, pick(a), pick(b))
		case 2: // attributes of all kinds
			id = m.Call("x", t[0], map[string]any{[]string{"k", "l"}[b%2]: []any{int(knob), float64(knob),
				strangeTexts[int(knob)%len(strangeTexts)],
				[]int{int(knob), 2}, nil, knob%2 == 0, math.NaN(), []any{}}[b/2%8]}, pick(a))
		case 3:
			id = m.Const([]int64{int64(b % 3), 2}, []string{"int32", "float32"}[b/4%2], fmt.Sprint(knob%4))
		case 4: // a weight
			id = m.Const([]int64{16, int64(2 + b%3)}, "float32", fmt.Sprint(knob%4))
		case 5:
			id = m.Scalar(float64(knob%4), "float32")
		case 6:
			id = m.Tuple(pick(a), pick(b))
		case 7:
			id = m.Get(m.Tuple(pick(a), pick(b)), int(knob%2))
		case 8:
			v := m.LocalVar([]int64{4}, "float32")
			body := m.Call([]string{"exp", "tanh"}[knob%2], t[0], nil, v)
			id = m.CallFunction(m.Function([]NodeID{v}, body,
				map[string]string{"Composite": strangeTexts[int(b)%len(strangeTexts)]}), t[0], pick(a))
		case 9:
			id = m.If(pick(a), m.Call("exp", t[0], nil, pick(b)),
				m.Call([]string{"exp", "abs"}[knob%2], t[0], nil, pick(b)), t[0])
		}
		ids = append(ids, id)
	}
	var ends []NodeID
	for i, id := range ids {
		if !used[id] && (i > 1 || id == 0) {
			ends = append(ends, id)
		}
	}
	if len(ends) == 1 {
		return m.Finish(ends[0])
	}
	return m.Finish(m.Tuple(ends...))
}

// samePair says by itself, without any text, whether two graphs compute the same: a walk of both at once that pairs
// their nodes.
type samePair struct {
	g, h    *Graph
	content bool
	there   map[NodeID]NodeID
	back    map[NodeID]NodeID
}

func (s *samePair) nodes(a, b NodeID) bool {
	if x, done := s.there[a]; done {
		return x == b
	}
	if _, done := s.back[b]; done {
		return false
	}
	s.there[a], s.back[b] = b, a
	n, o := &s.g.Nodes[a], &s.h.Nodes[b]
	if n.Kind != o.Kind || n.Op != o.Op || n.Index != o.Index || !sameType(n.Type, o.Type) ||
		!sameAttrs(n.Attrs, o.Attrs) ||
		len(n.Inputs) != len(o.Inputs) || len(n.Nested) != len(o.Nested) || len(n.Binds) != len(o.Binds) ||
		(n.Callee == NoNode) != (o.Callee == NoNode) {
		return false
	}
	if n.Kind == KindFunction && !reflect.DeepEqual(n.FuncAttrs, o.FuncAttrs) {
		return false
	}
	if n.Kind == KindConstant {
		if n.Constant.IsWeight() && !s.content {
			return true // by its type
		}
		x, _ := s.g.Digest(a)
		y, _ := s.h.Digest(b)
		return x == y
	}
	if n.Callee != NoNode && !s.nodes(n.Callee, o.Callee) {
		return false
	}
	for i := range n.Inputs {
		if !s.nodes(n.Inputs[i], o.Inputs[i]) {
			return false
		}
	}
	for i := range n.Binds {
		if !s.nodes(n.Binds[i], o.Binds[i]) {
			return false
		}
	}
	for i := range n.Nested {
		if !s.nodes(s.g.Scopes[n.Nested[i]].Root, s.h.Scopes[o.Nested[i]].Root) {
			return false
		}
	}
	return true
}

func sameType(a, b *Type) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) &&
		slices.EqualFunc(a.Fields, b.Fields, sameType)
}

func sameAttrs(a, b *Attrs) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.TypeKey == b.TypeKey && slices.EqualFunc(a.Fields, b.Fields, func(x, y AttrField) bool {
		return x.Name == y.Name && sameValue(x.Value, y.Value)
	})
}

// sameValue compares attributes as they are: 1 is not 1.0, and a NaN is one.
func sameValue(a, b any) bool {
	x, isList := a.([]any)
	y, isList2 := b.([]any)
	if isList && isList2 {
		return slices.EqualFunc(x, y, sameValue)
	}
	f, isFloat := a.(float64)
	g, isFloat2 := b.(float64)
	if isFloat && isFloat2 {
		return math.Float64bits(f) == math.Float64bits(g)
	}
	return reflect.DeepEqual(a, b)
}

// FuzzKey holds keys against that walk: those of two graphs are equal if and only if the graphs are. The second graph
// is the first with one byte of its making changed, and its key is that of the same graph with other numbers and names.
func FuzzKey(f *testing.F) {
	for what := range byte(10) {
		f.Add([]byte{0, 0, 0, 0, what, 2, 1, 3, 1, 2, 3, 0}, uint16(7), byte(1))
		f.Add([]byte{what, 0, 1, 5, what, 0, 1, 5, 6, 2, 3, 1}, uint16(2), byte(3))
	}
	f.Add([]byte{2, 0, 4, 2, 2, 0, 4, 4}, uint16(3), byte(4))
	f.Add([]byte{2, 0, 4, 7}, uint16(2), byte(8)) // the text "null", and nothing
	f.Fuzz(func(t *testing.T, bytes []byte, at uint16, value byte) {
		other := slices.Clone(bytes)
		if len(other) > 0 {
			other[int(at)%len(other)] = value
		}
		g, h := graphOf(bytes), graphOf(other)
		for _, content := range []bool{false, true} {
			pair := samePair{g: g, h: h, content: content, there: map[NodeID]NodeID{}, back: map[NodeID]NodeID{}}
			same := pair.nodes(g.Root(), h.Root())
			opts := KeyOptions{ConstantContent: content}
			x, y := g.KeyText(everything(g), g.Root(), opts), h.KeyText(everything(h), h.Root(), opts)
			require.Equal(t, same, x == y, "%s\n%s", x, y)
			require.Equal(t, x == y, g.Key(everything(g), g.Root(), opts) == h.Key(everything(h), h.Root(), opts))
			if len(g.Scopes) > 1 {
				continue // renumbered makes graphs of one scope
			}
			moved, place := renumbered(rand.New(rand.NewPCG(uint64(at), uint64(value))), g)
			require.Equal(t, x, moved.KeyText(everything(moved), place[g.Root()], opts))
		}
	})
}

// everything is all that can be placed in a graph.
func everything(g *Graph) []NodeID {
	var nodes []NodeID
	for i := range g.Nodes {
		if g.Placeable(NodeID(i)) {
			nodes = append(nodes, NodeID(i))
		}
	}
	return nodes
}
