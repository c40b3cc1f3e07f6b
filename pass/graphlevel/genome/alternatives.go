// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Alternative is a placement with all that compute one thing in one way moved to another backend, or run in another
// way.
type Alternative struct {
	// Name says what changes: "nn.conv2d nn.relu: dnnl to tvm".
	Name   string
	Genome Genome
}

// alike are the candidates of a placement that compute the same in the same way on the same backend.
type alike struct {
	members []struct{ function, candidate int }
	cost    float64
}

// Alternatives are the placements that differ from one in what is done with one computation, wherever it stands:
// networks repeat their cells, so these changes are the ones that matter. The computations with the highest costs come
// first, at most so many of them.
func (s *Space) Alternatives(p *Placement, most int) []Alternative {
	var list []Alternative
	for _, class := range s.alike(p, most) {
		first := class.members[0]
		at := &s.Functions[first.function].Set.Candidates[first.candidate]
		others := s.others(first.function, at)
		name := func(to string) string {
			return fmt.Sprintf("%d %s to %s", len(class.members),
				operatorsOf(s.Functions[first.function].Set.Graph, at), to)
		}
		for _, to := range others {
			g := p.Genome.Clone()
			fresh := g.fresh()
			for _, one := range class.members {
				s.join(g, one.function, one.candidate, to, fresh)
			}
			list = append(list, Alternative{name(s.name(to)), g})
		}
		now := s.variants[first.function][first.candidate]
		for to := int16(1); to <= now.of; to++ {
			if to == now.number {
				continue
			}
			g := p.Genome.Clone()
			for _, one := range class.members {
				g[one.function][s.Functions[one.function].Set.Candidates[one.candidate].Root].Variant = to
			}
			list = append(list, Alternative{name(s.way(first.function, first.candidate, to)), g})
		}
	}
	return list
}

// way names one of the ways to run a candidate's nodes: its pattern.
func (s *Space) way(function, like int, number int16) string {
	set := s.Functions[function].Set
	for k := range set.Candidates {
		c := &set.Candidates[k]
		if s.variants[function][k].number == number && s.index[c.Backend] == s.index[set.Candidates[like].Backend] &&
			slices.Equal(c.Nodes, set.Candidates[like].Nodes) && c.Composite != "" {
			return c.Composite
		}
	}
	return fmt.Sprintf("way %d", number)
}

// alike sorts what was chosen by what it computes.
func (s *Space) alike(p *Placement, most int) []*alike {
	classes := map[string]*alike{}
	var order []*alike
	for i, f := range s.Functions {
		for _, k := range p.Chosen[i] {
			c := &f.Set.Candidates[k]
			if c.Free {
				continue
			}
			key := fmt.Sprintf("%s\n%s\n%s", c.Backend, c.Composite, c.Key)
			if classes[key] == nil {
				classes[key] = &alike{}
				order = append(order, classes[key])
			}
			classes[key].cost += f.Costs[k]
			classes[key].members = append(classes[key].members, struct{ function, candidate int }{i, k})
		}
	}
	slices.SortStableFunc(order, func(a, b *alike) int { return cmp.Compare(b.cost, a.cost) })
	return order[:min(len(order), most)]
}

// join gives a candidate's nodes to a backend: to the region of that backend next to it, all of which become one, or
// else to one of the colour given. On a backend on which they are already they are run as before.
func (s *Space) join(g Genome, function, candidate int, backend int16, colour int32) {
	nodes := s.Functions[function].Set.Candidates[candidate].Nodes
	gene := Gene{Backend: backend}
	if backend != s.free {
		gene.Colour = colour
		near := s.regionsNextTo(g, function, nodes, backend)
		if len(near) > 0 {
			gene = near[0]
		}
		for v := range g[function] {
			if len(near) > 1 && slices.Contains(near[1:], g.home(function, relay.NodeID(v))) {
				g[function][v].Colour = gene.Colour
			}
		}
	}
	for _, v := range nodes {
		gene.Variant = 0
		if was := g[function][v]; was.Backend == gene.Backend {
			gene.Variant = was.Variant
		}
		g[function][v] = gene
	}
}

// regionsNextTo are the different genes, on a backend, of the nodes that a set of nodes reads or that read it, in the
// order in which they are met.
func (s *Space) regionsNextTo(g Genome, function int, nodes []relay.NodeID, backend int16) []Gene {
	f := &s.Functions[function]
	var genes []Gene
	look := func(v relay.NodeID) {
		if !f.Tree.Needs[v] {
			return
		}
		if _, own := slices.BinarySearch(nodes, v); own {
			return
		}
		if gene := g.home(function, v); gene.Backend == backend && !slices.Contains(genes, gene) {
			genes = append(genes, gene)
		}
	}
	for _, v := range nodes {
		for _, u := range f.Set.Graph.Reads(v) {
			look(u)
		}
		for _, u := range f.Set.Graph.Consumers(v) {
			look(u)
		}
	}
	return genes
}

// others are the backends, other than the one it is on, that can have a part in covering any node of a candidate.
func (s *Space) others(function int, at *candidate.Candidate) []int16 {
	var list []int16
	for _, v := range at.Nodes {
		for _, b := range s.takes[function][v] {
			if b != s.index[at.Backend] {
				list = insert(list, b)
			}
		}
	}
	return list
}

// fresh is a colour that no node has.
func (g Genome) fresh() int32 {
	most := int32(0)
	for _, genes := range g {
		for _, gene := range genes {
			most = max(most, gene.Colour)
		}
	}
	return most + 1
}

// home is where a node is, whatever the way in which it is run there.
func (g Genome) home(function int, v relay.NodeID) Gene {
	gene := g[function][v]
	return Gene{Backend: gene.Backend, Colour: gene.Colour}
}

// operatorsOf names a candidate for people, by its first operator.
func operatorsOf(g *relay.Graph, c *candidate.Candidate) string {
	for _, v := range c.Nodes {
		if candidate.IsOperator(&g.Nodes[v]) {
			if c.Operators(g) > 1 {
				return g.Nodes[v].Op + "..."
			}
			return g.Nodes[v].Op
		}
	}
	return c.Composite
}
