// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/relay"
)

// ScalesRevision is raised when the same inputs would give other scales or gains.
const ScalesRevision = 3

// Rounded gives a region the steps of the values that it has rounded.
func (n *Network) Rounded(i int, r *annotate.Region) {
	for _, v := range n.Placing.RoundedIn(n.Placing.Functions[i].Set, r) {
		if learnt, ok := n.Learnt[v]; ok {
			if r.Steps == nil {
				r.Steps = map[relay.NodeID]rounding.Steps{}
			}
			r.Steps[v] = learnt.Steps
		}
	}
	if r.Steps != nil {
		r.Given = n.Placing.GivenIn(n.Placing.Functions[i].Set, r)
	}
}

// Rounds says that a placement has values rounded.
func (n *Network) Rounds(p *genome.Placement) bool { return len(n.roundedBy(p)) > 0 }

// roundedBy are the values that a placement has rounded, in their order.
func (n *Network) roundedBy(p *genome.Placement) (values []relay.NodeID) {
	for i := range p.Regions {
		for k := range p.Regions[i] {
			values = append(values, n.Placing.RoundedIn(n.Placing.Functions[i].Set, &p.Regions[i][k])...)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// ScalesText tells the steps of the values that a placement has rounded, and whether its biases are corrected, from
// others, in the key of what is measured of it: how far its outputs are off hangs on them. "" where it has neither.
func (n *Network) ScalesText(p *genome.Placement) string {
	return n.stepsText(p) + n.biasesText(p)
}

func (n *Network) stepsText(p *genome.Placement) string {
	values := n.roundedBy(p)
	if len(values) == 0 {
		return ""
	}
	text := fmt.Sprintf(" scales %d", ScalesRevision)
	if n.Learnt == nil {
		return text + " unknown"
	}
	digest := sha256.New()
	for _, v := range values {
		fmt.Fprintln(digest, v, n.Learnt[v].Steps)
	}
	return text + " " + hex.EncodeToString(digest.Sum(nil))[:12]
}

// Watched are all values of main that some candidate has rounded, and those whose means biases may be corrected by, and
// the backend that does the same in float32: TVM where that one is not offered.
func (n *Network) Watched() (values []relay.NodeID, wide string) {
	for _, f := range n.Placing.Functions {
		g := f.Set.Graph
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			b := n.Placing.ByName[c.Backend]
			if rounded := byoc.RoundedBy(b, g, c.Nodes); len(rounded) > 0 {
				values, wide = append(values, rounded...), byoc.WideOf(b)
			}
		}
	}
	for _, c := range n.corrections() {
		values, wide = append(values, c.data), cmp.Or(wide, c.wide)
	}
	if _, offered := n.Placing.ByName[wide]; !offered && wide != "" {
		wide = "tvm"
	}
	slices.Sort(values)
	return slices.Compact(values), wide
}

// Scales is what was found of the values that some candidates have rounded; nil where that was not looked at.
func (n *Network) Scales() *cost.Scales { return n.scales }

// Channels are the axes of main's values along which their channels lie, by who multiplies them: the last one but where
// a convolution's layout says another.
func (n *Network) Channels(values []relay.NodeID) []int {
	axes := slices.Repeat([]int{-1}, len(values))
	for _, f := range n.Placing.Functions {
		g := f.Set.Graph
		if g.Name != "main" {
			continue
		}
		for i, v := range values {
			for _, reader := range g.Consumers(v) {
				if n := &g.Nodes[reader]; bound.Multiplies(n.Op) && n.Inputs[0] == v {
					if layout, ok := n.Attrs.String("data_layout"); ok {
						axes[i] = strings.IndexByte(layout, 'C')
					}
				}
			}
		}
	}
	return axes
}

// Apart is a placement on a backend, and on TVM what it does not take, no region of which has watched values inside.
func (n *Network) Apart(backend string, watched []relay.NodeID) *genome.Placement {
	made := func(c *candidate.Candidate, v relay.NodeID) bool { return slices.Contains(c.Results(), v) }
	p := n.alone([]string{backend}, func(i, k int) float64 {
		c := &n.Placing.Functions[i].Set.Candidates[k]
		for _, v := range watched {
			if _, own := slices.BinarySearch(c.Nodes, v); own && !made(c, v) {
				return math.Inf(1)
			}
		}
		return placing.EachCandidate
	})
	if p == nil {
		p = n.Plain()
	}
	for i, f := range n.Placing.Functions {
		p.Regions[i] = annotate.RegionsWhere(f.Set, p.Chosen[i], n.Placing.ByName, func(producer, _ int) bool {
			return !slices.ContainsFunc(watched, func(v relay.NodeID) bool { return made(&f.Set.Candidates[producer], v) })
		})
	}
	return p
}

// Adds is what an operator that multiplies adds to the square of how far outputs are off where it is computed in a
// precision, as far as the noise says that was added to its data in float32 (Lane.Know): what data and weights are off
// by, times their gains; and what any operator adds whose result is given rounded (graphlevel.Given). false where that
// was not looked at.
func (n *Network) Adds(function int, v relay.NodeID, in byoc.Precision) (square float64, known bool) {
	graph := n.Placing.Functions[function].Set.Graph
	node := &graph.Nodes[v]
	if in == graphlevel.Given {
		seen, looked := n.Learnt[v]
		return seen.Gain * seen.Noise, looked && graph.Name == "main"
	}
	if graph.Name != "main" || len(node.Inputs) == 0 || !bound.Multiplies(node.Op) {
		return 0, false
	}
	seen, looked := n.Learnt[node.Inputs[0]]
	switch {
	case !looked || seen.Gain+seen.ChannelGain == 0:
		return 0, false
	case in == byoc.INT8:
		return seen.Gain*seen.Noise + seen.ChannelGain*graphlevel.Rounding(in), true
	}
	return (seen.Gain + seen.ChannelGain) * graphlevel.Rounding(in), true
}

// Know takes in what was found of the values that some candidates have rounded.
func (n *Network) Know(scales *cost.Scales) {
	n.Learnt, n.scales = map[relay.NodeID]rounding.Learnt{}, scales
	for _, v := range scales.Values {
		n.Learnt[relay.NodeID(v.Value)] = v.Learnt
	}
	if n.shifts = nil; scales.Biases != nil && scales.Biases.Corrected {
		n.findShifts()
	}
}

// Forget has nothing known of values that are rounded.
func (n *Network) Forget() { n.Learnt, n.scales, n.shifts = nil, nil, nil }
