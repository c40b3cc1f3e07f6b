// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"errors"
	"math"
)

// ErrDivision is an integer divided by zero, for which TVM's kernel would end the process.
var ErrDivision = errors.New("an integer is divided by zero")

// binary evaluates an operator of two tensors that are broadcast to each other.
func binary(op string, a, b *Tensor) (*Tensor, error) {
	if a.DType != b.DType {
		return nil, errLeft
	}
	switch a.DType {
	case "float32":
		return floats[float32](op, a, b)
	case "float64":
		return floats[float64](op, a, b)
	case "int8":
		return integers[int8](op, a, b)
	case "int16":
		return integers[int16](op, a, b)
	case "int32":
		return integers[int32](op, a, b)
	case "int64":
		return integers[int64](op, a, b)
	case "uint8":
		return integers[uint8](op, a, b)
	case "uint16":
		return integers[uint16](op, a, b)
	case "uint32":
		return integers[uint32](op, a, b)
	case "uint64":
		return integers[uint64](op, a, b)
	case "bool":
		return truths(op, a, b)
	}
	return nil, errLeft
}

func floats[T float](op string, a, b *Tensor) (*Tensor, error) {
	switch op {
	case "divide":
		return broadcast(a, b, a.DType, func(x, y T) T { return x / y })
	case "floor_divide":
		return broadcast(a, b, a.DType, func(x, y T) T { return floor(x / y) })
	case "floor_mod":
		return broadcast(a, b, a.DType, func(x, y T) T { return x - T(floor(x/y)*y) })
	case "power":
		if a.DType == "float32" {
			return broadcast(a, b, a.DType, func(x, y T) T { return T(math.Pow(float64(x), float64(y))) })
		}
		return nil, errLeft
	}
	return numbers[T](op, a, b)
}

func floor[T float](x T) T { return T(math.Floor(float64(x))) }

func integers[T integer](op string, a, b *Tensor) (*Tensor, error) {
	switch op {
	case "divide", "floor_divide", "mod", "floor_mod", "trunc_divide", "trunc_mod":
		if shape, ok := broadcastShape(a.Shape, b.Shape); !ok {
			return nil, errLeft
		} else if n, _ := elements(shape); n == 0 {
			return newTensor(a.DType, shape)
		}
		for _, y := range items[T](b) {
			if y == 0 {
				return nil, ErrDivision
			}
		}
	case "left_shift", "right_shift":
		for _, y := range items[T](b) {
			if y < 0 || uint64(y) >= uint64(8*itemSize(b.DType)) {
				return nil, errLeft // whatever the processor makes of it
			}
		}
	}
	switch op {
	case "divide", "trunc_divide":
		return broadcast(a, b, a.DType, func(x, y T) T { return x / y })
	case "mod", "trunc_mod":
		return broadcast(a, b, a.DType, func(x, y T) T { return x % y })
	case "floor_divide":
		return broadcast(a, b, a.DType, func(x, y T) T {
			if q := x / y; x%y != 0 && (x < 0) != (y < 0) {
				return q - 1
			} else {
				return q
			}
		})
	case "floor_mod":
		return broadcast(a, b, a.DType, func(x, y T) T {
			if r := x % y; r != 0 && (r < 0) != (y < 0) {
				return r + y
			} else {
				return r
			}
		})
	case "left_shift":
		return broadcast(a, b, a.DType, func(x, y T) T { return x << y })
	case "right_shift":
		return broadcast(a, b, a.DType, func(x, y T) T { return x >> y })
	case "bitwise_and":
		return broadcast(a, b, a.DType, func(x, y T) T { return x & y })
	case "bitwise_or":
		return broadcast(a, b, a.DType, func(x, y T) T { return x | y })
	case "bitwise_xor":
		return broadcast(a, b, a.DType, func(x, y T) T { return x ^ y })
	}
	return numbers[T](op, a, b)
}

// numbers evaluates what floats and integers have in common. As TVM's code has it, a maximum is the second operand
// where the first is not greater, NaN included, and NaN is neither equal to anything nor unequal.
func numbers[T number](op string, a, b *Tensor) (*Tensor, error) {
	switch op {
	case "add":
		return broadcast(a, b, a.DType, func(x, y T) T { return x + y })
	case "subtract":
		return broadcast(a, b, a.DType, func(x, y T) T { return x - y })
	case "multiply":
		return broadcast(a, b, a.DType, func(x, y T) T { return x * y })
	case "maximum":
		return broadcast(a, b, a.DType, greater[T])
	case "minimum":
		return broadcast(a, b, a.DType, lesser[T])
	case "equal":
		return broadcast(a, b, "bool", func(x, y T) uint8 { return truth(x == y) })
	case "not_equal":
		return broadcast(a, b, "bool", func(x, y T) uint8 { return truth(x < y || x > y) })
	case "less":
		return broadcast(a, b, "bool", func(x, y T) uint8 { return truth(x < y) })
	case "less_equal":
		return broadcast(a, b, "bool", func(x, y T) uint8 { return truth(x <= y) })
	case "greater":
		return broadcast(a, b, "bool", func(x, y T) uint8 { return truth(x > y) })
	case "greater_equal":
		return broadcast(a, b, "bool", func(x, y T) uint8 { return truth(x >= y) })
	}
	return nil, errLeft
}

func greater[T number](x, y T) T {
	if x > y {
		return x
	}
	return y
}

func lesser[T number](x, y T) T {
	if x < y {
		return x
	}
	return y
}

func truth(yes bool) uint8 {
	if yes {
		return 1
	}
	return 0
}

func truths(op string, a, b *Tensor) (*Tensor, error) {
	switch op {
	case "logical_and":
		return broadcast(a, b, "bool", func(x, y uint8) uint8 { return x & y })
	case "logical_or":
		return broadcast(a, b, "bool", func(x, y uint8) uint8 { return x | y })
	case "logical_xor", "not_equal":
		return broadcast(a, b, "bool", func(x, y uint8) uint8 { return x ^ y })
	case "equal":
		return broadcast(a, b, "bool", func(x, y uint8) uint8 { return 1 ^ x ^ y })
	}
	return nil, errLeft
}
