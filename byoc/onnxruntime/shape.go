// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// reshapes are operators that keep the elements in their order.
var reshapes = []string{"reshape", "nn.batch_flatten", "expand_dims", "squeeze", "reshape_like",
	"contrib_reverse_reshape"}

// shapes are the operators that move or repeat elements without looking at them.
func shapes() map[string]rule {
	all := map[string]rule{}
	for _, name := range reshapes {
		all[name] = rule{
			check: func(c *call) error {
				if len(c.args) == 0 {
					return fmt.Errorf("%s reads nothing", c.name)
				}
				if !c.isOpen() && relay.Elements(c.args[0].Shape) != relay.Elements(c.result().Shape) {
					return fmt.Errorf("%s makes %s of %s", c.name, shapeText(c.result().Shape),
						shapeText(c.args[0].Shape))
				}
				return c.dtype("the data", c.args[0], anything...)
			},
			emit: func(w *writer, o *operation) error {
				if o.last == o.call {
					return o.reshapeOpen(w)
				}
				w.emit("Reshape", []string{o.in[0], w.ints(o.last.result().Shape...)}, o.out)
				return nil
			},
			merge:  mergeReshapes,
			limits: "any type",
		}
	}
	all["transpose"] = rule{
		check: func(c *call) error { _, err := c.order(); return err },
		emit: func(w *writer, o *operation) error {
			order, err := o.order()
			w.emit("Transpose", o.in, o.out, attribute{"perm", order})
			return err
		},
		limits: "any type",
	}
	all["layout_transform"] = rule{
		check: func(c *call) error { _, err := c.layoutOrder(); return err },
		emit: func(w *writer, o *operation) error {
			order, err := o.layoutOrder()
			w.emit("Transpose", o.in, o.out, attribute{"perm", order})
			return err
		},
		limits: "layouts without blocks",
	}
	all["concatenate"] = rule{
		check: func(c *call) error { _, err := c.joined(len(c.result().Shape)); return err },
		emit: func(w *writer, o *operation) error {
			axis, err := o.joined(len(o.result().Shape))
			w.emit("Concat", o.in, o.out, attribute{"axis", axis})
			return err
		},
		limits: "any type",
	}
	all["stack"] = rule{
		check: func(c *call) error { _, err := c.joined(len(c.result().Shape)); return err },
		emit: func(w *writer, o *operation) error {
			axis, err := o.joined(len(o.result().Shape))
			if err != nil {
				return err
			}
			layers := make([]string, len(o.in))
			for i, in := range o.in {
				layers[i] = w.reshaped(in, slices.Insert(slices.Clone(o.args[i].Shape), int(axis), 1)...)
			}
			w.emit("Concat", layers, o.out, attribute{"axis", axis})
			return nil
		},
		limits: "any type",
	}
	all["split"] = rule{
		check: func(c *call) error {
			if err := c.arity(1); err != nil {
				return err
			}
			if err := c.dtype("the data", c.args[0], anything...); err != nil {
				return err
			}
			_, err := c.axis("axis", 0, len(c.args[0].Shape))
			return err
		},
		emit: func(w *writer, o *operation) error {
			axis, err := o.axis("axis", 0, len(o.args[0].Shape))
			if err != nil {
				return err
			}
			sizes := make([]int64, len(o.results))
			for i, t := range o.results {
				sizes[i] = t.Shape[axis]
			}
			w.emit("Split", []string{o.in[0], w.ints(sizes...)}, o.out, attribute{"axis", axis})
			return nil
		},
		limits: "any type",
	}
	for name, args := range map[string]int{"broadcast_to": 1, "broadcast_to_like": 2, "full": 1} {
		all[name] = rule{
			check: func(c *call) error {
				if len(c.args) != args {
					return fmt.Errorf("%s has a shape that is computed", c.name)
				}
				if c.args[0].DType != c.result().DType {
					return fmt.Errorf("%s makes %s of %s", c.name, c.result().DType, c.args[0].DType)
				}
				return c.dtype("the data", c.args[0], anything...)
			},
			emit: func(w *writer, o *operation) error {
				w.emit("Expand", []string{o.in[0], w.ints(o.result().Shape...)}, o.out)
				return nil
			},
			limits: "any type",
		}
	}
	all["tile"] = rule{check: checkTile, emit: emitTile, limits: "any type"}
	all["nn.depth_to_space"] = rule{
		check: func(c *call) error {
			if mode := c.text("mode", "DCR"); mode != "DCR" && mode != "CRD" {
				return fmt.Errorf("%s has the mode %q", c.name, mode)
			}
			return c.blocks()
		},
		emit: func(w *writer, o *operation) error {
			w.emit("DepthToSpace", o.in, o.out, attribute{"blocksize", o.int("block_size", 1)},
				attribute{"mode", o.text("mode", "DCR")})
			return nil
		},
		limits: "float32, NCHW",
	}
	all["nn.space_to_depth"] = rule{
		check: func(c *call) error { return c.blocks() },
		emit: func(w *writer, o *operation) error {
			w.emit("SpaceToDepth", o.in, o.out, attribute{"blocksize", o.int("block_size", 1)})
			return nil
		},
		limits: "float32, NCHW",
	}
	return all
}

// mergeReshapes takes the reshapes that alone read a reshape into one. Those with several open dimensions are told by
// what each reads (openTarget), and stand for themselves.
func mergeReshapes(w *writer, o *operation, i int) int {
	for {
		k := w.onlyReader(i)
		if k < 0 || !slices.Contains(reshapes, w.p.Ops[k].Name) || w.p.Ops[k].Args[0] != w.p.Ops[i].Results[0] ||
			region.OpenDimensions(w.p.Values[w.p.Ops[k].Results[0]].Type) > 1 {
			return i
		}
		w.take(k)
		i = k
	}
}

// order gives a transposition's axes.
func (c *call) order() ([]int64, error) {
	if err := c.unary(anything...); err != nil {
		return nil, err
	}
	rank := len(c.args[0].Shape)
	order, ok := c.attrs.Ints("axes")
	if !ok || len(order) == 0 {
		if value, _ := c.attrs.Get("axes"); value != nil && !ok {
			return nil, fmt.Errorf("%s: the attribute axes is no list of known numbers", c.name)
		}
		order = nil
		for a := range rank {
			order = append(order, int64(rank-1-a))
		}
	}
	if len(order) != rank {
		return nil, fmt.Errorf("%s has %d axes for %d dimensions", c.name, len(order), rank)
	}
	order = slices.Clone(order)
	for i := range order {
		if order[i] < 0 {
			order[i] += int64(rank)
		}
	}
	return order, nil
}

// layoutOrder gives the transposition that a change between two layouts is.
func (c *call) layoutOrder() ([]int64, error) {
	if err := c.unary(anything...); err != nil {
		return nil, err
	}
	from, to := c.text("src_layout", ""), c.text("dst_layout", "")
	var order []int64
	for _, letter := range to {
		at := strings.IndexRune(from, letter)
		if at < 0 || letter < 'A' || letter > 'Z' {
			return nil, fmt.Errorf("%s goes from %s to %s, which is no transposition", c.name, from, to)
		}
		order = append(order, int64(at))
	}
	if len(from) != len(to) || len(order) != len(c.args[0].Shape) {
		return nil, fmt.Errorf("%s goes from %s to %s, which is no transposition", c.name, from, to)
	}
	return order, nil
}

// joined checks concatenate and stack and gives their axis in the result.
func (c *call) joined(rank int) (int64, error) {
	if len(c.args) == 0 {
		return 0, fmt.Errorf("%s reads nothing", c.name)
	}
	if err := c.allDTypes(anything...); err != nil {
		return 0, err
	}
	return c.axis("axis", 0, rank)
}

func checkTile(c *call) error {
	if len(c.args) != 1 {
		return fmt.Errorf("tile has repetitions that are computed")
	}
	if err := c.unary(anything...); err != nil {
		return err
	}
	if _, ok := c.attrs.Ints("reps"); !ok {
		return fmt.Errorf("tile: the attribute reps is no list of known numbers")
	}
	return nil
}

func emitTile(w *writer, o *operation) error {
	reps, _ := o.attrs.Ints("reps")
	rank := len(o.result().Shape)
	ones := func(n int) []int64 { return slices.Repeat([]int64{1}, n) }
	data := o.in[0]
	if len(o.args[0].Shape) < rank {
		data = w.reshaped(data, slices.Concat(ones(rank-len(o.args[0].Shape)), o.args[0].Shape)...)
	}
	reps = slices.Concat(ones(rank-len(reps)), reps)
	w.emit("Tile", []string{data, w.ints(reps...)}, o.out)
	return nil
}

// blocks checks what depth_to_space and space_to_depth share.
func (c *call) blocks() error {
	if err := c.unary(onlyFloat); err != nil {
		return err
	}
	return c.layout("layout", "NCHW")
}
