// SPDX-License-Identifier: Apache-2.0

// Package annotate writes a placement back into the module.
//
// What comes in: a graph's candidates and which of them were chosen. What goes out: the regions that they form
// (Regions), and a module in which each region of a backend other than TVM is a function of its own, exactly as TVM's
// MergeComposite and PartitionGraph would have made it (Module); TVM's share stays inline. Function makes one candidate
// a function for measuring.
package annotate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Region is a group of chosen candidates that is outlined as one function. It may have several outputs.
type Region struct {
	// Backend is the candidates' backend; where backends share the region (byoc.Cohabitant), the names of those that
	// do, sorted and joined with "+" ("dnnl+native"). What wants a backend goes by Compiler, or by a candidate.
	Backend  string
	Compiler string
	// Symbol is the function's global_symbol; "" until Module has named it.
	Symbol string
	Scope  relay.ScopeID
	// Candidates are indices into the set's candidates, in ascending order of their roots.
	Candidates []int
	// Nodes are all covered nodes, ascending.
	Nodes []relay.NodeID
	// Inputs are the values from outside that are no constants, in the order of first use; Constants are bound inside,
	// in the order of first use.
	Inputs, Constants []relay.NodeID
	// Outputs are the nodes whose values are used outside, ascending; each is an exit of a candidate.
	Outputs []relay.NodeID
	// Precisions are those of Candidates, in that order, byoc.PrecisionOf their backends; empty where all compute in the
	// network's own type.
	Precisions []byoc.Precision
	// Steps are the values, inputs or made inside, that candidates which compute in bytes read rounded.
	Steps map[relay.NodeID]rounding.Steps
	// Given are those of Steps, ascending, that are made inside and rounded for all who read them, outside of the region
	// as well (byoc.GivesRounded).
	Given []relay.NodeID
	// Shifts are what is taken off the biases behind products, a number for each of their channels (Bias).
	Shifts map[relay.NodeID][]float32
}

// Regions forms the regions of a placement: the chosen candidates of each backend with a compiler, neighbours on
// backends that merge regions and have the same compiler joined as long as the graph of regions and remaining nodes
// stays without a cycle (two regions that each need a result of the other could not be run). chosen are indices into
// the set's candidates; a backend that byName does not know has no compiler. The regions come in the order of their
// last nodes.
func Regions(set *candidate.Set, chosen []int, byName map[string]byoc.Backend) []Region {
	return RegionsWhere(set, chosen, byName, nil)
}

// RegionsWhere is Regions where not all neighbours may be joined: join says of two chosen candidates (a value of the
// first is read by the second) whether they may share a region. nil allows it always.
func RegionsWhere(set *candidate.Set, chosen []int, byName map[string]byoc.Backend,
	join func(producer, user int) bool) []Region {
	order := slices.Clone(chosen)
	slices.SortFunc(order, func(a, b int) int { return int(set.Candidates[a].Root - set.Candidates[b].Root) })
	q := relay.NewQuotient(set.Graph)
	owner := make([]int, len(set.Graph.Nodes)) // 1 + the candidate that covers a node in a region
	outlined := order[:0]
	for _, i := range order {
		c := &set.Candidates[i]
		b := byName[c.Backend]
		if b == nil || b.Compiler() == "" || c.Free {
			continue
		}
		outlined = append(outlined, i)
		for _, v := range c.Nodes {
			owner[v] = i + 1
		}
		if len(c.Exits) == 0 {
			q.Contract(c.Nodes)
		}
	}
	for _, i := range outlined {
		// Whoever chose them saw to it that they do not need each other's results (place.QuotientAcyclic).
		if c := &set.Candidates[i]; len(c.Exits) > 0 && !q.Unite(c.Nodes...) {
			panic(fmt.Sprintf("annotate: the chosen candidate %s needs its own results through another one",
				c.Label(set.Graph)))
		}
	}
	for _, i := range outlined {
		c := &set.Candidates[i]
		for _, in := range c.Inputs {
			if set.Graph.Nodes[in].Scope != c.Scope || owner[in] == 0 {
				continue
			}
			producer := owner[in] - 1
			if byoc.ShareRegions(byName[set.Candidates[producer].Backend], byName[c.Backend]) &&
				(join == nil || join(producer, i)) {
				q.Unite(in, c.Root)
			}
		}
	}
	at := map[relay.NodeID]int{}
	var regions []Region
	for _, i := range outlined {
		c := &set.Candidates[i]
		top := q.Find(c.Root)
		k, ok := at[top]
		if !ok {
			k = len(regions)
			at[top] = k
			regions = append(regions, Region{Compiler: byName[c.Backend].Compiler(), Scope: c.Scope})
		}
		regions[k].Candidates = append(regions[k].Candidates, i)
		regions[k].Precisions = append(regions[k].Precisions, byoc.PrecisionOf(byName[c.Backend]))
		regions[k].Nodes = append(regions[k].Nodes, c.Nodes...)
	}
	for k := range regions {
		slices.Sort(regions[k].Nodes)
		regions[k].Backend = BackendNames(set, regions[k].Candidates)
		regions[k].Border(set.Graph)
	}
	slices.SortFunc(regions, func(a, b Region) int {
		return int(a.Nodes[len(a.Nodes)-1] - b.Nodes[len(b.Nodes)-1])
	})
	return regions
}

// precision is in what a region's i-th candidate computes.
func (r *Region) precision(i int) byoc.Precision {
	if len(r.Precisions) == 0 {
		return byoc.F32
	}
	return r.Precisions[i]
}

// BackendNames is Region.Backend of a region of these candidates.
func BackendNames(set *candidate.Set, candidates []int) string {
	var names []string
	for _, k := range candidates {
		names = append(names, set.Candidates[k].Backend)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "+")
}

// Border fills in what crosses the region's border, by its Nodes: Inputs, Constants and Outputs.
func (r *Region) Border(g *relay.Graph) {
	r.Inputs, r.Constants = g.Boundary(r.Nodes)
	inside := func(v relay.NodeID) bool {
		_, ok := slices.BinarySearch(r.Nodes, v)
		return ok
	}
	for _, v := range r.Nodes {
		if g.ScopeRoot(v) || slices.ContainsFunc(g.Consumers(v), func(c relay.NodeID) bool { return !inside(c) }) {
			r.Outputs = append(r.Outputs, v)
		}
	}
}

// Sides says where the regions of a graph are, for package border: region i of the list is number i+1, what is in none
// of them stays inline. One whose side is that of what stays inline counts as a part of it.
func Sides(g *relay.Graph, regions []Region, inline border.Side, side func(r *Region) border.Side) *border.Regions {
	out := &border.Regions{Of: make([]int32, len(g.Nodes)), Sides: []border.Side{inline}}
	for i := range regions {
		at := side(&regions[i])
		out.Sides = append(out.Sides, at)
		if at == inline {
			continue
		}
		for _, v := range regions[i].Nodes {
			out.Of[v] = int32(i + 1)
		}
	}
	return out
}
