// SPDX-License-Identifier: Apache-2.0

package blas

import (
	"fmt"
	"math"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// rule is one pattern: a matrix product with an epilogue.
type rule struct {
	// pattern has a Composite without the library's name ("dense_bias_relu").
	pattern  byoc.Pattern
	product  string // the operator
	epilogue epilogue
}

const limitsText = "float32 or float64, static shapes; the bias is a list along the last axis, the residual value " +
	"has the " +
	"result's shape, the scale is a constant number"

// rules are all patterns, those that cover most first.
var rules = sync.OnceValue(func() []*rule {
	var all []*rule
	for _, e := range epilogues {
		for _, product := range []string{"nn.dense", "nn.batch_matmul", "nn.matmul"} {
			anchor := relay.Named(roleProduct, relay.Op(product,
				relay.Named(roleLeft, relay.Wildcard()), relay.Named(roleRight, relay.Wildcard())))
			r := &rule{product: product, epilogue: e}
			r.pattern = byoc.Pattern{
				Composite:  product[len("nn."):] + e.suffix(),
				Shape:      e.on(anchor),
				Limits:     func(g *relay.Graph, m *relay.Match) error { _, err := r.read(g, m); return err },
				LimitsText: limitsText,
			}
			all = append(all, r)
		}
	}
	return all
})

// ruleByName finds a rule by its composite's name without the library's.
var ruleByName = sync.OnceValue(func() map[string]*rule {
	byName := map[string]*rule{}
	for _, r := range rules() {
		byName[r.pattern.Composite] = r
	}
	return byName
})

// The names that patterns give to the nodes they match.
const (
	roleProduct = "product"
	roleLeft    = "left"
	roleRight   = "right"
	roleScale   = "scale"
	roleScaled  = "scaled" // the call that multiplies or divides
	roleBias    = "bias"
	roleBiased  = "biased" // the call that adds the bias
	roleSum     = "sum"    // the residual value
	roleSummed  = "summed" // the call that adds it
)

// product is a matrix product as BLAS runs it: batch times [m, k] x [k, n], row by row.
type product struct {
	dtype          string
	m, n, k, batch int64
	// leftBatch and rightBatch say that the operand has one matrix for each of the batch, and not one for all.
	leftBatch, rightBatch bool
	// leftT and rightT say that the operand is stored as [k, m], [n, k].
	leftT, rightT bool
	// alpha scales the product.
	alpha float64
}

// read takes a match apart and checks the limits. The error says which limit was met.
func (r *rule) read(g *relay.Graph, m *relay.Match) (*product, error) {
	for _, role := range []string{roleLeft, roleRight} {
		if m.Covers(m.Named[role]) {
			return nil, fmt.Errorf("the %s side of %s is made inside the pattern", role, r.product)
		}
	}
	node := &g.Nodes[m.Named[roleProduct]]
	if len(node.Inputs) != 2 {
		return nil, fmt.Errorf("%s has %d arguments instead of 2", r.product, len(node.Inputs))
	}
	out, err := tensor(g, m.Named[roleProduct], "the result of "+r.product)
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
			return nil, fmt.Errorf("the weight of %s has been laid out for TVM's own schedules (%s)", r.product, name)
		}
		if list, ok := node.Attrs.Ints(name); ok && len(list) > 0 {
			return nil, fmt.Errorf("the weight of %s has been laid out for TVM's own schedules (%s)", r.product, name)
		}
	}
	p, err := r.shape(node, left.Shape, right.Shape)
	if err != nil {
		return nil, err
	}
	p.dtype, p.alpha = out.DType, 1
	if p.batch*p.m*p.n != relay.Elements(out.Shape) {
		return nil, fmt.Errorf("%s has the result %s, which does not fit its operands %s and %s", r.product,
			relay.ShapeText(out.Shape), relay.ShapeText(left.Shape), relay.ShapeText(right.Shape))
	}
	if err := r.epilogue.read(g, m, out, p); err != nil {
		return nil, err
	}
	return p, nil
}

// operand is the type of an argument of a product.
func operand(g *relay.Graph, node *relay.Node, i int, side string, out *relay.Type) (*relay.Type, error) {
	t, err := tensor(g, node.Inputs[i], fmt.Sprintf("the %s side of %s", side, node.Op))
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
func (r *rule) shape(node *relay.Node, left, right []int64) (*product, error) {
	p := &product{batch: 1}
	if r.product == "nn.dense" {
		p.rightT = true
	} else {
		var okLeft, okRight bool
		p.leftT, okLeft = node.Attrs.Bool("transpose_a")
		p.rightT, okRight = node.Attrs.Bool("transpose_b")
		if !okLeft || !okRight {
			return nil, fmt.Errorf("%s has no usable attributes transpose_a and transpose_b", r.product)
		}
	}
	rank := len(left)
	p.m, p.k = left[rank-2], left[rank-1]
	if p.leftT {
		p.m, p.k = p.k, p.m
	}
	inner := right[len(right)-2]
	p.n = right[len(right)-1]
	if p.rightT {
		inner, p.n = p.n, inner
	}
	if inner != p.k {
		return nil, fmt.Errorf("%s multiplies %s and %s, which do not fit", r.product, relay.ShapeText(left),
			relay.ShapeText(right))
	}
	switch {
	case r.product != "nn.batch_matmul":
		if len(right) != 2 {
			return nil, fmt.Errorf("the right side of %s has %d dimensions; only 2 are supported", r.product,
				len(right))
		}
		if p.leftT && rank != 2 {
			return nil, fmt.Errorf("the left side of %s has %d dimensions and is transposed; only 2 are supported",
				r.product, rank)
		}
		p.m *= relay.Elements(left[:rank-2])
	case rank != 3 || len(right) != 3:
		return nil, fmt.Errorf("nn.batch_matmul has operands of other than 3 dimensions")
	default:
		a, b := left[0], right[0]
		if a != b && a != 1 && b != 1 {
			return nil, fmt.Errorf("nn.batch_matmul has batches of %d and %d", a, b)
		}
		p.batch = max(a, b)
		if b == 1 && !p.leftT {
			p.m, p.batch = p.m*a, 1
		}
		p.leftBatch, p.rightBatch = a > 1 && p.batch > 1, b > 1
	}
	for _, d := range []int64{p.m, p.n, p.k, p.batch} {
		if d > math.MaxInt32 {
			return nil, fmt.Errorf("%s has a dimension of %d; at most %d are supported", r.product, d, math.MaxInt32)
		}
	}
	return p, nil
}

// tensor gives the type of a value that BLAS can read or write.
func tensor(g *relay.Graph, id relay.NodeID, what string) (*relay.Type, error) {
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
