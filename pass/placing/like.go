// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"math"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Like places main as a plan does that was made for the same network with fixed sizes (symbolic.FixModule): what the plan
// has on a backend is there, where that takes it with open dimensions, and the rest is TVM's. nodes says of each node of
// the plan's main which one of this main's it is; NoNode for none. What candidates cost was measured at these sizes, and
// is not in the plan that Plan writes. A backend of the name open, if it is not "", has what it takes of parts with open
// dimensions, too. Errors: as Decided's.
func Like(mod *bridge.Object, cfg settings.Config, p *plan.Plan, nodes []relay.NodeID, open string) (*Module, error) {
	cfg.WithoutCosts = true
	s, err := proposed(mod, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.constrain(); err != nil {
		return nil, err
	}
	defer clock(&s.Timings.Place)()
	for _, f := range s.Functions {
		f.Costs = make([]cost.Cost, len(f.Set.Candidates))
		chosen, err := s.like(f, p, nodes, open)
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", f.Set.Graph.Name, err)
		}
		f.decideUncosted(chosen.Chosen, s.ByName)
	}
	return s, nil
}

// like chooses what the plan has, and what has open dimensions on the backend of that name. Where sizes are open a
// candidate of the plan may be another one by a node or two, which somebody else reads to know sizes: then it is the one
// that ends with the same node.
func (s *Module) like(f *Function, p *plan.Plan, nodes []relay.NodeID, open string) (*place.Solution, error) {
	offered := map[string]bool{}
	for k := range f.Set.Candidates {
		c := &f.Set.Candidates[k]
		offered[candidateID(c.Backend, c.Composite, c.Nodes)] = true
	}
	planned, ends := map[string]bool{}, map[string]bool{}
	for i := range p.Regions {
		r := &p.Regions[i]
		for j := range r.Candidates {
			c := &r.Candidates[j]
			var here []relay.NodeID
			for _, n := range c.Nodes {
				if n.Index < len(nodes) && nodes[n.Index] != relay.NoNode {
					here = append(here, nodes[n.Index])
				}
			}
			if len(here) != len(c.Nodes) || r.Function != f.Set.Graph.Name {
				continue
			}
			if id := candidateID(r.BackendOf(c), c.Composite, here); offered[id] {
				planned[id] = true
			} else {
				ends[candidateID(r.BackendOf(c), c.Composite, here[len(here)-1:])] = true
			}
		}
	}
	options := make([]place.Option, len(f.Set.Candidates))
	for k := range f.Set.Candidates {
		c := &f.Set.Candidates[k]
		options[k] = place.Option{Nodes: c.Nodes, Rank: c.Rank, Cost: math.Inf(1)}
		switch {
		case s.ByName[c.Backend].TakesAnything():
			options[k].Cost = 1 + float64(c.Operators(f.Set.Graph)) // as much as it takes to take what is planned
		case planned[candidateID(c.Backend, c.Composite, c.Nodes)], c.Open && c.Backend == open,
			ends[candidateID(c.Backend, c.Composite, []relay.NodeID{c.Root})]:
			options[k].Cost = EachCandidate
		}
	}
	return place.Solve(options, place.TreeOf(f.Set.Graph))
}
