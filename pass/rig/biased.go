// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// roundingWeights is inBytes that rounds the weights of dense layers, too.
type roundingWeights struct{ inBytes }

func (roundingWeights) WeightsRounded(g *relay.Graph, nodes []relay.NodeID) (products []relay.NodeID) {
	for _, v := range nodes {
		if g.Nodes[v].Op == "nn.dense" {
			products = append(products, v)
		}
	}
	return products
}

// BiasedModule is a dense layer with a bias, and one without: bytes takes each of them, and has its weights rounded, tvm
// each operator. biases is the settings' Precision.BiasCorrection.
func BiasedModule(t *testing.T, biases string) (s *placing.Module, first, second relay.NodeID) {
	t.Helper()
	m := relay.NewGraph("main")
	layer := relay.Tensor("float32", 1, 2)
	first = m.Call("nn.dense", layer, nil, m.Var([]int64{1, 2}, "float32"), m.Const([]int64{2, 2}, "float32", "first"))
	sum := m.Call("add", layer, nil, first, m.Const([]int64{2}, "float32", "bias"))
	second = m.Call("nn.dense", layer, nil, sum, m.Const([]int64{2, 2}, "float32", "second"))
	g := m.Finish(second)
	f := &placing.Function{Set: &candidate.Set{Graph: g}}
	add := func(backend string, nodes ...relay.NodeID) {
		inputs, constants := g.Boundary(nodes)
		f.Set.Candidates = append(f.Set.Candidates, candidate.Candidate{Backend: backend, Nodes: nodes,
			Root: nodes[len(nodes)-1], Inputs: inputs, Constants: constants, Key: backend})
		f.Costs = append(f.Costs, cost.FromMilliseconds(1))
		f.Options = append(f.Options, place.Option{Nodes: nodes, Cost: 1})
	}
	for _, v := range []relay.NodeID{first, sum, second} {
		add("tvm", v)
	}
	add("bytes", first, sum)
	add("bytes", second)
	cfg := &settings.Config{Precision: settings.Precision{Allowed: settings.PrecisionINT8, BiasCorrection: biases}}
	s = &placing.Module{Config: cfg, ByName: map[string]byoc.Backend{}, Functions: []*placing.Function{f},
		Backends: []byoc.Backend{Offered{Called: "tvm"}, roundingWeights{inBytes{Offered{Called: "bytes"}}}}}
	for _, b := range s.Backends {
		s.ByName[b.Name()] = b
	}
	var err error
	f.Solution, err = place.Solve(f.Options, place.TreeOf(g))
	require.NoError(t, err)
	return s, first, second
}
