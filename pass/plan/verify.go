// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// ErrNotProven says that a plan carries no proof: its placement was not searched for.
var ErrNotProven = errors.New("plan: the placement was not searched for, so there is nothing that proves it")

// Verify checks the plan's proof from what stands in the plan alone, without the module: that in each function every
// node is covered once, and that no choice among the chosen and the rejected candidates has a smaller sum. It
// returns ErrNotProven for a plan without prices.
func (p *Plan) Verify() error {
	if err := p.Validate(); err != nil {
		return err
	}
	if !p.Estimate.Optimal {
		return ErrNotProven
	}
	for _, f := range p.Module.Functions {
		options, tree, placement := p.problem(f)
		for i, o := range options {
			for _, v := range o.Nodes {
				if v < 0 || int(v) >= f.Nodes {
					return fmt.Errorf("plan: function %s: option %d covers %%%d, which is no node of it", f.Name, i, v)
				}
			}
		}
		if err := place.Verify(options, tree, placement); err != nil {
			return fmt.Errorf("plan: function %s: %w", f.Name, err)
		}
	}
	return nil
}

// problem gives back what was solved for a function, and the solution. The chosen options come first.
func (p *Plan) problem(f Function) ([]place.Option, *place.Tree, *place.Placement) {
	tree := &place.Tree{Parent: make([]relay.NodeID, f.Nodes), Needs: make([]bool, f.Nodes)}
	for v := range tree.Parent {
		tree.Parent[v] = relay.NoNode
	}
	solution := &place.Placement{Prices: make([]float64, f.Nodes)}
	chosen := map[relay.NodeID]place.Option{} // by root: candidates of one region need not stand together
	for i := range p.Regions {
		if p.Regions[i].Function != f.Name {
			continue
		}
		for _, c := range p.Regions[i].Candidates {
			o := place.Option{Cost: c.Milliseconds}
			for _, n := range c.Nodes {
				v := relay.NodeID(n.Index)
				o.Nodes = append(o.Nodes, v)
				tree.Needs[v] = true
				tree.Parent[v] = relay.NodeID(n.PostDominator)
				solution.Prices[v] = n.Price
			}
			chosen[o.Nodes[len(o.Nodes)-1]] = o
			solution.Cost += o.Cost
		}
	}
	var options []place.Option
	for v := range tree.Parent {
		if o, ok := chosen[relay.NodeID(v)]; ok {
			solution.Chosen = append(solution.Chosen, len(options))
			options = append(options, o)
		}
	}
	solution.Cost = round(solution.Cost)
	for _, r := range p.Candidates.Rejected {
		if r.Function != f.Name {
			continue
		}
		o := place.Option{Cost: r.Milliseconds}
		for _, v := range r.Nodes {
			o.Nodes = append(o.Nodes, relay.NodeID(v))
		}
		options = append(options, o)
	}
	return options, tree, solution
}
