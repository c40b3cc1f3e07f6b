// SPDX-License-Identifier: Apache-2.0

package recurrent

import (
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Kernels are the names that proposed layers have for --pin, --forbid and reports.
func Kernels() []string { return []string{"gru", "lstm", "rnn"} }

// Propose gives each recurrent layer of a graph as a candidate; composite begins the names of the functions that those
// become ("onnxruntime" gives onnxruntime.lstm). Graphs with control flow, or with dimensions that are not known, have
// none. A layer of which several values are read is bare, as a function with a name of its own gives one.
func Propose(g *relay.Graph, composite string) []byoc.Proposal {
	p, err := region.FromGraph(g, g.Name)
	if err != nil {
		return nil
	}
	var found []byoc.Proposal
	for _, l := range Find(p) {
		var nodes []relay.NodeID
		for _, op := range l.Ops {
			nodes = append(nodes, p.Ops[op].Node)
		}
		slices.Sort(nodes)
		nodes = tuples(g, slices.Compact(nodes))
		kernel := strings.ToLower(l.Chains[0].Kind.String())
		proposal := byoc.Proposal{Kernel: kernel, Nodes: nodes, OwnConstants: l.folded()}
		if len(g.Exits(nodes)) == 1 {
			proposal.Composite = composite + "." + kernel
		} else {
			proposal.Bare = true
		}
		found = append(found, proposal)
	}
	return found
}

// folded says that what constants hold, not only their shapes, makes it a layer.
func (l *Layer) folded() bool {
	return slices.ContainsFunc(l.Chains, func(c Chain) bool { return c.H0 == None })
}
