// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"math"

	"github.com/collage-tvm/collage/relay"
)

// full makes a tensor of one value.
func full(value *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	shape, ok := attrs.Ints("shape")
	dtype, ok2 := attrs.String("dtype")
	if !ok || !ok2 || len(value.Shape) > 0 {
		return nil, errLeft
	}
	if dtype == "" {
		dtype = value.DType
	}
	return filled(value, shape, dtype)
}

func filled(value *Tensor, shape []int64, dtype string) (*Tensor, error) {
	one, err := cast(value, dtype)
	if err != nil {
		return nil, err
	}
	return broadcastTo(one, shape)
}

// like makes a tensor of zeros or ones.
func like(t *Tensor, value int64) (*Tensor, error) {
	one, err := fromIntegers("int64", []int64{}, []int64{value})
	if err != nil {
		return nil, err
	}
	return filled(one, t.Shape, t.DType)
}

// arange makes the integers from start, by step, up to stop.
func arange(start, stop, step *Tensor, attrs *relay.Attrs) (*Tensor, error) {
	dtype, ok := attrs.String("dtype")
	var bounds [3]int64
	for i, t := range []*Tensor{start, stop, step} {
		values, integer := t.integers()
		if !integer || len(t.Shape) > 0 || t.DType != dtype {
			return nil, errLeft
		}
		bounds[i] = values[0]
	}
	if !ok || bounds[2] == 0 {
		return nil, errLeft
	}
	count := math.Ceil((float64(bounds[1]) - float64(bounds[0])) / float64(bounds[2]))
	if count < 1 || count >= math.MaxInt32 {
		return nil, errLeft // TVM refuses it, and says so
	}
	values := make([]int64, int64(count))
	for i := range values {
		values[i] = bounds[0] + int64(i)*bounds[2]
	}
	return fromIntegers(dtype, []int64{int64(count)}, values)
}

// choose evaluates "where": the items of a where the condition holds, of b elsewhere.
func choose(condition, a, b *Tensor) (*Tensor, error) {
	if a.DType != b.DType {
		return nil, errLeft
	}
	if condition.DType != "bool" {
		if _, integer := condition.integers(); !integer {
			return nil, errLeft
		}
		var err error
		if condition, err = cast(condition, "bool"); err != nil {
			return nil, err
		}
	}
	shape, ok := broadcastShape(a.Shape, b.Shape)
	if ok {
		shape, ok = broadcastShape(shape, condition.Shape)
	}
	if !ok {
		return nil, errLeft
	}
	out, err := newTensor(a.DType, shape)
	if err != nil {
		return nil, err
	}
	strides := make([][]int64, 3)
	for k, t := range []*Tensor{condition, a, b} {
		strides[k], _ = broadcastStrides(t.Shape, shape)
	}
	switch itemSize(a.DType) {
	case 1:
		chooseItems(items[uint8](out), items[uint8](condition), items[uint8](a), items[uint8](b), shape, strides)
	case 2:
		chooseItems(items[uint16](out), items[uint8](condition), items[uint16](a), items[uint16](b), shape, strides)
	case 4:
		chooseItems(items[uint32](out), items[uint8](condition), items[uint32](a), items[uint32](b), shape, strides)
	case 8:
		chooseItems(items[uint64](out), items[uint8](condition), items[uint64](a), items[uint64](b), shape, strides)
	}
	return out, nil
}

func chooseItems[T any](to []T, condition []uint8, a, b []T, shape []int64, strides [][]int64) {
	done := 0
	rows(shape, strides, []int64{0, 0, 0}, func(at []int64, n int64, step []int64) {
		for i := range n {
			if condition[at[0]+i*step[0]] != 0 {
				to[done] = a[at[1]+i*step[1]]
			} else {
				to[done] = b[at[2]+i*step[2]]
			}
			done++
		}
	})
}
