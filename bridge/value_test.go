// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// echo is a packed function, written in Go, that gives its argument back.
func echo(t testing.TB) *Function {
	fn, err := NewFunction(func(args []Value) (any, error) { return args[0], nil })
	require.NoError(t, err)
	t.Cleanup(fn.Release)
	return fn
}

func TestKindsThroughAGoFunction(t *testing.T) {
	needTVM(t)
	fn := echo(t)
	long := strings.Repeat("long ", 10_000)
	for _, c := range []struct {
		in   any
		kind Kind
		out  any
	}{
		{nil, KindNil, nil},
		{int(-7), KindInt, int64(-7)},
		{int8(-8), KindInt, int64(-8)},
		{int16(-16), KindInt, int64(-16)},
		{int32(-32), KindInt, int64(-32)},
		{int64(math.MinInt64), KindInt, int64(math.MinInt64)},
		{uint8(8), KindInt, int64(8)},
		{uint16(16), KindInt, int64(16)},
		{uint32(math.MaxUint32), KindInt, int64(math.MaxUint32)},
		{uint64(math.MaxInt64), KindInt, int64(math.MaxInt64)},
		{uint(5), KindInt, int64(5)},
		{1.5, KindFloat, 1.5},
		{float32(0.25), KindFloat, 0.25},
		{math.Inf(-1), KindFloat, math.Inf(-1)},
		{true, KindBool, true},
		{false, KindBool, false},
		{"", KindString, ""},
		{"grüße", KindString, "grüße"},
		{long, KindString, long},
		{[]byte{}, KindBytes, []byte{}},
		{[]byte{0, 1, 0, 255}, KindBytes, []byte{0, 1, 0, 255}},
		{[]byte(long), KindBytes, []byte(long)},
		{CUDA(3), KindDevice, CUDA(3)},
		{uintptr(0x1000), KindPointer, uintptr(0x1000)},
		{(*Object)(nil), KindNil, nil},
		{(*Function)(nil), KindNil, nil},
		{(*Module)(nil), KindNil, nil},
		{(*NDArray)(nil), KindNil, nil},
	} {
		v, err := fn.Invoke(c.in)
		require.NoError(t, err, "%v", c.in)
		require.Equal(t, c.kind, v.Kind(), "%v", c.in)
		require.Equal(t, c.out, v.Any(), "%v", c.in)
	}

	// TVM gives dtypes back as text.
	v, err := fn.Invoke(DataType{0, 8, 4})
	require.NoError(t, err)
	require.Equal(t, KindString, v.Kind())
	dtype, err := v.DataType()
	require.NoError(t, err)
	require.Equal(t, DataType{0, 8, 4}, dtype)
}

func TestArgumentsArriveWithTheirKinds(t *testing.T) {
	needTVM(t)
	var got []Value
	fn, err := NewFunction(func(args []Value) (any, error) { got = args; return nil, nil })
	require.NoError(t, err)
	defer fn.Release()
	array, err := Empty([]int64{2, 3}, Float32, CPU())
	require.NoError(t, err)
	defer array.Release()
	list, err := NewArray(1, "two")
	require.NoError(t, err)
	defer list.Release()

	_, err = fn.Invoke(Float16, CPU(), array, list, fn, "text", []byte("raw"), 2, 2.5, true, nil)
	require.NoError(t, err)
	var kinds []Kind
	for _, v := range got {
		kinds = append(kinds, v.Kind())
	}
	require.Equal(t, []Kind{KindDataType, KindDevice, KindNDArray, KindObject, KindFunction, KindString, KindBytes,
		KindInt, KindFloat, KindBool, KindNil}, kinds)
	dtype, err := got[0].DataType()
	require.NoError(t, err)
	require.Equal(t, Float16, dtype)
	device, err := got[1].Device()
	require.NoError(t, err)
	require.Equal(t, CPU(), device)
	same, err := got[3].Object()
	require.NoError(t, err)
	require.True(t, list.Same(same), "an object keeps its identity")
	a, err := got[2].NDArray()
	require.NoError(t, err)
	require.Equal(t, []int64{2, 3}, a.Shape(), "arguments are the callee's to keep")
	got = nil
}

func TestManyArguments(t *testing.T) {
	needTVM(t)
	args := make([]any, 1000)
	for i := range args {
		args[i] = i
		if i%2 == 1 {
			args[i] = strings.Repeat("x", i)
		}
	}
	fn, err := NewFunction(func(got []Value) (any, error) {
		for i, v := range got {
			if i%2 == 1 {
				if s, err := v.Str(); err != nil || len(s) != i {
					t.Errorf("argument %d: %q %v", i, s, err)
				}
			} else if n, err := v.Int(); err != nil || n != int64(i) {
				t.Errorf("argument %d: %d %v", i, n, err)
			}
		}
		return len(got), nil
	})
	require.NoError(t, err)
	defer fn.Release()
	v, err := fn.Invoke(args...)
	require.NoError(t, err)
	require.Equal(t, int64(1000), v.Any())
}

func TestWrongKinds(t *testing.T) {
	needTVM(t)
	fn := echo(t)
	text, err := fn.Invoke("text")
	require.NoError(t, err)
	_, err = text.Int()
	require.EqualError(t, err, "TypeError: expected an integer, got string")
	_, err = text.Object()
	require.EqualError(t, err, "TypeError: expected an object, got string")
	list, err := fn.Invoke([]string{"a"})
	require.NoError(t, err)
	_, err = list.Str()
	require.EqualError(t, err, "TypeError: expected a string, got a Array")
	list.Release()

	_, err = fn.Invoke(uint64(math.MaxUint64))
	require.ErrorContains(t, err, "OverflowError")
	_, err = fn.Invoke(struct{}{})
	require.EqualError(t, err, "argument 0: TypeError: a struct {} cannot be given to TVM")
	_, err = fn.Invoke([]any{1, make(chan int)})
	require.ErrorContains(t, err, "a chan int cannot be given to TVM")
}

func TestDataTypeText(t *testing.T) {
	for _, s := range []string{"float32", "float16", "bfloat16", "int8", "uint8", "int64", "bool", "handle",
		"float32x8",
		"int8x64"} {
		dtype, err := ParseDataType(s)
		require.NoError(t, err)
		require.Equal(t, s, dtype.String())
	}
	for _, s := range []string{"float", "flaot32", "int8x", "32", "int999"} {
		_, err := ParseDataType(s)
		require.Error(t, err, s)
	}
	require.Equal(t, 1, Bool.Bytes())
	require.Equal(t, 4, Float32.Bytes())
	require.Equal(t, DataType{2, 64, 1}, DataTypeOf[float64]())
	require.Equal(t, DataType{1, 16, 1}, DataTypeOf[uint16]())
	require.Equal(t, DataType{0, 32, 1}, DataTypeOf[int32]())
	require.Equal(t, "cuda(1)", CUDA(1).String())
}
