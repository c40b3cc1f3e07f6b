// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"math"
	"strings"
)

// The element types that the engine has kernels for: of arithmetic, and of operators that only move data.
var (
	floats   = []string{"float32", "float64"}
	numbers  = []string{"float32", "float64", "int32", "int64"}
	anything = []string{"float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint32",
		"uint64", "bool"}
)

// unaryOps are operators of one tensor that ONNX has by itself, by their ONNX name and types.
var unaryOps = map[string]struct {
	onnx   string
	dtypes []string
}{
	"abs": {"Abs", numbers}, "negative": {"Neg", numbers}, "sign": {"Sign", numbers}, "copy": {"Identity", anything},
	"ceil": {"Ceil", floats}, "floor": {"Floor", floats}, "sqrt": {"Sqrt", floats}, "exp": {"Exp", floats},
	"log": {"Log", floats}, "sin": {"Sin", floats}, "cos": {"Cos", floats}, "tanh": {"Tanh", floats},
	"sigmoid": {"Sigmoid", floats}, "tan": {"Tan", floats[:1]}, "asin": {"Asin", floats[:1]},
	"acos": {"Acos", floats[:1]},
	"atan": {"Atan", floats[:1]}, "sinh": {"Sinh", floats[:1]}, "cosh": {"Cosh", floats[:1]},
	"asinh": {"Asinh", floats[:1]}, "acosh": {"Acosh", floats[:1]}, "atanh": {"Atanh", floats[:1]},
	"erf": {"Erf", floats[:1]}, "nn.relu": {"Relu", []string{"float32", "float64", "int32"}},
	"logical_not": {"Not", []string{"bool"}},
}

// binaryOps are operators of two tensors that are broadcast, by their ONNX name and types.
var binaryOps = map[string]struct {
	onnx   string
	dtypes []string
}{
	"add": {"Add", numbers}, "subtract": {"Sub", numbers}, "multiply": {"Mul", numbers}, "divide": {"Div", floats},
	"power": {"Pow", floats}, "maximum": {"Max", numbers}, "minimum": {"Min", numbers}, "equal": {"Equal", numbers},
	"less": {"Less", numbers}, "less_equal": {"LessOrEqual", numbers}, "greater": {"Greater", numbers},
	"greater_equal": {"GreaterOrEqual", numbers}, "logical_and": {"And", []string{"bool"}},
	"logical_or": {"Or", []string{"bool"}}, "logical_xor": {"Xor", []string{"bool"}},
}

// either is "float32, int32 or int64".
func either(dtypes []string) string {
	last := len(dtypes) - 1
	if last < 1 {
		return strings.Join(dtypes, "")
	}
	return strings.Join(dtypes[:last], ", ") + " or " + dtypes[last]
}

// elementwise are the operators that work on each element by itself, with broadcasting where there are several tensors.
func elementwise() map[string]rule {
	all := map[string]rule{}
	for name, u := range unaryOps {
		all[name] = rule{
			check:  func(c *call) error { return c.unary(u.dtypes...) },
			emit:   func(w *writer, o *operation) error { w.emit(u.onnx, o.in, o.out); return nil },
			limits: either(u.dtypes),
		}
	}
	for name, b := range binaryOps {
		all[name] = rule{
			check: func(c *call) error {
				if err := c.arity(2); err != nil {
					return err
				}
				if c.args[0].DType != c.args[1].DType {
					return fmt.Errorf("%s mixes %s and %s", c.name, c.args[0].DType, c.args[1].DType)
				}
				return c.dtype("an operand", c.args[0], b.dtypes...)
			},
			emit:   func(w *writer, o *operation) error { w.emit(b.onnx, o.in, o.out); return nil },
			limits: either(b.dtypes),
		}
	}
	all["not_equal"] = rule{
		check: all["equal"].check,
		emit: func(w *writer, o *operation) error {
			w.emit("Not", []string{w.value("Equal", o.in)}, o.out)
			return nil
		},
		limits: all["equal"].limits,
	}
	all["rsqrt"] = rule{
		check: func(c *call) error { return c.unary(floats...) },
		emit: func(w *writer, o *operation) error {
			w.emit("Reciprocal", []string{w.value("Sqrt", o.in)}, o.out)
			return nil
		},
		limits: either(floats),
	}
	// ONNX Runtime makes one operator (FastGelu) of a GELU by tanh, which does not take a number by itself.
	all["tanh"] = rule{
		check: func(c *call) error {
			if err := c.unary(floats...); err != nil {
				return err
			}
			if len(c.args[0].Shape) == 0 {
				return fmt.Errorf("%s is of a number, which has no dimension", c.name)
			}
			return nil
		},
		emit:   all["tanh"].emit,
		limits: either(floats) + ", at least 1 dimension",
	}
	all["nn.leaky_relu"] = rule{
		check: func(c *call) error { return c.unary(onlyFloat) },
		emit: func(w *writer, o *operation) error {
			w.emit("LeakyRelu", o.in, o.out, attribute{"alpha", float32(o.float("alpha", 0.05))})
			return nil
		},
		limits: "float32",
	}
	all["clip"] = rule{
		check: checkClip,
		emit: func(w *writer, o *operation) error {
			low, high := w.filled(o.result().DType, nil, o.float("a_min", 0)),
				w.filled(o.result().DType, nil, o.float("a_max", 0))
			w.emit("Clip", []string{o.in[0], low, high}, o.out)
			return nil
		},
		limits: either(numbers),
	}
	all["nn.prelu"] = rule{check: checkPRelu, emit: emitPRelu, limits: "float32"}
	all["nn.bias_add"] = rule{check: checkBiasAdd, emit: emitBiasAdd, limits: either(numbers)}
	all["where"] = rule{
		check: func(c *call) error {
			if err := c.arity(3); err != nil {
				return err
			}
			if err := c.dtype("the condition", c.args[0], "bool"); err != nil {
				return err
			}
			if c.args[1].DType != c.args[2].DType {
				return fmt.Errorf("%s mixes %s and %s", c.name, c.args[1].DType, c.args[2].DType)
			}
			return c.dtype("a choice", c.args[1], "float32", "float64", "int32", "int64", "uint8")
		},
		emit:   func(w *writer, o *operation) error { w.emit("Where", o.in, o.out); return nil },
		limits: "a condition of bool",
	}
	all["cast"] = rule{
		check: func(c *call) error {
			if err := c.arity(1); err != nil {
				return err
			}
			for _, t := range []string{c.args[0].DType, c.result().DType} {
				if t == "float16" || t == "bfloat16" {
					return fmt.Errorf("%s from %s to %s may be rounded otherwise", c.name, c.args[0].DType,
						c.result().DType)
				}
			}
			return nil
		},
		emit: func(w *writer, o *operation) error {
			w.emit("Cast", o.in, o.out, attribute{"to", int64(elementTypes[o.result().DType])})
			return nil
		},
		limits: "no 16-bit floats",
	}
	return all
}

// unary checks an operator of one tensor whose result has the same type.
func (c *call) unary(dtypes ...string) error {
	if err := c.arity(1); err != nil {
		return err
	}
	return c.allDTypes(dtypes...)
}

func checkClip(c *call) error {
	if err := c.unary(numbers...); err != nil {
		return err
	}
	low, okLow := c.attrs.Float("a_min")
	high, okHigh := c.attrs.Float("a_max")
	if !okLow || !okHigh || !(low <= high) {
		return fmt.Errorf("clip has the bounds %g and %g", low, high)
	}
	if c.result().DType[0] != 'f' && (low != math.Trunc(low) || high != math.Trunc(high) ||
		math.Abs(low) > math.MaxInt32 ||
		math.Abs(high) > math.MaxInt32) {
		return fmt.Errorf("clip has the bounds %g and %g for %s", low, high, c.result().DType)
	}
	return nil
}

func checkPRelu(c *call) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	_, err := c.alongAxis(1)
	return err
}

// alongAxis gives the shape in which the second argument, a list, is broadcast along the attribute axis.
func (c *call) alongAxis(fallback int64) ([]int64, error) {
	shape := c.args[0].Shape
	axis, err := c.axis("axis", fallback, len(shape))
	if err != nil {
		return nil, err
	}
	if list := c.args[1].Shape; len(list) != 1 || list[0] != shape[axis] {
		return nil, fmt.Errorf("%s spreads the shape %s along axis %d of %s", c.name, shapeText(list), axis,
			shapeText(shape))
	}
	spread := []int64{shape[axis]}
	for range shape[axis+1:] {
		spread = append(spread, 1)
	}
	return spread, nil
}

func emitPRelu(w *writer, o *operation) error { return emitAlongAxis(w, o, "PRelu") }

func checkBiasAdd(c *call) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(numbers...); err != nil {
		return err
	}
	_, err := c.alongAxis(1)
	return err
}

func emitBiasAdd(w *writer, o *operation) error { return emitAlongAxis(w, o, "Add") }

func emitAlongAxis(w *writer, o *operation, onnx string) error {
	spread, err := o.alongAxis(1)
	if err != nil {
		return err
	}
	list := o.in[1]
	if len(spread) > 1 {
		list = w.reshaped(list, spread...)
	}
	w.emit(onnx, []string{o.in[0], list}, o.out)
	return nil
}
