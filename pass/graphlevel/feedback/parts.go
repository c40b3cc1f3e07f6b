// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// Part is a group of nodes that ran as one kernel, or as one region.
type Part struct {
	// Nodes are ascending; all in the network's function main.
	Nodes []relay.NodeID `json:"nodes"`
	// Milliseconds is what the kernel took.
	Milliseconds float64 `json:"ms"`
	// Border is what was spent on transforms of layouts and other copies because of it: half of each one that stands
	// between it and another part, all of each one that stands between it and the network's own inputs and outputs.
	Border float64 `json:"border_ms,omitempty"`
	// Crossing is what of Border was spent because another backend is on the other side.
	Crossing float64 `json:"crossing_ms,omitempty"`
}

// Profile is what a run of a built network took, part by part.
type Profile struct {
	Parts []Part `json:"parts"`
	// Rest is the time of kernels that nobody could be found for.
	Rest float64 `json:"rest_ms,omitempty"`
	// Borders are what crossing the borders of regions took, for each backend of which that is known.
	Borders []Border `json:"borders,omitempty"`
	// Whole are the regions that are one part although their engine times its steps.
	Whole []Whole `json:"whole,omitempty"`
}

// Whole is a region that could not be taken apart.
type Whole struct {
	// Backend is its backend (annotate.Region.Backend), Symbol its name.
	Backend string `json:"backend"`
	Symbol  string `json:"symbol"`
	// Why says what is missing.
	Why string `json:"why"`
}

// Border is what the borders of one backend's regions took in one network.
type Border struct {
	// Backend is its name, or the names of those that share the regions (annotate.Region.Backend); "" for all that
	// stays inline.
	Backend string `json:"backend"`
	// Calls is how many regions it has, CallMilliseconds what calling them took beside their own steps.
	Calls            int     `json:"calls,omitempty"`
	CallMilliseconds float64 `json:"call_ms,omitempty"`
	// Ins are the values that came from elsewhere, InBytes their sizes, In what was spent on changing their layouts, in
	// milliseconds; Outs the same for the values that were used elsewhere.
	Ins      int     `json:"ins,omitempty"`
	InBytes  int64   `json:"in_bytes,omitempty"`
	In       float64 `json:"in_ms,omitempty"`
	Outs     int     `json:"outs,omitempty"`
	OutBytes int64   `json:"out_bytes,omitempty"`
	Out      float64 `json:"out_ms,omitempty"`
}

// Total is the sum of all kernels' times, in milliseconds.
func (p *Profile) Total() float64 {
	sum := p.Rest
	for _, part := range p.Parts {
		sum += part.Milliseconds + part.Border
	}
	for _, b := range p.Borders {
		sum += b.CallMilliseconds
	}
	return sum
}

// Border is what was spent between parts and on calling regions, in milliseconds.
func (p *Profile) Border() float64 {
	sum := 0.0
	for _, part := range p.Parts {
		sum += part.Border
	}
	for _, b := range p.Borders {
		sum += b.CallMilliseconds
	}
	return sum
}

// Attribute says which nodes each kernel's time belongs to. set is what main was placed of, regions are its regions
// with their symbols. A region of which the engine tells is taken apart. Errors: an executable that contradicts itself,
// or times for another one.
func Attribute(set *candidate.Set, regions []annotate.Region, e *trace.Executable, times trace.Times) (*Profile,
	error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if len(times.Kernels) != len(e.Kernels) {
		return nil, fmt.Errorf("feedback: %d kernels were timed, the network has %d", len(times.Kernels),
			len(e.Kernels))
	}
	a := &attribution{set: set, regions: regions, e: e, found: align(set.Graph, regions, e), times: times,
		p:      &Profile{},
		partOf: map[relay.NodeID]int{}, nodes: make([][]relay.NodeID, len(e.Kernels)), borders: map[string]*Border{}}
	a.kernels()
	a.transforms()
	for _, backend := range slices.Sorted(maps.Keys(a.borders)) {
		a.p.Borders = append(a.p.Borders, *a.borders[backend])
	}
	slices.SortFunc(a.p.Parts, func(a, b Part) int {
		return cmp.Compare(a.Nodes[len(a.Nodes)-1],
			b.Nodes[len(b.Nodes)-1])
	})
	return a.p, nil
}

// attribution is one Attribute at work.
type attribution struct {
	set     *candidate.Set
	regions []annotate.Region
	e       *trace.Executable
	found   *alignment
	times   trace.Times
	p       *Profile
	partOf  map[relay.NodeID]int
	nodes   [][]relay.NodeID // of each kernel
	borders map[string]*Border
}

// kernels makes the parts.
func (a *attribution) kernels() {
	for v, op := range a.found.op {
		if k := a.e.Ops[op].Kernel; k >= 0 {
			a.nodes[k] = append(a.nodes[k], v)
		}
	}
	region := map[int]*annotate.Region{}
	for i, op := range a.found.region {
		if k := a.e.Ops[op].Kernel; k >= 0 {
			region[k] = &a.regions[i]
			a.nodes[k] = append(a.nodes[k], a.regions[i].Nodes...)
		}
	}
	for k, nodes := range a.nodes {
		if len(nodes) == 0 {
			continue
		}
		slices.Sort(nodes)
		if r := region[k]; r != nil {
			err := fmt.Errorf("its call was fused with %d other nodes", len(nodes)-len(r.Nodes))
			if len(nodes) == len(r.Nodes) {
				err = a.apart(r, a.times.Kernels[k])
			}
			if err == nil {
				continue
			}
			if !errors.Is(err, errSilent) {
				a.p.Whole = append(a.p.Whole, Whole{Backend: r.Backend, Symbol: r.Symbol, Why: err.Error()})
			}
		}
		a.add(Part{Nodes: nodes, Milliseconds: a.times.Kernels[k]})
	}
}

func (a *attribution) add(part Part) int {
	at := len(a.p.Parts)
	for _, v := range part.Nodes {
		a.partOf[v] = at
	}
	a.p.Parts = append(a.p.Parts, part)
	return at
}

// transforms gives the kernels that hold nothing but what was put between to the parts on both sides.
func (a *attribution) transforms() {
	outlined := map[relay.NodeID]bool{}
	for i := range a.regions {
		for _, v := range a.regions[i].Nodes {
			outlined[v] = true
		}
	}
	a.inline(outlined)
	// in, out: a transform that stands behind a region for somebody inline, or the other way round.
	type causes struct {
		parts   []int
		in, out bool
	}
	of := map[int]*causes{}
	for _, c := range a.found.crossings {
		k := a.e.Ops[c.op].Kernel
		if k < 0 || len(a.nodes[k]) > 0 {
			continue
		}
		if of[k] == nil {
			of[k] = &causes{}
		}
		for _, v := range []relay.NodeID{c.from, c.to} {
			if part, ok := a.partOf[v]; ok && !slices.Contains(of[k].parts, part) {
				of[k].parts = append(of[k].parts, part)
			}
		}
		_, from := a.partOf[c.from]
		_, to := a.partOf[c.to]
		if from && to {
			of[k].in = of[k].in || outlined[c.from] && !outlined[c.to]
			of[k].out = of[k].out || outlined[c.to] && !outlined[c.from]
		}
	}
	for k, time := range a.times.Kernels {
		if len(a.nodes[k]) > 0 {
			continue
		}
		c := of[k]
		if c == nil || len(c.parts) == 0 {
			a.p.Rest += time
			continue
		}
		for _, i := range c.parts {
			part := &a.p.Parts[i]
			part.Border += time / float64(len(c.parts))
			if c.in || c.out {
				part.Crossing += time / float64(len(c.parts))
			}
		}
		switch {
		case c.in:
			a.border("").In += time
		case c.out:
			a.border("").Out += time
		}
	}
}

// inline counts the values that go from regions to what stays inline, and back.
func (a *attribution) inline(outlined map[relay.NodeID]bool) {
	g := a.set.Graph
	for v := range g.Nodes {
		id := relay.NodeID(v)
		if !g.Placeable(id) {
			continue
		}
		for _, user := range g.Consumers(id) {
			if outlined[id] == outlined[user] {
				continue
			}
			b := a.border("")
			if outlined[id] {
				b.Ins, b.InBytes = b.Ins+1, b.InBytes+bytesOf(g, id)
			} else {
				b.Outs, b.OutBytes = b.Outs+1, b.OutBytes+bytesOf(g, id)
			}
			break
		}
	}
}

func (a *attribution) border(backend string) *Border {
	if a.borders[backend] == nil {
		a.borders[backend] = &Border{Backend: backend}
	}
	return a.borders[backend]
}

// bytesOf is the size of a node's value; 0 where it is not known.
func bytesOf(g *relay.Graph, v relay.NodeID) int64 { return typeBytes(g.Nodes[v].Type) }

func typeBytes(t *relay.Type) int64 {
	if t == nil {
		return 0
	}
	n, _ := t.NumBytes()
	return n
}
