// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"slices"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Group is a Composite function of a region, or an operator of it that stands by itself.
type Group struct {
	// Name is the Composite function's or the operator's.
	Name string
	// Nodes are the nodes of the graph around the region that it is made of, ascending; none for what rounds a value
	// (Region.Steps).
	Nodes []relay.NodeID
}

// Groups are what a region's function consists of, in the order in which code generators meet them (byoc/region): from
// the results, in order, arguments before those who use them. What an engine says about the parts of a region it says
// by these numbers.
func Groups(set *candidate.Set, r *Region) []Group {
	composite := map[relay.NodeID]*candidate.Candidate{}
	for _, k := range r.Candidates {
		if c := &set.Candidates[k]; c.Composite != "" && !c.Bare {
			composite[c.Root] = c
		}
	}
	var groups []Group
	var loose []relay.NodeID // tuples and projections, which go with who uses them
	seen := map[relay.NodeID]bool{}
	var visit func(v relay.NodeID)
	visit = func(v relay.NodeID) {
		if seen[v] {
			return
		}
		seen[v] = true
		if _, rounded := r.Steps[v]; rounded {
			defer func() { groups = append(groups, Group{"qnn.quantize", nil}, Group{"qnn.dequantize", nil}) }()
		}
		if _, inside := slices.BinarySearch(r.Nodes, v); !inside {
			return
		}
		if c := composite[v]; c != nil {
			for _, in := range arguments(set.Graph, c) {
				visit(in)
			}
			groups = append(groups, Group{c.Composite, slices.Sorted(slices.Values(slices.Concat(loose, c.Nodes)))})
			loose = nil
			return
		}
		n := &set.Graph.Nodes[v]
		for _, in := range n.Inputs {
			visit(in)
		}
		if n.Kind != relay.KindCall {
			loose = append(loose, v)
			return
		}
		groups = append(groups, Group{n.Op, slices.Sorted(slices.Values(append(loose, v)))})
		loose = nil
	}
	for _, v := range r.Outputs {
		visit(v)
	}
	if len(loose) > 0 && len(groups) > 0 {
		of := len(groups) - 1
		for of > 0 && len(groups[of].Nodes) == 0 {
			of--
		}
		last := &groups[of]
		last.Nodes = slices.Sorted(slices.Values(slices.Concat(last.Nodes, loose)))
	}
	return groups
}
