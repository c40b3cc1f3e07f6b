// SPDX-License-Identifier: Apache-2.0

package tvm

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Propose implements byoc.Proposer. TVM fuses what is left of a group when another backend takes a part of it. Where
// that part was learnt to be faster over there than here, the rest is proposed, so that its cost is known too: cutting
// each large group in all ways beforehand would cost more than it gives.
func (backend) Propose(g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	here := map[string]float64{} // by nodes
	var groups [][]relay.NodeID
	for _, l := range learnt {
		if l.Backend == Name {
			here[key(l.Nodes)] = l.Milliseconds
			if len(l.Nodes) > 1 && !math.IsInf(l.Milliseconds, 1) {
				groups = append(groups, l.Nodes)
			}
		}
	}
	var proposals []byoc.Proposal
	seen := map[string]bool{}
	for _, l := range learnt {
		mine, known := here[key(l.Nodes)]
		if l.Backend == Name || math.IsInf(l.Milliseconds, 1) || known && mine <= l.Milliseconds {
			continue
		}
		for _, group := range groups {
			for _, rest := range rests(g, group, l.Nodes) {
				if k := key(rest); !seen[k] {
					seen[k] = true
					proposals = append(proposals, byoc.Proposal{Nodes: rest})
				}
			}
		}
	}
	return proposals
}

// rests gives what is left of a group without a part that overlaps it: the pieces that hang together, each ascending.
func rests(g *relay.Graph, group, part []relay.NodeID) [][]relay.NodeID {
	taken := func(v relay.NodeID) bool { _, ok := slices.BinarySearch(part, v); return ok }
	left := slices.DeleteFunc(slices.Clone(group), taken)
	if len(left) == len(group) {
		return nil
	}
	piece := map[relay.NodeID]relay.NodeID{} // a node's piece, named after its greatest node
	tree := g.PostDominators()
	for _, v := range slices.Backward(left) {
		piece[v] = v
		if up, ok := piece[tree.Parent(v)]; ok {
			piece[v] = up
		}
	}
	byTop := map[relay.NodeID][]relay.NodeID{}
	var tops []relay.NodeID
	for _, v := range left {
		byTop[piece[v]] = append(byTop[piece[v]], v)
		if piece[v] == v {
			tops = append(tops, v)
		}
	}
	pieces := make([][]relay.NodeID, len(tops))
	for i, v := range tops {
		pieces[i] = byTop[v]
	}
	return pieces
}

func key(nodes []relay.NodeID) string { return fmt.Sprint(nodes) }
