// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// validateBorders says which border is that of no node, or costs what nothing can cost.
func (p *Plan) validateBorders(functions map[string]Function, covered map[at]int) error {
	seen := map[string]bool{}
	for _, b := range p.Borders {
		id := fmt.Sprint(b.Function, " ", b.Value, " ", b.Backend)
		_, there := covered[at{b.Function, b.Value}]
		_, listed := functions[b.Function]
		switch {
		case !listed || !there || p.Backend(b.Backend) == nil || seen[id]:
			return fmt.Errorf("plan: the border of %%%d of function %s at %s is that of no placed value, or stands twice", b.Value, b.Function, b.Backend)
		case !(b.In >= 0 && b.Out >= 0) || math.IsInf(b.In+b.Out, 1):
			return fmt.Errorf("plan: the border of %%%d of function %s at %s costs %v and %v ms", b.Value, b.Function, b.Backend, b.In, b.Out)
		}
		seen[id] = true
	}
	for i := range p.Regions {
		for _, c := range p.Regions[i].Candidates {
			for _, n := range c.Nodes {
				for _, u := range n.Reads {
					if _, there := covered[at{p.Regions[i].Function, u}]; !there || u >= n.Index {
						return fmt.Errorf("plan: region %d: %%%d reads %%%d, which is no placed node before it", i, n.Index, u)
					}
				}
			}
		}
	}
	return nil
}

// bordered is a function with borders: what the check of its proof works on.
type bordered struct {
	options []place.Option // State is the backend's index in Plan.Backends (Plan.speaker)
	chosen  []int
	tree    *place.Tree
	reads   [][]int
	costs   map[[2]int]Border // by value and backend
}

// proveBorders recomputes what the placement of a function costs, and gives a bound on all others. The bound comes
// from the post-dominator tree: what the nodes below v cost at least where v is in an option on backend b. Of what is
// brought over borders it counts what an option reads of the nodes right below it in the tree, which is all of it in
// chains and trees. An option with several exits counts as the subtrees that it falls into, each with its share of
// the cost: taken by itself it would be no placement, so that is a bound, too.
func (p *Plan) proveBorders(f Function) (cost, bound float64, err error) {
	m := p.bordered(f)
	pieces, err := m.pieces()
	if err != nil {
		return 0, 0, err
	}
	by := make([]int, f.Nodes) // 1 + the chosen option of each node
	for _, i := range m.chosen {
		cost += m.options[i].Cost
		for _, v := range m.options[i].Nodes {
			by[v] = i + 1
		}
	}
	for _, i := range m.chosen {
		read := map[int]bool{}
		for _, w := range m.options[i].Nodes {
			for _, u := range m.reads[w] {
				if by[u] != i+1 && !read[u] {
					read[u] = true
					cost += m.transfer(u, m.options[by[u]-1].State, m.options[i].State)
				}
			}
		}
	}
	children := make([][]relay.NodeID, f.Nodes)
	for v, parent := range m.tree.Parent {
		if parent != relay.NoNode {
			children[parent] = append(children[parent], relay.NodeID(v))
		}
	}
	byRoot := make([][]int, f.Nodes)
	for i, o := range pieces {
		root := o.Nodes[len(o.Nodes)-1]
		byRoot[root] = append(byRoot[root], i)
	}
	least := make([][]float64, f.Nodes) // by node and backend
	for v := range f.Nodes {
		least[v] = slices.Repeat([]float64{math.Inf(1)}, len(p.Backends))
		for _, i := range byRoot[v] {
			o := &pieces[i]
			least[v][o.State] = min(least[v][o.State], o.Cost+m.below(o, children, least))
		}
		if m.tree.Needs[v] && m.tree.Parent[v] == relay.NoNode {
			bound += slices.Min(least[v])
		}
	}
	if math.IsInf(bound, 1) {
		return 0, 0, fmt.Errorf("its candidates leave nodes uncovered")
	}
	return round(cost), round(bound), nil
}

// pieces are the options as the connected subtrees that they consist of, which is what the bound rests on: whoever
// covers a node without its post-dominator ends there, and costs nothing less than nothing. Those of one option share
// its cost by size. Where chosen options consist of several, it is checked that all can be run one after the other.
func (m *bordered) pieces() ([]place.Option, error) {
	var pieces []place.Option
	for i := range m.options {
		o := &m.options[i]
		if !(o.Cost >= 0) || math.IsInf(o.Cost, 1) {
			return nil, fmt.Errorf("a candidate that ends in %%%d costs %v ms", o.Nodes[len(o.Nodes)-1], o.Cost)
		}
		at := map[relay.NodeID]int{} // the piece of a node
		first := len(pieces)
		for k := len(o.Nodes) - 1; k >= 0; k-- {
			v := o.Nodes[k]
			piece, inside := at[m.tree.Parent[v]]
			if !inside {
				piece = len(pieces)
				pieces = append(pieces, place.Option{State: o.State})
			}
			at[v] = piece
			pieces[piece].Nodes = append(pieces[piece].Nodes, v)
		}
		for k := range pieces[first:] {
			p := &pieces[first+k]
			slices.Reverse(p.Nodes)
			p.Cost = o.Cost * float64(len(p.Nodes)) / float64(len(o.Nodes))
		}
	}
	if len(pieces) == len(m.options) {
		return pieces, nil
	}
	reads := make([][]relay.NodeID, len(m.reads))
	for v := range reads {
		for _, u := range m.reads[v] {
			reads[v] = append(reads[v], relay.NodeID(u))
		}
	}
	var chosen [][]relay.NodeID
	for _, i := range m.chosen {
		chosen = append(chosen, m.options[i].Nodes)
	}
	return pieces, place.QuotientAcyclic(reads, chosen)
}

// below is what the nodes that hang below an option cost at least, brought to it where it reads them.
func (m *bordered) below(o *place.Option, children [][]relay.NodeID, least [][]float64) float64 {
	inside := func(v relay.NodeID) bool { _, ok := slices.BinarySearch(o.Nodes, v); return ok }
	sum := 0.0
	for _, w := range o.Nodes {
		for _, c := range children[w] {
			if inside(c) {
				continue
			}
			reads := slices.ContainsFunc(o.Nodes, func(v relay.NodeID) bool { return slices.Contains(m.reads[v], int(c)) })
			best := math.Inf(1)
			for state, ms := range least[c] {
				if reads {
					ms += m.transfer(int(c), place.State(state), o.State)
				}
				best = min(best, ms)
			}
			sum += best
		}
	}
	return sum
}

func (m *bordered) transfer(u int, from, to place.State) float64 {
	if from == to {
		return 0
	}
	return m.costs[[2]int{u, int(from)}].Out + m.costs[[2]int{u, int(to)}].In
}

func (p *Plan) bordered(f Function) *bordered {
	options, tree, solution := p.problem(f)
	m := &bordered{options: options, chosen: solution.Chosen, tree: tree, reads: make([][]int, f.Nodes), costs: map[[2]int]Border{}}
	for _, b := range p.Borders {
		if b.Function == f.Name {
			m.costs[[2]int{b.Value, p.speaker(b.Backend)}] = b
		}
	}
	backend := map[relay.NodeID]int{} // of the chosen option that ends there
	for i := range p.Regions {
		if p.Regions[i].Function != f.Name {
			continue
		}
		for k := range p.Regions[i].Candidates {
			c := &p.Regions[i].Candidates[k]
			for _, n := range c.Nodes {
				m.reads[n.Index] = n.Reads
			}
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
