// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/relay"
)

// divisions are what is left of divisions, roundings, and logarithms to other bases, which ONNX has in other forms; and
// the questions whether something is a number.
func divisions() map[string]rule {
	all := map[string]rule{
		"floor_divide": {check: checkFloor, emit: emitFloorDivide,
			limits: either(numbers) + "; floats not by a single number"},
		"floor_mod": {check: checkFloor, emit: emitFloorMod,
			limits: either(numbers) + "; floats not by a single number"},
		"round": {check: func(c *call) error { return c.unary(floats...) }, emit: emitRound, limits: either(floats)},
	}
	// ONNX's is the rest itself (C's fmod); TVM's trunc_mod of floats is a - trunc(a / b) b, with its roundings.
	for name, types := range map[string][]string{"mod": numbers, "trunc_mod": {"int32", "int64"}} {
		all[name] = rule{
			check: func(c *call) error { return c.alike(types...) },
			emit: func(w *writer, o *operation) error {
				w.emit("Mod", o.in, o.out, attribute{"fmod", int64(1)})
				return nil
			},
			limits: either(types),
		}
	}
	for name, base := range map[string]float64{"log2": math.Ln2, "log10": math.Ln10} {
		all[name] = rule{
			check: func(c *call) error { return c.unary(floats...) },
			emit: func(w *writer, o *operation) error {
				w.emit("Mul", []string{w.value("Log", o.in), w.filled(o.result().DType, nil, 1/base)}, o.out)
				return nil
			},
			limits: either(floats),
		}
	}
	for name, onnx := range map[string]string{"isnan": "IsNaN", "isinf": "IsInf", "isfinite": ""} {
		all[name] = rule{
			check: func(c *call) error {
				if err := c.arity(1); err != nil {
					return err
				}
				if err := c.dtype("the data", c.args[0], floats...); err != nil {
					return err
				}
				return c.dtype("the result", c.result(), "bool")
			},
			emit: func(w *writer, o *operation) error {
				if onnx != "" {
					w.emit(onnx, o.in, o.out)
					return nil
				}
				either := w.value("Or", []string{w.value("IsNaN", o.in), w.value("IsInf", o.in)})
				w.emit("Not", []string{either}, o.out)
				return nil
			},
			limits: either(floats),
		}
	}
	return all
}

// alike checks an operator of two tensors whose result has the same type.
func (c *call) alike(dtypes ...string) error {
	if err := c.arity(2); err != nil {
		return err
	}
	return c.allDTypes(dtypes...)
}

// checkFloor checks a division that is rounded down, or its rest.
func checkFloor(c *call) error {
	if err := c.alike(numbers...); err != nil {
		return err
	}
	if isFloat(c.result().DType) && relay.Elements(c.args[1].Shape) == 1 {
		return fmt.Errorf("%s divides by a single number: TVM multiplies by what is one divided by it", c.name)
	}
	return nil
}

func isFloat(dtype string) bool { return dtype[0] == 'f' }

// emitFloorDivide divides floats and rounds down. ONNX divides whole numbers towards zero: where the two kinds of rest
// differ, that is one too much.
func emitFloorDivide(w *writer, o *operation) error {
	dtype := o.result().DType
	quotient := w.value("Div", o.in)
	if isFloat(dtype) {
		w.emit("Floor", []string{quotient}, o.out)
		return nil
	}
	towardsZero, down := w.value("Mod", o.in, attribute{"fmod", int64(1)}), w.value("Mod", o.in)
	differs := w.value("Not", []string{w.value("Equal", []string{towardsZero, down})})
	much := w.value("Cast", []string{differs}, attribute{"to", int64(elementTypes[dtype])})
	w.emit("Sub", []string{quotient, much}, o.out)
	return nil
}

// emitFloorMod writes ONNX's Mod for whole numbers, and for floats, which that has no such Mod for, what TVM computes.
func emitFloorMod(w *writer, o *operation) error {
	if !isFloat(o.result().DType) {
		w.emit("Mod", o.in, o.out)
		return nil
	}
	whole := w.value("Floor", []string{w.value("Div", o.in)})
	w.emit("Sub", []string{o.in[0], w.value("Mul", []string{whole, o.in[1]})}, o.out)
	return nil
}

// emitRound rounds halves away from zero, as TVM does: ONNX's Round takes the even neighbour.
func emitRound(w *writer, o *operation) error {
	dtype := o.result().DType
	size := w.value("Abs", o.in)
	below := w.value("Floor", []string{size})
	up := w.value("GreaterOrEqual", []string{w.value("Sub", []string{size, below}), w.filled(dtype, nil, 0.5)})
	rounded := w.value("Add", []string{below,
		w.value("Cast", []string{up}, attribute{"to", int64(elementTypes[dtype])})})
	w.emit("Mul", []string{rounded, w.value("Sign", o.in)}, o.out)
	return nil
}
