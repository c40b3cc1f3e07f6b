// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// call is an operator with the types of what it reads and makes, the fields of tuples one after the other: what rules
// look at, both in a graph to be placed and in a region to be written.
type call struct {
	name  string
	attrs *relay.Attrs
	// args and results are tensor types.
	args, results []*relay.Type
	// constants are the arguments' nodes in graph where they are constants there, relay.NoNode for all others.
	constants []relay.NodeID
	graph     *relay.Graph
}

// callOf looks at an operator of a graph. The error says which value is no tensor.
func callOf(g *relay.Graph, id relay.NodeID) (*call, error) {
	n := &g.Nodes[id]
	c := &call{name: n.Op, attrs: n.Attrs, graph: g}
	for _, in := range n.Inputs {
		if !tensors(g.Nodes[in].Type, &c.args) {
			return nil, fmt.Errorf("%s reads something that is not a tensor", n.Op)
		}
		for len(c.constants) < len(c.args) {
			id := relay.NoNode
			if g.Nodes[in].Kind == relay.KindConstant {
				id = in
			}
			c.constants = append(c.constants, id)
		}
	}
	if !tensors(n.Type, &c.results) {
		return nil, fmt.Errorf("%s makes something that is not a tensor", n.Op)
	}
	return c, nil
}

// tensors appends the tensors of a type.
func tensors(t *relay.Type, to *[]*relay.Type) bool {
	switch {
	case t == nil:
		return false
	case t.Kind == relay.TypeTensor:
		*to = append(*to, t)
		return true
	case t.Kind == relay.TypeTuple:
		return !slices.ContainsFunc(t.Fields, func(f *relay.Type) bool { return !tensors(f, to) })
	}
	return false
}

// callOfOp looks at an operator of a program.
func callOfOp(p *region.Program, op *region.Op) *call {
	c := &call{name: op.Name, attrs: op.Attrs, graph: p.Graph}
	for _, v := range op.Args {
		c.args = append(c.args, p.Values[v].Type)
		c.constants = append(c.constants, p.Values[v].Constant)
	}
	for _, v := range op.Results {
		c.results = append(c.results, p.Values[v].Type)
	}
	return c
}

// result is the first result's type.
func (c *call) result() *relay.Type { return c.results[0] }

// basics checks what holds for all operators: known element types, no dimension that is zero, and none that is open
// where sizes are written.
func (c *call) basics() error {
	if len(c.results) == 0 {
		return fmt.Errorf("%s makes nothing", c.name)
	}
	for _, t := range slices.Concat(c.args, c.results) {
		if elementTypes[t.DType] == 0 {
			return fmt.Errorf("%s has a tensor of %s, which ONNX has no type for", c.name, t.DType)
		}
		for _, d := range t.Shape {
			if d < 1 && d != relay.AnyDim {
				return fmt.Errorf("%s has a tensor of the shape %s; dimensions must be known and at least 1", c.name,
					shapeText(t.Shape))
			}
		}
	}
	if c.isOpen() {
		return c.mayBeOpen()
	}
	return nil
}

// arity checks the number of tensors that are read.
func (c *call) arity(n int) error {
	if len(c.args) != n {
		return fmt.Errorf("%s reads %d tensors, %d are expected", c.name, len(c.args), n)
	}
	return nil
}

// dtypes checks that a tensor has one of these element types.
func (c *call) dtype(what string, t *relay.Type, allowed ...string) error {
	if !slices.Contains(allowed, t.DType) {
		return fmt.Errorf("%s: %s is %s; ONNX Runtime has kernels for %s", c.name, what, t.DType,
			strings.Join(allowed, ", "))
	}
	return nil
}

// allDTypes checks that all tensors have one and the same of these element types.
func (c *call) allDTypes(allowed ...string) error {
	first := c.result().DType
	for _, t := range slices.Concat(c.args, c.results) {
		if err := c.dtype("a tensor", t, allowed...); err != nil {
			return err
		}
		if t.DType != first {
			return fmt.Errorf("%s mixes %s and %s", c.name, t.DType, first)
		}
	}
	return nil
}

// text reads a text attribute; absent means the default.
func (c *call) text(name, fallback string) string {
	if s, ok := c.attrs.String(name); ok && s != "" {
		return s
	}
	return fallback
}

func (c *call) int(name string, fallback int64) int64 {
	if v, ok := c.attrs.Int(name); ok {
		return v
	}
	return fallback
}

func (c *call) flag(name string, fallback bool) bool {
	if v, ok := c.attrs.Bool(name); ok {
		return v
	}
	return fallback
}

func (c *call) float(name string, fallback float64) float64 {
	if v, ok := c.attrs.Float(name); ok {
		return v
	}
	return fallback
}

// spread reads a list attribute of n numbers, or one number for all of them.
func (c *call) spread(name string, n int, fallback int64) ([]int64, error) {
	values, ok := c.attrs.Ints(name)
	if !ok {
		one, isInt := c.attrs.Int(name)
		if _, there := c.attrs.Get(name); there && !isInt {
			return nil, fmt.Errorf("%s: the attribute %s is no list of known numbers", c.name, name)
		}
		if !isInt {
			one = fallback
		}
		values = []int64{one}
	}
	if len(values) == 1 {
		return slices.Repeat(values, n), nil
	}
	if len(values) != n {
		return nil, fmt.Errorf("%s: the attribute %s has %d numbers, %d are expected", c.name, name, len(values), n)
	}
	return values, nil
}

// padding reads the attribute padding for n dimensions: begins, then ends.
func (c *call) padding(n int) ([]int64, error) {
	values, ok := c.attrs.Ints("padding")
	if !ok {
		return c.spread("padding", 2*n, 0)
	}
	switch len(values) {
	case 1:
		return slices.Repeat(values, 2*n), nil
	case n: // the same at both ends
		return slices.Concat(values, values), nil
	case 2 * n:
		return values, nil
	}
	return nil, fmt.Errorf("%s: the attribute padding has %d numbers for %d dimensions", c.name, len(values), n)
}

// layout refuses layouts other than the one that ONNX knows.
func (c *call) layout(attr, want string) error {
	if got := c.text(attr, want); got != want {
		return fmt.Errorf("%s has %s=%q; ONNX's is %q", c.name, attr, got, want)
	}
	return nil
}

// sameOutDType refuses an attribute out_dtype other than the result of the inputs' type.
func (c *call) sameOutDType() error {
	if got := c.text("out_dtype", c.args[0].DType); got != c.args[0].DType {
		return fmt.Errorf("%s has out_dtype=%q for inputs of %s", c.name, got, c.args[0].DType)
	}
	return nil
}

// axis brings an axis into the range of a rank.
func (c *call) axis(name string, fallback int64, rank int) (int64, error) {
	a := c.int(name, fallback)
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("%s: the axis %d is not one of %d dimensions", c.name, c.int(name, fallback), rank)
	}
	return a, nil
}

func shapeText(shape []int64) string { return relay.ShapeText(shape) }
