// SPDX-License-Identifier: Apache-2.0

package blas

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/product"
	"github.com/collage-tvm/collage/relay"
)

// epilogue is what is done to a product before it is stored: scale, bias, residual sum, activation, in this order.
type epilogue struct {
	scale, bias, sum bool
	activation       string // "relu", "gelu" or ""
}

// epilogues are the combinations that are offered, those that cover most first.
var epilogues = []epilogue{
	{bias: true, activation: "gelu"},
	{bias: true, sum: true, activation: "relu"},
	{bias: true, sum: true},
	{bias: true, activation: "relu"},
	{bias: true},
	{activation: "gelu"},
	{sum: true, activation: "relu"},
	{scale: true, sum: true},
	{sum: true},
	{activation: "relu"},
	{scale: true},
	{},
}

// suffix is the epilogue's part of a composite's name ("_bias_sum_relu").
func (e epilogue) suffix() string {
	var s strings.Builder
	for _, part := range []struct {
		there bool
		name  string
	}{{e.scale, "scale"}, {e.bias, "bias"}, {e.sum, "sum"}, {e.activation != "", e.activation}} {
		if part.there {
			s.WriteString("_" + part.name)
		}
	}
	return s.String()
}

// on puts the epilogue's pattern on top of a call.
func (e epilogue) on(p relay.Pattern) relay.Pattern {
	if e.scale {
		by := relay.Named(roleScale, relay.IsConstant())
		p = relay.Named(roleScaled, relay.Or(relay.Op("multiply", p, by), relay.Op("divide", p, by)))
	}
	if e.bias {
		bias := relay.Named(roleBias, relay.Wildcard())
		p = relay.Named(roleBiased, relay.Or(relay.Op("add", p, bias), relay.Op("nn.bias_add", p, bias)))
	}
	if e.sum {
		p = relay.Named(roleSummed, relay.Op("add", p, relay.Named(roleSum, relay.Wildcard())))
	}
	switch e.activation {
	case "relu":
		p = relay.Op("nn.relu", p)
	case "gelu":
		p = relay.Gelu(p)
	}
	return p
}

// read checks the limits of the epilogue of a product with that result, and enters the scale into p.
func (e epilogue) read(g *relay.Graph, m *relay.Match, out *relay.Type, p *scaled) error {
	// Nothing that the epilogue reads may widen the result.
	for _, id := range m.Nodes {
		t, err := product.Tensor(g, id, "a value inside the pattern")
		if err != nil {
			return err
		}
		if !slices.Equal(t.Shape, out.Shape) || t.DType != out.DType {
			return fmt.Errorf("the epilogue turns the result %s into %s", relay.ShapeText(out.Shape),
				relay.ShapeText(t.Shape))
		}
	}
	if e.scale {
		if err := e.readScale(g, m, p); err != nil {
			return err
		}
	}
	if e.bias {
		if err := checkBias(g, m, out); err != nil {
			return err
		}
	}
	if e.sum {
		return checkSum(g, m, out)
	}
	return nil
}

func (e epilogue) readScale(g *relay.Graph, m *relay.Match, p *scaled) error {
	c := g.Nodes[m.Named[roleScale]].Constant
	if c == nil || relay.Elements(c.Shape) != 1 || math.IsNaN(c.Scalar) || math.IsInf(c.Scalar, 0) {
		return fmt.Errorf("the scale is not a constant number")
	}
	if scaled := &g.Nodes[m.Named[roleScaled]]; scaled.Op == "divide" {
		if scaled.Inputs[1] != m.Named[roleScale] || c.Scalar == 0 {
			return fmt.Errorf("the scale is not a constant number that the product is divided by")
		}
		p.alpha = 1 / c.Scalar
		return nil
	}
	p.alpha = c.Scalar
	return nil
}

// checkBias makes sure that what is added is one value for each column of the result.
func checkBias(g *relay.Graph, m *relay.Match, out *relay.Type) error {
	bias := m.Named[roleBias]
	if m.Covers(bias) {
		return fmt.Errorf("the bias is made inside the pattern")
	}
	t, err := product.Tensor(g, bias, "the bias")
	if err != nil {
		return err
	}
	last := len(out.Shape) - 1
	add := &g.Nodes[m.Named[roleBiased]]
	if add.Op == "nn.bias_add" {
		if add.Inputs[1] != bias {
			return fmt.Errorf("nn.bias_add adds the product to something else")
		}
		axis, ok := add.Attrs.Int("axis")
		if !ok {
			axis = 1
		}
		if axis < 0 {
			axis += int64(len(out.Shape))
		}
		if axis != int64(last) {
			return fmt.Errorf("nn.bias_add works along axis %d; only the last axis, %d, is supported", axis, last)
		}
	}
	wide := len(t.Shape) > 0 && t.Shape[len(t.Shape)-1] == out.Shape[last] || out.Shape[last] == 1
	if !wide || relay.Elements(t.Shape) != out.Shape[last] || t.DType != out.DType || len(t.Shape) > len(out.Shape) {
		return fmt.Errorf("the bias has the shape %s, which is not one value for each of the %d columns of %s",
			relay.ShapeText(t.Shape), out.Shape[last], relay.ShapeText(out.Shape))
	}
	return nil
}

func checkSum(g *relay.Graph, m *relay.Match, out *relay.Type) error {
	sum := m.Named[roleSum]
	if m.Covers(sum) {
		return fmt.Errorf("the residual value is made inside the pattern")
	}
	t, err := product.Tensor(g, sum, "the residual value")
	if err != nil {
		return err
	}
	if !slices.Equal(t.Shape, out.Shape) || t.DType != out.DType {
		return fmt.Errorf("the residual value has the shape %s and the result %s; they must be equal",
			relay.ShapeText(t.Shape), relay.ShapeText(out.Shape))
	}
	return nil
}
