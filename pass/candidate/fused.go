// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// cutAll is the size of a fused group up to which all ways are proposed in which one candidate of another backend
// could cut it; a larger one (a long run of elementwise operators) is proposed whole and with everything cut off
// that the others could take.
const cutAll = 32

// addFused proposes on backend number b, which is TVM, the groups that TVM's FuseOps makes. TVM's share of a
// network stays inline, so what FuseOps fuses is what runs: where another backend takes a part of a group, the
// rest is still fused. So beside the whole group G, with v topping a part of it:
//
//   - all of G below v, where another backend may take what follows v;
//   - that less all of G below some u, where another backend may deliver u's value.
func (p *proposer) addFused(b int, others []Candidate) {
	if p.opts.OpPattern == nil {
		return
	}
	tree := p.g.PostDominators()
	follows := make([]bool, len(p.g.Nodes))  // another backend's candidate begins right behind this node
	delivers := make([]bool, len(p.g.Nodes)) // another backend's candidate ends with this node
	inside := make([]int32, len(p.g.Nodes))
	for i := range others {
		nodes := others[i].Nodes
		for _, v := range nodes {
			inside[v] = int32(i) + 1
		}
		for _, v := range others[i].Results() {
			delivers[v] = true
		}
		for _, v := range nodes {
			for _, c := range tree.Children(v) {
				if inside[c] != int32(i)+1 {
					follows[c] = true
				}
			}
		}
	}

	top := make([]relay.NodeID, len(p.g.Nodes)) // the group's root, for nodes of the group at hand
	for i := range top {
		top[i] = relay.NoNode
	}
	for _, group := range p.fuse() {
		root := group[len(group)-1]
		for _, v := range group {
			top[v] = root
		}
		// below gives the part of the group that v tops, less the parts that the nodes in cut top; ascending.
		below := func(v relay.NodeID, cut func(relay.NodeID) bool) []relay.NodeID {
			part := []relay.NodeID{v}
			for i := 0; i < len(part); i++ {
				for _, c := range tree.Children(part[i]) {
					if top[c] == root && !cut(c) {
						part = append(part, c)
					}
				}
			}
			slices.Sort(part)
			return part
		}
		for _, v := range group {
			if v != root && (!follows[v] || len(group) > cutAll) {
				continue
			}
			whole := below(v, func(relay.NodeID) bool { return false })
			p.addGroup(b, whole)
			p.addGroup(b, below(v, func(c relay.NodeID) bool { return delivers[c] }))
			if len(whole) > cutAll {
				continue
			}
			for _, u := range whole {
				if u != v && delivers[u] {
					p.addGroup(b, below(v, func(c relay.NodeID) bool { return c == u }))
				}
			}
		}
	}
}

// addGroup proposes a part of a fused group if it holds more than one operator; single ones are there already.
// Projections that only bring in a field of a tuple from outside are left outside, so that the group is handed
// the tensor.
func (p *proposer) addGroup(b int, nodes []relay.NodeID) {
	nodes = slices.DeleteFunc(nodes, func(v relay.NodeID) bool {
		if p.g.Nodes[v].Kind != relay.KindTupleGetItem || v == nodes[len(nodes)-1] {
			return false
		}
		_, ok := slices.BinarySearch(nodes, p.g.Nodes[v].Inputs[0])
		return !ok
	})
	operators := 0
	for _, v := range nodes {
		if p.class[v] == operator {
			operators++
		}
	}
	if operators > 1 && Check(p.g, nodes) == nil {
		p.add(b, byoc.Proposal{Nodes: nodes})
	}
}
