// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

const (
	// mostPenalty is what a node costs at most, in milliseconds, that is fused against its colour. Candidates that cost
	// more are not kept from being chosen by colours alone.
	mostPenalty = 1000.0
	// decodeEffort bounds the search for candidates with several exits: 20 ms. Without it the cheapest with one exit
	// are taken.
	decodeEffort = place.DefaultEffort / 100
	// wrongBackend is how many times as much a node costs that is on another backend than its gene says.
	wrongBackend = 8
)

// Decode makes the placement that a genome asks for, or the nearest that is legal. Equal genomes and costs give equal
// placements. The error is place's, for candidates that cannot cover the network at all.
func (s *Space) Decode(g Genome) (*Placement, error) {
	p := &Placement{Chosen: make([][]int, len(s.Functions)), Regions: make([][]annotate.Region, len(s.Functions))}
	for i := range s.Functions {
		f := &s.Functions[i]
		options := s.options(i, g[i])
		chosen, done := s.around(i, s.kept(i, g[i]), options)
		if !done {
			placed, err := place.SolveWithin(options, f.Tree, decodeEffort)
			if err != nil {
				return nil, fmt.Errorf("function %s: %w", f.Set.Graph.Name, err)
			}
			chosen = placed.Chosen
		}
		p.Chosen[i] = chosen
		p.Regions[i] = annotate.RegionsWhere(f.Set, chosen, s.byName, func(producer, user int) bool {
			return g[i][f.speaker(producer)].Colour == g[i][f.speaker(user)].Colour
		})
	}
	p.Genome = s.normal(p, g)
	p.Key = s.key(p)
	return p, nil
}

// Place makes the placement of a choice of candidates as it stands, neighbours on backends that merge joined wherever
// that is possible. chosen must cover each function.
func (s *Space) Place(chosen [][]int) *Placement {
	p := &Placement{Chosen: make([][]int, len(chosen)), Regions: make([][]annotate.Region, len(chosen))}
	for i := range s.Functions {
		set := s.Functions[i].Set
		p.Chosen[i] = slices.Clone(chosen[i])
		slices.SortFunc(p.Chosen[i], func(a, b int) int { return int(set.Candidates[a].Root - set.Candidates[b].Root) })
		p.Regions[i] = annotate.Regions(set, p.Chosen[i], s.byName)
	}
	p.Genome = s.normal(p, nil)
	p.Key = s.key(p)
	return p
}

// speaker is the node whose gene speaks for a candidate: its last operator.
func (f *Function) speaker(k int) relay.NodeID {
	c := &f.Set.Candidates[k]
	for n := len(c.Nodes) - 1; n >= 0; n-- {
		if candidate.IsOperator(&f.Set.Graph.Nodes[c.Nodes[n]]) {
			return c.Nodes[n]
		}
	}
	return c.Root
}

// options are a function's candidates, dearer for each node whose gene they go against.
func (s *Space) options(i int, genes []Gene) []place.Option {
	f := &s.Functions[i]
	unit := 0.0
	for _, c := range f.Costs {
		if !math.IsInf(c, 1) {
			unit = max(unit, c)
		}
	}
	unit = min(2*unit+1, mostPenalty)
	options := make([]place.Option, len(f.Set.Candidates))
	for k := range options {
		c := &f.Set.Candidates[k]
		options[k] = place.Option{Nodes: c.Nodes, Cost: f.Costs[k], Rank: c.Rank}
		if c.Free {
			options[k].Cost = 0 // a tuple goes wherever its neighbours are
			continue
		}
		backend, colour := s.index[c.Backend], genes[f.speaker(k)].Colour
		against := 0
		for _, v := range c.Nodes {
			// A tuple or a projection inside of a candidate goes with what it stands between.
			if !candidate.IsOperator(&f.Set.Graph.Nodes[v]) {
				continue
			}
			if genes[v].Backend != backend {
				against += wrongBackend
			}
			if backend != s.free && genes[v].Colour != colour {
				against++
			}
		}
		if s.variants[i][k].against(genes[c.Root]) {
			against++
		}
		if options[k].Cost += unit * float64(against); against > 0 && len(c.Exits) > 0 {
			options[k].Cost = math.Inf(1) // its neighbours of one colour are joined without it: it is taken whole or not at all
		}
	}
	return options
}

// normal is the genome of a placement: each region has a colour of its own, and says which candidates it is made of.
// asked is the genome that it was decoded from; nil for none.
func (s *Space) normal(p *Placement, asked Genome) Genome {
	g := s.Uniform(s.free)
	for i := range asked {
		for v := range asked[i] {
			g[i][v].Variant = asked[i][v].Variant
		}
	}
	colour := int32(0)
	for i := range s.Functions {
		for n := range p.Regions[i] {
			r := &p.Regions[i][n]
			colour++
			for _, v := range r.Nodes {
				g[i][v].Backend, g[i][v].Colour = s.regionOf(i, r), colour
			}
			for _, k := range r.Candidates {
				for _, v := range s.Functions[i].Set.Candidates[k].Nodes {
					g[i][v].Taken, g[i][v].Region = int32(k+1), int32(len(r.Nodes))
				}
			}
		}
		for _, k := range p.Chosen[i] {
			c := &s.Functions[i].Set.Candidates[k]
			// What decided about those that were not chosen stays as it was, so that they are not chosen next time
			// either.
			if v := s.variants[i][k]; v.of > 0 && g[i][c.Root].Variant <= v.of {
				g[i][c.Root].Variant = v.number
			}
			// A backend other than the free one may have no compiler, too.
			if b := s.index[c.Backend]; !c.Free && g[i][c.Root].Backend != b {
				for _, v := range c.Nodes {
					g[i][v].Backend = b
				}
			}
		}
	}
	return g
}

// key hashes what makes the executable.
func (s *Space) key(p *Placement) string {
	h := sha256.New()
	for i, f := range s.Functions {
		for _, r := range p.Regions[i] {
			fmt.Fprintf(h, "%s %s\n", f.Set.Graph.Name, r.Backend)
			candidates := slices.Clone(r.Candidates)
			slices.SortFunc(candidates, func(a,
				b int) int {
				return int(f.Set.Candidates[a].Root - f.Set.Candidates[b].Root)
			})
			for _, k := range candidates {
				fmt.Fprintf(h, " %s %v\n", f.Set.Candidates[k].Composite, f.Set.Candidates[k].Nodes)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
