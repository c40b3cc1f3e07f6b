// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// borders are the backends whose borders cost something (byoc.Borderer), in the order of the backends. Of those that share
// regions the first speaks for all: between them there is no border.
func borders(backends []byoc.Backend) []byoc.Backend {
	var found []byoc.Backend
	for _, b := range backends {
		if byoc.BorderCostOf(b) != nil && !slices.ContainsFunc(found, func(other byoc.Backend) bool { return byoc.ShareRegions(other, b) }) {
			found = append(found, b)
		}
	}
	return found
}

// speakers give for each backend's name which of those with borders speaks for its own; nothing where none does.
func speakers(backends, bordered []byoc.Backend) map[string]int {
	speaker := map[string]int{}
	for _, b := range backends {
		for i, s := range bordered {
			if b.Name() == s.Name() || byoc.ShareRegions(b, s) {
				speaker[b.Name()] = i
			}
		}
	}
	return speaker
}

// border is what it takes to bring one value to a backend and away from it, in milliseconds.
type border struct{ in, out float64 }

// crossing knows the borders of one function's values.
type crossing struct {
	g        *relay.Graph
	backends []byoc.Backend // those with borders; backend i is state i+1, with all that it speaks for, all others are state 0
	state    map[string]place.State
	known    []map[relay.NodeID]border // by backend
}

func newCrossing(g *relay.Graph, all, bordered []byoc.Backend) *crossing {
	c := &crossing{g: g, backends: bordered, state: map[string]place.State{}}
	for name, speaker := range speakers(all, bordered) {
		c.state[name] = place.State(speaker + 1)
	}
	for range bordered {
		c.known = append(c.known, map[relay.NodeID]border{})
	}
	return c
}

// at gives the border of a value at backend number i.
func (c *crossing) at(i int, v relay.NodeID) (border, error) {
	if known, ok := c.known[i][v]; ok {
		return known, nil
	}
	sum := border{}
	function := byoc.BorderCostOf(c.backends[i])
	var add func(t *relay.Type) error
	add = func(t *relay.Type) error {
		if t.Kind == relay.TypeTuple {
			for _, field := range t.Fields {
				if err := add(field); err != nil {
					return err
				}
			}
			return nil
		}
		in, out := function(t)
		if !(in >= 0 && out >= 0) || math.IsInf(in+out, 1) {
			return fmt.Errorf("the border cost of the backend %s for %s is %v and %v ms; it must be at least 0 and finite",
				c.backends[i].Name(), t, in, out)
		}
		sum.in, sum.out = sum.in+in, sum.out+out
		return nil
	}
	if t := c.g.Nodes[v].Type; t != nil {
		if err := add(t); err != nil {
			return border{}, err
		}
	}
	c.known[i][v] = sum
	return sum, nil
}

// transfer is place.Problem's.
func (c *crossing) transfer(u relay.NodeID, from, to place.State) float64 {
	if from == to {
		return 0
	}
	ms := 0.0
	if from > 0 {
		ms += c.known[from-1][u].out
	}
	if to > 0 {
		ms += c.known[to-1][u].in
	}
	return ms
}

// charge adds to a candidate's cost what the function's own inputs and outputs cost at its border, which no other
// candidate pays for.
func (c *crossing) charge(o *place.Option, inputs []relay.NodeID) error {
	if o.State == 0 || math.IsInf(o.Cost, 1) {
		return nil
	}
	i := int(o.State) - 1
	for _, in := range inputs {
		if c.g.Placeable(in) {
			continue
		}
		b, err := c.at(i, in)
		if err != nil {
			return err
		}
		o.Cost += b.in
	}
	if root := o.Nodes[len(o.Nodes)-1]; c.g.ScopeRoot(root) {
		b, err := c.at(i, root)
		if err != nil {
			return err
		}
		o.Cost += b.out
	}
	return nil
}

// solve places a function whose options have their costs. Where borders cost something, the placement says how far from
// the cheapest it can be; its prices are then those of the options alone, a bound that leaves the borders out.
func (s *search) solve(f *function) (*place.Placement, error) {
	tree := place.TreeOf(f.set.Graph)
	bordered := borders(s.backends)
	if len(bordered) == 0 {
		return place.Solve(f.options, tree)
	}
	c := newCrossing(f.set.Graph, s.backends, bordered)
	for k := range f.options {
		candidate := &f.set.Candidates[k]
		f.options[k].State = c.state[candidate.Backend]
		if err := c.charge(&f.options[k], candidate.Inputs); err != nil {
			return nil, err
		}
	}
	for v := range f.set.Graph.Nodes {
		for i := range bordered {
			if id := relay.NodeID(v); f.set.Graph.Placeable(id) {
				if _, err := c.at(i, id); err != nil {
					return nil, err
				}
			}
		}
	}
	alone, err := place.Solve(f.options, tree)
	if err != nil {
		return nil, err
	}
	problem := &place.Problem{Tree: tree, Options: f.options, Reads: place.ReadsOf(f.set.Graph), Transfer: c.transfer}
	placement, err := problem.Solve()
	if err != nil {
		return nil, err
	}
	if err := problem.Verify(placement); err != nil {
		return nil, err
	}
	placement.Prices = alone.Prices
	placement.LowerBound = max(placement.LowerBound, alone.LowerBound)
	placement.Gap = placement.Cost - placement.LowerBound
	f.borders = &plan.Borders{Reads: problem.Reads}
	for v := range f.set.Graph.Nodes {
		for i, b := range bordered {
			id := relay.NodeID(v)
			if known := c.known[i][id]; f.set.Graph.Placeable(id) && len(f.set.Graph.Consumers(id)) > 0 && known != (border{}) {
				f.borders.Values = append(f.borders.Values, plan.Border{Function: f.set.Graph.Name, Value: v, Backend: b.Name(),
					In: known.in, Out: known.out})
			}
		}
	}
	return placement, nil
}
