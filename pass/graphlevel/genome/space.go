// SPDX-License-Identifier: Apache-2.0

// Package genome describes placements of whole networks as something that can be changed node by node.
//
// What comes in: the candidates of a network's functions and what they are thought to cost (Space). What goes out:
// for each Genome a Placement that is legal by construction (Space.Decode): each node is covered once, no value escapes
// a candidate, no two regions need each other's results. Space.Alternatives makes new genomes of an old one.
//
// A genome gives each node a backend and a colour. Candidates are then chosen by the exact solver of pass/place, with a
// penalty for each node that a candidate takes against its gene, so that any genome at all has a placement. Neighbours
// on a backend that merges share a region if they have one colour, and a candidate of several nodes is chosen only if
// they have one colour: so colours say what is merged and what is split, what is fused and what is not.
//
// The genome of a placement says, too, which candidates its regions are made of. What no change touches stays as it is,
// whatever is learnt about costs meanwhile.
//
// Backends that share regions (byoc.ShareRegions) are one backend to a genome: which of them runs the same nodes is a
// matter of variants, as which of a backend's own algorithms does.
package genome

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// Function is one function of the network.
type Function struct {
	Set  *candidate.Set
	Tree *place.Tree
	// Costs are those of Set.Candidates, in milliseconds; +Inf for one that must not be taken. They decide what a
	// genome leaves open, and what Predict says.
	Costs []float64
}

// Space is what genomes are about. It is not changed while genomes are decoded, except for Function.Costs between two
// decodings, and Border.
type Space struct {
	Backends  []byoc.Backend
	Functions []Function
	// Border is what it is thought to take to bring a node's value to a region of a backend and away from it, in
	// milliseconds, or to and from what stays inline (package border). nil: nothing.
	Border func(function int, v relay.NodeID, backend int16) (in, out float64)

	byName map[string]byoc.Backend
	// index has the number of each backend, or that of the first one that it shares regions with.
	index map[string]int16
	// free is the backend that takes anything: what no gene decides goes there.
	free int16
	// takes are the backends that can have a part in covering a node, for each function and node.
	takes [][][]int16
	// flows say of each function who reads what.
	flows []*border.Flow
	// variants are, for each function and candidate, which ways there are to run its nodes on its backend.
	variants [][]variant
}

// NewSpace makes a space. One of the backends must take anything; each function's costs must be there.
func NewSpace(backends []byoc.Backend, functions []Function) (*Space, error) {
	s := &Space{Backends: backends, Functions: functions, byName: map[string]byoc.Backend{}, index: map[string]int16{},
		free: -1}
	for i, b := range backends {
		s.byName[b.Name()], s.index[b.Name()] = b,
			int16(slices.IndexFunc(backends[:i+1], func(other byoc.Backend) bool {
				return other.Name() == b.Name() || byoc.ShareRegions(other, b)
			}))
		if b.TakesAnything() && s.free < 0 {
			s.free = int16(i)
		}
	}
	if s.free < 0 {
		return nil, errors.New("graph-level search: none of the backends takes anything, so there is nowhere to move " +
			"operators to: offer tvm")
	}
	for _, f := range functions {
		if len(f.Costs) != len(f.Set.Candidates) {
			return nil, fmt.Errorf("graph-level search: function %s has %d candidates and %d costs", f.Set.Graph.Name,
				len(f.Set.Candidates), len(f.Costs))
		}
		takes := make([][]int16, len(f.Set.Graph.Nodes))
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			at, known := s.index[c.Backend]
			if !known {
				return nil, fmt.Errorf("graph-level search: a candidate is on the backend %q, which is not offered",
					c.Backend)
			}
			if c.Free || math.IsInf(f.Costs[k], 1) {
				continue
			}
			for _, v := range c.Nodes {
				takes[v] = insert(takes[v], at)
			}
		}
		s.takes = append(s.takes, takes)
		s.flows = append(s.flows, border.FlowOf(f.Set.Graph))
		s.variants = append(s.variants, s.variantsOf(&f))
	}
	return s, nil
}

// insert adds an element to an ascending list that has it at most once.
func insert(list []int16, x int16) []int16 {
	for i, y := range list {
		if y == x {
			return list
		}
		if y > x {
			return append(list[:i:i], append([]int16{x}, list[i:]...)...)
		}
	}
	return append(list, x)
}

// Backend is the number of a backend, the same for backends that share regions; -1 for one that is not offered.
func (s *Space) Backend(name string) int16 {
	if i, ok := s.index[name]; ok {
		return i
	}
	return -1
}

// regionOf is the number of a region's backends.
func (s *Space) regionOf(function int, r *annotate.Region) int16 {
	return s.index[s.Functions[function].Set.Candidates[r.Candidates[0]].Backend]
}

// numbers are those that backends have: of those that share regions only one.
func (s *Space) numbers() []int16 {
	var list []int16
	for _, b := range s.Backends {
		list = insert(list, s.index[b.Name()])
	}
	return list
}

// name is what people call the backends of a number: "dnnl", "dnnl+native".
func (s *Space) name(number int16) string {
	var names []string
	for _, b := range s.Backends {
		if s.index[b.Name()] == number {
			names = append(names, b.Name())
		}
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// Free is the number of the backend that takes anything.
func (s *Space) Free() int16 { return s.free }

// Gene says where a node should go: to a backend, together with the neighbours of its colour.
type Gene struct {
	Backend int16
	// Variant is the way in which the backend should run what ends here, where there are several (another algorithm for
	// the same nodes), from 1; 0 for the cheapest by the costs.
	Variant int16
	Colour  int32
	// Taken is 1 + the candidate that has the node in a region of Region nodes: what a placement's own genome says of its
	// regions. It holds as long as no gene of that region is another one (Space.kept); 0 leaves it to the costs.
	Taken, Region int32
}

// Genome has a gene for each node of each function; those of nodes that need no cover say nothing.
type Genome [][]Gene

// Clone is a copy that shares nothing.
func (g Genome) Clone() Genome {
	out := make(Genome, len(g))
	for i := range g {
		out[i] = append([]Gene(nil), g[i]...)
	}
	return out
}

// Uniform is the genome that gives everything to one backend, as far as it takes it.
func (s *Space) Uniform(backend int16) Genome {
	g := make(Genome, len(s.Functions))
	for i := range s.Functions {
		g[i] = make([]Gene, len(s.Functions[i].Set.Graph.Nodes))
		for v := range g[i] {
			g[i][v] = Gene{Backend: backend}
		}
	}
	return g
}

// Placement is a legal placement of a whole network.
type Placement struct {
	// Genome is what the placement is: decoded again it gives the same placement. It may differ from the genome that
	// was decoded, which may have asked for what cannot be.
	Genome Genome
	// Chosen are, for each function, indices into its candidates, in ascending order of their roots.
	Chosen [][]int
	// Regions are, for each function, what is outlined, without symbols.
	Regions [][]annotate.Region
	// Key is the same for placements that are the same executable: those with the same regions of backends that have a
	// compiler. How TVM's share is cut into candidates is not in it, since TVM fuses as it likes.
	Key string
}

// Predict is what the costs say about a placement, in milliseconds: the sum of the chosen candidates', and what the
// values that cross the borders of its regions take.
func (s *Space) Predict(p *Placement) float64 {
	sum := 0.0
	for i, f := range s.Functions {
		for _, k := range p.Chosen[i] {
			if c := &f.Set.Candidates[k]; !c.Free {
				sum += f.Costs[k]
			}
		}
		if s.Border != nil {
			ps := s.flows[i].Sum(s.sides(i, p.Regions[i]), s.ends(i))
			sum += float64(ps) / 1e9
		}
	}
	return sum
}

// PredictFree is what a placement leaves to what takes anything (Free), in milliseconds: what the costs say of those
// candidates of the placement that has all there whose nodes are outside of all regions of this one. Errors: Decode's.
func (s *Space) PredictFree(p *Placement) (float64, error) {
	all, err := s.Decode(s.Uniform(s.free))
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for i, f := range s.Functions {
		outlined := map[relay.NodeID]bool{}
		for _, r := range p.Regions[i] {
			for _, v := range r.Nodes {
				outlined[v] = true
			}
		}
		for _, k := range all.Chosen[i] {
			c := &f.Set.Candidates[k]
			if !c.Free && !slices.ContainsFunc(c.Nodes, func(v relay.NodeID) bool { return outlined[v] }) {
				sum += f.Costs[k]
			}
		}
	}
	return sum, nil
}

// Borders are what is paid between the regions that chosen candidates of a function form, for place.Problem: an
// option's state is State of its candidate.
func (s *Space) Borders(function int) *place.Borders {
	return &place.Borders{Flow: s.flows[function], Ends: s.ends(function), Inline: place.State(s.free),
		Apart: func(state place.State) bool { return !s.Backends[state].MergesRegions() },
		Regions: func(chosen []int) *border.Regions {
			return s.sides(function, annotate.Regions(s.Functions[function].Set, chosen, s.byName))
		}}
}

// State is where a candidate's values are: the number of its backend; of what stays inline that of the backend that
// takes anything.
func (s *Space) State(c *candidate.Candidate) place.State {
	if b := s.byName[c.Backend]; c.Free || b.Compiler() == "" {
		return place.State(s.free)
	}
	return place.State(s.index[c.Backend])
}

func (s *Space) sides(function int, regions []annotate.Region) *border.Regions {
	return annotate.Sides(s.Functions[function].Set.Graph, regions, border.Side(s.free),
		func(r *annotate.Region) border.Side {
			return border.Side(s.regionOf(function, r))
		})
}

func (s *Space) ends(function int) border.Ends {
	return border.Rounded(func(v relay.NodeID, side border.Side) (in,
		out float64) {
		return s.Border(function, v, int16(side))
	})
}

// Outlined counts the regions of a placement, which is how complicated it is.
func (p *Placement) Outlined() int {
	n := 0
	for _, regions := range p.Regions {
		n += len(regions)
	}
	return n
}

// Check says why a placement is not legal; nil where it is. It shares no code with Decode.
func (s *Space) Check(p *Placement) error {
	for i, f := range s.Functions {
		g := f.Set.Graph
		by := make([]int, len(g.Nodes))
		for v := range by {
			by[v] = -1
		}
		for _, k := range p.Chosen[i] {
			if math.IsInf(f.Costs[k], 1) {
				return fmt.Errorf("function %s: candidate %d must not be taken", g.Name, k)
			}
			for _, v := range f.Set.Candidates[k].Nodes {
				if by[v] >= 0 {
					return fmt.Errorf("function %s: %%%d is covered twice", g.Name, v)
				}
				by[v] = k
			}
		}
		for v, needs := range f.Tree.Needs {
			if needs && by[v] < 0 {
				return fmt.Errorf("function %s: %%%d is not covered", g.Name, v)
			}
		}
		inRegion := map[int]bool{}
		var covers [][]relay.NodeID
		for _, r := range p.Regions[i] {
			for _, k := range r.Candidates {
				if b := s.byName[f.Set.Candidates[k].Backend]; b == nil || b.Compiler() != r.Compiler || inRegion[k] {
					return fmt.Errorf("function %s: candidate %d does not belong into its region", g.Name, k)
				}
				inRegion[k] = true
			}
			covers = append(covers, r.Nodes)
		}
		for _, k := range p.Chosen[i] {
			if !inRegion[k] {
				covers = append(covers, f.Set.Candidates[k].Nodes)
			}
		}
		if err := place.QuotientAcyclic(place.ReadsOf(g), covers); err != nil {
			return fmt.Errorf("function %s: %w", g.Name, err)
		}
	}
	return nil
}
