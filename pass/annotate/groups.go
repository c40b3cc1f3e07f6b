// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Group is a Composite function of a region, or an operator of it that stands by itself.
type Group struct {
	// Name is the Composite function's or the operator's.
	Name string
	// Precision is what it is computed in.
	Precision byoc.Precision
	// Nodes are the nodes of the graph around the region that it is made of, ascending; none for what rounds a value
	// (Region.Steps).
	Nodes []relay.NodeID
	// Given says of what rounds a value that it does so for all, right behind who makes it (Region.Given).
	Given bool
}

// Groups are what a region's function consists of, in the order in which code generators meet them (byoc/region): from
// the results, in order, arguments before those who use them. What an engine says about the parts of a region it says
// by these numbers.
func Groups(set *candidate.Set, r *Region) []Group {
	composite := map[relay.NodeID]*candidate.Candidate{}
	precision := map[relay.NodeID]byoc.Precision{}
	for i, k := range r.Candidates {
		c := &set.Candidates[k]
		if c.Composite != "" && !c.Bare {
			composite[c.Root] = c
		}
		for _, v := range c.Nodes {
			precision[v] = r.precision(i)
		}
	}
	var groups []Group
	var loose []relay.NodeID // tuples and projections, which go with who uses them
	add := func(name string, by byoc.Precision, nodes ...relay.NodeID) {
		sorted := slices.Sorted(slices.Values(slices.Concat(loose, nodes)))
		groups = append(groups, Group{Name: name, Precision: by, Nodes: sorted})
		loose = nil
	}
	round := func(given bool) {
		for _, name := range []string{"qnn.quantize", "qnn.dequantize"} {
			groups = append(groups, Group{Name: name, Precision: byoc.INT8, Given: given})
		}
	}
	seen, rounded := map[relay.NodeID]bool{}, map[relay.NodeID]bool{}
	var visit func(v relay.NodeID)
	read := func(reader relay.NodeID, values []relay.NodeID) {
		for _, v := range values {
			visit(v)
			if _, steps := r.Steps[v]; steps && precision[reader] == byoc.INT8 && !rounded[v] {
				rounded[v] = true
				round(false)
			}
		}
	}
	visit = func(v relay.NodeID) {
		if _, inside := slices.BinarySearch(r.Nodes, v); !inside || seen[v] {
			return
		}
		seen[v] = true
		if c := composite[v]; c != nil {
			read(v, arguments(set.Graph, c))
			add(c.Composite, precision[v], c.Nodes...)
			return
		}
		n := &set.Graph.Nodes[v]
		read(v, n.Inputs)
		if n.Kind != relay.KindCall {
			loose = append(loose, v)
			return
		}
		add(n.Op, precision[v], v)
		if slices.Contains(r.Given, v) {
			rounded[v] = true
			round(true)
		}
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

// precisionsOf is what region.PrecisionsAttr says of a region; "" where all of it is computed in the network's own
// type.
func precisionsOf(set *candidate.Set, r *Region) string {
	if !slices.ContainsFunc(r.Precisions, func(p byoc.Precision) bool { return p != byoc.F32 }) {
		return ""
	}
	var words []string
	for _, group := range Groups(set, r) {
		words = append(words, string(group.Precision))
	}
	return strings.Join(words, " ")
}
