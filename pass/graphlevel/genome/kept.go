// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// kept are the candidates of the regions of which a genome says all: every gene is that of the placement whose own the
// genome is, or was before a move made another one elsewhere. Colours alone do not say which candidates make a region,
// least of all where some have several exits, and costs, which would decide, change while a search goes on. Where a
// gene of a region is another one, or one of its candidates must not be taken any more, the costs do decide.
func (s *Space) kept(i int, genes []Gene) []int {
	type region struct {
		backend int16
		colour  int32
	}
	f := &s.Functions[i]
	size, touched := map[region]int32{}, map[region]bool{}
	type part struct {
		of        region
		candidate int
	}
	nodes := map[part]int{} // how many of a region say that a candidate has them
	for v, gene := range genes {
		if !f.Tree.Needs[v] || gene.Colour == 0 {
			continue
		}
		at := region{gene.Backend, gene.Colour}
		size[at]++
		if gene.Taken < 1 || int(gene.Taken) > len(f.Set.Candidates) {
			touched[at] = true
			continue
		}
		nodes[part{at, int(gene.Taken) - 1}]++
	}
	for v, gene := range genes {
		at := region{gene.Backend, gene.Colour}
		if !f.Tree.Needs[v] || gene.Colour == 0 || touched[at] {
			continue
		}
		k := int(gene.Taken) - 1
		c := &f.Set.Candidates[k]
		_, has := slices.BinarySearch(c.Nodes, relay.NodeID(v))
		if !has || nodes[part{at, k}] != len(c.Nodes) || gene.Region != size[at] || s.index[c.Backend] != gene.Backend ||
			math.IsInf(f.Costs[k], 1) || s.variants[i][k].against(genes[c.Root]) {
			touched[at] = true
		}
	}
	var list []int
	for p := range nodes {
		if !touched[p.of] {
			list = append(list, p.candidate)
		}
	}
	slices.Sort(list)
	return list
}

// around places what the kept candidates of a function leave over, by options; false where there are none, or where
// what is left over cannot be placed around them.
func (s *Space) around(i int, kept []int, options []place.Option) (chosen []int, done bool) {
	if len(kept) == 0 {
		return nil, false
	}
	f := &s.Functions[i]
	taken := make([]bool, len(f.Tree.Needs))
	for _, k := range kept {
		for _, v := range f.Set.Candidates[k].Nodes {
			taken[v] = true
		}
	}
	isTaken := func(v relay.NodeID) bool { return taken[v] }
	rest := &place.Tree{Parent: slices.Clone(f.Tree.Parent), Needs: slices.Clone(f.Tree.Needs)}
	for v := range rest.Parent {
		if taken[v] {
			rest.Needs[v] = false
		}
		if p := rest.Parent[v]; taken[v] || p != relay.NoNode && taken[p] {
			rest.Parent[v] = relay.NoNode // a candidate with one exit that is left has no part of it beyond
		}
	}
	if f.Tree.Reads != nil {
		rest.Reads = slices.Clone(f.Tree.Reads)
		for v := range rest.Reads {
			if taken[v] {
				rest.Reads[v] = nil
			} else {
				rest.Reads[v] = slices.DeleteFunc(slices.Clone(rest.Reads[v]), isTaken)
			}
		}
	}
	var index []int
	var free []place.Option
	for k := range options {
		if !slices.ContainsFunc(options[k].Nodes, isTaken) {
			index, free = append(index, k), append(free, options[k])
		}
	}
	placed, err := place.SolveWithin(free, rest, decodeEffort)
	if err != nil {
		return nil, false
	}
	chosen = slices.Clone(kept)
	for _, k := range placed.Chosen {
		chosen = append(chosen, index[k])
	}
	slices.SortFunc(chosen, func(a, b int) int { return int(f.Set.Candidates[a].Root - f.Set.Candidates[b].Root) })
	var several [][]relay.NodeID
	for _, k := range chosen {
		if c := &f.Set.Candidates[k]; len(c.Exits) > 0 {
			several = append(several, c.Nodes)
		}
	}
	// What was placed does not know what goes through the kept ones.
	if len(several) > 0 && place.QuotientAcyclic(place.ReadsOf(f.Set.Graph), several) != nil {
		return nil, false
	}
	return chosen, true
}
