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
		others := (&mutation{s: s}).others(&part{function: first.function, backend: s.index[at.Backend],
			nodes: at.Nodes})
		name := func(to string) string {
			return fmt.Sprintf("%d %s to %s", len(class.members),
				operatorsOf(s.Functions[first.function].Set.Graph, at), to)
		}
		for _, to := range others {
			m := &mutation{s: s, p: p, g: p.Genome.Clone()}
			fresh := m.fresh()
			for _, one := range class.members {
				m.join(one.function, one.candidate, to, fresh)
			}
			list = append(list, Alternative{name(s.name(to)), m.g})
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
// else to one of the colour given.
func (m *mutation) join(function, candidate int, backend int16, colour int32) {
	at := &part{function: function, backend: backend, nodes: m.s.Functions[function].Set.Candidates[candidate].Nodes}
	gene := Gene{Backend: backend}
	if backend != m.s.free {
		gene.Colour = colour
		near := m.neighbours(at, func(g Gene) bool { return g.Backend == backend })
		if len(near) > 0 {
			gene = near[0]
		}
		for v := range m.g[function] {
			if len(near) > 1 && slices.Contains(near[1:], m.home(function, relay.NodeID(v))) {
				m.g[function][v].Colour = gene.Colour
			}
		}
	}
	m.set(function, at.nodes, gene)
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
