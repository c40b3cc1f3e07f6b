// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"errors"
	"math"
	"slices"
	"unsafe"

	"github.com/collage-tvm/collage/relay"
)

// errLeft says that a call is not evaluated here but left to TVM.
var errLeft = errors.New("left to TVM")

// maxBytes is the size of the largest result that is evaluated; beyond it a slip in a program (a broadcast, a tile)
// would fill the memory without TVM being asked.
const maxBytes = 1 << 30

// Tensor is a tensor whose content is known. It is not changed once it is made: several may share their data.
type Tensor struct {
	DType string
	Shape []int64
	data  []byte // compact; begins at a multiple of the item's size
}

// float, integer and number are the types of items that are computed with. A bool is a uint8 that is 0 or 1.
type float interface{ float32 | float64 }

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type number interface{ float | integer }

// newTensor makes a tensor of zeros.
func newTensor(dtype string, shape []int64) (*Tensor, error) {
	n, ok := elements(shape)
	size := itemSize(dtype)
	if !ok || size == 0 || n > maxBytes/size {
		return nil, errLeft
	}
	t := &Tensor{DType: dtype, Shape: shape}
	if n > 0 {
		words := make([]uint64, (n*size+7)/8) // so that items of any type are aligned
		t.data = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n*size)
	}
	return t, nil
}

// elements is the number of items of a shape; false where a dimension is unknown or the number is beyond an int64.
func elements(shape []int64) (int64, bool) {
	if slices.Contains(shape, 0) {
		return 0, !slices.ContainsFunc(shape, func(d int64) bool { return d < 0 })
	}
	n := int64(1)
	for _, d := range shape {
		if d < 0 || n > math.MaxInt64/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// itemSize is the size of an item in bytes; 0 for types whose items do not fill whole bytes, or not 1, 2, 4 or 8 of
// them.
func itemSize(dtype string) int64 {
	if dtype == "bool" {
		return 1
	}
	switch bits := relay.DTypeBits(dtype); bits {
	case 8, 16, 32, 64:
		return bits / 8
	}
	return 0
}

// items are a tensor's items in place; T must have the size of an item.
func items[T any](t *Tensor) []T {
	if len(t.data) == 0 {
		return nil
	}
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(&t.data[0])), len(t.data)/int(unsafe.Sizeof(x)))
}

// len is the number of items.
func (t *Tensor) len() int64 {
	n, _ := elements(t.Shape)
	return n
}

// shaped is the same data in another shape of as many items.
func (t *Tensor) shaped(shape []int64) (*Tensor, error) {
	if n, ok := elements(shape); !ok || n != t.len() {
		return nil, errLeft
	}
	return &Tensor{DType: t.DType, Shape: shape, data: t.data}, nil
}

// integers are the items of a tensor of integers.
func (t *Tensor) integers() ([]int64, bool) {
	switch t.DType {
	case "int8":
		return widen[int8](t), true
	case "int16":
		return widen[int16](t), true
	case "int32":
		return widen[int32](t), true
	case "int64":
		return items[int64](t), true
	case "uint8":
		return widen[uint8](t), true
	case "uint16":
		return widen[uint16](t), true
	case "uint32":
		return widen[uint32](t), true
	}
	return nil, false
}

func widen[T integer](t *Tensor) []int64 {
	out := make([]int64, t.len())
	for i, x := range items[T](t) {
		out[i] = int64(x)
	}
	return out
}

// fromIntegers makes a tensor of int32 or int64.
func fromIntegers(dtype string, shape []int64, values []int64) (*Tensor, error) {
	t, err := newTensor(dtype, shape)
	if err != nil {
		return nil, err
	}
	switch dtype {
	case "int32":
		for i := range items[int32](t) {
			items[int32](t)[i] = int32(values[i])
		}
	case "int64":
		copy(items[int64](t), values)
	default:
		return nil, errLeft
	}
	return t, nil
}

// mapped makes a tensor of f of each item.
func mapped[T, R any](t *Tensor, dtype string, f func(T) R) (*Tensor, error) {
	out, err := newTensor(dtype, t.Shape)
	if err != nil {
		return nil, err
	}
	to := items[R](out)
	for i, x := range items[T](t) {
		to[i] = f(x)
	}
	return out, nil
}

// axisOf is an axis counted from the front; false where there is none such among rank dimensions.
func axisOf(axis int64, rank int) (int, bool) {
	if axis < 0 {
		axis += int64(rank)
	}
	return int(axis), axis >= 0 && axis < int64(rank)
}
