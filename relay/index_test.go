// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// describe writes what is derived from a graph behind its text.
func describe(g *Graph) string {
	var b strings.Builder
	b.WriteString(g.String())
	t := g.PostDominators()
	b.WriteString("\nnode scope placeable parent reads consumers\n")
	for i := range g.Nodes {
		id := NodeID(i)
		fmt.Fprintf(&b, "%%%d %d %v %d %v %v\n", i, g.Nodes[i].Scope, g.Placeable(id), t.Parent(id), g.Reads(id),
			g.Consumers(id))
	}
	return b.String()
}

func TestGoldenResidual(t *testing.T) { golden(t, "residual.txt", describe(residual())) }

func TestGoldenBranches(t *testing.T) { golden(t, "branches.txt", describe(branches())) }

func find(g *Graph, op string) NodeID {
	for i := range g.Nodes {
		if g.Nodes[i].Op == op {
			return NodeID(i)
		}
	}
	return NoNode
}

func TestScopesAreWhereAllUsesAre(t *testing.T) {
	t.Parallel()
	g := branches()
	iff := NodeID(-1)
	for i := range g.Nodes {
		if g.Nodes[i].Kind == KindIf {
			iff = NodeID(i)
		}
	}
	then := g.Nodes[iff].Nested[0]
	assert.Equal(t, ScopeID(0), g.Nodes[find(g, "nn.relu")].Scope, "used everywhere")
	assert.Equal(t, then, g.Nodes[find(g, "exp")].Scope, "used by one branch")
	tanh := find(g, "tanh")
	assert.Equal(t, g.Nodes[iff].Scope, g.Nodes[tanh].Scope, "used by both branches")
	assert.Equal(t, []NodeID{iff}, g.Consumers(tanh), "uses in branches are uses by the If")
	assert.Contains(t, g.Reads(iff), tanh)
	assert.True(t, g.ScopeRoot(find(g, "multiply")))
	assert.Equal(t, ScopeID(0), g.Nodes[find(g, "sqrt")].Scope, "used inside the called literal and by the root")
	assert.NotEqual(t, ScopeID(0), g.Nodes[find(g, "negative")].Scope)
	for i := range g.Nodes {
		if g.Nodes[i].Kind == KindFunction {
			assert.False(t, g.Placeable(NodeID(i)))
		}
	}
}

func TestRootInOuterScope(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x, c := m.Var([]int64{4}, "float32"), m.Var(nil, "bool")
	y := m.Call("tanh", Tensor("float32", 4), nil, x)
	iff := m.If(c, y, m.Call("exp", Tensor("float32", 4), nil, y), nil)
	g := m.Finish(iff)
	assert.Equal(t, ScopeID(0), g.Nodes[y].Scope)
	assert.False(t, g.ScopeRoot(y))
	assert.Equal(t, []NodeID{iff}, g.Consumers(y))
	assert.Equal(t, iff, g.PostDominators().Parent(y))
	assert.Empty(t, g.ScopeNodes(g.Nodes[iff].Nested[0]))
}

func TestMakerRefusesDeadNodes(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x := m.Var([]int64{4}, "float32")
	m.Call("tanh", nil, nil, x)
	y := m.Call("exp", nil, nil, x)
	require.PanicsWithValue(t, "relay: GraphMaker: %1 = tanh(%0) is not used by the root", func() { m.Finish(y) })
}

func TestTypeText(t *testing.T) {
	t.Parallel()
	for want, typ := range map[string]*Type{
		"":                                nil,
		"float32":                         Tensor("float32"),
		"Tensor[(10), int8]":              Tensor("int8", 10),
		"Tensor[(1, ?, 3), float32]":      Tensor("float32", 1, AnyDim, 3),
		"(bool, Tensor[(2, 2), float16])": TupleOf(Tensor("bool"), Tensor("float16", 2, 2)),
		"(bool,)":                         TupleOf(Tensor("bool")),
		"fn (int32, bool) -> ()":          FunctionOf([]*Type{Tensor("int32"), Tensor("bool")}, TupleOf()),
		"fn (int32) -> bool":              FunctionOf([]*Type{Tensor("int32")}, Tensor("bool")),
		"List[A]":                         {Kind: TypeOther, Text: "List[A]"},
	} {
		assert.Equal(t, want, typ.String())
	}
	n, ok := TupleOf(Tensor("float16", 2, 3), Tensor("bool")).NumBytes()
	assert.True(t, ok)
	assert.EqualValues(t, 13, n)
	n, ok = Tensor("float32").NumElements()
	assert.True(t, ok)
	assert.EqualValues(t, 1, n)
	_, ok = Tensor("float32", AnyDim).NumElements()
	assert.False(t, ok)
	for dtype, bits := range map[string]int64{"float32": 32, "bool": 8, "int4": 4, "float32x4": 128, "uint8": 8,
		"bfloat16": 16, "handle": 0, "e4m3_float8": 8, "": 0} {
		assert.Equal(t, bits, DTypeBits(dtype), dtype)
	}
}

func TestAttrs(t *testing.T) {
	t.Parallel()
	a := NewAttrs("relay.attrs.X", map[string]any{"strides": []int{1, 2}, "eps": 1e-5, "layout": "NCHW", "ceil": true,
		"channels": nil, "nested": []any{[]int{1}, "x"}, "whole": 2.0})
	ints, ok := a.Ints("strides")
	assert.True(t, ok)
	assert.Equal(t, []int64{1, 2}, ints)
	f, ok := a.Float("eps")
	assert.True(t, ok)
	assert.Equal(t, 1e-5, f)
	b, ok := a.Bool("ceil")
	assert.True(t, b && ok)
	s, ok := a.String("layout")
	assert.True(t, ok)
	assert.Equal(t, "NCHW", s)
	_, ok = a.Int("channels")
	assert.False(t, ok, "null is no integer")
	_, ok = a.Ints("nested")
	assert.False(t, ok)
	_, ok = (*Attrs)(nil).Int("x")
	assert.False(t, ok)
	assert.Equal(t, `{ceil=1, channels=null, eps=1e-05, layout="NCHW", nested=[[1], "x"], strides=[1, 2], whole=2.0}`,
		a.Text())
}

func TestScalarOf(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 1.5, scalarOf("float32", []byte{0, 0, 0xc0, 0x3f}))
	assert.Equal(t, 1.5, scalarOf("float16", []byte{0, 0x3e}))
	assert.Equal(t, 1.5, scalarOf("bfloat16", []byte{0xc0, 0x3f}))
	assert.Equal(t, -2.0, scalarOf("int8", []byte{0xfe}))
	assert.Equal(t, 254.0, scalarOf("uint8", []byte{0xfe}))
	assert.Equal(t, -2.0, scalarOf("int64", []byte{0xfe, 255, 255, 255, 255, 255, 255, 255}))
	assert.Equal(t, 1.0, scalarOf("bool", []byte{1}))
}

// lets is let v1 = v0 + x; let v2 = v1 + x; … as A-normal form makes of a network.
func lets(n int) *Graph {
	m := NewGraph("main")
	shape, typ := []int64{4}, Tensor("float32", 4)
	x := m.Var(shape, "float32")
	vars, values := []NodeID{x}, []NodeID{NoNode}
	for i := range n {
		values = append(values, m.Call("add", typ, nil, vars[i], x))
		vars = append(vars, m.LocalVar(shape, "float32"))
	}
	at := m.Call("tanh", typ, nil, vars[n])
	for i := n; i > 0; i-- {
		at = m.Let(vars[i], values[i], at)
	}
	return m.Finish(at)
}

func TestLets(t *testing.T) {
	t.Parallel()
	g := lets(3)
	checkPostDominators(t, g)
	assert.Equal(t, []NodeID{g.Root()}, g.Consumers(g.Params[0]))
	assert.Equal(t, g.Params, g.Reads(g.Root()), "its own variable is no input")
	inputs, _ := g.Boundary([]NodeID{g.Root()})
	assert.Equal(t, g.Params, inputs)
}

func TestRecursiveLet(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x := m.Var([]int64{4}, "float32")
	f := m.LocalVar(nil, "")
	p := m.LocalVar([]int64{4}, "float32")
	fn := m.Function([]NodeID{p}, m.CallFunction(f, nil, m.Call("tanh", nil, nil, p)), nil)
	let := m.Let(f, fn, m.CallFunction(f, nil, x))
	g := m.Finish(m.Call("exp", nil, nil, let))
	assert.Equal(t, []NodeID{x}, g.Reads(let))
	assert.True(t, g.Placeable(fn), "a function that is a value")
	checkPostDominators(t, g)
}

func BenchmarkIndexLets(b *testing.B) {
	for b.Loop() {
		lets(2000)
	}
}
