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

// Proof is what a plan proves about its placement.
type Proof struct {
	// Milliseconds is what the placement costs, transfers included.
	Milliseconds float64
	// Bound is what no placement of the plan's candidates costs less than, as far as the plan itself shows it. The
	// search may have shown more (Estimate.Bound).
	Bound float64
	// Believed is the same by what a search among whole networks ended with (GraphLevel.Believed); nil where the plan
	// says nothing of it.
	Believed *Proof
}

// Gap is how far from the cheapest the placement is at most; 0 for one that is proven to be the cheapest.
func (p Proof) Gap() float64 { return round(max(0, p.Milliseconds-p.Bound)) }

// Verify checks the plan's proof from what stands in the plan alone, without the module (Prove).
func (p *Plan) Verify() error {
	_, err := p.Prove()
	return err
}

// Prove checks from what stands in the plan alone, without the module, that in each function every node is covered
// once, that the costs add up, and what no choice among the chosen and the rejected candidates costs less than. It
// returns ErrNotProven for a plan that holds nothing of the kind.
func (p *Plan) Prove() (Proof, error) {
	if err := p.Validate(); err != nil {
		return Proof{}, err
	}
	if !p.Estimate.Optimal && p.Estimate.Bound == 0 && p.believed() == nil {
		return Proof{}, ErrNotProven
	}
	for _, r := range p.Candidates.Rejected {
		if !slices.ContainsFunc(p.Module.Functions, func(f Function) bool { return f.Name == r.Function }) {
			return Proof{}, fmt.Errorf("plan: a rejected candidate belongs to the function %q, which is not listed",
				r.Function)
		}
		if p.Backend(r.Backend) == nil {
			return Proof{}, fmt.Errorf("plan: a rejected candidate is on the backend %q, which is not listed",
				r.Backend)
		}
	}
	for _, f := range p.Module.Functions {
		if err := p.checkIndices(f); err != nil {
			return Proof{}, err
		}
		if err := p.checkPostDominators(f); err != nil {
			return Proof{}, err
		}
	}
	believed, err := p.proveBelieved()
	if err != nil {
		return Proof{}, err
	}
	proof := Proof{Believed: believed}
	if !p.Estimate.Optimal && p.Estimate.Bound == 0 {
		return proof, ErrNotProven
	}
	for _, f := range p.Module.Functions {
		if len(p.Borders) > 0 {
			cost, bound, err := p.proveBorders(f)
			if err != nil {
				return Proof{}, fmt.Errorf("plan: function %s: %w", f.Name, err)
			}
			proof.Milliseconds, proof.Bound = proof.Milliseconds+cost, proof.Bound+bound
			continue
		}
		options, tree, placement := p.problem(f)
		bound, err := placement.Cost, error(nil)
		if p.Estimate.Optimal {
			err = place.Verify(options, tree, placement)
		} else {
			bound, err = place.VerifyBound(options, tree, placement)
		}
		if err != nil {
			return Proof{}, fmt.Errorf("plan: function %s: %w", f.Name, err)
		}
		proof.Milliseconds, proof.Bound = proof.Milliseconds+placement.Cost, proof.Bound+bound
	}
	proof.Milliseconds, proof.Bound = round(proof.Milliseconds), round(proof.Bound)
	if proof.Bound > proof.Milliseconds && !near(proof.Bound, proof.Milliseconds) {
		return Proof{}, fmt.Errorf("plan: no placement costs less than %v ms by its borders and prices, and this one "+
			"costs %v ms: they contradict each other", proof.Bound, proof.Milliseconds)
	}
	if !near(proof.Milliseconds, p.Estimate.Milliseconds) {
		return Proof{}, fmt.Errorf("plan: the placement costs %v ms, not %v ms", proof.Milliseconds,
			p.Estimate.Milliseconds)
	}
	return proof, nil
}

// checkIndices says which rejected candidate of a function covers what is no node of it. (Validate looks at the chosen
// ones.)
func (p *Plan) checkIndices(f Function) error {
	for _, r := range p.Candidates.Rejected {
		before := -1
		for _, v := range r.Nodes {
			if r.Function == f.Name && (v <= before || v >= f.Nodes) {
				return fmt.Errorf("plan: function %s: a rejected candidate on %s covers %%%d, which is no node of it "+
					"or stands twice",
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
func (p *Plan) problem(f Function) ([]place.Option, *place.Tree, *place.Solution) {
	return p.problemBy(f, false)
}

// problemBy is problem by what is known of each candidate alone, or by what was believed of them in place.
func (p *Plan) problemBy(f Function, believed bool) ([]place.Option, *place.Tree, *place.Solution) {
	by := func(alone, inPlace float64) float64 {
		if believed {
			return inPlace
		}
		return alone
	}
	tree := &place.Tree{Parent: make([]relay.NodeID, f.Nodes), Needs: make([]bool, f.Nodes)}
	for v := range tree.Parent {
		tree.Parent[v] = relay.NoNode
	}
	reads, told := make([][]relay.NodeID, f.Nodes), false
	solution := &place.Solution{Prices: make([]float64, f.Nodes)}
	chosen := map[relay.NodeID]place.Option{} // by root: candidates of one region need not stand together
	for i := range p.Regions {
		if p.Regions[i].Function != f.Name {
			continue
		}
		for _, c := range p.Regions[i].Candidates {
			o := place.Option{Cost: by(c.Milliseconds, c.Believed)}
			for _, n := range c.Nodes {
				v := relay.NodeID(n.Index)
				o.Nodes = append(o.Nodes, v)
				tree.Needs[v] = true
				tree.Parent[v] = relay.NodeID(n.PostDominator)
				solution.Prices[v] = by(n.Price, n.Believed)
				for _, u := range n.Reads {
					reads[v], told = append(reads[v], relay.NodeID(u)), true
				}
			}
			chosen[o.Nodes[len(o.Nodes)-1]] = o
			solution.Cost += o.Cost
		}
	}
	if told {
		for v := range reads { // what callers give is nobody's result
			reads[v] = slices.DeleteFunc(reads[v], func(u relay.NodeID) bool { return !tree.Needs[u] })
		}
		tree.Reads = reads
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
		o := place.Option{Cost: by(r.Milliseconds, r.Believed)}
		for _, v := range r.Nodes {
			o.Nodes = append(o.Nodes, relay.NodeID(v))
		}
		options = append(options, o)
	}
	return options, tree, solution
}
