// SPDX-License-Identifier: Apache-2.0

package fold

import "math"

// cast converts the items to another type: integers wrap around, floats lose their fraction or are rounded to nearest.
// A float that the integer cannot hold is left to TVM.
func cast(t *Tensor, dtype string) (*Tensor, error) {
	if t.DType == dtype {
		return t, nil
	}
	switch t.DType {
	case "float32":
		return castFloats[float32](t, dtype)
	case "float64":
		return castFloats[float64](t, dtype)
	case "int8":
		return castIntegers[int8](t, dtype)
	case "int16":
		return castIntegers[int16](t, dtype)
	case "int32":
		return castIntegers[int32](t, dtype)
	case "int64":
		return castIntegers[int64](t, dtype)
	case "uint8", "bool":
		return castIntegers[uint8](t, dtype)
	case "uint16":
		return castIntegers[uint16](t, dtype)
	case "uint32":
		return castIntegers[uint32](t, dtype)
	case "uint64":
		return castIntegers[uint64](t, dtype)
	}
	return nil, errLeft
}

func castIntegers[F integer](t *Tensor, dtype string) (*Tensor, error) {
	switch dtype {
	case "bool":
		return mapped(t, dtype, func(x F) uint8 { return truth(x != 0) })
	case "uint64":
		return mapped(t, dtype, func(x F) uint64 { return uint64(x) })
	}
	return castNumbers[F](t, dtype)
}

func castFloats[F float](t *Tensor, dtype string) (*Tensor, error) {
	switch dtype {
	case "float32", "float64":
		return castNumbers[F](t, dtype)
	case "bool":
		return mapped(t, dtype, func(x F) uint8 { return truth(x < 0 || x > 0) }) // NaN is false to TVM
	}
	for _, x := range items[F](t) {
		if !within(float64(x), dtype) {
			return nil, errLeft
		}
	}
	return castNumbers[F](t, dtype)
}

// castNumbers converts to what both integers and floats are converted to alike.
func castNumbers[F integer | float](t *Tensor, dtype string) (*Tensor, error) {
	switch dtype {
	case "float32":
		return mapped(t, dtype, func(x F) float32 { return float32(x) })
	case "float64":
		return mapped(t, dtype, func(x F) float64 { return float64(x) })
	case "int8":
		return mapped(t, dtype, func(x F) int8 { return int8(x) })
	case "int16":
		return mapped(t, dtype, func(x F) int16 { return int16(x) })
	case "int32":
		return mapped(t, dtype, func(x F) int32 { return int32(x) })
	case "int64":
		return mapped(t, dtype, func(x F) int64 { return int64(x) })
	case "uint8":
		return mapped(t, dtype, func(x F) uint8 { return uint8(x) })
	case "uint16":
		return mapped(t, dtype, func(x F) uint16 { return uint16(x) })
	case "uint32":
		return mapped(t, dtype, func(x F) uint32 { return uint32(x) })
	}
	return nil, errLeft
}

// within says whether a number without its fraction is an integer of that type.
func within(x float64, dtype string) bool {
	size := itemSize(dtype)
	low, high := -math.Ldexp(1, int(8*size-1)), math.Ldexp(1, int(8*size-1))
	if dtype[0] == 'u' {
		low, high = 0, math.Ldexp(1, int(8*size))
	}
	whole := math.Trunc(x)
	return whole >= low && whole < high // not NaN
}
