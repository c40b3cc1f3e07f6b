// SPDX-License-Identifier: Apache-2.0

package native

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/view"
	"github.com/collage-tvm/collage/relay"
)

// attentionFinder collects what one attention is made of.
type attentionFinder struct {
	g         *relay.Graph
	constants constants
	nodes     []relay.NodeID
	// scale is what the scores are multiplied by; scaled says that, going back from the softmax, it was met.
	scale  float64
	scaled bool
	// masks are those met so far, the last one first, each with the shape that the scores have there.
	masks []foundMask
}

type foundMask struct {
	Mask
	// shape is that of the scores where the mask is done.
	shape []int64
}

// attentionAt is the attention whose softmax ends in a node; nil where it is that of none.
func attentionAt(g *relay.Graph, id relay.NodeID, c constants) *AttentionLayer {
	f := &attentionFinder{g: g, constants: c, scale: 1}
	end, cleared := f.cleared(id)
	from, ok := f.softmax(end)
	if !ok {
		return nil
	}
	scores, ok := f.scores(from)
	if !ok {
		return nil
	}
	mixed, ok := f.mixed(id)
	if !ok {
		return nil
	}
	read, _ := f.shape(from)
	left, right, values := f.product(scores), f.product(mixed), f.g.Nodes[mixed].Inputs[1]
	if left == nil || right == nil || right.turnedLeft || left.products != right.products || left.rows != right.rows ||
		left.columns != right.length || read[len(read)-1] != left.columns {
		return nil
	}
	in := f.g.Nodes[scores].Inputs
	sides := []*reach{
		f.reach(in[0], left.side(in[0], left.turnedLeft)),
		f.reach(in[1], left.side(in[1], !left.turnedRight)),
		f.reach(values, right.side(values, right.turnedRight)),
	}
	sides[0].scales, sides[1].scales = true, true
	result := f.behind(mixed, right)
	all := append(slices.Clone(sides), result)
	for i := len(f.masks) - 1; i >= 0; i-- {
		mask := &f.masks[i]
		all = append(all, f.reach(mask.Of, left.mask(mask.shape)))
	}
	if !deepen(all) {
		return nil
	}
	for f.together(sides, all) {
	}
	layer := &AttentionLayer{
		Query: sides[0].chosen(), Key: sides[1].chosen(), Value: sides[2].chosen(),
		Root: result.end(), Result: result.chosen(), Cleared: cleared,
	}
	for i := range f.masks {
		mask := f.masks[len(f.masks)-1-i].Mask
		mask.Side = all[4+i].chosen()
		mask.Triangle = mask.Triangle && left.endsAs(f.masks[len(f.masks)-1-i].shape)
		layer.Masks = append(layer.Masks, mask)
	}
	for _, r := range all {
		f.nodes = append(f.nodes, r.taken()...)
	}
	layer.Scale = f.scale * sides[0].scale() * sides[1].scale()
	if !finite(layer.Scale) || !outside(layer, f.nodes) {
		return nil
	}
	slices.Sort(f.nodes)
	layer.Nodes = slices.Compact(f.nodes)
	return layer
}

// outside says that what is read is not made by the attention itself.
func outside(l *AttentionLayer, nodes []relay.NodeID) bool {
	sides := []Side{l.Query, l.Key, l.Value}
	for _, m := range l.Masks {
		sides = append(sides, m.Side)
	}
	return !slices.ContainsFunc(sides, func(s Side) bool { return slices.Contains(nodes, s.Of) })
}

// finite says that a scale is a number that float32 has.
func finite(v float64) bool { return !math.IsNaN(v) && math.Abs(v) <= math.MaxFloat32 }

// shape is that of a float32 tensor.
func (f *attentionFinder) shape(id relay.NodeID) ([]int64, bool) {
	t, err := onednn.TensorAt(f.g, id, "")
	if err != nil {
		return nil, false
	}
	return t.Shape, true
}

// only is the node that alone reads a value, once, where it does not leave the function.
func (f *attentionFinder) only(id relay.NodeID) (relay.NodeID, bool) {
	readers := f.g.Consumers(id)
	if len(readers) != 1 || f.g.ScopeRoot(id) {
		return relay.NoNode, false
	}
	times := 0
	for _, in := range f.g.Nodes[readers[0]].Inputs {
		if in == id {
			times++
		}
	}
	return readers[0], times == 1
}

// readOnlyBy says that a value is read by these nodes, once by each, and by nobody else.
func (f *attentionFinder) readOnlyBy(id relay.NodeID, readers ...relay.NodeID) bool {
	slices.Sort(readers)
	if f.g.ScopeRoot(id) || !slices.Equal(slices.Sorted(slices.Values(f.g.Consumers(id))), readers) {
		return false
	}
	for _, reader := range readers {
		times := 0
		for _, in := range f.g.Nodes[reader].Inputs {
			if in == id {
				times++
			}
		}
		if times != 1 {
			return false
		}
	}
	return true
}

// cleared takes the operators of where(isnan(x), 0, x) that end in a node, and gives x, which nobody else reads; the node
// itself where they are not there.
func (f *attentionFinder) cleared(id relay.NodeID) (of relay.NodeID, ok bool) {
	n := &f.g.Nodes[id]
	if n.Op != "where" || len(n.Inputs) != 3 {
		return id, false
	}
	asked, of := n.Inputs[0], n.Inputs[2]
	own, known := f.shape(of)
	if fill, isNumber := f.constants.uniform(n.Inputs[1]); !known || !isNumber || fill != 0 || math.Signbit(fill) ||
		f.g.Nodes[asked].Op != "isnan" || f.g.Nodes[asked].Inputs[0] != of || !slices.Equal(own, n.Type.Shape) ||
		!f.readOnlyBy(asked, id) || !f.readOnlyBy(of, asked, id) {
		return id, false
	}
	f.nodes = append(f.nodes, id, asked)
	return of, true
}

// overLast says that a reduction is over the last axis alone, which stays.
func overLast(n *relay.Node, rank int) bool {
	axes, err := onednn.AttrInts(n, "axis")
	kept, _ := n.Attrs.Bool("keepdims")
	exclude, _ := n.Attrs.Bool("exclude")
	return err == nil && kept && !exclude && len(axes) == 1 && (axes[0] == -1 || axes[0] == int64(rank-1))
}

// softmax takes the operators of a softmax over the last axis that ends in a node, and gives what it is of: one
// operator, or e^(x - max) / sum.
func (f *attentionFinder) softmax(id relay.NodeID) (from relay.NodeID, ok bool) {
	n := &f.g.Nodes[id]
	if n.Op != "nn.softmax" && n.Op != "divide" {
		return relay.NoNode, false
	}
	shape, ok := f.shape(id)
	if !ok || len(shape) == 0 {
		return relay.NoNode, false
	}
	if n.Op == "nn.softmax" {
		axis, _ := n.Attrs.Int("axis")
		f.nodes = append(f.nodes, id)
		return n.Inputs[0], (axis == -1 || axis == int64(len(shape)-1)) && f.readOnlyBy(n.Inputs[0], id)
	}
	power, sum := n.Inputs[0], n.Inputs[1]
	e, s := &f.g.Nodes[power], &f.g.Nodes[sum]
	if e.Op != "exp" || s.Op != "sum" || s.Inputs[0] != power || !overLast(s, len(shape)) {
		return relay.NoNode, false
	}
	less := e.Inputs[0]
	d := &f.g.Nodes[less]
	if d.Op != "subtract" {
		return relay.NoNode, false
	}
	x, greatest := d.Inputs[0], d.Inputs[1]
	m := &f.g.Nodes[greatest]
	if m.Op != "max" || m.Inputs[0] != x || !overLast(m, len(shape)) {
		return relay.NoNode, false
	}
	if own, ok := f.shape(x); !ok || !slices.Equal(own, shape) {
		return relay.NoNode, false
	}
	f.nodes = append(f.nodes, id, power, sum, less, greatest)
	return x, f.readOnlyBy(power, sum, id) && f.readOnlyBy(sum, id) && f.readOnlyBy(less, power) &&
		f.readOnlyBy(greatest, less) && f.readOnlyBy(x, greatest, less)
}

// scores goes back from what the softmax reads, which nobody else does, to the product that makes the scores.
func (f *attentionFinder) scores(id relay.NodeID) (product relay.NodeID, ok bool) {
	n := &f.g.Nodes[id]
	shape, ok := f.shape(id)
	if !ok || n.Kind != relay.KindCall {
		return relay.NoNode, false
	}
	f.nodes = append(f.nodes, id)
	back := func(next relay.NodeID) (relay.NodeID, bool) {
		if !f.readOnlyBy(next, id) {
			return relay.NoNode, false
		}
		return f.scores(next)
	}
	if isProduct(n) {
		return id, true
	}
	if isReshape(n) {
		return back(n.Inputs[0])
	}
	if factor, of, ok := f.scaledBy(n); ok {
		f.scaled = true
		f.scale *= factor
		return back(n.Inputs[of])
	}
	// Both sides of a sum may be products; the scores are those that lead on.
	for _, mask := range f.masksAt(n, shape) {
		if !mask.nothing && (f.scaled || len(f.masks) == mostMasks) {
			continue
		}
		tried := *f
		tried.nodes = slices.Clone(f.nodes)
		if !mask.nothing {
			tried.masks = append(slices.Clone(f.masks), foundMask{mask.Mask, shape})
		}
		if !tried.readOnlyBy(mask.scores, id) {
			continue
		}
		if product, ok := tried.scores(mask.scores); ok {
			*f = tried
			return product, true
		}
	}
	return relay.NoNode, false
}

// scaledBy says by which number an operator multiplies which of its arguments.
func (f *attentionFinder) scaledBy(n *relay.Node) (factor float64, of int, ok bool) {
	if n.Op != "multiply" && n.Op != "divide" {
		return 0, 0, false
	}
	for i := 1; i >= 0; i-- {
		number, isNumber := f.constants.number(n.Inputs[i])
		switch {
		case !isNumber || !finite(number):
		case n.Op == "multiply":
			factor, of, ok = number, 1-i, true
		case i == 1 && number != 0:
			factor, of, ok = 1/number, 0, true
		}
		if ok {
			own, known := f.shape(n.Inputs[of])
			return factor, of, known && slices.Equal(own, n.Type.Shape)
		}
	}
	return 0, 0, false
}

// mixed goes on from the softmax to the product with the values.
func (f *attentionFinder) mixed(softmax relay.NodeID) (product relay.NodeID, ok bool) {
	for id := softmax; ; {
		next, ok := f.only(id)
		if !ok {
			return relay.NoNode, false
		}
		n := &f.g.Nodes[next]
		if _, ok := f.shape(next); !ok {
			return relay.NoNode, false
		}
		f.nodes = append(f.nodes, next)
		if isProduct(n) {
			return next, n.Inputs[0] == id
		}
		if !isReshape(n) {
			return relay.NoNode, false
		}
		id = next
	}
}

// product is one of the two products: so many of [rows, length] by [length, columns].
type product struct {
	products, rows, length, columns int64
	turnedLeft, turnedRight         bool // the last two axes of a side are exchanged: the left one is [length, rows]
	g                               *relay.Graph
}

// isProduct says that an operator multiplies matrices.
func isProduct(n *relay.Node) bool {
	return slices.Contains([]string{"nn.batch_matmul", "nn.matmul", "nn.dense"}, n.Op)
}

// product reads a product; nil where it is one that attention has not. A dense layer's weight is no key: what has
// packed weights does it.
func (f *attentionFinder) product(id relay.NodeID) *product {
	n := &f.g.Nodes[id]
	out, ok := f.shape(id)
	left, leftOK := f.shape(n.Inputs[0])
	right, rightOK := f.shape(n.Inputs[1])
	rank := len(out)
	if !ok || !leftOK || !rightOK || len(left) != rank || len(right) != rank || rank != 2 && rank != 3 {
		return nil
	}
	p := &product{products: 1, g: f.g}
	if len(out) == 3 {
		p.products = out[0]
	} else if f.constants.node(n.Inputs[1]) != relay.NoNode {
		return nil
	}
	switch n.Op {
	case "nn.dense":
		p.turnedRight = true
	default:
		p.turnedLeft, _ = n.Attrs.Bool("transpose_a")
		p.turnedRight, _ = n.Attrs.Bool("transpose_b")
	}
	p.rows, p.columns = out[len(out)-2], out[len(out)-1]
	p.length = left[len(left)-1]
	if p.turnedLeft {
		p.length = left[len(left)-2]
	}
	return p
}

// side is how one of a product's arguments is seen as [products, rows, columns], its last axes exchanged or not.
func (p *product) side(id relay.NodeID, turned bool) []move {
	shape := p.g.Nodes[id].Type.Shape
	if len(shape) == 2 {
		shape = append([]int64{1}, shape...)
	}
	spread := append([]int64{p.products}, shape[1:]...)
	moves := []move{reshapedTo(shape), broadcastTo(spread)}
	if turned {
		moves = append(moves, permutedBy([]int64{0, 2, 1}))
	}
	return moves
}

// endsAs says that the last axes of a shape are the product's rows and columns.
func (p *product) endsAs(shape []int64) bool {
	return len(shape) >= 2 && slices.Equal(shape[len(shape)-2:], []int64{p.rows, p.columns})
}

// mask is how what is done to scores of a shape is seen as [products, rows, columns].
func (p *product) mask(shape []int64) []move {
	return []move{broadcastTo(shape), reshapedTo([]int64{p.products, p.rows, p.columns})}
}

func reshapedTo(shape []int64) move {
	return func(v view.View) (view.View, bool) { return v.Reshaped(shape) }
}

func broadcastTo(shape []int64) move {
	return func(v view.View) (view.View, bool) { return v.Broadcast(shape) }
}

func permutedBy(axes []int64) move {
	return func(v view.View) (view.View, bool) { return v.Permuted(axes), true }
}
