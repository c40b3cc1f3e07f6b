// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// propose adds what backend number b proposes by itself, if it does; what cannot be a candidate is left out.
func (p *proposer) propose(b int, backend byoc.Backend, learnt []byoc.Learnt) error {
	if p.isSized(backend) {
		return p.atSizes(b, func(at *proposer) error { return at.propose(b, backend, learnt) })
	}
	var proposals []byoc.Proposal
	switch source := backend.(type) {
	case byoc.FallibleProposer:
		var err error
		if proposals, err = source.ProposeOrFail(p.g, learnt); err != nil {
			return fmt.Errorf("what the backend %s proposes: %w", backend.Name(), err)
		}
	case byoc.Proposer:
		proposals = source.Propose(p.g, learnt)
	}
	for _, proposal := range proposals {
		if CheckEither(p.g, proposal.Nodes, mayBranch(backend, &proposal)) == nil && p.movable(backend, proposal.Nodes) {
			p.add(b, proposal)
		}
	}
	return nil
}

// mayBranch says that a proposal may have several exits: it becomes a function that gives a tuple, which a composite
// function, or what stays inline, is not.
func mayBranch(backend byoc.Backend, proposal *byoc.Proposal) bool {
	return backend.Compiler() != "" && proposal.Bare && proposal.Composite == ""
}

// movable says that the nodes hold an operator, and none that stays where it is.
func (p *proposer) movable(backend byoc.Backend, nodes []relay.NodeID) bool {
	return p.immovable(backend, nodes) == ""
}

// Extend asks the backends that propose by themselves (byoc.Proposer) again, with what was learnt about the set's
// candidates, and gives a set with what is new in it, and how many those are. backends and opts are those that Propose
// was given. The old set stays as it is; candidates of the new one have other indices.
func Extend(set *Set, backends []byoc.Backend, opts Options, learnt []byoc.Learnt) (*Set, int, error) {
	p := newProposer(set.Graph, backends, opts)
	if err := p.classify(); err != nil {
		return nil, 0, err
	}
	p.refusals = set.Refusals
	for _, c := range set.Candidates {
		p.seen[string(p.identify(c.Backend, c.Composite, c.Nodes))] = true
	}
	for i, b := range backends {
		if err := p.propose(i, b, learnt); err != nil {
			return nil, 0, err
		}
	}
	added := len(p.found)
	if added == 0 {
		return set, 0, nil
	}
	p.finish()
	p.found = append(slices.Clone(set.Candidates), p.found...)
	p.sort()
	return &Set{Graph: set.Graph, Candidates: p.found, Refusals: p.refusals}, added, nil
}

// Learnt says of a candidate what it was found to cost, in milliseconds; +Inf for one that failed.
func (c *Candidate) Learnt(milliseconds float64, failure string) byoc.Learnt {
	if failure != "" {
		milliseconds = math.Inf(1)
	}
	return byoc.Learnt{Backend: c.Backend, Composite: c.Composite, Nodes: c.Nodes, Milliseconds: milliseconds,
		Failure: failure}
}
