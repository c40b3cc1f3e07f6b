// SPDX-License-Identifier: Apache-2.0

package native

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/view"
	"github.com/collage-tvm/collage/relay"
)

// reach is how far attention reaches along the operators before one of its arguments, or behind its result, that only
// say where numbers are. They stand in links, from the attention outwards; so many of them as depth says are taken.
type reach struct {
	g     *relay.Graph
	start relay.NodeID
	inner []move // from the start's value to how the kernel sees it
	links []link
	depth int
	// scales says that numbers by which all is multiplied may be taken along.
	scales bool
	// back says that the links stand behind the start.
	back bool
}

// link is one operator of a chain.
type link struct {
	nodes []relay.NodeID
	to    relay.NodeID // what it reads; behind the result: what it makes
	move  move
	scale float64
}

// reach follows a value back, as long as nobody else reads what is passed.
func (f *attentionFinder) reach(start relay.NodeID, inner []move) *reach {
	r := &reach{g: f.g, start: start, inner: inner}
	for id := start; ; {
		if _, alone := f.only(id); !alone {
			return r
		}
		n := &f.g.Nodes[id]
		l := link{nodes: []relay.NodeID{id}, scale: 1}
		if move, ok := f.movement(n); ok {
			l.to, l.move = n.Inputs[0], move
		} else if factor, of, ok := f.scaledBy(n); ok {
			l.to, l.scale = n.Inputs[of], factor
			l.move = func(v view.View) (view.View, bool) { return v, true }
		} else {
			return r
		}
		if !seeable(f.g.Nodes[l.to].Type) {
			return r
		}
		r.links = append(r.links, l)
		id = l.to
	}
}

// seeable says that a tensor can be seen otherwise than it is: its shape is known and not too long.
func seeable(t *relay.Type) bool {
	return t != nil && t.Kind == relay.TypeTensor && len(t.Shape) <= 8 &&
		!slices.ContainsFunc(t.Shape, func(d int64) bool { return d < 1 })
}

// behind follows a product's result on, where one operator alone reads it.
func (f *attentionFinder) behind(mixed relay.NodeID, p *product) *reach {
	r := &reach{g: f.g, start: mixed, back: true, inner: []move{reshapedTo([]int64{p.products, p.rows, p.columns})}}
	for id := mixed; ; {
		next, ok := f.only(id)
		if !ok {
			return r
		}
		n := &f.g.Nodes[next]
		if _, ok := f.shape(next); !ok {
			return r
		}
		before := f.g.Nodes[id].Type.Shape
		l := link{nodes: []relay.NodeID{next}, to: next, scale: 1}
		switch {
		case isReshape(n):
			l.move = reshapedTo(before)
		case n.Op == "transpose":
			inverse := make([]int64, len(before))
			for i, axis := range onednn.TransposeAxes(n, len(before)) {
				inverse[axis] = int64(i)
			}
			l.move = permutedBy(inverse)
		default:
			return r
		}
		r.links = append(r.links, l)
		id = next
	}
}

// end is the node whose value is read or written with the links that are taken.
func (r *reach) end() relay.NodeID {
	if r.depth == 0 {
		return r.start
	}
	return r.links[r.depth-1].to
}

// chosen is the side with the links that are taken.
func (r *reach) chosen() Side {
	s := Side{Of: r.end()}
	for i := r.depth - 1; i >= 0; i-- {
		s.moves = append(s.moves, r.links[i].move)
	}
	s.moves = append(s.moves, r.inner...)
	return s
}

// taken are the nodes of the links that are taken.
func (r *reach) taken() []relay.NodeID {
	var nodes []relay.NodeID
	for _, l := range r.links[:r.depth] {
		nodes = append(nodes, l.nodes...)
	}
	return nodes
}

// scale is what the links that are taken multiply by.
func (r *reach) scale() float64 {
	scale := 1.0
	for _, l := range r.links[:r.depth] {
		scale *= l.scale
	}
	return scale
}

// seen is how the kernel sees the end's value.
func (r *reach) seen() (view.View, bool) {
	return r.chosen().Seen(view.Plain(r.g.Nodes[r.end()].Type.Shape))
}

// fits says that the kernel works on tensors that are so.
func fits(all []*reach) bool {
	var sides []view.View
	for _, r := range all {
		v, ok := r.seen()
		if !ok {
			return false
		}
		sides = append(sides, v)
	}
	_, ok := Place(sides)
	return ok
}

// deepen takes as many links of each as the kernel can do without copies, one tensor after the other; false where it
// cannot even do without any.
func deepen(all []*reach) bool {
	for _, r := range all {
		for r.mustMove() && r.mayMove() && !fits(all) {
			r.depth++
		}
	}
	if !fits(all) {
		return false
	}
	for _, r := range all {
		best := r.depth
		for r.mayMove() {
			r.depth++
			if fits(all) {
				best = r.depth
			}
		}
		r.depth = best
	}
	return true
}

// together takes along one more operator whose result only query, key and value read, each in its own way: what moves
// all of them, or divides a tensor into them, as they are made by one product. It says whether there was one.
func (f *attentionFinder) together(sides, all []*reach) bool {
	inside := slices.Clone(f.nodes)
	for _, r := range all {
		inside = append(inside, r.taken()...)
	}
	onlyInside := func(id relay.NodeID) bool {
		outside := func(reader relay.NodeID) bool { return !slices.Contains(inside, reader) }
		return !f.g.ScopeRoot(id) && !slices.ContainsFunc(f.g.Consumers(id), outside)
	}
	for _, side := range sides {
		links := map[*reach]link{}
		n := &f.g.Nodes[side.end()]
		for _, r := range sides {
			end := r.end()
			from := &f.g.Nodes[end]
			switch {
			case r.depth < len(r.links) || !onlyInside(end):
			case n.Kind == relay.KindTupleGetItem && from.Kind == n.Kind && from.Inputs[0] == n.Inputs[0]:
				if l, ok := f.fieldOfSplit(end); ok {
					links[r] = l
				}
			case end == side.end():
				if move, ok := f.movement(n); ok {
					links[r] = link{nodes: []relay.NodeID{end}, to: n.Inputs[0], move: move, scale: 1}
				}
			}
		}
		if n.Kind == relay.KindTupleGetItem && !f.allTaken(n.Inputs[0], links) {
			continue
		}
		for r, l := range links {
			r.links, r.depth = append(r.links, l), r.depth+1
		}
		if len(links) > 0 && fits(all) {
			return true
		}
		for r := range links {
			r.depth--
			r.links = r.links[:r.depth]
		}
	}
	return false
}

// fieldOfSplit is the link of a value that is a field of a tensor that was split.
func (f *attentionFinder) fieldOfSplit(id relay.NodeID) (l link, ok bool) {
	n := &f.g.Nodes[id]
	split := &f.g.Nodes[n.Inputs[0]]
	if split.Op != "split" || !seeable(n.Type) || !seeable(f.g.Nodes[split.Inputs[0]].Type) {
		return l, false
	}
	axis, ok := split.Attrs.Int("axis")
	if axis < 0 {
		axis += int64(len(n.Type.Shape))
	}
	if !ok || axis < 0 || axis >= int64(len(n.Type.Shape)) {
		return l, false
	}
	begin, extent := int64(0), n.Type.Shape[axis]
	for _, before := range split.Type.Fields[:n.Index] {
		begin += before.Shape[axis]
	}
	move := func(v view.View) (view.View, bool) { return v.Part(int(axis), begin, extent) }
	return link{nodes: []relay.NodeID{id, n.Inputs[0]}, to: split.Inputs[0], move: move, scale: 1}, true
}

// allTaken says that all that reads a tuple is taken by these links, and nothing else is.
func (f *attentionFinder) allTaken(tuple relay.NodeID, links map[*reach]link) bool {
	if f.g.ScopeRoot(tuple) {
		return false
	}
	for _, reader := range f.g.Consumers(tuple) {
		taken := false
		for _, l := range links {
			taken = taken || l.nodes[0] == reader
		}
		if !taken {
			return false
		}
	}
	return true
}

// mayMove says that there is one link more that may be taken.
func (r *reach) mayMove() bool {
	return r.depth < len(r.links) && (r.scales || r.links[r.depth].scale == 1)
}

// mustMove says that what is read cannot be read as it is, but perhaps as what it is made of: a query that was turned
// right before the product turns it back.
func (r *reach) mustMove() bool {
	v, ok := r.seen()
	if !ok || r.back {
		return !ok
	}
	stride, ok := view.Even(v.Axes[2])
	return !ok || stride > 1
}

// isReshape says that a node only gives a tensor other dimensions.
func isReshape(n *relay.Node) bool {
	switch n.Op {
	case "reshape", "nn.batch_flatten", "squeeze", "expand_dims", "contrib_reverse_reshape":
		return true
	}
	return false
}

// movement is how the result of an operator is seen that only says where its argument's numbers are.
func (f *attentionFinder) movement(n *relay.Node) (move, bool) {
	g := f.g
	if n.Kind != relay.KindCall || len(n.Inputs) == 0 || !seeable(n.Type) || !seeable(g.Nodes[n.Inputs[0]].Type) {
		return nil, false
	}
	shape, from := n.Type.Shape, g.Nodes[n.Inputs[0]].Type.Shape
	switch {
	case isReshape(n):
		return reshapedTo(shape), true
	case n.Op == "transpose":
		return permutedBy(onednn.TransposeAxes(n, len(from))), true
	case n.Op == "broadcast_to":
		return broadcastTo(shape), true
	case n.Op == "repeat":
		axis, ok := n.Attrs.Int("axis")
		times, timesOK := n.Attrs.Int("repeats")
		if axis < 0 {
			axis += int64(len(from))
		}
		if !ok || !timesOK || axis < 0 || axis >= int64(len(from)) {
			return nil, false
		}
		return func(v view.View) (view.View, bool) { return v.Repeated(int(axis), times), true }, true
	case n.Op == "take":
		axis, ok := n.Attrs.Int("axis")
		if axis < 0 {
			axis += int64(len(from))
		}
		_, index := f.constants.at(n.Inputs[1])
		if !ok || axis < 0 || axis >= int64(len(from)) || index == nil || len(index.Shape) != 0 ||
			index.Scalar < 0 || index.Scalar >= float64(from[axis]) {
			return nil, false
		}
		return func(v view.View) (view.View, bool) {
			part, ok := v.Part(int(axis), int64(index.Scalar), 1)
			if !ok {
				return v, false
			}
			return part.Reshaped(shape)
		}, true
	case n.Op == "tile":
		times, ok := n.Attrs.Ints("reps")
		if !ok || len(times) != len(from) {
			return nil, false
		}
		return func(v view.View) (view.View, bool) {
			for axis, t := range times {
				v = v.Tiled(axis, t)
			}
			return v, true
		}, true
	}
	return nil, false
}
