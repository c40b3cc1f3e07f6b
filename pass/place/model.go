// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

// borders fills in what is paid between regions, and the edges that it is paid along.
func (m *model) borders() error {
	b, n, k := m.problem.Borders, len(m.parent), len(m.states)
	m.inline = none
	if b == nil || k == 0 {
		return nil
	}
	if len(b.Flow.Readers) != n {
		return fmt.Errorf("placement: the readers of %d values are given, the tree has %d nodes", len(b.Flow.Readers),
			n)
	}
	m.in, m.out, m.apart = make([]int64, n*k), make([]int64, n*k), make([]bool, k)
	for s, state := range m.states {
		if m.apart[s] = b.apart(state); state == b.Inline {
			m.inline = int32(s)
		}
	}
	sum := 0.0
	for u, readers := range b.Flow.Readers {
		id := relay.NodeID(u)
		if len(readers) == 0 && !b.Flow.Result[u] {
			continue
		}
		worst := 0.0
		for s, state := range m.states {
			in, out := b.Ends(id, border.Side(state))
			if in < 0 || out < 0 || in > greatestSum || out > greatestSum {
				return fmt.Errorf("placement: bringing the value of %%%d to state %d costs %v ms, and away from it "+
					"%v ms", u, state,
					milliseconds(in), milliseconds(out))
			}
			m.in[u*k+s], m.out[u*k+s] = in, out
			m.transfers = m.transfers || in > 0 || out > 0
			worst = max(worst, float64(in)+float64(out))
		}
		sum += worst * float64(len(readers)+1)
	}
	if sum >= greatestSum/4 {
		return fmt.Errorf("placement: the borders add up to more than %.0f hours", greatestSum/4/perMillisecond/3600e3)
	}
	if !m.transfers {
		return nil
	}
	m.reads, m.edgeOf, m.outgoing = make([][]relay.NodeID, n), make([][]int32, n), make([][]int32, n)
	for u, readers := range b.Flow.Readers {
		for _, w := range readers {
			if int(w) <= u || int(w) >= n || !m.problem.Tree.Needs[w] || b.Flow.Made[u] != m.problem.Tree.Needs[u] {
				return fmt.Errorf("placement: the readers %v of %%%d are not ascending nodes behind it that need cover",
					readers, u)
			}
			// What a nested scope captures may come from within an option; that it is paid for, too, no bound counts
			// on.
			if _, known := slices.BinarySearch(m.problem.Reads[w], relay.NodeID(u)); b.Flow.Made[u] && !known {
				continue
			}
			m.reads[w] = append(m.reads[w], relay.NodeID(u))
			m.edgeOf[w] = append(m.edgeOf[w], int32(m.edges))
			m.outgoing[u] = append(m.outgoing[u], int32(m.edges))
			m.edges++
		}
	}
	return nil
}

// addReads finds what the pieces of option i read, from outside of each; in marks the option's nodes.
func (m *model) addReads(i int, in []int32) {
	flow, k := m.problem.Borders.Flow, len(m.states)
	payer := map[relay.NodeID][2]int32{} // the piece, and its read, that pays for a value
	for _, piece := range m.of[i] {
		p := &m.pieces[piece]
		at := map[relay.NodeID]int{}
		inside := func(v relay.NodeID) bool { return in[v] == int32(i)+1 }
		if len(m.of[i]) > 1 {
			mine := map[relay.NodeID]bool{}
			for _, v := range p.nodes {
				mine[v] = true
			}
			inside = func(v relay.NodeID) bool { return mine[v] }
		}
		for _, w := range p.nodes {
			if flow.Result[w] && p.state != m.inline {
				p.leaves += m.out[int(w)*k+int(p.state)]
			}
			for j, u := range m.reads[w] {
				if inside(u) || !flow.Made[u] && p.state == m.inline {
					continue
				}
				r, seen := at[u]
				if !seen {
					r = len(p.reads)
					at[u] = r
					parent := m.parent[u]
					p.reads = append(p.reads, read{value: u, made: flow.Made[u], within: in[u] == int32(i)+1,
						below: parent != relay.NoNode && inside(parent)})
				}
				p.reads[r].edges = append(p.reads[r].edges, m.edgeOf[w][j])
			}
		}
		for r := range p.reads {
			u := p.reads[r].value
			if _, paid := payer[u]; !p.reads[r].within && (!paid || p.reads[r].below) {
				payer[u] = [2]int32{piece, int32(r)}
			}
		}
	}
	for _, at := range payer {
		m.pieces[at[0]].reads[at[1]].charged = true
	}
}

// paysOut says that a value of state s is paid for where it leaves because somebody reads it: a result that leaves its
// region anyway is paid for by whoever makes it.
func (m *model) paysOut(u relay.NodeID, s int32) bool {
	return !m.problem.Borders.Flow.Result[u] || s == m.inline
}

// least are the regions of chosen options if there were as few as there can be: one of each state, but for those of
// which each option is one. What they cost is no more than what any regions do.
func (m *model) least(chosen []int) *border.Regions {
	r := &border.Regions{Of: make([]int32, len(m.parent)), Sides: []border.Side{border.Side(m.problem.Borders.Inline)}}
	of := make([]int32, len(m.states))
	for _, i := range chosen {
		s := m.pieces[m.of[i][0]].state
		region := of[s]
		if s != m.inline && (region == 0 || m.apart[s]) {
			region = int32(len(r.Sides))
			of[s] = region
			r.Sides = append(r.Sides, border.Side(m.states[s]))
		}
		for _, v := range m.problem.Options[i].Nodes {
			r.Of[v] = region
		}
	}
	return r
}

// cost is what whole options that cover each node once cost, with the regions that they form, and the sum of their
// ranks; at least says what they cost with as few regions as there can be.
func (m *model) cost(chosen []int, atLeast bool) (cost, rank int64) {
	for _, o := range chosen {
		cost += picoseconds(m.problem.Options[o].Cost)
		rank += int64(m.problem.Options[o].Rank)
	}
	if !m.transfers {
		return cost, rank
	}
	b := m.problem.Borders
	regions := m.least(chosen)
	if !atLeast {
		regions = b.Regions(chosen)
	}
	return cost + b.Flow.Sum(regions, b.Ends), rank
}

func (m *model) sortByRoot(n int) {
	m.start = make([]int32, n+2)
	for i := range m.pieces {
		m.start[m.pieces[i].root()+2]++
		m.size += int64(len(m.pieces[i].nodes) + 1 + len(m.pieces[i].reads)*len(m.states))
	}
	m.size += int64(n*(1+len(m.states)) + m.edges*len(m.states))
	for v := range n {
		m.start[v+2] += m.start[v+1]
	}
	m.byRoot = make([]int32, len(m.pieces))
	for i := range m.pieces {
		r := m.pieces[i].root()
		m.byRoot[m.start[r+1]] = int32(i)
		m.start[r+1]++
	}
	m.start = m.start[:n+1]
}

func (p *piece) root() relay.NodeID { return p.nodes[len(p.nodes)-1] }

// multipliers are the prices by which the recursion is led to agree with itself. Whatever they are, the recursion's
// result is a lower bound; good ones make it a high one.
type multipliers struct {
	// edge[e*K+s] is paid by the piece that tops edge e's value in state s, and got back by the piece that holds the
	// reader, if it takes the value to be in state s. Picoseconds.
	edge []int64
	// in and out, at e*K+s, say how what is paid once for a value is shared among its readers: those of state s pay
	// in[e*K+s] for bringing it there, those of other states out[e*K+s] for bringing it away from s. Over a value's
	// edges they sum to what is paid. Picoseconds.
	in, out []int64
	// share[k] is what piece k pays of its option's cost; the shares of an option's pieces sum to it. Picoseconds.
	share []int64
}

func (m *model) multipliers() *multipliers {
	l := &multipliers{edge: make([]int64, m.edges*len(m.states)), share: make([]int64, len(m.pieces)),
		in: make([]int64, m.edges*len(m.states)), out: make([]int64, m.edges*len(m.states))}
	k := len(m.states)
	for u, edges := range m.outgoing {
		if len(edges) == 0 {
			continue
		}
		for s := range k {
			in, out := m.in[u*k+s], m.out[u*k+s]
			if !m.paysOut(relay.NodeID(u), int32(s)) || !m.problem.Borders.Flow.Made[u] {
				out = 0
			}
			for i, e := range edges {
				left := int64(len(edges) - i)
				l.in[int(e)*k+s], l.out[int(e)*k+s] = in/left, out/left
				in, out = in-in/left, out-out/left
			}
		}
	}
	for i, pieces := range m.of {
		left, nodes := int64(0), int64(0)
		if len(pieces) > 0 {
			left, nodes = picoseconds(m.problem.Options[i].Cost), int64(len(m.problem.Options[i].Nodes))
		}
		for _, k := range pieces { // by size; the last gets the rest
			size := int64(len(m.pieces[k].nodes))
			l.share[k] = left / nodes * size
			if size == nodes {
				l.share[k] = left
			}
			left, nodes = left-l.share[k], nodes-size
		}
	}
	return l
}

// apportion gives the pieces of each option the prices of their nodes, and what the option costs beside them by size:
// so all pieces of an option that costs less than the prices of its nodes are worth taking.
func (m *model) apportion(l *multipliers, prices []float64) {
	for i, pieces := range m.of {
		if len(pieces) < 2 {
			continue
		}
		rest, nodes := picoseconds(m.problem.Options[i].Cost), int64(len(m.problem.Options[i].Nodes))
		for _, k := range pieces {
			l.share[k] = 0
			for _, v := range m.pieces[k].nodes {
				l.share[k] += picoseconds(prices[v])
			}
			rest -= l.share[k]
		}
		for _, k := range pieces { // the last gets what is left
			size := int64(len(m.pieces[k].nodes))
			by := rest / nodes * size
			if size == nodes {
				by = rest
			}
			l.share[k], rest, nodes = l.share[k]+by, rest-by, nodes-size
		}
	}
}

func (l *multipliers) clone() *multipliers {
	return &multipliers{edge: slices.Clone(l.edge), share: slices.Clone(l.share), in: slices.Clone(l.in),
		out: slices.Clone(l.out)}
}
