// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"cmp"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// exchangeEffort bounds what Exchanges looks at, in nodes that are covered anew, and then in nodes of regions that are
// formed anew: half a second each. What is closest by its own costs has its turn first.
const exchangeEffort = 500_000

// exchange is a placement with one candidate in the place of those that it overlaps.
type exchange struct {
	candidate int
	chosen    []int
	// own is by how much the candidates' own costs are more, in milliseconds.
	own float64
}

// Exchanges say for each candidate of a function that a placement has not by how many milliseconds the placement would
// take more with it in the place of those that it overlaps, by the options' costs and by what is paid between the
// regions that form then (Border): below 0 where it would take less. What is left of the overlapped ones is covered as
// cheaply as its own costs allow. NaN for the chosen ones, for those that cost nothing or must not be taken, where
// there is no such placement, and where the effort did not suffice.
func (s *Space) Exchanges(p *Placement, i int, options []place.Option) []float64 {
	f := &s.Functions[i]
	more := slices.Repeat([]float64{math.NaN()}, len(options))
	list := s.exchanges(p.Chosen[i], f, options)
	slices.SortStableFunc(list, func(a, b exchange) int { return cmp.Compare(a.own, b.own) })
	home := map[int]int{} // the region of each chosen candidate that is outlined, from 1
	for n := range p.Regions[i] {
		for _, k := range p.Regions[i][n].Candidates {
			home[k] = n + 1
		}
	}
	taken := map[int]bool{}
	for _, k := range p.Chosen[i] {
		taken[k] = true
	}
	borders := s.Borders(i)
	borders.Regions = func(chosen []int) *border.Regions {
		return s.sides(i, annotate.RegionsWhere(f.Set, chosen, s.byName, func(producer, user int) bool {
			return !taken[producer] || !taken[user] || home[producer] == home[user]
		}))
	}
	problem := &place.Problem{Tree: f.Tree, Options: options, Reads: place.ReadsOf(f.Set.Graph), Borders: borders}
	now, err := problem.Cost(p.Chosen[i])
	if err != nil {
		return more
	}
	left := exchangeEffort
	for _, e := range list {
		if left -= len(f.Set.Graph.Nodes); left < 0 {
			break
		}
		if then, err := problem.Cost(e.chosen); err == nil {
			more[e.candidate] = float64(then-now) / 1e9
		}
	}
	return more
}

// exchanges are those that cover all that the chosen candidates do.
func (s *Space) exchanges(chosen []int, f *Function, options []place.Option) []exchange {
	owner := make([]int, len(f.Tree.Needs)) // 1 + the chosen candidate that has a node
	for _, k := range chosen {
		for _, v := range options[k].Nodes {
			owner[v] = k + 1
		}
	}
	byRoot := make([][]int, len(owner))
	for k := range options {
		if root := options[k].Nodes[len(options[k].Nodes)-1]; !math.IsInf(options[k].Cost, 1) {
			byRoot[root] = append(byRoot[root], k)
		}
	}
	var list []exchange
	for _, r := range replacements(chosen, owner, f, options) {
		e := exchange{candidate: r.candidate, own: options[r.candidate].Cost}
		for _, at := range r.over {
			e.own -= options[at].Cost
		}
		cover, cost, done := covered(f.Set, f.Tree, r.rest, byRoot, options)
		if !done {
			continue
		}
		e.own += cost
		e.chosen = append(append(slices.DeleteFunc(slices.Clone(chosen),
			func(c int) bool { return slices.Contains(r.over, c) }), r.candidate), cover...)
		list = append(list, e)
	}
	return list
}

// replacement is a candidate that is not chosen, those chosen ones that it overlaps, and what is left of these.
type replacement struct {
	candidate int
	over      []int
	rest      []relay.NodeID
}

// replacements are those that exchangeEffort suffices for, in nodes that are left and must be covered anew: of one
// candidate that is chosen for a whole network there are as many as there are candidates, each with nearly all nodes.
// Where it does not suffice for all, those come first that have the least to lose: the candidate's cost beyond the
// prices of its nodes (place.Solution.Prices), which is what it adds at least to the cheapest cover without those that
// are chosen.
func replacements(chosen, owner []int, f *Function, options []place.Option) []replacement {
	var list []replacement
	effort := 0
	for k := range options {
		if f.Set.Candidates[k].Free || math.IsInf(options[k].Cost, 1) || slices.Contains(chosen, k) {
			continue
		}
		r := replacement{candidate: k}
		for _, v := range options[k].Nodes {
			if at := owner[v] - 1; at >= 0 && !slices.Contains(r.over, at) {
				r.over = append(r.over, at)
			}
		}
		for _, at := range r.over {
			effort += len(options[at].Nodes)
		}
		list = append(list, r)
	}
	if effort > exchangeEffort {
		others := slices.Clone(options)
		for _, k := range chosen {
			others[k].Cost = math.Inf(1)
		}
		if cheapest, err := (place.TreeSolver{}).Solve(others, f.Tree); err == nil {
			beyond := func(r replacement) float64 {
				more := options[r.candidate].Cost
				for _, v := range options[r.candidate].Nodes {
					more -= cheapest.Prices[v]
				}
				return more
			}
			slices.SortStableFunc(list, func(a, b replacement) int { return cmp.Compare(beyond(a), beyond(b)) })
		}
	}
	left := exchangeEffort
	for i := range list {
		r := &list[i]
		for _, at := range r.over {
			left -= len(options[at].Nodes)
			for _, v := range options[at].Nodes {
				if _, in := slices.BinarySearch(options[r.candidate].Nodes, v); !in {
					r.rest = append(r.rest, v)
				}
			}
		}
		if left < 0 {
			return list[:i]
		}
	}
	return list
}

// covered covers nodes with candidates that have no others, as cheaply as may be by their own costs; false where
// nothing does.
func covered(set *candidate.Set, tree *place.Tree, nodes []relay.NodeID, byRoot [][]int, options []place.Option) (
	chosen []int, cost float64, done bool) {
	if len(nodes) == 0 {
		return nil, 0, true
	}
	slices.Sort(nodes)
	part := &place.Tree{Parent: slices.Repeat([]relay.NodeID{relay.NoNode}, len(tree.Parent)),
		Needs: make([]bool, len(tree.Needs))}
	for _, v := range nodes {
		part.Needs[v] = true
	}
	var within []place.Option
	var index []int
	for _, v := range nodes {
		if up := tree.Parent[v]; up != relay.NoNode && part.Needs[up] {
			part.Parent[v] = up
		}
		for _, k := range byRoot[v] {
			// With several exits it may be no subtree of what is left.
			if len(set.Candidates[k].Exits) == 0 &&
				!slices.ContainsFunc(options[k].Nodes, func(v relay.NodeID) bool { return !part.Needs[v] }) {
				within, index = append(within, options[k]), append(index, k)
			}
		}
	}
	placed, err := place.TreeSolver{}.Solve(within, part)
	if err != nil {
		return nil, 0, false
	}
	for _, k := range placed.Chosen {
		chosen = append(chosen, index[k])
	}
	return chosen, placed.Cost, true
}
