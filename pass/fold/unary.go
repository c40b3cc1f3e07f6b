// SPDX-License-Identifier: Apache-2.0

package fold

import "math"

// unary evaluates an operator of one tensor without attributes.
func unary(op string, t *Tensor) (*Tensor, error) {
	switch t.DType {
	case "float32":
		if out, err := transcendental(op, t); err != errLeft {
			return out, err
		}
		return ofFloats[float32](op, t)
	case "float64":
		return ofFloats[float64](op, t)
	case "int8":
		return ofIntegers[int8](op, t)
	case "int16":
		return ofIntegers[int16](op, t)
	case "int32":
		return ofIntegers[int32](op, t)
	case "int64":
		return ofIntegers[int64](op, t)
	case "uint8":
		return ofUnsigned[uint8](op, t)
	case "uint16":
		return ofUnsigned[uint16](op, t)
	case "uint32":
		return ofUnsigned[uint32](op, t)
	case "uint64":
		return ofUnsigned[uint64](op, t)
	case "bool":
		if op == "logical_not" {
			return mapped(t, "bool", func(x uint8) uint8 { return 1 ^ x })
		}
	}
	return nil, errLeft
}

// transcendental evaluates functions of float32 that no processor rounds for us: in float64, where Go's functions are
// exact to the last bit or two, so that the result is off by hardly more than half a unit in its last place.
func transcendental(op string, t *Tensor) (*Tensor, error) {
	var f func(float64) float64
	switch op {
	case "exp":
		f = math.Exp
	case "log":
		f = math.Log
	case "erf":
		f = math.Erf
	case "sin":
		f = math.Sin
	case "cos":
		f = math.Cos
	case "sigmoid":
		f = func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	default:
		return nil, errLeft
	}
	return mapped(t, t.DType, func(x float32) float32 { return float32(f(float64(x))) })
}

func ofFloats[T float](op string, t *Tensor) (*Tensor, error) {
	var f func(T) T
	through := func(g func(float64) float64) func(T) T { return func(x T) T { return T(g(float64(x))) } }
	switch op {
	case "sqrt":
		f = through(math.Sqrt) // a root in float64 rounded to float32 is the root in float32
	case "rsqrt":
		f = func(x T) T { return 1 / T(math.Sqrt(float64(x))) }
	case "negative":
		f = func(x T) T { return 0 - x } // as TVM does it: 0 for 0, not -0
	case "abs":
		f = through(math.Abs)
	case "floor":
		f = through(math.Floor)
	case "ceil":
		f = through(math.Ceil)
	case "trunc":
		f = through(math.Trunc)
	case "round":
		f = through(math.Round) // halves away from zero
	case "sign":
		f = sign[T]
	case "nn.relu":
		f = func(x T) T { return greater(x, 0) }
	case "isnan":
		return mapped(t, "bool", func(x T) uint8 { return truth(x != x) })
	case "isfinite":
		return mapped(t, "bool", func(x T) uint8 { return truth(x-x == 0) })
	case "isinf":
		return mapped(t, "bool", func(x T) uint8 { return truth(math.IsInf(float64(x), 0)) })
	default:
		return nil, errLeft
	}
	return mapped(t, t.DType, f)
}

func ofIntegers[T int8 | int16 | int32 | int64](op string, t *Tensor) (*Tensor, error) {
	switch op {
	case "negative":
		return mapped(t, t.DType, func(x T) T { return -x })
	case "abs":
		return mapped(t, t.DType, func(x T) T {
			if x < 0 {
				return -x
			}
			return x
		})
	case "sign":
		return mapped(t, t.DType, sign[T])
	case "bitwise_not":
		return mapped(t, t.DType, func(x T) T { return ^x })
	case "nn.relu":
		return mapped(t, t.DType, func(x T) T { return greater(x, 0) })
	}
	return nil, errLeft
}

func ofUnsigned[T uint8 | uint16 | uint32 | uint64](op string, t *Tensor) (*Tensor, error) {
	if op == "bitwise_not" {
		return mapped(t, t.DType, func(x T) T { return ^x })
	}
	return nil, errLeft
}

func sign[T float | int8 | int16 | int32 | int64](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// clip limits the items to what lies between two numbers. NaN becomes the upper one, as TVM's code has it.
func clip(t *Tensor, low, high float64) (*Tensor, error) {
	switch t.DType {
	case "float32":
		return clipItems(t, float32(low), float32(high))
	case "float64":
		return clipItems(t, low, high)
	case "int32":
		if within(low, t.DType) && within(high, t.DType) {
			return clipItems(t, int32(low), int32(high))
		}
	case "int64":
		if within(low, t.DType) && within(high, t.DType) {
			return clipItems(t, int64(low), int64(high))
		}
	}
	return nil, errLeft
}

func clipItems[T number](t *Tensor, low, high T) (*Tensor, error) {
	return mapped(t, t.DType, func(x T) T { return greater(lesser(x, high), low) })
}
