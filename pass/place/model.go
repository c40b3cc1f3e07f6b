// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/relay"
)

// carries fills the table of transfers.
func (m *model) carries(consumers [][]relay.NodeID) error {
	transfer, k := m.problem.Transfer, len(m.states)
	if transfer == nil || k < 2 {
		return nil
	}
	m.carry = make([]int64, len(consumers)*k*k)
	worst, sum := 0.0, 0.0
	for u := range consumers {
		if len(consumers[u]) == 0 {
			continue
		}
		worst = 0
		for a, from := range m.states {
			for b, to := range m.states {
				t := transfer(relay.NodeID(u), from, to)
				if !(t >= 0) || math.IsInf(t, 1) || a == b && t != 0 {
					return fmt.Errorf("placement: bringing the value of %%%d from state %d to state %d costs %v ms", u, from, to, t)
				}
				m.carry[(u*k+a)*k+b] = picoseconds(t)
				m.transfers = m.transfers || t > 0
				worst = max(worst, t)
			}
		}
		sum += worst * float64(len(consumers[u]))
	}
	if sum*perMillisecond >= greatestSum/4 {
		return fmt.Errorf("placement: the transfers add up to more than %.0f hours", greatestSum/4/perMillisecond/3600e3)
	}
	return nil
}

// addReads finds what the pieces of option i read, from outside of each; in marks the option's nodes, edgeOf are the
// edges of each node's reads.
func (m *model) addReads(i int, in []int32, edgeOf [][]int32) {
	payer := map[relay.NodeID][2]int32{} // the piece, and its read, that pays for a value
	for _, k := range m.of[i] {
		p := &m.pieces[k]
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
			for j, u := range m.problem.Reads[w] {
				if inside(u) {
					continue
				}
				r, seen := at[u]
				if !seen {
					r = len(p.reads)
					at[u] = r
					parent := m.parent[u]
					p.reads = append(p.reads, read{value: u, within: in[u] == int32(i)+1,
						below: parent != relay.NoNode && inside(parent)})
				}
				p.reads[r].edges = append(p.reads[r].edges, edgeOf[w][j])
			}
		}
		for r := range p.reads {
			u := p.reads[r].value
			if _, paid := payer[u]; !p.reads[r].within && (!paid || p.reads[r].below) {
				payer[u] = [2]int32{k, int32(r)}
			}
		}
	}
	for _, at := range payer {
		m.pieces[at[0]].reads[at[1]].charged = true
	}
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
	// share[k] is what piece k pays of its option's cost; the shares of an option's pieces sum to it. Picoseconds.
	share []int64
}

func (m *model) multipliers() *multipliers {
	l := &multipliers{edge: make([]int64, m.edges*len(m.states)), share: make([]int64, len(m.pieces))}
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
	return &multipliers{edge: append([]int64(nil), l.edge...), share: append([]int64(nil), l.share...)}
}
