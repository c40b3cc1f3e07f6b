// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Weights that are rounded to bytes make the results of their products be off in the mean, where what they multiply has
// a mean that is not 0. What that is for each channel, by the means that were seen (rounding.Seen), may be taken off the
// bias behind the product (rounding.Shift). Whether that is done is said (settings.Precision.BiasCorrection), or
// measured: the network by which scales come to be looked for is built both ways, and the outputs decide
// (lane.decideBiases).

// correction is a product behind which a bias may be corrected.
type correction struct {
	product, data relay.NodeID
	// wide is the backend that computes it in float32.
	wide string
}

// Biases is the settings' Precision.Biases.
func (n *Network) Biases() string { return n.Placing.Config.Precision.Biases() }

// corrections are the products of main behind which some candidate has a bias that may be corrected, ascending.
func (n *Network) corrections() (list []correction) {
	for _, f := range n.Placing.Functions {
		g := f.Set.Graph
		if g.Name != "main" || n.Biases() == settings.BiasesOff {
			continue
		}
		for k := range f.Set.Candidates {
			b := n.Placing.ByName[f.Set.Candidates[k].Backend]
			for _, v := range byoc.WeightsRoundedBy(b, g, f.Set.Candidates[k].Nodes) {
				if _, _, ok := annotate.Bias(g, v, annotate.Channels(g, v)); ok {
					list = append(list, correction{v, g.Nodes[v].Inputs[0], byoc.WideOf(b)})
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b correction) int { return int(a.product - b.product) })
	return slices.CompactFunc(list, func(a, b correction) bool { return a.product == b.product })
}

// Corrects says that a placement has biases that may be corrected.
func (n *Network) Corrects(p *genome.Placement) bool {
	for i, f := range n.Placing.Functions {
		for k := range p.Regions[i] {
			if f.Set.Graph.Name == "main" && len(n.Placing.CorrectedIn(f.Set, &p.Regions[i][k])) > 0 {
				return true
			}
		}
	}
	return false
}

// isCorrected says that a placement's biases are corrected. Where the outputs decide, that is known only of those that
// are built when scales are known.
func (n *Network) isCorrected(p *genome.Placement) bool {
	return len(n.shifts) > 0 && n.Corrects(p) && (n.Biases() == settings.BiasesOn || n.Rounds(p))
}

// biasesText is the part of ScalesText about biases.
func (n *Network) biasesText(p *genome.Placement) string {
	if !n.isCorrected(p) {
		return ""
	}
	return fmt.Sprintf(" biases %d", ScalesRevision)
}

// correct gives a region of a placement the shifts of its biases.
func (n *Network) correct(p *genome.Placement, function int, r *annotate.Region) {
	if !n.isCorrected(p) || n.Placing.Functions[function].Set.Graph.Name != "main" {
		return
	}
	for _, v := range n.Placing.CorrectedIn(n.Placing.Functions[function].Set, r) {
		if shift := n.shifts[v]; shift != nil {
			if r.Shifts == nil {
				r.Shifts = map[relay.NodeID][]float32{}
			}
			r.Shifts[v] = shift
		}
	}
}

// findShifts finds the shifts of main's biases by the means that were seen. A product whose weights cannot be read has
// none.
func (n *Network) findShifts() {
	n.shifts = map[relay.NodeID][]float32{}
	for _, f := range n.Placing.Functions {
		g := f.Set.Graph
		if g.Name != "main" {
			continue
		}
		for _, c := range n.corrections() {
			weight := g.Nodes[c.product].Inputs[1]
			elements, err := n.weights(g, weight)
			if err != nil {
				continue
			}
			shape := g.Nodes[weight].Constant.Shape
			if shift, ok := rounding.Shift(elements, shape, n.Learnt[c.data].Means); ok {
				n.shifts[c.product] = shift
			}
		}
	}
}

// elementsOf are those of a constant of a graph, compact and little-endian.
func elementsOf(g *relay.Graph, id relay.NodeID) (elements []byte, err error) {
	err = bridge.OnThread(func() error {
		tensor, err := g.Tensor(id)
		if err != nil {
			return err
		}
		defer tensor.Release()
		elements, err = tensor.Bytes()
		return err
	})
	return elements, err
}
