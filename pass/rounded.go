// SPDX-License-Identifier: Apache-2.0

package pass

import (
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
	"github.com/collage-tvm/collage/relay"
)

// Some backends round what their operators read to bytes by scales that must be known when a region is written
// (byoc.Rounding). They are found on inputs of the network's: a build of the network that gives these values, too, is
// run on inputs of which the search may see, and rounding.Seen.StepsBy makes the steps of it by a method (Lane.made).
// That is done when the first network with such a region is to be built (Lane.Know), and once: the cost store keeps it.

// unfit says that a candidate's scales could not be found: nothing is run here that would tell them, or the values that
// it has rounded are no network's own.
func (s *search) unfit(g *relay.Graph, c *candidate.Candidate) bool {
	return len(byoc.RoundedBy(s.byName[c.Backend], g, c.Nodes)) > 0 && (!s.cfg.rounds || g.Name != "main" || c.Scope != 0)
}

// fitting leaves those of a set's candidates out that are unfit.
func (s *search) fitting(set *candidate.Set) {
	set.Candidates = slices.DeleteFunc(set.Candidates, func(c candidate.Candidate) bool { return s.unfit(set.Graph, &c) })
}

// rounded gives a region the steps of the values that it has rounded.
func (n *Network) rounded(i int, r *annotate.Region) {
	for _, v := range n.s.roundedIn(n.s.functions[i].set, r) {
		if learnt, ok := n.learnt[v]; ok {
			if r.Steps == nil {
				r.Steps = map[relay.NodeID]rounding.Steps{}
			}
			r.Steps[v] = learnt.Steps
		}
	}
}

// roundedIn are the values that a region of a set's candidates has rounded.
func (s *search) roundedIn(set *candidate.Set, r *annotate.Region) (values []relay.NodeID) {
	for _, k := range r.Candidates {
		c := &set.Candidates[k]
		values = append(values, byoc.RoundedBy(s.byName[c.Backend], set.Graph, c.Nodes)...)
	}
	return values
}

// rounds says that a placement has values rounded.
func (n *Network) rounds(p *genome.Placement) bool { return len(n.roundedBy(p)) > 0 }

// roundedBy are the values that a placement has rounded, in their order.
func (n *Network) roundedBy(p *genome.Placement) (values []relay.NodeID) {
	for i := range p.Regions {
		for k := range p.Regions[i] {
			values = append(values, n.s.roundedIn(n.s.functions[i].set, &p.Regions[i][k])...)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// ScalesText tells the steps of the values that a placement has rounded from others, in the key of what is measured of
// it: how far its outputs are off hangs on them. "" where it has none rounded.
func (n *Network) ScalesText(p *genome.Placement) string {
	values := n.roundedBy(p)
	if len(values) == 0 {
		return ""
	}
	text := fmt.Sprintf(" scales %d", scalesRevision)
	if n.learnt == nil {
		return text + " unknown"
	}
	digest := sha256.New()
	for _, v := range values {
		fmt.Fprintln(digest, v, n.learnt[v].Steps)
	}
	return text + " " + hex.EncodeToString(digest.Sum(nil))[:12]
}

// watched are all values of main that some candidate has rounded, and the backend that does the same in float32: TVM
// where that one is not offered.
func (n *Network) watched() (values []relay.NodeID, wide string) {
	for _, f := range n.s.functions {
		g := f.set.Graph
		for k := range f.set.Candidates {
			c := &f.set.Candidates[k]
			b := n.s.byName[c.Backend]
			if rounded := byoc.RoundedBy(b, g, c.Nodes); len(rounded) > 0 {
				values, wide = append(values, rounded...), byoc.WideOf(b)
			}
		}
	}
	if _, offered := n.s.byName[wide]; !offered && wide != "" {
		wide = "tvm"
	}
	slices.Sort(values)
	return slices.Compact(values), wide
}

// Scales is what was found of the values that some candidates have rounded; nil where that was not looked at.
func (n *Network) Scales() *cost.Scales { return n.scales }

// channels are the axes of main's values along which their channels lie, by who multiplies them: the last one but where
// a convolution's layout says another.
func (n *Network) channels(values []relay.NodeID) []int {
	axes := slices.Repeat([]int{-1}, len(values))
	for _, f := range n.s.functions {
		g := f.set.Graph
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

// apart is a placement on a backend, and on TVM what it does not take, no region of which has watched values inside.
func (n *Network) apart(backend string, watched []relay.NodeID) *genome.Placement {
	made := func(c *candidate.Candidate, v relay.NodeID) bool { return slices.Contains(c.Results(), v) }
	p := n.alone([]string{backend}, func(i, k int) float64 {
		c := &n.s.functions[i].set.Candidates[k]
		for _, v := range watched {
			if _, own := slices.BinarySearch(c.Nodes, v); own && !made(c, v) {
				return math.Inf(1)
			}
		}
		return eachCandidate
	})
	if p == nil {
		p = n.Plain()
	}
	for i, f := range n.s.functions {
		p.Regions[i] = annotate.RegionsWhere(f.set, p.Chosen[i], n.s.byName, func(producer, _ int) bool {
			return !slices.ContainsFunc(watched, func(v relay.NodeID) bool { return made(&f.set.Candidates[producer], v) })
		})
	}
	return p
}

// Adds is what an operator that multiplies adds to the square of how far outputs are off where it is computed in a
// precision, as far as the noise says that was added to its data in float32 (Lane.Know): what data and weights are off
// by, times their gains. false where that was not looked at.
func (n *Network) Adds(function int, v relay.NodeID, in byoc.Precision) (square float64, known bool) {
	node := &n.s.functions[function].set.Graph.Nodes[v]
	if n.s.functions[function].set.Graph.Name != "main" || len(node.Inputs) == 0 || !bound.Multiplies(node.Op) {
		return 0, false
	}
	seen, looked := n.learnt[node.Inputs[0]]
	switch {
	case !looked || seen.Gain+seen.ChannelGain == 0:
		return 0, false
	case in == byoc.INT8:
		return seen.Gain*seen.Noise + seen.ChannelGain*graphlevel.Rounding(in), true
	}
	return (seen.Gain + seen.ChannelGain) * graphlevel.Rounding(in), true
}
