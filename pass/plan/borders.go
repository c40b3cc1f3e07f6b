// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// validateBorders says which border is that of no value, or costs what nothing can cost.
func (p *Plan) validateBorders(functions map[string]Function, covered map[at]int) error {
	read := map[at]bool{}
	for i := range p.Regions {
		f := p.Regions[i].Function
		for _, c := range p.Regions[i].Candidates {
			for _, n := range c.Nodes {
				before := -1
				for _, u := range n.Reads {
					if u <= before || u >= n.Index {
						return fmt.Errorf("plan: region %d: %%%d reads %v, which are not ascending nodes before it", i,
							n.Index, n.Reads)
					}
					read[at{f, u}], before = true, u
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, b := range p.Borders {
		id := fmt.Sprint(b.Function, " ", b.Value, " ", b.Backend)
		where := at{b.Function, b.Value}
		_, there := covered[where]
		_, listed := functions[b.Function]
		switch {
		case !listed || !there && !read[where] || p.Backend(b.Backend) == nil || seen[id]:
			return fmt.Errorf("plan: the border of %%%d of function %s at %s is that of no value, or stands twice",
				b.Value, b.Function, b.Backend)
		case p.Backend(b.Backend).Compiler == "" && b.In+b.Out != 0:
			return fmt.Errorf("plan: the border of %%%d of function %s at %s costs something, but what is on %s stays "+
				"inline", b.Value, b.Function, b.Backend, b.Backend)
		case !(b.In >= 0 && b.Out >= 0) || math.IsInf(b.In+b.Out, 1):
			return fmt.Errorf("plan: the border of %%%d of function %s at %s costs %v and %v ms", b.Value, b.Function,
				b.Backend, b.In, b.Out)
		}
		seen[id] = true
	}
	return nil
}

// inlineSide is the side of what stays inline, whose borders cost nothing where backends declare theirs.
const inlineSide border.Side = -1

// flow gives back who reads what in a function.
func (p *Plan) flow(f Function) *border.Flow {
	flow := &border.Flow{Readers: make([][]relay.NodeID, f.Nodes), Made: make([]bool, f.Nodes),
		Result: make([]bool, f.Nodes)}
	var nodes []*Node
	for i := range p.Regions {
		if p.Regions[i].Function != f.Name {
			continue
		}
		for k := range p.Regions[i].Candidates {
			c := &p.Regions[i].Candidates[k]
			for j := range c.Nodes {
				nodes = append(nodes, &c.Nodes[j])
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return a.Index - b.Index })
	for _, n := range nodes {
		flow.Made[n.Index], flow.Result[n.Index] = true, n.Result
		for _, u := range n.Reads {
			flow.Readers[u] = append(flow.Readers[u], relay.NodeID(n.Index))
		}
	}
	return flow
}

// regionsOf says where the regions of a function are: region i of the plan is number i+1. side is that of a backend.
func (p *Plan) regionsOf(f Function, inline border.Side, side func(backend string) border.Side) *border.Regions {
	regions := &border.Regions{Of: make([]int32, f.Nodes), Sides: []border.Side{inline}}
	for i := range p.Regions {
		r := &p.Regions[i]
		at := inline
		if r.Function == f.Name && r.Symbol != "" {
			at = side(r.BackendOf(&r.Candidates[0]))
			for _, c := range r.Candidates {
				for _, n := range c.Nodes {
					regions.Of[n.Index] = int32(i + 1)
				}
			}
		}
		regions.Sides = append(regions.Sides, at)
	}
	return regions
}

// bordered is a function with borders: what the check of its proof works on. All costs are whole picoseconds.
type bordered struct {
	options []place.Option // State is the backend's index in Plan.Backends (Plan.speaker)
	chosen  []int
	tree    *place.Tree
	flow    *border.Flow
	reads   [][]relay.NodeID
	regions *border.Regions
	ends    border.Ends
	apart   []bool // by backend
}

// proveBorders recomputes what the placement of a function costs, and gives a bound on all others, in milliseconds. The
// bound comes from the post-dominator tree: what the nodes below v cost at least where v is in an option on backend b.
// Of what is paid between regions it counts what an option reads of the nodes right below it in the tree, the results,
// and of what a caller gives the share of each reader: all of it in chains and trees. An option with several exits
// counts as the subtrees that it falls into, each with its share of the cost: taken by itself it would be no placement,
// so that is a bound, too.
func (p *Plan) proveBorders(f Function) (cost, bound float64, err error) {
	m := p.bordered(f)
	parts, err := m.parts()
	if err != nil {
		return 0, 0, err
	}
	total := m.flow.Sum(m.regions, m.ends)
	for _, i := range m.chosen {
		total += picoseconds(m.options[i].Cost)
	}
	children := make([][]relay.NodeID, f.Nodes)
	for v, parent := range m.tree.Parent {
		if parent != relay.NoNode {
			children[parent] = append(children[parent], relay.NodeID(v))
		}
	}
	byRoot := make([][]int, f.Nodes)
	for i, o := range parts {
		root := o.Nodes[len(o.Nodes)-1]
		byRoot[root] = append(byRoot[root], i)
	}
	least, sum := make([][]int64, f.Nodes), int64(0) // by node and backend
	for v := range f.Nodes {
		least[v] = slices.Repeat([]int64{uncovered}, len(p.Backends))
		for _, i := range byRoot[v] {
			o := &parts[i]
			ps := o.cost + m.own(o) + m.below(o, children, least)
			least[v][o.State] = min(least[v][o.State], ps)
		}
		if m.tree.Needs[v] && m.tree.Parent[v] == relay.NoNode {
			if sum += slices.Min(least[v]); sum >= uncovered {
				return 0, 0, fmt.Errorf("its candidates leave nodes uncovered")
			}
		}
	}
	return float64(total) / 1e9, float64(sum) / 1e9, nil
}

// part is an option, or one of the subtrees that one with several exits consists of.
type part struct {
	place.Option
	cost  int64 // in picoseconds
	whole bool
}

// parts are the options as the connected subtrees that they consist of, which is what the bound rests on: whoever
// covers a node without its post-dominator ends there, and costs nothing less than nothing. Those of one option share
// its cost by size. Where chosen options consist of several, it is checked that all can be run one after the other.
func (m *bordered) parts() ([]part, error) {
	var parts []part
	for i := range m.options {
		o := &m.options[i]
		if !(o.Cost >= 0) || o.Cost > mostMilliseconds {
			return nil, fmt.Errorf("a candidate that ends in %%%d costs %v ms", o.Nodes[len(o.Nodes)-1], o.Cost)
		}
		at := map[relay.NodeID]int{} // the part of a node
		first := len(parts)
		for k := len(o.Nodes) - 1; k >= 0; k-- {
			v := o.Nodes[k]
			of, inside := at[m.tree.Parent[v]]
			if !inside {
				of = len(parts)
				parts = append(parts, part{Option: place.Option{State: o.State}})
			}
			at[v] = of
			parts[of].Nodes = append(parts[of].Nodes, v)
		}
		for k := range parts[first:] {
			p := &parts[first+k]
			slices.Reverse(p.Nodes)
			p.whole = len(p.Nodes) == len(o.Nodes)
			p.cost = picoseconds(o.Cost) / int64(len(o.Nodes)) * int64(len(p.Nodes))
			if p.whole {
				p.cost = picoseconds(o.Cost)
			}
		}
	}
	if len(parts) == len(m.options) {
		return parts, nil
	}
	var chosen [][]relay.NodeID
	for _, i := range m.chosen {
		chosen = append(chosen, m.options[i].Nodes)
	}
	return parts, place.QuotientAcyclic(m.tree.Reads, chosen)
}

// mostMilliseconds is more than any plan's sum: beyond it, sums of picoseconds would not be exact.
const mostMilliseconds = (1 << 53) / 1e9

// uncovered is what nodes cost that no candidates cover, in picoseconds: more than anything else.
const uncovered = 1 << 60

// own is what an option pays at least that has nothing to do with where its neighbours are: for results, and its share
// in what a caller gives, which is paid for once by all that read it on one backend.
func (m *bordered) own(o *part) int64 {
	sum, given := int64(0), map[relay.NodeID]bool{}
	for _, v := range o.Nodes {
		if m.flow.Result[v] {
			sum += m.end(v, o.State, true)
		}
		for _, u := range m.reads[v] {
			switch in := m.end(u, o.State, false); {
			case m.flow.Made[u] || given[u]:
			case o.whole && m.apart[o.State]:
				given[u] = true
				sum += in
			default:
				sum += in / int64(len(m.flow.Readers[u]))
			}
		}
	}
	return sum
}

func (m *bordered) end(v relay.NodeID, at place.State, leaves bool) int64 {
	in, out := m.ends(v, border.Side(at))
	if leaves {
		return out
	}
	return in
}

// below is what the nodes that hang below an option cost at least, brought to it where it reads them.
func (m *bordered) below(o *part, children [][]relay.NodeID, least [][]int64) int64 {
	inside := func(v relay.NodeID) bool { _, ok := slices.BinarySearch(o.Nodes, v); return ok }
	sum := int64(0)
	for _, w := range o.Nodes {
		for _, c := range children[w] {
			if inside(c) {
				continue
			}
			reads := slices.ContainsFunc(o.Nodes, func(v relay.NodeID) bool { return slices.Contains(m.reads[v], c) })
			best := int64(math.MaxInt64)
			for state, ps := range least[c] {
				if from := place.State(state); reads && (from != o.State || o.whole && m.apart[o.State]) {
					ps += m.end(c, from, true) + m.end(c, o.State, false)
				}
				best = min(best, ps)
			}
			sum = min(sum+best, uncovered) // what cannot be covered stays that
		}
	}
	return sum
}

func (p *Plan) bordered(f Function) *bordered {
	options, tree, solution := p.problem(f)
	m := &bordered{options: options, chosen: solution.Chosen, tree: tree, flow: p.flow(f),
		apart: make([]bool, len(p.Backends))}
	m.reads = m.flow.Reads()
	m.regions = p.regionsOf(f, inlineSide, func(backend string) border.Side { return border.Side(p.speaker(backend)) })
	for i := range p.Backends {
		m.apart[i] = p.Backends[i].Apart
	}
	costs := map[[2]int]Border{} // by value and backend
	for _, b := range p.Borders {
		if b.Function == f.Name {
			costs[[2]int{b.Value, p.speaker(b.Backend)}] = b
		}
	}
	m.ends = border.Rounded(func(v relay.NodeID, s border.Side) (in, out float64) {
		b := costs[[2]int{int(v), int(s)}]
		return b.In, b.Out
	})
	backend := map[relay.NodeID]int{} // of the chosen option that ends there
	for i := range p.Regions {
		if p.Regions[i].Function != f.Name {
			continue
		}
		for k := range p.Regions[i].Candidates {
			c := &p.Regions[i].Candidates[k]
			backend[relay.NodeID(c.Nodes[len(c.Nodes)-1].Index)] = p.speaker(p.Regions[i].BackendOf(c))
		}
	}
	for _, i := range m.chosen {
		m.options[i].State = place.State(backend[m.options[i].Nodes[len(m.options[i].Nodes)-1]])
	}
	next := len(m.chosen) // the rejected ones follow, in order
	for _, r := range p.Candidates.Rejected {
		if r.Function == f.Name {
			m.options[next].State = place.State(p.speaker(r.Backend))
			next++
		}
	}
	return m
}

func picoseconds(ms float64) int64 { return int64(math.Round(ms * 1e9)) }
