// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNumbersOfElementsAndBytes(t *testing.T) {
	t.Parallel()
	f := Tensor("float32", 2, 3)
	for _, c := range []struct {
		typ             *Type
		elements, bytes int64
	}{
		{f, 6, 24}, {Tensor("int8"), 1, 1}, {Tensor("bool", 5), 5, 5}, {Tensor("float16", 0, 4), 0, 0},
		{Tensor("int4", 3), 3, 3},
		{Tensor("int1", 8), 8, 8}, {Tensor("float32x4", 2), 2, 32}, {TupleOf(f, Tensor("int64", 2)), 8, 40},
		{TupleOf(), 0, 0},
		{TupleOf(TupleOf(f), f), 12, 48},
	} {
		n, ok := c.typ.NumElements()
		assert.True(t, ok, "%v", c.typ)
		assert.Equal(t, c.elements, n, "%v", c.typ)
		n, ok = c.typ.NumBytes()
		assert.True(t, ok, "%v", c.typ)
		assert.Equal(t, c.bytes, n, "%v", c.typ)
	}
	for _, typ := range []*Type{nil, Tensor("float32", 2, AnyDim), TupleOf(f, Tensor("int8", AnyDim)),
		FunctionOf([]*Type{f}, f), TupleOf(f, nil)} {
		for _, count := range []func(*Type) (int64, bool){(*Type).NumElements, (*Type).NumBytes} {
			n, ok := count(typ)
			assert.False(t, ok, "%v", typ)
			assert.Zero(t, n, "%v", typ)
		}
	}
	_, ok := Tensor("handle", 2).NumBytes()
	assert.False(t, ok)

	assert.True(t, f.IsTensor("") && f.IsTensor("float32"))
	assert.False(t, f.IsTensor("int8") || TupleOf(f).IsTensor("") || Tensor("float32", AnyDim).IsTensor("") ||
		(*Type)(nil).IsTensor(""))
	assert.Equal(t, []int{2, 0, -1, -1}, []int{f.Rank(), Tensor("int8").Rank(), TupleOf(f).Rank(), (*Type)(nil).Rank()})
	assert.True(t, f.Equal(Tensor("float32", 2, 3)) && (*Type)(nil).Equal(nil))
	assert.False(t, f.Equal(nil) || (*Type)(nil).Equal(f) || f.Equal(Tensor("float32", 3, 2)))
}

func TestBitsOfDTypes(t *testing.T) {
	t.Parallel()
	for dtype, want := range map[string]int64{"float32": 32, "int8": 8, "uint64": 64, "bool": 8, "bfloat16": 16,
		"float32x4":   128,
		"e4m3_float8": 8, "int4": 4, "float32x16": 512, "float32x9": 288, "handle": 0, "": 0, "float32xn": 0,
		"boolx4": 8} {
		assert.Equal(t, want, DTypeBits(dtype), dtype)
	}
}

func TestAttributesOfAllKinds(t *testing.T) {
	t.Parallel()
	a := NewAttrs("", map[string]any{"yes": true, "no": false, "n": int32(-3), "f": float32(0.5), "text": "x",
		"ints": []int{1, 2}, "nothing": nil,
		"mixed": []any{1, "x"}, "floats": []float64{1.5}, "texts": []string{"a"}, "longs": []int64{7}})
	for name, want := range map[string]any{"yes": int64(1), "no": int64(0), "n": int64(-3), "f": 0.5, "text": "x",
		"nothing": nil,
		"ints":    []any{int64(1), int64(2)}, "mixed": []any{int64(1), "x"}, "floats": []any{1.5}, "texts": []any{"a"},
		"longs": []any{int64(7)}} {
		v, ok := a.Get(name)
		assert.True(t, ok, name)
		assert.Equal(t, want, v, name)
	}
	for _, missing := range []*Attrs{nil, a} {
		v, ok := missing.Get("absent")
		assert.False(t, ok)
		assert.Nil(t, v)
		_, ok = missing.Int("absent")
		assert.False(t, ok)
	}
	yes, ok := a.Bool("yes")
	assert.True(t, yes && ok)
	no, ok := a.Bool("no")
	assert.True(t, !no && ok)
	_, ok = a.Ints("mixed")
	assert.False(t, ok)
	assert.Panics(t, func() { NewAttrs("", map[string]any{"x": struct{}{}}) })
}

// All halves, against the definition.
func TestHalves(t *testing.T) {
	t.Parallel()
	for bits := range 1 << 16 {
		h := uint16(bits)
		exponent, fraction := int(h>>10)&31, int(h)&1023
		want := math.Ldexp(float64(fraction), -24)
		switch {
		case exponent == 31 && fraction != 0:
			want = math.NaN()
		case exponent == 31:
			want = math.Inf(1)
		case exponent != 0:
			want = math.Ldexp(float64(1024+fraction), exponent-25)
		}
		if h>>15 == 1 {
			want = -want
		}
		got := scalarOf("float16", []byte{byte(h), byte(h >> 8)})
		if math.IsNaN(want) {
			require.True(t, math.IsNaN(got), "%04x", h)
			continue
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(got), "%04x", h)
	}
}

func TestScalarsOfAllDTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dtype string
		data  []byte
		want  float64
	}{
		{"int8", []byte{0xff}, -1}, {"uint8", []byte{0xff}, 255}, {"int16", []byte{0, 0x80}, -32768},
		{"bool", []byte{1}, 1},
		{"int32", []byte{1, 0, 0, 0}, 1}, {"int64", []byte{0xfe, 255, 255, 255, 255, 255, 255, 255}, -2},
		{"float32", []byte{0, 0, 0x20, 0xc0}, -2.5}, {"float64", []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 1.5},
		{"bfloat16", []byte{0x80, 0x3f}, 1},
	} {
		assert.Equal(t, c.want, scalarOf(c.dtype, c.data), c.dtype)
	}
	for dtype, data := range map[string][]byte{"float32": {0, 0}, "handle": {0}, "float128": make([]byte, 16),
		"int8": {}} {
		assert.True(t, math.IsNaN(scalarOf(dtype, data)), dtype)
	}
}

func TestGraphMakerRefusesMisuse(t *testing.T) {
	t.Parallel()
	for name, misuse := range map[string]func(m *GraphMaker, x NodeID){
		"a later input":    func(m *GraphMaker, x NodeID) { m.Call("nn.relu", nil, nil, x+1) },
		"no input":         func(m *GraphMaker, x NodeID) { m.Call("nn.relu", nil, nil, -1) },
		"a later field":    func(m *GraphMaker, x NodeID) { m.Tuple(x, x+1) },
		"a later tuple":    func(m *GraphMaker, x NodeID) { m.Get(x+1, 0) },
		"a later callee":   func(m *GraphMaker, x NodeID) { m.CallFunction(x+1, nil) },
		"a later branch":   func(m *GraphMaker, x NodeID) { m.If(x, x, x+1, nil) },
		"a later root":     func(m *GraphMaker, x NodeID) { m.Finish(x + 1) },
		"a root below all": func(m *GraphMaker, x NodeID) { m.Finish(-1) },
	} {
		m := NewGraph("main")
		x := m.Var([]int64{4}, "float32")
		said := func() (text string) {
			defer func() { text = fmt.Sprint(recover()) }()
			misuse(m, x)
			return ""
		}()
		assert.Contains(t, said, "is not made yet", name)
	}
	m := NewGraph("main")
	x := m.Var([]int64{4}, "float32")
	m.Call("nn.relu", nil, nil, x)
	assert.Panics(t, func() { m.Finish(x) }, "a node that the root does not use")

	m = NewGraph("main")
	m.Finish(m.Var([]int64{4}, "float32"))
	assert.Panics(t, func() { m.Var([]int64{4}, "float32") }, "a finished graph does not change")
}

func TestConstantsOfAGraphThatIsMade(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	small, large := m.Const([]int64{SmallConstant}, "int8"), m.Const([]int64{SmallConstant + 1}, "int8")
	bits := m.Const([]int64{3}, "float16")
	g := m.Finish(m.Tuple(small, large, bits))
	assert.NotEmpty(t, g.Nodes[small].Constant.Digest)
	assert.Empty(t, g.Nodes[large].Constant.Digest, "the digest of a large one is asked for")
	digest, err := g.Digest(large)
	require.NoError(t, err)
	assert.NotEmpty(t, digest)
	assert.EqualValues(t, []int{SmallConstant, SmallConstant + 1, 6},
		[]int{int(g.Nodes[small].Constant.Bytes), int(g.Nodes[large].Constant.Bytes),
			int(g.Nodes[bits].Constant.Bytes)})
}

// The attributes of a called literal are part of a key in one order only.
func TestKeysOfLiteralsWithManyAttributes(t *testing.T) {
	t.Parallel()
	text := func(changed string) string {
		m := NewGraph("main")
		v := m.LocalVar([]int64{4}, "float32")
		attrs := map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6"}
		if changed != "" {
			attrs[changed] = "changed"
		}
		literal := m.Function([]NodeID{v}, m.Call("nn.relu", act, nil, v), attrs)
		called := m.CallFunction(literal, act, m.Var([]int64{4}, "float32"))
		return m.Finish(called).KeyText([]NodeID{called}, called, KeyOptions{})
	}
	for range 20 {
		require.Equal(t, text(""), text(""))
	}
	assert.NotEqual(t, text(""), text("d"))
	assert.Equal(t, text(""), text("global_symbol")[:len(text(""))])
}

func TestEncloses(t *testing.T) {
	t.Parallel()
	g := branches()
	for s := range g.Scopes {
		for u := range g.Scopes {
			want := false
			for at := ScopeID(u); at != NoScope; at = g.Scopes[at].Parent {
				want = want || at == ScopeID(s)
			}
			assert.Equal(t, want, g.Encloses(ScopeID(s), ScopeID(u)), "%d %d", s, u)
		}
	}
	assert.False(t, g.Encloses(1, 0))
}

// What is bound belongs to the scope that binds it, read or not.
func TestBoundVariablesBelongToTheirScope(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		m := NewGraph("main")
		x := m.Var([]int64{4}, "float32")
		p, v := m.LocalVar([]int64{4}, "float32"), m.LocalVar([]int64{4}, "float32")
		inner, bound := x, x
		if read {
			inner, bound = p, v
		}
		literal := m.Function([]NodeID{p}, m.Call("nn.relu", act, nil, inner), nil)
		let := m.Let(v, m.Call("exp", act, nil, x), m.Call("tanh", act, nil, bound))
		g := m.Finish(m.CallFunction(literal, act, let))
		assert.Equal(t, g.Nodes[literal].Nested[0], g.Nodes[p].Scope, "read %v", read)
		assert.Equal(t, g.Nodes[let].Nested[1], g.Nodes[v].Scope, "read %v", read)
		assert.Equal(t, ScopeID(0), g.Nodes[x].Scope)
		assert.Equal(t, ScopeID(0), g.Nodes[g.Root()].Scope)
	}
}

func TestBoundaryOfAGroup(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x, y := m.Var([]int64{4}, "float32"), m.Var([]int64{4}, "float32")
	w := m.Const([]int64{4}, "float32")
	typ := Tensor("float32", 4)
	a := m.Call("add", typ, nil, x, w)
	b := m.Call("multiply", typ, nil, a, w)
	c := m.Call("add", typ, nil, b, x)
	d := m.Call("subtract", typ, nil, c, y)
	g := m.Finish(m.Tuple(d, b))
	// Who is read by two nodes of the group is one input.
	inputs, constants := g.Boundary([]NodeID{a, b, c})
	assert.Equal(t, []NodeID{x}, inputs)
	assert.Equal(t, []NodeID{w}, constants)
	inputs, constants = g.Boundary([]NodeID{c, d})
	assert.Equal(t, []NodeID{b, x, y}, inputs)
	assert.Empty(t, constants)

	assert.False(t, g.OneExit(nil))
	assert.True(t, g.OneExit([]NodeID{c, d}) && g.OneExit([]NodeID{a, b}))
	assert.False(t, g.OneExit([]NodeID{b, c}), "%%%d is read outside", b)
}

// A function without parameters is called, too.
func TestACallWithoutArguments(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	typ := Tensor("float32", 4)
	literal := m.Function(nil, m.Call("exp", typ, nil, m.Const([]int64{4}, "float32")), nil)
	called := m.CallFunction(literal, typ)
	g := m.Finish(m.Call("nn.relu", typ, nil, called))
	assert.Equal(t, []NodeID{literal}, g.Reads(called))
	inputs, _ := g.Boundary([]NodeID{called})
	assert.Empty(t, inputs)
}
