// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// sampledSizes is at how many sizes in general a backend that knows sizes is asked (byoc.SizedTaker), beside the least
// ones.
const sampledSizes = 2

// sizes are the graph with fixed sizes, as backends that know such are asked about it.
type sizes struct {
	analysis *symbolic.Analysis
	graphs   []*relay.Graph
}

// isSized says that a backend is to be asked about fixed sizes: it wants that, and there are open ones.
func (p *proposer) isSized(backend byoc.Backend) bool {
	return p.open && !p.fixedSizes && byoc.TakesSized(backend)
}

// fixed works the graph out at some sizes, once.
func (p *proposer) fixed() (*sizes, error) {
	if p.sizes != nil {
		return p.sizes, nil
	}
	analysis, err := symbolic.AnalyseNamed(p.g)
	if err != nil {
		return nil, err
	}
	made := &sizes{analysis: analysis}
	all := analysis.All()
	for number := range sampledSizes {
		made.graphs = append(made.graphs, analysis.FixedWhereKnown(symbolic.Sample(all, number)))
	}
	made.graphs = append(made.graphs, analysis.FixedWhereKnown(symbolic.Least(all)))
	p.sizes = made
	return made, nil
}

// atSizes adds what ask finds for backend number b in the graph at each of some sizes.
func (p *proposer) atSizes(b int, ask func(at *proposer) error) error {
	fixed, err := p.fixed()
	if err != nil {
		return err
	}
	var first *proposer
	times := map[string]int{}
	for _, g := range fixed.graphs {
		at := newProposer(g, p.backends, p.opts)
		at.fixedSizes = true
		if err := at.classify(); err != nil {
			return err
		}
		if err := ask(at); err != nil {
			return err
		}
		if first == nil {
			first = at
		}
		for i := range at.found {
			c := &at.found[i]
			times[string(p.identify(c.Backend, c.Composite, c.Nodes))]++
		}
	}
	for _, r := range first.refusals {
		p.refuse(r)
	}
	for i := range first.found {
		c := &first.found[i]
		proposal := byoc.Proposal{Composite: c.Composite, Bare: c.Bare, Kernel: c.Kernel, Reassociates: c.Reassociates,
			Grouped: c.Grouped, OwnConstants: c.OwnConstants, Nodes: c.Nodes}
		refusal := Refusal{Node: c.Root, Backend: c.Backend, Composite: c.Composite}
		border := p.openBorder(c.Nodes, mayBranch(p.backends[b], &proposal))
		switch {
		case times[string(p.identify(c.Backend, c.Composite, c.Nodes))] < len(fixed.graphs):
			refusal.Reason = "the backend takes it at some sizes of the open dimensions alone"
		case !p.all(c.Nodes, fixed.analysis.Follows):
			refusal.Reason = "a dimension is known only when it has been computed"
		case !p.all(c.Nodes, fixed.analysis.Agree):
			refusal.Reason = "sizes that have to be the same are not known to be"
		case !p.all(c.Nodes, fixed.analysis.Told):
			refusal.Reason = "a size of its result is neither a polynomial of the open ones nor a quotient of such by a number"
		case border != nil:
			refusal.Reason = border.Error()
		default:
			p.add(b, proposal)
			continue
		}
		p.refuse(refusal)
	}
	return nil
}

// openBorder says why nodes cannot be a candidate where sizes are open, though they can with fixed ones: more is read
// then, as a reshape_like has sizes of another tensor. Such a tensor becomes an input, and engines that are asked at fixed
// sizes are not asked about its type.
func (p *proposer) openBorder(nodes []relay.NodeID, several bool) error {
	for _, v := range nodes {
		n := &p.g.Nodes[v]
		if n.Op != "reshape_like" || slices.Contains(nodes, n.Inputs[1]) {
			continue
		}
		if like := p.g.Nodes[n.Inputs[1]].Type; like.DType != "float32" {
			return fmt.Errorf("it has sizes of %%%d, which is %s", n.Inputs[1], like.DType)
		}
	}
	return CheckEither(p.g, nodes, several)
}

// all says that something holds of all nodes with open dimensions.
func (p *proposer) all(nodes []relay.NodeID, holds func(relay.NodeID) bool) bool {
	return !slices.ContainsFunc(nodes, func(v relay.NodeID) bool { return p.class[v] == dynamic && !holds(v) })
}
