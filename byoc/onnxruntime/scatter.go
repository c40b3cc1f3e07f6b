// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// scatterModes are ONNX's names of Relay's.
var scatterModes = map[string]string{"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}

// scatters write elements to places that are given, or read them there.
func scatters() map[string]rule {
	const within = ", indices of int32 or int64 within the data"
	return map[string]rule{
		"scatter_nd": {
			// Its threads add to an element side by side, and not one after the other, where a place comes twice.
			check: func(c *call) error {
				if mode := c.text("mode", "update"); mode != "update" {
					return fmt.Errorf("%s has the mode %q; update is supported", c.name, mode)
				}
				if err := c.scattered("mode"); err != nil {
					return err
				}
				if err := region.Apart(c.graph, c.constants[1], c.args[0].Shape); err != nil {
					return fmt.Errorf("%s %w", c.name, err)
				}
				return nil
			},
			emit: func(w *writer, o *operation) error {
				w.emit("ScatterND", []string{o.in[0], w.lastFirst(o, 1), o.in[2]}, o.out,
					attribute{"reduction", "none"})
				return nil
			},
			limits: either(numbers) + ", the mode update, constant indices of int32 or int64 that differ",
		},
		"scatter_elements": {
			check: func(c *call) error { _, err := c.scatteredAlong(); return err },
			emit: func(w *writer, o *operation) error {
				axis, err := o.scatteredAlong()
				w.emit("ScatterElements", o.in, o.out, attribute{"axis", axis},
					attribute{"reduction", scatterModes[o.text("reduction", "update")]})
				return err
			},
			limits: either(numbers) + within + ", not the mode mean",
		},
		"gather_nd": {
			check: func(c *call) error {
				if err := c.arity(2); err != nil {
					return err
				}
				if err := c.dtype("the data", c.args[0], anything...); err != nil {
					return err
				}
				return c.dtype("the indices", c.args[1], "int32", "int64")
			},
			emit: func(w *writer, o *operation) error {
				w.emit("GatherND", []string{o.in[0], w.lastFirst(o, 1)}, o.out,
					attribute{"batch_dims", o.int("batch_dims", 0)})
				return nil
			},
			limits: "any type" + within,
		},
		"one_hot": {
			check: func(c *call) error { _, err := c.marked(); return err }, emit: emitOneHot,
			limits: "float32, float64, int32, int64 or uint8, of int32 or int64",
		},
	}
}

// scattered checks data, indices and updates; name is the attribute that says what is done with an update.
func (c *call) scattered(name string) error {
	if err := c.arity(3); err != nil {
		return err
	}
	if err := c.dtype("the indices", c.args[1], "int32", "int64"); err != nil {
		return err
	}
	if mode := c.text(name, "update"); scatterModes[mode] == "" {
		return fmt.Errorf("%s has the %s %q", c.name, name, mode)
	}
	rest := *c
	rest.args = []*relay.Type{c.args[0], c.args[2]}
	return rest.allDTypes(numbers...)
}

// scatteredAlong checks scatter_elements and gives its axis.
func (c *call) scatteredAlong() (int64, error) {
	if err := c.scattered("reduction"); err != nil {
		return 0, err
	}
	axis, err := c.axis("axis", 0, len(c.args[0].Shape))
	if err != nil {
		return 0, err
	}
	for i, d := range c.args[0].Shape {
		if int64(i) != axis && c.args[1].Shape[i] != d {
			return 0, fmt.Errorf("%s has indices of the shape %s for %s", c.name, shapeText(c.args[1].Shape),
				shapeText(c.args[0].Shape))
		}
	}
	return axis, nil
}

// lastFirst gives indices as ONNX wants them: int64, and the first dimension, in which Relay has the coordinates of a
// place, behind the others.
func (w *writer) lastFirst(o *operation, i int) string {
	indices := o.in[i]
	if o.args[i].DType != "int64" {
		indices = w.value("Cast", []string{indices}, attribute{"to", int64(elementTypes["int64"])})
	}
	var order []int64
	for d := 1; d < len(o.args[i].Shape); d++ {
		order = append(order, int64(d))
	}
	if len(order) == 0 {
		return indices
	}
	return w.value("Transpose", []string{indices}, attribute{"perm", append(order, 0)})
}

// marked checks one_hot and gives its axis.
func (c *call) marked() (int64, error) {
	if err := c.arity(3); err != nil {
		return 0, err
	}
	if err := c.dtype("the indices", c.args[0], "int32", "int64"); err != nil {
		return 0, err
	}
	values := *c
	values.args = c.args[1:]
	if err := values.allDTypes("float32", "float64", "int32", "int64", "uint8"); err != nil {
		return 0, err
	}
	if len(c.args[1].Shape)+len(c.args[2].Shape) != 0 {
		return 0, fmt.Errorf("%s has values that are no numbers", c.name)
	}
	return c.axis("axis", -1, len(c.result().Shape))
}

// emitOneHot compares indices with all that there may be: ONNX's OneHot counts negative ones from the end, for Relay
// they are none.
func emitOneHot(w *writer, o *operation) error {
	axis, err := o.marked()
	if err != nil {
		return err
	}
	dtype, depth := o.args[0].DType, o.result().Shape[axis]
	along := slices.Repeat([]int64{1}, len(o.result().Shape))
	along[axis] = depth
	indices := w.reshaped(o.in[0], slices.Insert(slices.Clone(o.args[0].Shape), int(axis), 1)...)
	w.emit("Where", []string{w.value("Equal", []string{indices, w.counted(dtype, along)}), o.in[1], o.in[2]}, o.out)
	return nil
}
