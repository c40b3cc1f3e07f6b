// SPDX-License-Identifier: Apache-2.0

package blas

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/product"
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
		for _, operator := range product.Operators {
			anchor := relay.Named(roleProduct, relay.Op(operator,
				relay.Named(roleLeft, relay.Wildcard()), relay.Named(roleRight, relay.Wildcard())))
			r := &rule{product: operator, epilogue: e}
			r.pattern = byoc.Pattern{
				Composite:  operator[len("nn."):] + e.suffix(),
				Shape:      e.on(anchor),
				Limits:     func(g *relay.Graph, m *relay.Match) error { _, err := r.read(g, m); return err },
				LimitsText: limitsText,
			}
			all = append(all, r)
		}
	}
	return all
})

// Products are what a library of matrix products takes: products with a scale, a bias, a residual sum and a rectifier
// behind them.
type Products struct {
	// Name begins the names of composites ("mkl.dense_bias"), Title is what people call the library.
	Name, Title string
	// Gelu says that it computes GELU behind products, too.
	Gelu bool
}

// Patterns are what the library takes, those that cover most first.
func (of Products) Patterns() []byoc.Pattern {
	var all []byoc.Pattern
	for _, r := range rules() {
		if r.epilogue.activation == "gelu" && !of.Gelu {
			continue
		}
		p := r.pattern
		p.Composite = of.Name + "." + p.Composite
		all = append(all, p)
	}
	return all
}

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

// scaled is a matrix product and what it is multiplied by.
type scaled struct {
	*product.Product
	alpha float64
}

// read takes a match apart and checks the limits. The error says which limit was met.
func (r *rule) read(g *relay.Graph, m *relay.Match) (*scaled, error) {
	for _, role := range []string{roleLeft, roleRight} {
		if m.Covers(m.Named[role]) {
			return nil, fmt.Errorf("the %s side of %s is made inside the pattern", role, r.product)
		}
	}
	of, err := product.Of(g, m.Named[roleProduct])
	if err != nil {
		return nil, err
	}
	p := &scaled{of, 1}
	if err := r.epilogue.read(g, m, g.Nodes[m.Named[roleProduct]].Type, p); err != nil {
		return nil, err
	}
	return p, nil
}
