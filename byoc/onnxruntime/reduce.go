// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
)

// reductions are sums, extremes and the like over axes.
func reductions() map[string]rule {
	all := map[string]rule{}
	for name, r := range map[string]struct {
		onnx   string
		dtypes []string
	}{
		"sum": {"ReduceSum", numbers}, "mean": {"ReduceMean", floats}, "max": {"ReduceMax", numbers},
		"min":  {"ReduceMin", numbers},
		"prod": {"ReduceProd", []string{"float32", "int32", "int64"}},
	} {
		all[name] = rule{
			check: func(c *call) error {
				if err := c.unary(r.dtypes...); err != nil {
					return err
				}
				_, err := c.reduced()
				return err
			},
			emit: func(w *writer, o *operation) error {
				axes, err := o.reduced()
				w.emit(r.onnx, []string{o.in[0], w.ints(axes...)}, o.out, o.keepdims())
				return err
			},
			limits: either(r.dtypes),
		}
	}
	for name, onnx := range map[string]string{"argmax": "ArgMax", "argmin": "ArgMin"} {
		all[name] = rule{
			check: func(c *call) error {
				if err := c.arity(1); err != nil {
					return err
				}
				if err := c.dtype("the data", c.args[0], numbers...); err != nil {
					return err
				}
				if err := c.dtype("the result", c.result(), "int32", "int64"); err != nil {
					return err
				}
				axes, err := c.reduced()
				if err == nil && len(axes) > 1 && len(axes) < len(c.args[0].Shape) {
					err = fmt.Errorf("%s works along the axes %v; ONNX's works along one, or the flat tensor", c.name,
						axes)
				}
				return err
			},
			emit: func(w *writer, o *operation) error {
				axes, err := o.reduced()
				if err != nil {
					return err
				}
				data, axis := o.in[0], axes[0]
				flat := len(axes) > 1
				if flat {
					data, axis = w.reshaped(data, -1), 0
				}
				index := w.value(onnx, []string{data}, attribute{"axis", axis},
					attribute{"keepdims", bit(o.flag("keepdims", false))},
					attribute{"select_last_index", bit(o.flag("select_last_index", false))})
				if flat {
					index = w.reshaped(index, o.result().Shape...)
				}
				w.emit("Cast", []string{index}, o.out, attribute{"to", int64(elementTypes[o.result().DType])})
				return nil
			},
			limits: "one axis or all",
		}
	}
	all["variance"] = rule{check: checkVariance, emit: emitVariance, limits: "float32"}
	return all
}

func (c *call) keepdims() attribute { return attribute{"keepdims", bit(c.flag("keepdims", false))} }

// reduced gives the axes that are reduced, ascending.
func (c *call) reduced() ([]int64, error) {
	rank := int64(len(c.args[0].Shape))
	var named []int64
	value, _ := c.attrs.Get("axis")
	if value == nil {
		for a := range rank {
			named = append(named, a)
		}
	} else if list, ok := c.attrs.Ints("axis"); ok {
		named = slices.Clone(list)
	} else if one, ok := c.attrs.Int("axis"); ok {
		named = []int64{one}
	} else {
		return nil, fmt.Errorf("%s: the attribute axis is no list of known numbers", c.name)
	}
	for i := range named {
		if named[i] < 0 {
			named[i] += rank
		}
		if named[i] < 0 || named[i] >= rank {
			return nil, fmt.Errorf("%s: an axis is not one of %d dimensions", c.name, rank)
		}
	}
	if value != nil && c.flag("exclude", false) {
		var others []int64
		for a := range rank {
			if !slices.Contains(named, a) {
				others = append(others, a)
			}
		}
		named = others
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("%s reduces no axis", c.name)
	}
	slices.Sort(named)
	return slices.Compact(named), nil
}

// reducedCount is how many elements become one.
func (c *call) reducedCount(axes []int64) int64 {
	n := int64(1)
	for _, a := range axes {
		n *= c.args[0].Shape[a]
	}
	return n
}

func checkVariance(c *call) error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	axes, err := c.reduced()
	if err != nil {
		return err
	}
	data, mean := c.args[0].Shape, c.args[1].Shape
	for i, d := range data {
		if len(mean) != len(data) || mean[i] != d && mean[i] != 1 {
			return fmt.Errorf("variance has a mean of the shape %s for data of %s", shapeText(mean), shapeText(data))
		}
	}
	if c.flag("unbiased", false) && c.reducedCount(axes) < 2 {
		return fmt.Errorf("variance without bias of one value has no result")
	}
	return nil
}

// emitVariance writes the form in which ONNX Runtime recognises a layer normalisation.
func emitVariance(w *writer, o *operation) error {
	axes, err := o.reduced()
	if err != nil {
		return err
	}
	apart := w.value("Sub", o.in)
	square := w.value("Pow", []string{apart, w.filled(onlyFloat, nil, 2)})
	if !o.flag("unbiased", false) {
		w.emit("ReduceMean", []string{square, w.ints(axes...)}, o.out, o.keepdims())
		return nil
	}
	mean := w.value("ReduceMean", []string{square, w.ints(axes...)}, o.keepdims())
	n := float64(o.reducedCount(axes))
	w.emit("Mul", []string{mean, w.filled(onlyFloat, nil, n/(n-1))}, o.out)
	return nil
}
