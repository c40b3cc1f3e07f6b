// SPDX-License-Identifier: Apache-2.0

// Package product reads matrix products as libraries of BLAS take them.
//
// What comes in: calls of nn.dense, nn.batch_matmul and nn.matmul. What goes out: their numbers, or the limit that
// keeps them from BLAS.
package product

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/relay"
)

// Operators are Relay's that are matrix products.
var Operators = []string{"nn.dense", "nn.batch_matmul", "nn.matmul"}

// Product is a matrix product as BLAS runs it: Batch times [M, K] x [K, N], row by row.
type Product struct {
	DType          string // of both sides and of the result: float32 or float64
	M, N, K, Batch int64
	// LeftBatch and RightBatch say that the operand has one matrix for each of the batch, and not one for all.
	LeftBatch, RightBatch bool
	// LeftT and RightT say that the operand is stored as [K, M], [N, K].
	LeftT, RightT bool
}

// Of reads a call of one of Operators. The error says which limit was met.
func Of(g *relay.Graph, call relay.NodeID) (*Product, error) {
	node := &g.Nodes[call]
	if len(node.Inputs) != 2 {
		return nil, fmt.Errorf("%s has %d arguments instead of 2", node.Op, len(node.Inputs))
	}
	out, err := Tensor(g, call, "the result of "+node.Op)
	if err != nil {
		return nil, err
	}
	left, err := operand(g, node, 0, "left", out)
	if err != nil {
		return nil, err
	}
	right, err := operand(g, node, 1, "right", out)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"auto_scheduler_rewritten_layout", "meta_schedule_original_shape"} {
		if text, ok := node.Attrs.String(name); ok && text != "" {
			return nil, fmt.Errorf("the weight of %s has been laid out for TVM's own schedules (%s)", node.Op, name)
		}
		if list, ok := node.Attrs.Ints(name); ok && len(list) > 0 {
			return nil, fmt.Errorf("the weight of %s has been laid out for TVM's own schedules (%s)", node.Op, name)
		}
	}
	p, err := shape(node, left.Shape, right.Shape)
	if err != nil {
		return nil, err
	}
	p.DType = out.DType
	if p.Batch*p.M*p.N != relay.Elements(out.Shape) {
		return nil, fmt.Errorf("%s has the result %s, which does not fit its operands %s and %s", node.Op,
			relay.ShapeText(out.Shape), relay.ShapeText(left.Shape), relay.ShapeText(right.Shape))
	}
	return p, nil
}

// operand is the type of an argument of a product.
func operand(g *relay.Graph, node *relay.Node, i int, side string, out *relay.Type) (*relay.Type, error) {
	t, err := Tensor(g, node.Inputs[i], fmt.Sprintf("the %s side of %s", side, node.Op))
	if err != nil {
		return nil, err
	}
	if t.DType != out.DType {
		return nil, fmt.Errorf("the %s side of %s is %s and the result %s; they must be equal", side, node.Op, t.DType,
			out.DType)
	}
	if len(t.Shape) < 2 {
		return nil, fmt.Errorf("the %s side of %s has %d dimensions; at least 2 are supported", side, node.Op,
			len(t.Shape))
	}
	return t, nil
}

// shape finds the numbers of a product. A right side that is shared by the whole batch lets the batch be rows of one
// product.
func shape(node *relay.Node, left, right []int64) (*Product, error) {
	p := &Product{Batch: 1}
	if node.Op == "nn.dense" {
		p.RightT = true
	} else {
		var okLeft, okRight bool
		p.LeftT, okLeft = node.Attrs.Bool("transpose_a")
		p.RightT, okRight = node.Attrs.Bool("transpose_b")
		if !okLeft || !okRight {
			return nil, fmt.Errorf("%s has no usable attributes transpose_a and transpose_b", node.Op)
		}
	}
	rank := len(left)
	p.M, p.K = left[rank-2], left[rank-1]
	if p.LeftT {
		p.M, p.K = p.K, p.M
	}
	inner := right[len(right)-2]
	p.N = right[len(right)-1]
	if p.RightT {
		inner, p.N = p.N, inner
	}
	if inner != p.K {
		return nil, fmt.Errorf("%s multiplies %s and %s, which do not fit", node.Op, relay.ShapeText(left),
			relay.ShapeText(right))
	}
	switch {
	case node.Op != "nn.batch_matmul":
		if len(right) != 2 {
			return nil, fmt.Errorf("the right side of %s has %d dimensions; only 2 are supported", node.Op,
				len(right))
		}
		if p.LeftT && rank != 2 {
			return nil, fmt.Errorf("the left side of %s has %d dimensions and is transposed; only 2 are supported",
				node.Op, rank)
		}
		p.M *= relay.Elements(left[:rank-2])
	case rank != 3 || len(right) != 3:
		return nil, fmt.Errorf("nn.batch_matmul has operands of other than 3 dimensions")
	default:
		a, b := left[0], right[0]
		if a != b && a != 1 && b != 1 {
			return nil, fmt.Errorf("nn.batch_matmul has batches of %d and %d", a, b)
		}
		p.Batch = max(a, b)
		if b == 1 && !p.LeftT {
			p.M, p.Batch = p.M*a, 1
		}
		p.LeftBatch, p.RightBatch = a > 1 && p.Batch > 1, b > 1
	}
	for _, d := range []int64{p.M, p.N, p.K, p.Batch} {
		if d > math.MaxInt32 {
			return nil, fmt.Errorf("%s has a dimension of %d; at most %d are supported", node.Op, d, math.MaxInt32)
		}
	}
	return p, nil
}

// Tensor gives the type of a value that BLAS can read or write; what names it in the error.
func Tensor(g *relay.Graph, id relay.NodeID, what string) (*relay.Type, error) {
	t := g.Nodes[id].Type
	switch {
	case t == nil:
		return nil, fmt.Errorf("the type of %s is unknown; run InferType first", what)
	case t.Kind != relay.TypeTensor:
		return nil, fmt.Errorf("%s is not a tensor", what)
	case t.DType != "float32" && t.DType != "float64":
		return nil, fmt.Errorf("%s is %s; only float32 and float64 are supported", what, t.DType)
	}
	for _, d := range t.Shape {
		if d == relay.AnyDim {
			return nil, fmt.Errorf("%s has the shape %s; dimensions that are known only at run time are not supported",
				what,
				relay.ShapeText(t.Shape))
		}
		if d < 1 {
			return nil, fmt.Errorf("%s has the shape %s; each dimension must be at least 1", what,
				relay.ShapeText(t.Shape))
		}
	}
	return t, nil
}
