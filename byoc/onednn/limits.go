// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// maxRank is the greatest number of dimensions that is offered to oneDNN.
const maxRank = 6

// TensorAt gives the type of a value that oneDNN can read or write: a float32 tensor whose shape is known and
// not empty. what says in the error which value is meant ("the weight of nn.conv2d").
func TensorAt(g *relay.Graph, id relay.NodeID, what string) (*relay.Type, error) {
	t := g.Nodes[id].Type
	if t == nil {
		return nil, fmt.Errorf("the type of %s is unknown; run InferType first", what)
	}
	if t.Kind != relay.TypeTensor {
		return nil, fmt.Errorf("%s is not a tensor", what)
	}
	if t.DType != "float32" {
		return nil, fmt.Errorf("%s is %s; only float32 is supported", what, t.DType)
	}
	if len(t.Shape) > maxRank {
		return nil, fmt.Errorf("%s has %d dimensions; at most %d are supported", what, len(t.Shape), maxRank)
	}
	for _, d := range t.Shape {
		if d == relay.AnyDim {
			return nil, fmt.Errorf("%s has the shape %s; dimensions that are known only at run time are not supported",
				what, relay.ShapeText(t.Shape))
		}
		if d < 1 || d > math.MaxInt32 {
			return nil, fmt.Errorf("%s has the shape %s; each dimension must be 1 to %d", what,
				relay.ShapeText(t.Shape), math.MaxInt32)
		}
	}
	return t, nil
}

// Call is an operator call whose types have been checked.
type Call struct {
	Node *relay.Node
	Out  *relay.Type
	In   []*relay.Type
}

// CheckedCall checks the result and all arguments of the call at id, and its out_dtype where it has one.
func CheckedCall(g *relay.Graph, id relay.NodeID, argumentNames ...string) (*Call, error) {
	n := &g.Nodes[id]
	c := &Call{Node: n}
	var err error
	if c.Out, err = TensorAt(g, id, "the result of "+n.Op); err != nil {
		return nil, err
	}
	for i, in := range n.Inputs {
		what := fmt.Sprintf("argument %d", i+1)
		if i < len(argumentNames) {
			what = "the " + argumentNames[i]
		}
		t, err := TensorAt(g, in, what+" of "+n.Op)
		if err != nil {
			return nil, err
		}
		c.In = append(c.In, t)
	}
	if dtype, ok := n.Attrs.String("out_dtype"); ok && dtype != "" && dtype != "float32" {
		return nil, fmt.Errorf("%s asks for out_dtype %s; only float32 is supported", n.Op, dtype)
	}
	return c, nil
}

// AttrInts reads a list attribute of a call; a single number counts as a list of one.
func AttrInts(n *relay.Node, name string) ([]int64, error) {
	if list, ok := n.Attrs.Ints(name); ok {
		return list, nil
	}
	if v, ok := n.Attrs.Int(name); ok {
		return []int64{v}, nil
	}
	return nil, fmt.Errorf("%s has no usable attribute %q", n.Op, name)
}

// ReducedAxes are the axes that a reduction takes away, ascending.
func ReducedAxes(g *relay.Graph, n *relay.Node) ([]int64, error) {
	axes, err := SomeReducedAxes(g, n)
	if err != nil {
		return nil, err
	}
	if axes[len(axes)-1]-axes[0] != int64(len(axes)-1) {
		return nil, fmt.Errorf("%s works over the axes %v; only axes that follow one another are supported", n.Op, axes)
	}
	return axes, nil
}

// SomeReducedAxes are the axes that a reduction works over, in order, whether they follow one another or not.
func SomeReducedAxes(g *relay.Graph, n *relay.Node) ([]int64, error) {
	rank := int64(g.Nodes[n.Inputs[0]].Type.Rank())
	var axes []int64
	if v, _ := n.Attrs.Get("axis"); v == nil {
		for i := range rank {
			axes = append(axes, i)
		}
	} else {
		list, err := AttrInts(n, "axis")
		if err != nil {
			return nil, err
		}
		for _, axis := range list {
			if axis < 0 {
				axis += rank
			}
			axes = append(axes, axis)
		}
	}
	if exclude, _ := n.Attrs.Bool("exclude"); exclude {
		given := axes
		axes = nil
		for i := range rank {
			if !slices.Contains(given, i) {
				axes = append(axes, i)
			}
		}
	}
	slices.Sort(axes)
	axes = slices.Compact(axes)
	if len(axes) == 0 || axes[0] < 0 || axes[len(axes)-1] >= rank {
		return nil, fmt.Errorf("%s works over the axes %v of %d dimensions", n.Op, axes, rank)
	}
	return axes, nil
}

// TransposeAxes reads the axes of a transpose; without any they are reversed.
func TransposeAxes(n *relay.Node, rank int) []int64 {
	axes, ok := n.Attrs.Ints("axes")
	if !ok || len(axes) == 0 {
		axes = make([]int64, rank)
		for i := range axes {
			axes[i] = int64(rank - 1 - i)
		}
	}
	for i, axis := range axes {
		if axis < 0 {
			axes[i] = axis + int64(rank)
		}
	}
	return axes
}

// spatial reads a list attribute with one positive entry for each of n spatial dimensions; one entry stands
// for all.
func spatial(node *relay.Node, name string, n int) ([]int64, error) {
	list, err := AttrInts(node, name)
	if err != nil {
		return nil, err
	}
	if len(list) == 1 && n > 1 {
		list = repeat(list[0], n)
	}
	if len(list) != n {
		return nil, fmt.Errorf("%s has %d values of %s for %d spatial dimensions", node.Op, len(list), name, n)
	}
	for _, v := range list {
		if v < 1 {
			return nil, fmt.Errorf("%s has %s %s; each must be at least 1", node.Op, name, relay.IntsText(list))
		}
	}
	return list, nil
}

// paddings reads the attribute padding in Relay's three forms (one value for all sides, one for each
// dimension, or all front sides followed by all back sides) and gives the last form.
func paddings(node *relay.Node, n int) ([]int64, error) {
	list, err := AttrInts(node, "padding")
	if err != nil {
		return nil, err
	}
	switch len(list) {
	case 2 * n:
	case n:
		list = append(append([]int64{}, list...), list...)
	case 1:
		list = repeat(list[0], 2*n)
	default:
		return nil, fmt.Errorf("%s has %d values of padding for %d spatial dimensions", node.Op, len(list), n)
	}
	for _, v := range list {
		if v < 0 {
			return nil, fmt.Errorf("%s has padding %s; negative padding is not supported", node.Op,
				relay.IntsText(list))
		}
	}
	return list, nil
}

func repeat(v int64, n int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// lastAxis checks that an axis attribute means the last of rank dimensions.
func lastAxis(op string, axis int64, rank int) error {
	if axis != -1 && axis != int64(rank-1) {
		return fmt.Errorf("%s works along axis %d of %d dimensions; only the last axis is supported", op, axis, rank)
	}
	return nil
}

// FitsFloat32 checks that a number can be handed to the runtime, which reads it as text into a float and
// fails on what is too small for a normal one.
func FitsFloat32(what string, v float64) error {
	if math.IsNaN(v) {
		return fmt.Errorf("%s is not a number", what)
	}
	const smallestNormal = 0x1p-126
	if v != 0 && math.Abs(v) < smallestNormal {
		return fmt.Errorf("%s is %g, which is too small for a float32", what, v)
	}
	return nil
}
