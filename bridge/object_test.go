// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArray(t *testing.T) {
	needTVM(t)
	a, err := NewArray(1, 2.5, true, "four", nil, []int64{5, 6}, map[string]any{"seven": 8})
	require.NoError(t, err)
	defer a.Release()
	require.Equal(t, "Array", a.TypeKey())
	require.True(t, a.IsInstance("Array"))
	require.False(t, a.IsInstance("Map"))
	n, err := a.Len()
	require.NoError(t, err)
	require.Equal(t, 7, n)
	items, err := a.Items()
	require.NoError(t, err)
	require.Equal(t, []any{int64(1), 2.5, true, "four", nil},
		[]any{items[0].Any(), items[1].Any(), items[2].Any(), items[3].Any(), items[4].Any()})

	inner, err := items[5].Object()
	require.NoError(t, err)
	ints, others, err := inner.Ints(-1)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 6}, ints)
	require.Zero(t, others)
	m, err := items[6].Object()
	require.NoError(t, err)
	v, ok, err := m.Get("seven")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, int64(8), v.Any())

	_, err = a.At(7)
	require.EqualError(t, err, "IndexError: item 7 of an Array of 7")
	_, err = a.At(-1)
	require.Error(t, err)
	_, err = a.Strings()
	require.ErrorContains(t, err, "item 0: TypeError: expected a string")
}

func TestLongIntArrays(t *testing.T) {
	needTVM(t)
	want := make([]int64, 100)
	args := make([]any, len(want))
	for i := range want {
		want[i] = int64(i) << 33
		args[i] = want[i]
	}
	a, err := NewArray(args...)
	require.NoError(t, err)
	defer a.Release()
	ints, others, err := a.Ints(-1)
	require.NoError(t, err)
	require.Equal(t, want, ints)
	require.Zero(t, others)

	mixed, err := NewArray(1, "x", 3)
	require.NoError(t, err)
	defer mixed.Release()
	ints, others, err = mixed.Ints(-1)
	require.NoError(t, err)
	require.Equal(t, []int64{1, -1, 3}, ints)
	require.Equal(t, 1, others)

	slow, others, err := mixed.intsSlowly(-1)
	require.NoError(t, err)
	require.Equal(t, ints, slow)
	require.Equal(t, 1, others)

	shape, err := Global("runtime.ShapeTuple", 7, 8)
	require.NoError(t, err)
	o, err := shape.Object()
	require.NoError(t, err)
	ints, _, err = o.Ints(-1)
	require.NoError(t, err)
	require.Equal(t, []int64{7, 8}, ints)
}

func TestMap(t *testing.T) {
	needTVM(t)
	m, err := NewMap("a", 1, "b", "two")
	require.NoError(t, err)
	defer m.Release()
	n, err := m.Len()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	entries, err := m.Entries()
	require.NoError(t, err)
	got := map[string]any{}
	for _, e := range entries {
		key, err := e.Key.Str()
		require.NoError(t, err)
		got[key] = e.Value.Any()
	}
	require.Equal(t, map[string]any{"a": int64(1), "b": "two"}, got)
	_, ok, err := m.Get("c")
	require.NoError(t, err)
	require.False(t, ok)
	_, err = NewMap("odd")
	require.Error(t, err)
}

func TestADT(t *testing.T) {
	needTVM(t)
	list, err := NewArray()
	require.NoError(t, err)
	v, err := Global("runtime.ADT", 3, list, "x")
	require.NoError(t, err)
	adt, err := v.Object()
	require.NoError(t, err)
	require.Equal(t, "runtime.ADT", adt.TypeKey())
	tag, err := adt.Tag()
	require.NoError(t, err)
	require.Equal(t, int64(3), tag)
	n, err := adt.Len()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	first, err := adt.ObjectAt(0)
	require.NoError(t, err)
	require.True(t, first.Same(list))
}

func TestRelease(t *testing.T) {
	needTVM(t)
	a, err := NewArray(1)
	require.NoError(t, err)
	b, err := a.Retain()
	require.NoError(t, err)
	require.True(t, a.Same(b))
	before := LiveHandles().Objects
	a.Release()
	a.Release()
	require.Equal(t, before-1, LiveHandles().Objects)
	_, err = a.Len()
	require.ErrorIs(t, err, ErrReleased)
	_, err = Global("runtime.ArraySize", a)
	require.ErrorIs(t, err, ErrReleased)
	_, err = a.Retain()
	require.ErrorIs(t, err, ErrReleased)
	n, err := b.Len()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	b.Release()
	(*Object)(nil).Release()
	Value{}.Release()
}

func TestAttributes(t *testing.T) {
	needCompiler(t)
	v, err := Global("ir.IntImm", "int32", 42, nil)
	require.NoError(t, err)
	imm, err := v.Object()
	require.NoError(t, err)
	n, err := v.Int()
	require.NoError(t, err)
	require.Equal(t, int64(42), n)
	x, err := v.Float()
	require.NoError(t, err)
	require.Equal(t, 42.0, x)
	names, err := imm.AttrNames()
	require.NoError(t, err)
	require.Equal(t, []string{"dtype", "value", "span"}, names)
	require.True(t, imm.IsInstance("IntImm"))
	require.True(t, imm.IsInstance("PrimExpr"))
	require.False(t, imm.IsInstance("RelayExpr"))
	require.False(t, imm.IsInstance("NoSuchType"))
	value, err := imm.AttrInt("value")
	require.NoError(t, err)
	require.Equal(t, int64(42), value)
	text, err := imm.AttrString("dtype")
	require.NoError(t, err)
	require.Equal(t, "int32", text)
	span, err := imm.AttrObject("span")
	require.NoError(t, err)
	require.Nil(t, span)
	_, err = imm.Attr("colour")
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "AttributeError", e.Class)
	require.Equal(t, "IntImm object has no attributed colour", e.Message)
	_, err = imm.AttrObject("value")
	require.ErrorContains(t, err, "value of IntImm")
	require.Equal(t, "42", imm.Text())

	v, err = Global("ir.FloatImm", "float32", 0.5, nil)
	require.NoError(t, err)
	x, err = v.Float()
	require.NoError(t, err)
	require.Equal(t, 0.5, x)
	_, err = v.Int()
	require.EqualError(t, err, "TypeError: expected an integer, got a FloatImm")
	v, err = Global("ir.IntImm", "bool", 1, nil)
	require.NoError(t, err)
	b, err := v.Bool()
	require.NoError(t, err)
	require.True(t, b)

	shape := []any{}
	for _, d := range []int{1, 3, 224} {
		dim, err := Global("ir.IntImm", "int32", d, nil)
		require.NoError(t, err)
		shape = append(shape, dim)
	}
	any, err := Global("tir.Any", nil)
	require.NoError(t, err)
	v, err = Global("ir.TensorType", append(shape, any), "float32")
	require.NoError(t, err)
	tensor, err := v.Object()
	require.NoError(t, err)
	require.Equal(t, "relay.TensorType", tensor.TypeKey())
	dims, err := tensor.AttrObject("shape")
	require.NoError(t, err)
	ints, others, err := dims.Ints(-1)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 224, -1}, ints)
	require.Equal(t, 1, others)

	v, err = Global("ir.MakeDictAttrs", "name", "main", "level", 2)
	if err != nil { // spelled differently in other versions of TVM
		return
	}
	_, err = v.Object()
	require.NoError(t, err)
}

func TestAttrsWithoutACompiler(t *testing.T) {
	needTVM(t)
	if HasCompiler() {
		t.Skip("libtvm has one")
	}
	list, err := NewArray()
	require.NoError(t, err)
	_, err = list.Attr("x")
	require.ErrorContains(t, err, "this is libtvm_runtime, which has no compiler")
	require.Equal(t, "Array", list.Text())
}
