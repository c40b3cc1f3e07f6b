// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"math/rand/v2"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Move names one way to change a placement.
type Move string

// The moves. Each gives a genome that asks for the change; what is legal of it is what Decode makes of it.
const (
	// Rehome gives a part (a region, or one of TVM's groups) to another backend.
	Rehome Move = "rehome"
	// RehomeAlike gives all parts that compute the same to another backend: networks repeat their cells.
	RehomeAlike Move = "rehome-alike"
	// Grow gives a part and what stands around it to one backend as one region: what an engine gains across kernels
	// shows only in regions of some size.
	Grow Move = "grow"
	// Evict takes everything from one backend and gives it to another: some do badly in company.
	Evict Move = "evict"
	// Merge gives a part to the region next to it.
	Merge Move = "merge"
	// Split cuts a region of several candidates in two.
	Split Move = "split"
	// Shift gives one candidate at a border to the region on the other side.
	Shift Move = "shift"
	// Unfuse asks for the operators of one candidate one by one.
	Unfuse Move = "unfuse"
	// Vary has a candidate, or all that compute the same, run in another way by the backend that has it, or by one that
	// shares its regions.
	Vary Move = "vary"
)

// Moves are all of them, in fixed order.
var Moves = []Move{Rehome, RehomeAlike, Grow, Evict, Merge, Split, Shift, Unfuse, Vary}

// part is a region, or a candidate that is not outlined.
type part struct {
	function   int
	backend    int16
	candidates []int
	nodes      []relay.NodeID
}

// parts takes a placement apart; candidates that cost nothing by rule are no parts.
func (s *Space) parts(p *Placement) []part {
	var parts []part
	for i, f := range s.Functions {
		outlined := map[int]bool{}
		for n := range p.Regions[i] {
			r := &p.Regions[i][n]
			parts = append(parts, part{i, s.regionOf(i, r), r.Candidates, r.Nodes})
			for _, k := range r.Candidates {
				outlined[k] = true
			}
		}
		for _, k := range p.Chosen[i] {
			if c := &f.Set.Candidates[k]; !outlined[k] && !c.Free {
				parts = append(parts, part{i, s.index[c.Backend], []int{k}, c.Nodes})
			}
		}
	}
	return parts
}

// Mutate makes one move on a placement, at a place that r picks; nil where the placement has no place for it.
func (s *Space) Mutate(p *Placement, move Move, r *rand.Rand) Genome {
	m := &mutation{s: s, p: p, r: r, parts: s.parts(p)}
	if len(m.parts) == 0 {
		return nil
	}
	m.g = p.Genome.Clone()
	done := false
	switch move {
	case Rehome:
		done = m.rehome(false)
	case RehomeAlike:
		done = m.rehome(true)
	case Grow:
		done = m.grow()
	case Evict:
		done = m.evict()
	case Merge:
		done = m.merge()
	case Split:
		done = m.split()
	case Shift:
		done = m.shift()
	case Unfuse:
		done = m.unfuse()
	case Vary:
		done = m.vary()
	}
	if !done {
		return nil
	}
	return m.g
}

type mutation struct {
	s     *Space
	p     *Placement
	g     Genome
	r     *rand.Rand
	parts []part
}

// fresh is a colour that no node has.
func (m *mutation) fresh() int32 {
	most := int32(0)
	for _, genes := range m.g {
		for _, gene := range genes {
			most = max(most, gene.Colour)
		}
	}
	return most + 1
}

// set gives nodes a gene. On a backend on which they are already they are run as before.
func (m *mutation) set(function int, nodes []relay.NodeID, gene Gene) {
	for _, v := range nodes {
		gene.Variant = 0
		if was := m.g[function][v]; was.Backend == gene.Backend {
			gene.Variant = was.Variant
		}
		m.g[function][v] = gene
	}
}

// home is where a node is, whatever the way in which it is run there.
func (m *mutation) home(function int, v relay.NodeID) Gene {
	gene := m.g[function][v]
	return Gene{Backend: gene.Backend, Colour: gene.Colour}
}

// others are the backends, other than the one it is on, that can have a part in covering any node of a part.
func (m *mutation) others(at *part) []int16 {
	var list []int16
	for _, v := range at.nodes {
		for _, b := range m.s.takes[at.function][v] {
			if b != at.backend {
				list = insert(list, b)
			}
		}
	}
	return list
}

// give puts a part on a backend, each time with a colour of its own, but where it meets a region of that backend, often
// with that one's.
func (m *mutation) give(at *part, backend int16) {
	gene := Gene{Backend: backend}
	if backend != m.s.free {
		gene.Colour = m.fresh()
		if near := m.neighbours(at, func(g Gene) bool { return g.Backend == backend }); len(near) > 0 &&
			m.r.IntN(4) > 0 {
			gene = near[m.r.IntN(len(near))]
		}
	}
	m.set(at.function, at.nodes, gene)
}

// neighbours are the different genes of the nodes that a part reads or that read it, in the order in which they are
// met.
func (m *mutation) neighbours(at *part, want func(Gene) bool) []Gene {
	g := m.s.Functions[at.function].Set.Graph
	var genes []Gene
	look := func(v relay.NodeID) {
		if !m.s.Functions[at.function].Tree.Needs[v] {
			return
		}
		if _, own := slices.BinarySearch(at.nodes, v); own {
			return
		}
		if gene := m.home(at.function, v); want(gene) && !slices.Contains(genes, gene) {
			genes = append(genes, gene)
		}
	}
	for _, v := range at.nodes {
		for _, u := range g.Reads(v) {
			look(u)
		}
		for _, u := range g.Consumers(v) {
			look(u)
		}
	}
	return genes
}

func (m *mutation) rehome(alike bool) bool {
	for range 8 {
		at := &m.parts[m.r.IntN(len(m.parts))]
		others := m.others(at)
		if len(others) == 0 {
			continue
		}
		to := others[m.r.IntN(len(others))]
		if !alike {
			m.give(at, to)
			return true
		}
		key := m.partKey(at)
		for i := range m.parts {
			if other := &m.parts[i]; other.backend == at.backend && m.partKey(other) == key {
				m.give(other, to)
			}
		}
		return true
	}
	return false
}

// partKey is the same for parts that compute the same.
func (m *mutation) partKey(at *part) string {
	key := ""
	for _, k := range at.candidates {
		c := &m.s.Functions[at.function].Set.Candidates[k]
		key += c.Composite + " " + c.Key + "\n"
	}
	return key
}

func (m *mutation) grow() bool {
	start := m.r.IntN(len(m.parts))
	function := m.parts[start].function
	g := m.s.Functions[function].Set.Graph
	others := m.others(&m.parts[start])
	if m.parts[start].backend != m.s.free {
		others = insert(others, m.parts[start].backend)
	}
	others = slices.DeleteFunc(others, func(b int16) bool { return b == m.s.free })
	if len(others) == 0 {
		return false
	}
	gene := Gene{Backend: others[m.r.IntN(len(others))], Colour: m.fresh()}
	partOf := map[relay.NodeID]int{}
	for i := range m.parts {
		if m.parts[i].function == function {
			for _, v := range m.parts[i].nodes {
				partOf[v] = i
			}
		}
	}
	// Small stretches more often than large ones.
	size := 2
	for size < len(m.parts) && m.r.IntN(4) > 0 {
		size += 1 + size/2
	}
	taken, queue := map[int]bool{start: true}, []int{start}
	for n := 0; n < len(queue) && n < size; n++ {
		at := &m.parts[queue[n]]
		for _, v := range at.nodes {
			m.g[function][v] = gene
			for _, u := range slices.Concat(g.Reads(v), g.Consumers(v)) {
				if i, ok := partOf[u]; ok && !taken[i] {
					taken[i] = true
					queue = append(queue, i)
				}
			}
		}
	}
	return true
}

func (m *mutation) evict() bool {
	var present []int16
	for i := range m.parts {
		present = insert(present, m.parts[i].backend)
	}
	from := present[m.r.IntN(len(present))]
	numbers := m.s.numbers()
	to := numbers[m.r.IntN(len(numbers))]
	if from == to {
		return false
	}
	for i := range m.parts {
		if at := &m.parts[i]; at.backend == from {
			m.set(at.function, at.nodes, Gene{Backend: to})
		}
	}
	return true
}

func (m *mutation) merge() bool {
	for range 8 {
		at := &m.parts[m.r.IntN(len(m.parts))]
		mine := m.home(at.function, at.nodes[len(at.nodes)-1])
		near := m.neighbours(at, func(g Gene) bool { return g.Backend != m.s.free && g != mine })
		if len(near) == 0 {
			continue
		}
		m.set(at.function, at.nodes, near[m.r.IntN(len(near))])
		return true
	}
	return false
}

func (m *mutation) split() bool {
	var several []*part
	for i := range m.parts {
		if len(m.parts[i].candidates) > 1 {
			several = append(several, &m.parts[i])
		}
	}
	if len(several) == 0 {
		return false
	}
	at := several[m.r.IntN(len(several))]
	gene := Gene{Backend: at.backend, Colour: m.fresh()}
	// Candidates stand in the order of their roots, which is one in which they can be run.
	for _, k := range at.candidates[1+m.r.IntN(len(at.candidates)-1):] {
		m.set(at.function, m.s.Functions[at.function].Set.Candidates[k].Nodes, gene)
	}
	return true
}

func (m *mutation) shift() bool {
	for range 8 {
		at := &m.parts[m.r.IntN(len(m.parts))]
		f := &m.s.Functions[at.function]
		nodes := f.Set.Candidates[at.candidates[m.r.IntN(len(at.candidates))]].Nodes
		one := part{at.function, at.backend, nil, nodes}
		mine := m.home(at.function, nodes[len(nodes)-1])
		near := m.neighbours(&one, func(g Gene) bool { return g != mine })
		if len(near) == 0 {
			continue
		}
		m.set(at.function, nodes, near[m.r.IntN(len(near))])
		return true
	}
	return false
}

func (m *mutation) unfuse() bool {
	var fused []*part
	var which []int
	for i := range m.parts {
		for _, k := range m.parts[i].candidates {
			c := &m.s.Functions[m.parts[i].function].Set.Candidates[k]
			if m.parts[i].backend != m.s.free && c.Operators(m.s.Functions[m.parts[i].function].Set.Graph) > 1 {
				fused, which = append(fused, &m.parts[i]), append(which, k)
			}
		}
	}
	if len(fused) == 0 {
		return false
	}
	i := m.r.IntN(len(fused))
	at := fused[i]
	colour := m.fresh()
	for n, v := range m.s.Functions[at.function].Set.Candidates[which[i]].Nodes {
		gene := Gene{Backend: at.backend, Colour: colour + int32(n)}
		if m.r.IntN(3) == 0 {
			gene = Gene{Backend: m.s.free} // what is left of it may be better off elsewhere
		}
		m.g[at.function][v] = gene
	}
	return true
}
