// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/inbytes"
	"github.com/collage-tvm/collage/relay"
)

// ONNX Runtime multiplies bytes where a model says that what a convolution or product reads came from bytes, and that
// a convolution's result becomes bytes again (QuantizeLinear, DequantizeLinear around it, "QDQ"): it has no convolution
// of bytes that gives float32. So a convolution in bytes ends where its result is rounded, behind its bias and
// activation, for whoever reads that; a dense layer gives float32.

// inBytes is the backend that multiplies bytes.
type inBytes struct {
	*backend
	graphs *inbytes.Quantised
}

// NewINT8 gives the backend that has ONNX Runtime multiply bytes, by scales such as byoc.Rounding says. The weights
// stand in the artefact so. It takes nothing of networks that come quantised.
func NewINT8() byoc.Backend {
	b := &inBytes{graphs: &inbytes.Quantised{}}
	const name = Name + "_int8"
	b.backend = &backend{name, sync.OnceValue(func() []byoc.Pattern { return patterns(name, b.refusal) })}
	return b
}

// Precision and Wide implement byoc.Narrow.
func (*inBytes) Precision() byoc.Precision { return byoc.INT8 }
func (*inBytes) Wide() string              { return Name }

// Description says in what it computes, too.
// TakesOpen implements byoc.OpenTaker: what multiplies bytes is written with its sizes.
func (*inBytes) TakesOpen() bool { return false }

func (b *inBytes) Description() string { return b.backend.Description() + ", which multiplies bytes" }

// Probe is ONNX Runtime's, on a processor that gains by bytes.
func (b *inBytes) Probe() byoc.Probe { return byoc.ProbeINT8(b.backend.Probe(), Name) }

// Propose implements byoc.Proposer: what is proposed for float32, where no convolution in it is cut off from its
// activation.
func (b *inBytes) Propose(g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	return slices.DeleteFunc(b.backend.Propose(g, learnt), func(p byoc.Proposal) bool {
		return b.refusal(g, p.Nodes) != nil
	})
}

// refusal says why operators cannot be run, or not in bytes.
func (b *inBytes) refusal(g *relay.Graph, nodes []relay.NodeID) error {
	if b.graphs.Has(g) {
		return fmt.Errorf("the network comes quantised: its scales are its own, by which %s computes nothing", b.name)
	}
	for _, v := range nodes {
		if _, end, ok := product(g, v); ok && !slices.Contains(nodes, end) {
			return fmt.Errorf("%s gives bytes, which are rounded behind %s only", g.Nodes[v].Op, g.Nodes[end].Op)
		}
	}
	return refusalOfNodes(g, nodes)
}

// Rounded implements byoc.Rounding: what is multiplied by constants, and what is made of that in convolutions.
func (b *inBytes) Rounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	values := b.Given(g, nodes)
	if b.graphs.Has(g) {
		return nil
	}
	for _, v := range nodes {
		if data, _, ok := product(g, v); ok {
			values = append(values, data)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// WeightsRounded implements byoc.RoundsWeights.
func (b *inBytes) WeightsRounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	return b.graphs.Products(g, nodes)
}

// Given implements byoc.GivesRounded: what is made in convolutions.
func (b *inBytes) Given(g *relay.Graph, nodes []relay.NodeID) (values []relay.NodeID) {
	if b.graphs.Has(g) {
		return nil
	}
	for _, v := range nodes {
		if _, end, ok := product(g, v); ok && convolves(g.Nodes[v].Op) {
			values = append(values, end)
		}
	}
	slices.Sort(values)
	return values
}

func convolves(op string) bool { return strings.HasPrefix(op, "nn.conv") }

// product is what an operator multiplies by constants where that may be in bytes, and the last of what is written as one
// with it: a convolution's bias and activation. ok is false for all other operators.
func product(g *relay.Graph, id relay.NodeID) (data, end relay.NodeID, ok bool) {
	data, ok = inbytes.Data(g, id)
	if !ok || !convolves(g.Nodes[id].Op) {
		return data, id, ok
	}
	c, err := callOf(g, id)
	if err != nil {
		return 0, 0, false
	}
	end = id
	only := func() *relay.Node {
		if users := g.Consumers(end); len(users) == 1 && g.Nodes[users[0]].Kind == relay.KindCall {
			return &g.Nodes[users[0]]
		}
		return nil
	}
	if only() != nil {
		user := g.Consumers(end)[0]
		if add, err := callOf(g, user); err == nil && add.biasOf(c) >= 0 {
			end = user
		}
	}
	if user := only(); user != nil && (user.Op == "nn.relu" || user.Op == "clip") {
		end = g.Consumers(end)[0]
	}
	return data, end, true
}
