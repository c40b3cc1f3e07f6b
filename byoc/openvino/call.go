// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// call is an operator call as checks and writers see it, whether it stands in a graph that is being placed or in a
// region that is being written.
type call struct {
	op    string
	attrs *relay.Attrs
	// in and out are the types of the arguments and results, a tuple as its fields; nil for what is no tensor.
	in, out []*relay.Type
	// constants describe the arguments that are constants; nil for the others.
	constants []*relay.Constant
	// nodes are the arguments' nodes in graph where they are constants there, relay.NoNode for all others.
	nodes []relay.NodeID
	graph *relay.Graph
	// used says which results somebody reads.
	used []bool
}

// callOf is the call at a node of a graph.
func callOf(g *relay.Graph, id relay.NodeID) *call {
	n := &g.Nodes[id]
	c := &call{op: n.Op, attrs: n.Attrs, out: tensors(n.Type), graph: g}
	for _, in := range n.Inputs {
		c.addArgument(g, in)
	}
	c.used = make([]bool, len(c.out))
	if n.Type == nil || n.Type.Kind != relay.TypeTuple {
		for i := range c.used {
			c.used[i] = true
		}
		return c
	}
	for _, user := range g.Consumers(id) {
		if u := &g.Nodes[user]; u.Kind == relay.KindTupleGetItem && u.Index < len(c.used) {
			c.used[u.Index] = true
			continue
		}
		for i := range c.used {
			c.used[i] = true
		}
	}
	return c
}

func (c *call) addArgument(g *relay.Graph, id relay.NodeID) {
	n := &g.Nodes[id]
	if n.Kind == relay.KindTuple {
		for _, field := range n.Inputs {
			c.addArgument(g, field)
		}
		return
	}
	node := relay.NoNode
	if n.Kind == relay.KindConstant {
		node = id
	}
	for _, t := range tensors(n.Type) {
		c.in = append(c.in, t)
		c.constants = append(c.constants, n.Constant)
		c.nodes = append(c.nodes, node)
	}
}

// tensors are the tensors of a type in order; one nil for a type that is not made of tensors.
func tensors(t *relay.Type) []*relay.Type {
	switch {
	case t == nil || t.Kind != relay.TypeTensor && t.Kind != relay.TypeTuple:
		return []*relay.Type{nil}
	case t.Kind == relay.TypeTensor:
		return []*relay.Type{t}
	}
	var all []*relay.Type
	for _, f := range t.Fields {
		all = append(all, tensors(f)...)
	}
	return all
}

// callIn is the call of an operator of a region; readers counts who reads each of the region's values.
func callIn(p *region.Program, op *region.Op, readers []int) *call {
	c := &call{op: op.Name, attrs: op.Attrs, graph: p.Graph}
	for _, v := range op.Args {
		c.in = append(c.in, p.Values[v].Type)
		var constant *relay.Constant
		if p.IsConstant(v) {
			constant = p.Graph.Nodes[p.Values[v].Constant].Constant
		}
		c.constants = append(c.constants, constant)
		c.nodes = append(c.nodes, p.Values[v].Constant)
	}
	for _, v := range op.Results {
		c.out = append(c.out, p.Values[v].Type)
		c.used = append(c.used, readers[v] > 0)
	}
	return c
}

// refuse makes an error about the call.
func (c *call) refuse(format string, args ...any) error {
	return fmt.Errorf("%s "+format, append([]any{c.op}, args...)...)
}

// maxRank is the greatest number of dimensions for which all layers of OpenVINO's CPU plug-in have kernels.
const maxRank = 6

// static checks that all shapes are known, not empty, and of a dtype that is in the list.
func (c *call) static(dtypes ...string) error {
	for i, t := range c.in {
		if err := c.tensor(t, fmt.Sprintf("argument %d", i+1), dtypes); err != nil {
			return err
		}
	}
	for i, t := range c.out {
		if c.used[i] {
			if err := c.tensor(t, "result", dtypes); err != nil {
				return err
			}
		}
	}
	if dtype, ok := c.attrs.String("out_dtype"); ok && dtype != "" && dtype != c.out[0].DType {
		return c.refuse("asks for out_dtype %s and gives %s", dtype, c.out[0].DType)
	}
	return nil
}

func (c *call) tensor(t *relay.Type, what string, dtypes []string) error {
	if t == nil {
		return c.refuse("has as %s something that is no tensor of known type", what)
	}
	if !slices.Contains(dtypes, t.DType) {
		return c.refuse("has as %s a tensor of %s; only %s is supported", what, t.DType, strings.Join(dtypes, ", "))
	}
	return c.shape(t, what)
}

func (c *call) shape(t *relay.Type, what string) error {
	if len(t.Shape) > maxRank {
		return c.refuse("has as %s a tensor of %d dimensions; at most %d are supported", what, len(t.Shape), maxRank)
	}
	elements := int64(1)
	for _, d := range t.Shape {
		if d == relay.AnyDim {
			continue // operators says which may have such (mayBeOpen)
		}
		if d < 1 {
			return c.refuse("has the shape %s; empty tensors are not supported", shapeText(t.Shape))
		}
		if elements *= d; elements > math.MaxInt32 {
			return c.refuse("has the shape %s, more than 2^31 elements", shapeText(t.Shape))
		}
	}
	return nil
}

// ranks checks how many dimensions the first arguments have.
func (c *call) ranks(want ...int) error {
	if len(c.in) < len(want) {
		return c.refuse("has %d arguments", len(c.in))
	}
	for i, rank := range want {
		if len(c.in[i].Shape) != rank {
			return c.refuse("has as argument %d a tensor of %d dimensions; %d are supported", i+1, len(c.in[i].Shape),
				rank)
		}
	}
	return nil
}

// layout checks that an attribute has one of the values; "" and an absent attribute are right too.
func (c *call) layout(name string, values ...string) error {
	have, ok := c.attrs.String(name)
	if !ok || have == "" || slices.Contains(values, have) {
		return nil
	}
	return c.refuse("has %s %s; only %s is supported", name, have, strings.Join(values, ", "))
}

// untuned checks that no tuner has laid the weight out for itself.
func (c *call) untuned() error {
	if have, ok := c.attrs.String("auto_scheduler_rewritten_layout"); ok && have != "" {
		return c.refuse("has a weight that is laid out for TVM's auto-scheduler (%s)", have)
	}
	if v, ok := c.attrs.Get("meta_schedule_original_shape"); ok {
		if l, isList := v.([]any); isList && len(l) > 0 {
			return c.refuse("has a weight that is laid out for TVM's meta-schedule")
		}
	}
	return nil
}

// list reads an attribute that is a list of integers; a single number counts as a list of one.
func (c *call) list(name string) ([]int64, bool) {
	if list, ok := c.attrs.Ints(name); ok {
		return list, true
	}
	if v, ok := c.attrs.Int(name); ok {
		return []int64{v}, true
	}
	return nil, false
}

// spatial reads a list with one positive entry for each of n dimensions; one entry stands for all.
func (c *call) spatial(name string, n int) ([]int64, error) {
	list, ok := c.list(name)
	if ok && len(list) == 1 {
		list = slices.Repeat(list, n)
	}
	if !ok || len(list) != n {
		return nil, c.refuse("has no attribute %s with %d values", name, n)
	}
	for _, v := range list {
		if v < 1 {
			return nil, c.refuse("has %s %s; each must be at least 1", name, shapeText(list))
		}
	}
	return list, nil
}

// paddings reads the attribute padding in Relay's three forms (one value for all sides, one for each dimension, or all
// front sides followed by all back sides).
func (c *call) paddings(n int) (begin, end []int64, err error) {
	list, ok := c.list("padding")
	switch {
	case ok && len(list) == 2*n:
	case ok && len(list) == n:
		list = slices.Concat(list, list)
	case ok && len(list) == 1:
		list = slices.Repeat(list, 2*n)
	default:
		return nil, nil, c.refuse("has no attribute padding for %d dimensions", n)
	}
	for _, v := range list {
		if v < 0 {
			return nil, nil, c.refuse("has padding %s; negative padding is not supported", shapeText(list))
		}
	}
	return list[:n], list[n:], nil
}

// axis reads an axis attribute as a dimension of a tensor of that rank, counted from the front.
func (c *call) axis(name string, rank int) (int, error) {
	v, ok := c.attrs.Int(name)
	if !ok {
		return 0, c.refuse("has no attribute %s", name)
	}
	if v < 0 {
		v += int64(rank)
	}
	if v < 0 || v >= int64(rank) {
		return 0, c.refuse("has the %s %d for %d dimensions", name, v, rank)
	}
	return int(v), nil
}

// truth reads a Boolean attribute; false where it is absent.
func (c *call) truth(name string) bool {
	v, _ := c.attrs.Bool(name)
	return v
}

func shapeText(shape []int64) string { return "[" + join(shape, ", ") + "]" }

func join(list []int64, separator string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = strconv.FormatInt(v, 10)
	}
	return strings.Join(texts, separator)
}
