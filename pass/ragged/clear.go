// SPDX-License-Identifier: Apache-2.0

package ragged

import (
	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// maskTypes are the types of masks: places that are not 0, or as float32 greater than one half, are tokens.
var maskTypes = []string{"bool", "int8", "uint8", "int32", "int64", "float32"}

// clearer makes the expressions that clear padding, each once.
type clearer struct {
	g    *relay.Graph
	mask relay.NodeID
	// valid are the truths by the rank of what they are for, values what has been cleared.
	valid  map[int]*bridge.Object
	values map[relay.NodeID]*bridge.Object
	zero   *bridge.Object
	made   []*bridge.Object
}

// cleared is the function with zeros in the place of padding on these edges.
func cleared(g *relay.Graph, mask relay.NodeID, edges []edge) (*bridge.Object, error) {
	r := relay.NewRewriter(g)
	defer r.Release()
	c := &clearer{g: g, mask: mask, valid: map[int]*bridge.Object{}, values: map[relay.NodeID]*bridge.Object{}}
	defer func() {
		for _, o := range c.made {
			o.Release()
		}
	}()
	for _, e := range edges {
		construct := func(expr *bridge.Object) (*bridge.Object, error) { return c.clear(e.value, expr) }
		if e.reader == relay.NoNode {
			r.Wrap(e.value, construct)
		} else {
			r.Read(e.reader, e.value, construct)
		}
	}
	return r.Function()
}

// keep notes what is given back at the end.
func (c *clearer) keep(o *bridge.Object, err error) (*bridge.Object, error) {
	if err == nil {
		c.made = append(c.made, o)
	}
	return o, err
}

func (c *clearer) call(function string, args ...any) (*bridge.Object, error) {
	v, err := bridge.Global(function, args...)
	if err != nil {
		return nil, err
	}
	return c.keep(v.Object())
}

// clear is where(valid, expr, 0); the clearer's.
func (c *clearer) clear(value relay.NodeID, expr *bridge.Object) (*bridge.Object, error) {
	if known := c.values[value]; known != nil {
		return known, nil
	}
	valid, err := c.truths(c.g.Nodes[value].Type.Rank())
	if err != nil {
		return nil, err
	}
	if c.zero == nil {
		if c.zero, err = c.keep(relay.NewFloat(0)); err != nil {
			return nil, err
		}
	}
	out, err := c.call("relay.op._make.where", valid, expr, c.zero)
	if err != nil {
		return nil, err
	}
	c.values[value] = out
	return out, nil
}

// truths says which rows of tensors of a rank are tokens.
func (c *clearer) truths(rank int) (*bridge.Object, error) {
	if known := c.valid[rank]; known != nil {
		return known, nil
	}
	var err error
	if rank > 2 {
		var flat *bridge.Object
		if flat, err = c.truths(2); err != nil {
			return nil, err
		}
		c.valid[rank], err = c.call("relay.op._make.expand_dims", flat, int64(2), int64(rank-2))
		return c.valid[rank], err
	}
	mask := c.g.Handle(c.mask)
	switch c.g.Nodes[c.mask].Type.DType {
	case "bool":
		c.valid[rank], err = c.keep(mask.Retain())
	case "float32":
		var half *bridge.Object
		if half, err = c.keep(relay.NewFloat(0.5)); err != nil {
			return nil, err
		}
		c.valid[rank], err = c.call("relay.op._make.greater", mask, half)
	default:
		c.valid[rank], err = c.call("relay.ir.cast", mask, "bool")
	}
	return c.valid[rank], err
}
