// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
)

// products are nn.dense, nn.matmul and nn.batch_matmul.
func products() map[string]rule {
	dense := rule{
		check: func(c *call) error { _, _, err := c.product(); return err },
		emit: func(w *writer, o *operation) error {
			left, right, err := o.product()
			if err != nil {
				return err
			}
			if len(o.args[0].Shape) == 2 {
				w.emit("Gemm", o.in, o.out, attribute{"transA", bit(left)}, attribute{"transB", bit(right)})
				return nil
			}
			a, b := o.in[0], o.in[1]
			if left {
				a = w.swapped(a, len(o.args[0].Shape))
			}
			if right {
				b = w.swapped(b, 2)
			}
			if len(o.in) == 3 {
				w.emit("Add", []string{w.value("MatMul", []string{a, b}), o.in[2]}, o.out)
				return nil
			}
			w.emit("MatMul", []string{a, b}, o.out)
			return nil
		},
		merge:  mergeBias,
		limits: "float32; weights of two dimensions",
	}
	batched := rule{
		check: func(c *call) error { _, _, err := c.batchProduct(); return err },
		emit: func(w *writer, o *operation) error {
			left, right, err := o.batchProduct()
			if err != nil {
				return err
			}
			a, b := o.in[0], o.in[1]
			if left {
				a = w.swapped(a, 3)
			}
			if right {
				b = w.swapped(b, 3)
			}
			w.emit("MatMul", []string{a, b}, o.out)
			return nil
		},
		limits: "float32; batches equal or one of them 1",
	}
	return map[string]rule{"nn.dense": dense, "nn.matmul": dense, "nn.batch_matmul": batched}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// swapped swaps the last two dimensions. ONNX Runtime does it ahead for a constant, and within the product otherwise.
func (w *writer) swapped(name string, rank int) string {
	order := make([]int64, rank)
	for i := range order {
		order[i] = int64(i)
	}
	order[rank-2], order[rank-1] = order[rank-1], order[rank-2]
	return w.value("Transpose", []string{name}, attribute{"perm", order})
}

// operands checks what all products want of theirs.
func (c *call) operands() error {
	if err := c.arity(2); err != nil {
		return err
	}
	if err := c.allDTypes(onlyFloat); err != nil {
		return err
	}
	return c.sameOutDType()
}

// product checks nn.dense and nn.matmul and says which operands are transposed.
func (c *call) product() (left, right bool, err error) {
	if err := c.operands(); err != nil {
		return false, false, err
	}
	right = true
	if c.name == "nn.matmul" {
		left, right = c.flag("transpose_a", false), c.flag("transpose_b", false)
	}
	a, b := c.args[0].Shape, c.args[1].Shape
	if len(a) < 2 || len(b) != 2 || len(c.result().Shape) != len(a) {
		return false, false, fmt.Errorf("%s multiplies the shapes %s and %s; the left one must have two dimensions "+
			"or more, the "+
			"right one two", c.name, shapeText(a), shapeText(b))
	}
	if left && len(a) != 2 {
		return false, false, fmt.Errorf("%s transposes a left operand of %d dimensions", c.name, len(a))
	}
	return left, right, nil
}

// batchProduct checks nn.batch_matmul and says which operands are transposed.
func (c *call) batchProduct() (left, right bool, err error) {
	if err := c.operands(); err != nil {
		return false, false, err
	}
	if len(c.args[0].Shape) != 3 || len(c.args[1].Shape) != 3 {
		return false, false, fmt.Errorf("%s multiplies tensors of %d and %d dimensions; 3 are expected", c.name,
			len(c.args[0].Shape),
			len(c.args[1].Shape))
	}
	return c.flag("transpose_a", false), c.flag("transpose_b", true), nil
}
