// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// costFunction is what candidates of the backend take: the sum of their kernels. An operator without sums of its own
// (one that is elementwise, broadcast or injective) is part of the kernel that makes the value which nobody else reads,
// so that a group of operators takes what its parts take together, less what need not be moved and started. kindOf is
// TVM's fusion pattern of an operator (candidate.RegisteredPattern).
func (b *Backend) costFunction(kindOf func(op string) candidate.OpPattern) byoc.CostFunction {
	return func(g *relay.Graph, p byoc.Proposal) (float64, bool, error) {
		ms := 0.0
		for _, nodes := range b.kernels(g, p.Nodes, kindOf) {
			kernel := &candidate.Candidate{Bare: true, Nodes: nodes, Root: nodes[len(nodes)-1]}
			kernel.Border(g)
			work := bound.Direct(g, kernel)
			ms += b.speedOf(g, nodes).milliseconds(work.Flops, work.Bytes)
		}
		return ms, true, nil
	}
}

// speedOf is that of a kernel: what is said of the first of its operators of which anything is said, which is the one
// that the others follow; else the backend's.
func (b *Backend) speedOf(g *relay.Graph, nodes []relay.NodeID) Speed {
	for _, v := range nodes {
		if own, said := b.Operators[g.Nodes[v].Op]; said && candidate.IsOperator(&g.Nodes[v]) {
			return own.over(b.Speed)
		}
	}
	return b.Speed
}

// kernels are the operators of a candidate, each with those that are part of its kernel. What is no operator (tuples,
// and what takes them apart) takes no time.
func (b *Backend) kernels(g *relay.Graph, nodes []relay.NodeID, kindOf func(op string) candidate.OpPattern) [][]relay.NodeID {
	var kernels [][]relay.NodeID
	of := map[relay.NodeID]int{}
	for _, v := range nodes {
		n := &g.Nodes[v]
		if !candidate.IsOperator(n) {
			continue
		}
		at := -1
		if !b.NoFusion && kindOf(n.Op) <= candidate.Injective {
			for _, in := range n.Inputs {
				if k, inside := of[in]; inside && len(g.Consumers(in)) == 1 && !g.ScopeRoot(in) {
					at = k
					break
				}
			}
		}
		if at < 0 {
			at, kernels = len(kernels), append(kernels, nil)
		}
		kernels[at] = append(kernels[at], v)
		of[v] = at
	}
	return kernels
}
