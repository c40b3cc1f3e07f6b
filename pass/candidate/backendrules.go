// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"fmt"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Where a backend's rules say nothing else.
const (
	defaultRuleDepth = 8
	defaultRuleLimit = 4096
)

// matches adds what backend number b matches by itself, if it does.
func (p *proposer) matches(b int, backend byoc.Backend) error {
	matcher, ok := backend.(byoc.Matcher)
	if !ok {
		return nil
	}
	found, err := matcher.Matches(p.g)
	if err != nil {
		return fmt.Errorf("the patterns of the backend %s: %w", backend.Name(), err)
	}
	for _, m := range found {
		if reason := p.unfit(backend, m.Nodes); reason != "" {
			root := m.Nodes[len(m.Nodes)-1]
			p.refuse(Refusal{Node: root, Backend: backend.Name(), Composite: m.Composite, Reason: reason})
			continue
		}
		p.add(b, m)
	}
	return nil
}

// unfit says why nodes cannot be a candidate; "" where they can.
func (p *proposer) unfit(backend byoc.Backend, nodes []relay.NodeID) string {
	if err := Check(p.g, nodes); err != nil {
		return err.Error()
	}
	return p.immovable(backend, nodes)
}

// immovable says what of the nodes keeps them from a backend; "" for nothing.
func (p *proposer) immovable(backend byoc.Backend, nodes []relay.NodeID) string {
	computes := false
	for _, v := range nodes {
		switch class := p.class[v]; {
		case class == dynamic && !byoc.TakesOpen(backend):
			return "a dimension is not known before the program runs"
		case class == alone, class == unplaced:
			return OperatorName(&p.g.Nodes[v]) + " stays where it is"
		case p.cutOff[v]:
			return OperatorName(&p.g.Nodes[v]) + " becomes whole numbers, which its last digits decide"
		case class == dynamic, class == operator:
			computes = true
		}
	}
	if !computes {
		return "the match holds no operator"
	}
	return ""
}

// applyRules adds what the rules of backend number b make of the operators that it supports, if it has rules.
func (p *proposer) applyRules(b int, backend byoc.Backend) {
	rules := byoc.RulesOf(backend)
	if rules == nil {
		return
	}
	flow := NewFlow(p.g, func(call *relay.Node) OpPattern {
		if p.opts.OpPattern == nil {
			return Opaque
		}
		return p.opts.OpPattern(call.Op)
	})
	flow.SharedConstants = true
	var singles []*Group
	for i := range p.g.Nodes {
		v := relay.NodeID(i)
		if !IsOperator(&p.g.Nodes[i]) || p.class[i] != operator && p.class[i] != dynamic {
			continue
		}
		reason := p.immovable(backend, []relay.NodeID{v})
		if reason == "" {
			if err := rules.Supports(p.g, v); err != nil {
				reason = err.Error()
			}
		}
		if reason != "" {
			p.refuse(Refusal{Node: v, Backend: backend.Name(), Composite: p.g.Nodes[i].Op, Reason: reason})
			continue
		}
		singles = append(singles, flow.Single(v, flow.labels[v]))
	}
	depth, limit := rules.MaxDepth, rules.Limit
	if depth == 0 {
		depth = defaultRuleDepth
	}
	if limit == 0 {
		limit = defaultRuleLimit
	}
	combining := StyleRules(rules.Style, depth)
	combining.Complete, combining.Limit = true, limit
	groups, _ := flow.Combine(singles, combining)
	for _, group := range groups {
		if nodes := flow.Placeable(group); flow.Legal(group, depth) && p.movable(backend, nodes) {
			p.add(b, byoc.Proposal{Bare: true, Nodes: nodes})
		}
	}
}
