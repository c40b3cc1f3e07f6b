// SPDX-License-Identifier: Apache-2.0

package native

import (
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/view"
	"github.com/collage-tvm/collage/relay"
)

// Attention is the composite of softmax(masked(scale * query key^T)) value, with what only moves numbers around it;
// AttentionKernel is the kernel that does it in one step (byoc/runtime/native/attention.h). It is proposed and not
// matched: the same may be written in too many ways.
//
// CausalAttention is the same with a mask of which the kernel leaves out what is beyond the triangle: another name, as
// it takes another time.
const (
	Attention       = "native.attention"
	CausalAttention = "native.attention_causal"
	AttentionKernel = "attention"
)

// AttentionLayer is one attention as the kernel does it.
type AttentionLayer struct {
	// Query, Key and Value are seen as [products, rows, columns]: the product of batch and heads, queries or keys,
	// numbers.
	Query, Key, Value Side
	// Masks are seen as [products, queries, keys], in the order in which they are done.
	Masks []Mask
	Scale float64
	// Cleared says that the weights of a query become 0 where they are no numbers: it sees no key.
	Cleared bool
	// Root is the node whose value is the result; Result is how the product with the values lies in it.
	Root   relay.NodeID
	Result Side
	// Nodes are the operators that it is made of, ascending.
	Nodes []relay.NodeID
}

// Side is a tensor that attention reads or writes: the value of a node, and how that is seen.
type Side struct {
	Of    relay.NodeID
	moves []move
}

// move is how what one operator makes is seen, where its argument is seen so; ok is false where it cannot be.
type move func(v view.View) (out view.View, ok bool)

// Seen is the side, where the node's value is seen so.
func (s Side) Seen(v view.View) (view.View, bool) {
	for _, move := range s.moves {
		var ok bool
		if v, ok = move(v); !ok {
			return v, false
		}
	}
	return v, true
}

// Placement is a tensor as the kernel sees it: batch, groups of heads, heads of a group, rows, columns.
type Placement struct {
	Dims, Strides []int64
	Offset        int64
}

// Place says how the kernel sees query, key, value, result and masks, in this order, that are seen so as AttentionLayer
// says. ok is false where it does not work so: batch and heads must be three axes or fewer of even strides, columns of
// query and result must follow one another, those of a mask too or be one.
func Place(sides []view.View) (placed []Placement, ok bool) {
	products := view.Extent(sides[0].Axes[0])
	outer, ok := levels(products, sides)
	if !ok {
		return nil, false
	}
	for i, s := range sides {
		apart, ok := (view.View{Axes: s.Axes[:1]}).Reshaped(outer)
		if !ok {
			return nil, false
		}
		p := Placement{Dims: slices.Clone(outer), Offset: s.Offset}
		for _, axis := range slices.Concat(apart.Axes, s.Axes[1:]) {
			stride, ok := view.Even(axis)
			if !ok {
				return nil, false
			}
			p.Strides = append(p.Strides, stride)
		}
		p.Dims = append(p.Dims, view.Extent(s.Axes[1]), view.Extent(s.Axes[2]))
		column := p.Strides[4]
		switch isMask := i > 3; {
		case i == 0 || i == 3:
			if column != 1 && p.Dims[4] > 1 {
				return nil, false
			}
		case isMask && column > 1:
			return nil, false
		}
		placed = append(placed, p)
	}
	return placed, true
}

// levels divides the products into three axes, so that no tensor's strides change within one of them.
func levels(products int64, sides []view.View) (outer []int64, ok bool) {
	cuts := []int64{products}
	for _, s := range sides {
		inner := int64(1)
		factors := view.Joined(s.Axes[0])
		for i := len(factors) - 1; i > 0; i-- {
			inner *= factors[i].Extent
			cuts = append(cuts, inner)
		}
	}
	slices.Sort(cuts)
	inner := int64(1)
	for _, cut := range slices.Compact(cuts) {
		if cut == inner {
			continue
		}
		if cut%inner != 0 {
			return nil, false
		}
		outer = append([]int64{cut / inner}, outer...)
		inner = cut
	}
	switch len(outer) {
	case 0:
		return []int64{1, 1, 1}, true
	case 1:
		return []int64{1, 1, outer[0]}, true
	case 2:
		return []int64{outer[0], 1, outer[1]}, true
	case 3:
		return outer, true
	}
	return nil, false
}

// attentions proposes each attention of a graph.
func attentions(g *relay.Graph) []byoc.Proposal {
	var found []byoc.Proposal
	for i := range g.Nodes {
		if layer := attentionAt(g, relay.NodeID(i), constantsOf(g)); layer != nil {
			proposal := byoc.Proposal{Composite: Attention, Kernel: AttentionKernel, Nodes: layer.Nodes}
			if slices.ContainsFunc(layer.Masks, func(m Mask) bool { return m.Triangle }) {
				proposal.Composite, proposal.OwnConstants = CausalAttention, true
			}
			found = append(found, proposal)
		}
	}
	return found
}

// ReadAttention is the attention that is made of just these operators; nil where they are none. constant is the
// constant that a node stands for, NoNode for none: within a composite function it may be a parameter.
func ReadAttention(g *relay.Graph, nodes []relay.NodeID, constant func(relay.NodeID) relay.NodeID) *AttentionLayer {
	nodes = slices.Sorted(slices.Values(nodes))
	// Fields of tuples are no operators.
	isNone := func(id relay.NodeID) bool { return g.Nodes[id].Kind != relay.KindCall }
	c := constantsOf(g)
	c.node = constant
	for _, id := range nodes {
		layer := attentionAt(g, id, c)
		if layer != nil && slices.Equal(slices.DeleteFunc(slices.Clone(layer.Nodes), isNone), nodes) {
			return layer
		}
	}
	return nil
}
