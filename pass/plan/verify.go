// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"

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
	for _, r := range p.Candidates.Rejected {
		if !slices.ContainsFunc(p.Module.Functions, func(f Function) bool { return f.Name == r.Function }) {
			return fmt.Errorf("plan: a rejected candidate belongs to the function %q, which is not listed", r.Function)
		}
	}
	for _, f := range p.Module.Functions {
		if err := p.checkIndices(f); err != nil {
			return err
		}
		options, tree, placement := p.problem(f)
		if err := place.Verify(options, tree, placement); err != nil {
			return fmt.Errorf("plan: function %s: %w", f.Name, err)
		}
	}
	return nil
}

// checkIndices says which rejected candidate of a function covers what is no node of it. (Validate looks at the chosen
// ones.)
func (p *Plan) checkIndices(f Function) error {
	for _, r := range p.Candidates.Rejected {
		before := -1
		for _, v := range r.Nodes {
			if r.Function == f.Name && (v <= before || v >= f.Nodes) {
				return fmt.Errorf("plan: function %s: a rejected candidate on %s covers %%%d, which is no node of it or stands twice",
					f.Name, r.Backend, v)
			}
			before = v
		}
		if len(r.Nodes) == 0 {
			return fmt.Errorf("plan: function %s: a rejected candidate on %s covers nothing", f.Name, r.Backend)
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
