// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
)

// normalisations are softmax and the operators that scale by mean and variance.
func normalisations() map[string]rule {
	all := map[string]rule{}
	for name, onnx := range map[string]string{"nn.softmax": "Softmax", "nn.log_softmax": "LogSoftmax"} {
		all[name] = rule{
			check: func(c *call) error {
				if err := c.normalisation(1, 1); err != nil {
					return err
				}
				_, err := c.axis("axis", -1, len(c.args[0].Shape))
				return err
			},
			emit: func(w *writer, o *operation) error {
				axis, err := o.axis("axis", -1, len(o.args[0].Shape))
				w.emit(onnx, o.in, o.out, attribute{"axis", axis})
				return err
			},
			limits: "float32, any axis",
		}
	}
	all["nn.layer_norm"] = rule{
		check: func(c *call) error {
			if err := c.normalisation(3, 1); err != nil {
				return err
			}
			return c.onAxis(-1, int64(len(c.args[0].Shape)-1))
		},
		emit: func(w *writer, o *operation) error {
			scale, shift := w.affine(o)
			w.emit("LayerNormalization", []string{o.in[0], scale, shift}, o.out, attribute{"axis", int64(-1)},
				o.epsilon())
			return nil
		},
		limits: "float32, along the last axis",
	}
	all["nn.instance_norm"] = rule{
		check: func(c *call) error {
			if err := c.normalisation(3, 3); err != nil {
				return err
			}
			return c.onAxis(1, 1)
		},
		emit: func(w *writer, o *operation) error {
			scale, shift := w.affine(o)
			w.emit("InstanceNormalization", []string{o.in[0], scale, shift}, o.out, o.epsilon())
			return nil
		},
		limits: "float32, channels are axis 1",
	}
	all["nn.group_norm"] = rule{
		check: func(c *call) error {
			if err := c.normalisation(3, 3); err != nil {
				return err
			}
			if groups := c.int("num_groups", 1); groups < 1 || c.args[0].Shape[1]%groups != 0 {
				return fmt.Errorf("%s has %d groups of %d channels", c.name, groups, c.args[0].Shape[1])
			}
			return c.onAxis(1, 1)
		},
		emit:   emitGroupNorm,
		limits: "float32, channels are axis 1",
	}
	all["nn.batch_norm"] = rule{
		check: func(c *call) error {
			if err := c.arity(5); err != nil {
				return err
			}
			if err := c.allDTypes(onlyFloat); err != nil {
				return err
			}
			if len(c.args[0].Shape) < 2 {
				return fmt.Errorf("%s works on %d dimensions, 2 or more are expected", c.name, len(c.args[0].Shape))
			}
			return c.onAxis(1, 1)
		},
		emit: func(w *writer, o *operation) error {
			scale, shift := w.affine(o)
			w.emit("BatchNormalization", []string{o.in[0], scale, shift, o.in[3], o.in[4]}, o.out[:1], o.epsilon())
			// Without training, the statistics come out as they go in.
			for i, out := range o.out[1:] {
				w.emit("Identity", []string{o.in[3+i]}, []string{out})
			}
			return nil
		},
		limits: "float32, channels are axis 1; inference only",
	}
	all["nn.lrn"] = rule{
		check: func(c *call) error {
			if err := c.normalisation(1, 3); err != nil {
				return err
			}
			if size := c.int("size", 5); size < 1 || size%2 == 0 {
				return fmt.Errorf("%s has the size %d; an odd one is expected", c.name, size)
			}
			return c.onAxis(1, 1)
		},
		emit: func(w *writer, o *operation) error {
			w.emit("LRN", o.in, o.out, attribute{"size", o.int("size", 5)},
				attribute{"alpha", float32(o.float("alpha", 1e-5))},
				attribute{"beta", float32(o.float("beta", 0.75))}, attribute{"bias", float32(o.float("bias", 2))})
			return nil
		},
		limits: "float32, channels are axis 1, odd size",
	}
	return all
}

// normalisation checks number, type and least rank.
func (c *call) normalisation(args, rank int) error {
	if err := c.arity(args); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	if len(c.args[0].Shape) < rank {
		return fmt.Errorf("%s works on %d dimensions, %d or more are expected", c.name, len(c.args[0].Shape), rank)
	}
	return nil
}

// onAxis checks that the attribute axis means the one that ONNX's operator works along.
func (c *call) onAxis(fallback, want int64) error {
	axis, err := c.axis("axis", fallback, len(c.args[0].Shape))
	if err == nil && axis != want {
		err = fmt.Errorf("%s works along axis %d; ONNX's works along axis %d", c.name, axis, want)
	}
	return err
}

func (c *call) epsilon() attribute { return attribute{"epsilon", float32(c.float("epsilon", 1e-5))} }

// affine gives the scale and shift, which Relay ignores where the attributes scale and center say so.
func (w *writer) affine(o *operation) (scale, shift string) {
	scale, shift = o.in[1], o.in[2]
	if !o.flag("scale", true) {
		scale = w.filled(o.args[1].DType, o.args[1].Shape, 1)
	}
	if !o.flag("center", true) {
		shift = w.filled(o.args[2].DType, o.args[2].Shape, 0)
	}
	return scale, shift
}

// emitGroupNorm normalises the groups as instances, and scales the channels afterwards: ONNX's own group normalisation
// has meant different things in different versions.
func emitGroupNorm(w *writer, o *operation) error {
	shape, groups := o.args[0].Shape, o.int("num_groups", 1)
	one, zero := w.filled(onlyFloat, []int64{groups}, 1), w.filled(onlyFloat, []int64{groups}, 0)
	grouped := w.reshaped(o.in[0], shape[0], groups, -1)
	normal := w.value("InstanceNormalization", []string{grouped, one, zero}, o.epsilon())
	channels := []int64{shape[1]}
	for range shape[2:] {
		channels = append(channels, 1)
	}
	scale, shift := w.affine(o)
	scaled := w.value("Mul", []string{w.reshaped(normal, shape...), w.reshaped(scale, channels...)})
	w.emit("Add", []string{scaled, w.reshaped(shift, channels...)}, o.out)
	return nil
}
