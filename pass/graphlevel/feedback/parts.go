// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/relay"
)

// Part is a group of nodes that ran as one kernel, or as one region.
type Part struct {
	// Nodes are ascending; all in the network's function main.
	Nodes []relay.NodeID `json:"nodes"`
	// Milliseconds is what the kernel took.
	Milliseconds float64 `json:"ms"`
	// Border is what was spent on transforms of layouts and other copies because of it: half of each one that stands between
	// it and another part, all of each one that stands between it and the network's own inputs and outputs.
	Border float64 `json:"border_ms,omitempty"`
}

// Profile is what a run of a built network took, part by part.
type Profile struct {
	Parts []Part `json:"parts"`
	// Rest is the time of kernels that nobody could be found for.
	Rest float64 `json:"rest_ms,omitempty"`
}

// Total is the sum of all kernels' times, in milliseconds.
func (p *Profile) Total() float64 {
	sum := p.Rest
	for _, part := range p.Parts {
		sum += part.Milliseconds + part.Border
	}
	return sum
}

// Border is what was spent between parts, in milliseconds.
func (p *Profile) Border() float64 {
	sum := 0.0
	for _, part := range p.Parts {
		sum += part.Border
	}
	return sum
}

// Attribute says which nodes each kernel's time belongs to. g is the graph of main, regions are its regions with their
// symbols, ms are the kernels' times in milliseconds. Errors: an executable that contradicts itself, or times for
// another one.
func Attribute(g *relay.Graph, regions []annotate.Region, e *Executable, ms []float64) (*Profile, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if len(ms) != len(e.Kernels) {
		return nil, fmt.Errorf("feedback: %d kernels were timed, the network has %d", len(ms), len(e.Kernels))
	}
	found := align(g, regions, e)
	nodes := make([][]relay.NodeID, len(e.Kernels))
	for v, op := range found.op {
		if k := e.Ops[op].Kernel; k >= 0 {
			nodes[k] = append(nodes[k], v)
		}
	}
	for i, op := range found.region {
		if k := e.Ops[op].Kernel; k >= 0 {
			nodes[k] = append(nodes[k], regions[i].Nodes...)
		}
	}
	p := &Profile{}
	partOf := map[relay.NodeID]int{}
	for k := range nodes {
		if len(nodes[k]) == 0 {
			continue
		}
		slices.Sort(nodes[k])
		for _, v := range nodes[k] {
			partOf[v] = len(p.Parts)
		}
		p.Parts = append(p.Parts, Part{Nodes: nodes[k], Milliseconds: ms[k]})
	}
	// Kernels that hold nothing but what was put between.
	causes := map[int][]int{}
	for _, c := range found.crossings {
		k := e.Ops[c.op].Kernel
		if k < 0 || len(nodes[k]) > 0 {
			continue
		}
		for _, v := range []relay.NodeID{c.from, c.to} {
			if part, ok := partOf[v]; ok && !slices.Contains(causes[k], part) {
				causes[k] = append(causes[k], part)
			}
		}
	}
	for k, time := range ms {
		if len(nodes[k]) > 0 {
			continue
		}
		for _, part := range causes[k] {
			p.Parts[part].Border += time / float64(len(causes[k]))
		}
		if len(causes[k]) == 0 {
			p.Rest += time
		}
	}
	slices.SortFunc(p.Parts, func(a, b Part) int { return cmp.Compare(a.Nodes[len(a.Nodes)-1], b.Nodes[len(b.Nodes)-1]) })
	return p, nil
}
