// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"unsafe"
)

// Number is a Go type that tensors' items can be read and written as.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// DataTypeOf is the tensor type of a Go number type.
func DataTypeOf[T Number]() DataType {
	var zero T
	bits := uint8(8 * unsafe.Sizeof(zero))
	one := T(1)
	switch {
	case one/2 != 0: // only a float can hold a half
		return DataType{2, bits, 1}
	case zero-1 > 0:
		return DataType{1, bits, 1}
	}
	return DataType{0, bits, 1}
}

// FromSlice makes an NDArray in host memory with a copy of the items, which must fill the shape.
func FromSlice[T Number](items []T, shape ...int64) (*NDArray, error) {
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	if count != int64(len(items)) {
		return nil, fmt.Errorf("ValueError: %d items for shape %v, which has %d", len(items), shape, count)
	}
	a, err := Empty(shape, DataTypeOf[T](), CPU())
	if err != nil {
		return nil, err
	}
	if err := a.CopyFromBytes(bytesOf(items)); err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}

// ToSlice copies an NDArray's items out, in order. Its type must be T's; a tensor of booleans can be read as
// uint8.
func ToSlice[T Number](a *NDArray) ([]T, error) {
	want, have := DataTypeOf[T](), a.DType()
	if have != want && !(have == Bool && want == Uint8) {
		return nil, fmt.Errorf("TypeError: a tensor of %s cannot be read as %s", have, want)
	}
	items := make([]T, a.Size()/int64(want.Bytes()))
	if err := a.CopyToBytes(bytesOf(items)); err != nil {
		return nil, err
	}
	return items, nil
}

// bytesOf shows a slice's memory as bytes.
func bytesOf[T Number](items []T) []byte {
	if len(items) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&items[0])), len(items)*int(unsafe.Sizeof(items[0])))
}
