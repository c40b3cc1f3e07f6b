// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// pools are nn.{max,avg}_poolNd, the global ones and the adaptive ones.
func pools() map[string]rule {
	all := map[string]rule{}
	for n := range spaces {
		for kind, onnx := range map[string]string{"max": "MaxPool", "avg": "AveragePool"} {
			all[fmt.Sprintf("nn.%s_pool%dd", kind, n)] = rule{
				check: func(c *call) error { _, err := c.pool(n); return err },
				emit: func(w *writer, o *operation) error {
					win, err := o.pool(n)
					if err != nil {
						return err
					}
					attributes := win.attributes()
					if kind == "avg" {
						attributes = append(attributes,
							attribute{"count_include_pad", bit(o.flag("count_include_pad", false))})
					}
					if win.ceil {
						attributes = append(attributes, attribute{"ceil_mode", int64(1)})
					}
					w.emit(onnx, o.in, o.out, attributes...)
					return nil
				},
				limits: "float32, channels first; every window holds at least one value; averages without dilation",
			}
			all[fmt.Sprintf("nn.adaptive_%s_pool%dd", kind, n)] = rule{
				check: func(c *call) error { return c.adaptive(n) },
				emit: func(w *writer, o *operation) error {
					in, out := o.args[0].Shape[2:], o.result().Shape[2:]
					if relay.Elements(out) == 1 {
						w.emit("Global"+onnx, o.in, o.out)
						return nil
					}
					kernel := make([]int64, n)
					for i := range n {
						kernel[i] = in[i] / out[i]
					}
					w.emit(onnx, o.in, o.out, attribute{"kernel_shape", kernel}, attribute{"strides", kernel})
					return nil
				},
				limits: "float32, channels first; the output's size divides the input's",
			}
		}
	}
	for kind, onnx := range map[string]string{"max": "GlobalMaxPool", "avg": "GlobalAveragePool"} {
		all[fmt.Sprintf("nn.global_%s_pool2d", kind)] = rule{
			check: func(c *call) error { return c.poolBasics(2) },
			emit: func(w *writer, o *operation) error {
				w.emit(onnx, o.in, o.out)
				return nil
			},
			limits: "float32, NCHW",
		}
	}
	return all
}

func (c *call) poolBasics(n int) error {
	if err := c.arity(1); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	if len(c.args[0].Shape) != n+2 || len(c.result().Shape) != n+2 {
		return fmt.Errorf("%s works on %d dimensions, %d are expected", c.name, len(c.args[0].Shape), n+2)
	}
	layout := "NC" + spaces[n]
	if err := c.layout("layout", layout); err != nil {
		return err
	}
	return c.layout("out_layout", layout)
}

// pool checks a pool of n dimensions. Where Relay's ceil_mode lets windows reach over the end, the padding at the end
// is made greater by what they reach over, since ONNX Runtime's ceil_mode has meant different things in different
// versions. Only for averages that count padding it is used: they do not count what windows reach over.
func (c *call) pool(n int) (w window, err error) {
	if err := c.poolBasics(n); err != nil {
		return w, err
	}
	if w, err = c.window(n); err != nil {
		return w, err
	}
	if w.kernel, err = c.spread("pool_size", n, 1); err != nil {
		return w, err
	}
	w.pads = slices.Clone(w.pads)
	for i := range n {
		in, out := c.args[0].Shape[2+i], c.result().Shape[2+i]
		if w.dilation[i] != 1 && strings.HasPrefix(c.name, "nn.avg") {
			return w, fmt.Errorf("%s has dilation %v; averages are taken over windows without gaps only", c.name,
				w.dilation)
		}
		last := (out - 1) * w.strides[i] // where the last window begins, from the padding's begin
		if over := last + w.reach(i) - in - w.pads[i] - w.pads[n+i]; over > 0 {
			if c.flag("count_include_pad", false) {
				w.ceil = true
			} else {
				w.pads[n+i] += over
			}
		} else if -over >= w.strides[i] {
			return w, fmt.Errorf("%s makes the shape %s, from its attributes more follows in dimension %d", c.name,
				shapeText(c.result().Shape), 2+i)
		}
		if w.pads[i] >= w.reach(i) || last >= w.pads[i]+in {
			return w, fmt.Errorf("%s has windows in dimension %d that lie in the padding alone", c.name, 2+i)
		}
		if w.pads[i] >= w.kernel[i] || w.pads[n+i] >= w.kernel[i] {
			return w, fmt.Errorf("%s has padding %v as wide as its window %v", c.name, w.pads, w.kernel)
		}
	}
	return w, nil
}

// adaptive checks an adaptive pool of n dimensions.
func (c *call) adaptive(n int) error {
	if err := c.poolBasics(n); err != nil {
		return err
	}
	for i := range n {
		if in, out := c.args[0].Shape[2+i], c.result().Shape[2+i]; in%out != 0 {
			return fmt.Errorf("%s makes %d windows of %d values, which overlap; ONNX has no such pool", c.name, out, in)
		}
	}
	return nil
}
