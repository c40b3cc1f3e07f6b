// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"math/rand/v2"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Cross makes a genome of two: outside of a stretch of the network that of a, inside it that of b. The ends of the
// stretch are cuts that as few regions of the two as can be stand across, and where as few values as can be are carried
// over: elsewhere both parents' regions would be torn.
func (s *Space) Cross(a, b *Placement, r *rand.Rand) Genome {
	g := a.Genome.Clone()
	offset := int32(0)
	for _, genes := range g {
		for _, gene := range genes {
			offset = max(offset, gene.Colour)
		}
	}
	i := s.anyFunction(r)
	cuts := s.cuts(i, a, b)
	from, to := cuts[r.IntN(len(cuts))], cuts[r.IntN(len(cuts))]
	if from > to {
		from, to = to, from
	}
	if from == to {
		to = len(g[i])
	}
	for v := from; v < to; v++ {
		gene := b.Genome[i][v]
		if gene.Colour > 0 {
			gene.Colour += offset // colours of the one mean nothing to the other
		}
		g[i][v] = gene
	}
	return g
}

// anyFunction picks a function, the larger the sooner.
func (s *Space) anyFunction(r *rand.Rand) int {
	total := 0
	for i := range s.Functions {
		total += len(s.Functions[i].Set.Graph.Nodes)
	}
	at := r.IntN(total)
	for i := range s.Functions {
		if at -= len(s.Functions[i].Set.Graph.Nodes); at < 0 {
			return i
		}
	}
	return 0
}

// cuts are the places p in the order of a function's nodes (the nodes before p, and the others) that tear least, a
// quarter of all places but at least one; ascending.
func (s *Space) cuts(function int, placements ...*Placement) []int {
	g := s.Functions[function].Set.Graph
	n := len(g.Nodes)
	// change[p] is by how much more is torn at p than at p-1.
	change := make([]int, n+2)
	span := func(first, last relay.NodeID, weight int) {
		if first < last {
			change[first+1] += weight
			change[last+1] -= weight
		}
	}
	const region, value = 16, 1
	for _, p := range placements {
		for _, r := range p.Regions[function] {
			span(r.Nodes[0], r.Nodes[len(r.Nodes)-1], region)
		}
	}
	for v := range n {
		id := relay.NodeID(v)
		if users := g.Consumers(id); len(users) > 0 && g.Placeable(id) {
			span(id, slices.Max(users), value)
		}
	}
	type place struct{ at, torn int }
	places := make([]place, 0, n)
	torn := 0
	for p := 1; p < n; p++ {
		torn += change[p]
		if g.Placeable(relay.NodeID(p)) {
			places = append(places, place{p, torn})
		}
	}
	if len(places) == 0 {
		return []int{0}
	}
	slices.SortStableFunc(places, func(a, b place) int { return a.torn - b.torn })
	cuts := make([]int, 0, 1+len(places)/4)
	for _, p := range places[:1+len(places)/4] {
		cuts = append(cuts, p.at)
	}
	slices.Sort(cuts)
	return cuts
}
