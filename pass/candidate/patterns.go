// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// matchPatterns proposes what the patterns of backend number b match, within their limits.
func (p *proposer) matchPatterns(b int, backend byoc.Backend) {
	patterns := backend.Patterns()
	for v := range p.g.Nodes {
		if p.class[v] != operator && p.class[v] != structural && p.class[v] != dynamic {
			continue
		}
		// The same nodes may be matched in several ways (an addend as the bias or as the sum). What one way was
		// refused for says nothing where another one was accepted.
		type refusal struct {
			Refusal
			nodes []relay.NodeID
		}
		var refusals []refusal
		for _, pattern := range patterns {
			for _, m := range p.g.Match(pattern.Shape, relay.NodeID(v)) {
				if reason := p.reasonAgainst(backend, &pattern, m); reason != "" {
					refusals = append(refusals, refusal{
						Refusal{Node: m.Root, Backend: backend.Name(), Composite: pattern.Composite, Reason: reason},
						m.Nodes})
					continue
				}
				p.add(b, byoc.Proposal{Composite: pattern.Composite, Bare: pattern.Bare, Kernel: pattern.Kernel,
					Reassociates: pattern.Reassociates, Grouped: pattern.Grouped, Nodes: m.Nodes})
			}
		}
		for _, r := range refusals {
			if !p.taken[string(p.identify(r.Backend, "", r.nodes))] {
				p.refuse(r.Refusal)
			}
		}
	}
}

// reasonAgainst says why a match cannot be a candidate; "" where it can.
func (p *proposer) reasonAgainst(backend byoc.Backend, pattern *byoc.Pattern, m *relay.Match) string {
	if reason := p.immovable(backend, m.Nodes); reason != "" {
		return reason
	}
	if pattern.Limits != nil {
		if err := pattern.Limits(p.g, m); err != nil {
			return err.Error()
		}
	}
	return ""
}

// addSingles proposes each placeable node by itself on backend number b, which takes anything. An operator takes
// the tuples with it that only it reads (concatenate's argument): by itself it would have to be handed a tuple,
// which no kernel is.
func (p *proposer) addSingles(b int) {
	for v := range p.g.Nodes {
		if p.class[v] == unplaced {
			continue
		}
		nodes := []relay.NodeID{relay.NodeID(v)}
		if p.class[v] == operator {
			for _, in := range p.g.Nodes[v].Inputs {
				if p.ownTuple(in) && !slices.Contains(nodes, in) {
					nodes = append(nodes, in)
				}
			}
			slices.Sort(nodes)
		}
		p.add(b, byoc.Proposal{Nodes: nodes})
	}
}

// ownTuple says that a value is a tuple that one node reads and nothing else.
func (p *proposer) ownTuple(v relay.NodeID) bool {
	return p.class[v] == structural && p.g.Nodes[v].Kind == relay.KindTuple &&
		len(p.g.Consumers(v)) == 1 && !p.g.ScopeRoot(v)
}

// mostMirrored is how many operators a candidate has at most that is proposed on a backend that takes anything, too. A
// region that an engine proposes is many of that backend's kernels, which are candidates by themselves: their sum is
// its cost there, and the graph level corrects what is wrong with sums. Building and timing each of some hundred such
// regions took many minutes.
const mostMirrored = 12

// addMirrors proposes the nodes of the other backends' candidates on backend number b. What has several exits is
// several kernels there, too.
func (p *proposer) addMirrors(b int, others []Candidate) {
	for i := range others {
		if len(others[i].Exits) == 0 && others[i].Operators(p.g) <= mostMirrored {
			p.add(b, byoc.Proposal{Nodes: others[i].Nodes})
		}
	}
}
