// SPDX-License-Identifier: Apache-2.0

package openvino

import "encoding/xml"

// products are the products of matrices.
func products() map[string]*operator {
	return map[string]*operator{
		"nn.dense":        product(0, func(*call) (bool, bool) { return false, true }),
		"nn.matmul":       product(0, transposes),
		"nn.batch_matmul": product(3, transposes),
	}
}

func transposes(c *call) (a, b bool) { return c.truth("transpose_a"), c.truth("transpose_b") }

// product makes a product whose arguments are transposed as transposed says; rank is their number of dimensions, 0 for
// a matrix on the right and any number of rows on the left.
func product(rank int, transposed func(c *call) (a, b bool)) *operator {
	return &operator{
		check: func(c *call) error {
			if err := c.static("float32"); err != nil {
				return err
			}
			left := rank
			right := rank
			if rank == 0 {
				left, right = len(c.in[0].Shape), 2
			}
			if err := c.ranks(left, right); err != nil {
				return err
			}
			if a, _ := transposed(c); left < 2 || a && left != 2 && rank == 0 {
				return c.refuse("has as argument 1 a tensor of %d dimensions", left)
			}
			return c.untuned()
		},
		write: func(w *writer, c *call, in []port) []port {
			a, b := transposed(c)
			return []port{w.one("MatMul", "opset1", c.out[0],
				[]xml.Attr{attrBool("transpose_a", a), attrBool("transpose_b", b)}, in[0], in[1])}
		},
		limits: float32Static,
	}
}
