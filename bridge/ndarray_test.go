// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func iota32(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

func TestNDArray(t *testing.T) {
	needTVM(t)
	a, err := FromSlice(iota32(24), 2, 3, 4)
	require.NoError(t, err)
	defer a.Release()
	require.Equal(t, []int64{2, 3, 4}, a.Shape())
	require.Equal(t, []int64{12, 4, 1}, a.Strides())
	require.Equal(t, Float32, a.DType())
	require.Equal(t, CPU(), a.Device())
	require.Equal(t, int64(96), a.Size())
	require.Zero(t, a.ByteOffset())
	require.True(t, a.Contiguous())
	items, err := ToSlice[float32](a)
	require.NoError(t, err)
	require.Equal(t, iota32(24), items)
	_, err = ToSlice[int32](a)
	require.EqualError(t, err, "TypeError: a tensor of float32 cannot be read as int32")
	require.ErrorContains(t, a.CopyFromBytes(make([]byte, 95)),
		"95 bytes for a tensor of [2 3 4] float32, which has 96")
	_, err = FromSlice(iota32(5), 2, 3)
	require.EqualError(t, err, "ValueError: 5 items for shape [2 3], which has 6")

	b, err := Empty([]int64{24}, Float32, CPU())
	require.NoError(t, err)
	defer b.Release()
	require.NoError(t, a.CopyTo(b))
	items, err = ToSlice[float32](b)
	require.NoError(t, err)
	require.Equal(t, iota32(24), items)

	memory, err := b.Memory()
	require.NoError(t, err)
	memory[4*23+3] ^= 0x80 // the sign of the last item
	items, err = ToSlice[float32](b)
	require.NoError(t, err)
	require.Equal(t, float32(-23), items[23])

	a.Release()
	_, err = a.Bytes()
	require.ErrorIs(t, err, ErrReleased)
	_, err = a.Memory()
	require.ErrorIs(t, err, ErrReleased)
	require.Nil(t, a.Shape())
}

func TestNDArrayEdges(t *testing.T) {
	needTVM(t)
	scalar, err := FromSlice([]int64{42})
	require.NoError(t, err)
	defer scalar.Release()
	require.Empty(t, scalar.Shape())
	items, err := ToSlice[int64](scalar)
	require.NoError(t, err)
	require.Equal(t, []int64{42}, items)

	empty, err := Empty([]int64{3, 0}, Float32, CPU())
	require.NoError(t, err)
	defer empty.Release()
	raw, err := empty.Bytes()
	require.NoError(t, err)
	require.Empty(t, raw)
	require.True(t, empty.Contiguous())

	flags, err := Empty([]int64{3}, Bool, CPU())
	require.NoError(t, err)
	defer flags.Release()
	require.NoError(t, flags.CopyFromBytes([]byte{1, 0, 1}))
	bits, err := ToSlice[uint8](flags)
	require.NoError(t, err)
	require.Equal(t, []uint8{1, 0, 1}, bits)

	_, err = Empty([]int64{-1}, Float32, CPU())
	require.Error(t, err)
	_, err = Empty([]int64{1}, DataType{2, 7, 1}, CPU())
	require.Error(t, err, "TVM refuses the type")
	_, err = Empty([]int64{1}, Float32, Device{Type: 99})
	require.EqualError(t, err, "ValueError: there is no device type 99")
	_, err = Empty([]int64{1}, Float32, Device{Type: 8})
	require.ErrorContains(t, err, "metal")
}

func TestStridedViews(t *testing.T) {
	needTVM(t)
	a, err := FromSlice(iota32(24), 4, 6)
	require.NoError(t, err)
	defer a.Release()

	// Columns 1 and 3 of rows 1 and 2.
	v, err := a.View([]int64{2, 2}, []int64{6, 2}, 7*4)
	require.NoError(t, err)
	defer v.Release()
	require.False(t, v.Contiguous())
	require.Equal(t, uint64(28), v.ByteOffset())
	require.Equal(t, []int64{6, 2}, v.Strides())
	items, err := ToSlice[float32](v)
	require.NoError(t, err)
	require.Equal(t, []float32{7, 9, 13, 15}, items)
	require.NoError(t, v.CopyFromBytes(bytesOf([]float32{-7, -9, -13, -15})))
	items, err = ToSlice[float32](a)
	require.NoError(t, err)
	want := iota32(24)
	for _, i := range []int{7, 9, 13, 15} {
		want[i] = -want[i]
	}
	require.Equal(t, want, items)

	// Transposed, broadcast (stride 0), and whole rows, which are copied as runs.
	for _, c := range []struct {
		shape, strides []int64
		offset         uint64
		want           []float32
	}{
		{[]int64{3, 2}, []int64{1, 6}, 0, []float32{0, 6, 1, -7, 2, 8}},
		{[]int64{2, 3}, []int64{0, 1}, 4 * 4, []float32{4, 5, 6, 4, 5, 6}},
		{[]int64{2, 6}, []int64{12, 1}, 0, []float32{0, 1, 2, 3, 4, 5, 12, -13, 14, -15, 16, 17}},
		{[]int64{1, 3, 1}, []int64{99, 6, 99}, 0, []float32{0, 6, 12}},
		{[]int64{}, []int64{}, 5 * 4, []float32{5}},
		{[]int64{4}, nil, 20 * 4, []float32{20, 21, 22, 23}},
	} {
		v, err := a.View(c.shape, c.strides, c.offset)
		require.NoError(t, err)
		items, err := ToSlice[float32](v)
		require.NoError(t, err)
		require.Equal(t, c.want, items, "%v %v", c.shape, c.strides)
		v.Release()
	}
	for _, c := range []struct {
		shape, strides []int64
		offset         uint64
	}{
		{[]int64{25}, nil, 0}, {[]int64{4}, nil, 21 * 4}, {[]int64{2}, []int64{24}, 0}, {[]int64{2}, []int64{-1}, 0},
		{[]int64{2}, []int64{1, 1}, 0}, {[]int64{-2}, []int64{1}, 0},
	} {
		_, err := a.View(c.shape, c.strides, c.offset)
		require.Error(t, err, "%v", c)
	}
	back, err := a.View([]int64{3}, []int64{-1}, 2*4)
	require.NoError(t, err)
	items, err = ToSlice[float32](back)
	require.NoError(t, err)
	require.Equal(t, []float32{2, 1, 0}, items)
	back.Release()
}

func TestViewsThroughTVM(t *testing.T) {
	needTVM(t)
	a, err := FromSlice(iota32(12), 3, 4)
	require.NoError(t, err)
	defer a.Release()
	column, err := a.View([]int64{3}, []int64{4}, 4)
	require.NoError(t, err)
	defer column.Release()

	var kept *NDArray
	fn, err := NewFunction(func(args []Value) (any, error) {
		kept, err = args[0].NDArray()
		if err != nil {
			return nil, err
		}
		if kept.borrowed {
			if _, err := kept.View([]int64{1}, nil, 0); err == nil {
				t.Error("a lent tensor must not be viewed")
			}
		}
		items, err := ToSlice[float32](kept)
		if err != nil {
			return nil, err
		}
		return FromSlice(items, kept.Shape()...)
	})
	require.NoError(t, err)
	defer fn.Release()
	v, err := fn.Invoke(column)
	require.NoError(t, err)
	copied, err := v.NDArray()
	require.NoError(t, err)
	items, err := ToSlice[float32](copied)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 5, 9}, items)
	_, err = kept.Bytes()
	require.ErrorContains(t, err, "TVM lent the tensor for the length of a call")
	kept = nil

	whole, err := fn.Invoke(a)
	require.NoError(t, err)
	copied, err = whole.NDArray()
	require.NoError(t, err)
	require.Equal(t, []int64{3, 4}, copied.Shape())
	_, err = echo(t).Invoke(column)
	require.ErrorContains(t, err, "a view of an NDArray cannot be returned to TVM")
	kept = nil
}

func TestNDArraysInContainers(t *testing.T) {
	needTVM(t)
	a, err := FromSlice([]int32{1, 2, 3}, 3)
	require.NoError(t, err)
	list, err := NewArray(a, a)
	require.NoError(t, err)
	v, err := list.At(1)
	require.NoError(t, err)
	b, err := v.NDArray()
	require.NoError(t, err)
	items, err := ToSlice[int32](b)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3}, items)
}
