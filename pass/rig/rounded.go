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

// inBytes is a backend of the tests that has rounded what its convolutions and dense layers read.
type inBytes struct{ Offered }

func (inBytes) Precision() byoc.Precision { return byoc.INT8 }
func (inBytes) Wide() string              { return "lib" }
func (inBytes) Compiler() string          { return "lib" }
func (inBytes) MergesRegions() bool       { return true }
func (inBytes) Rounded(g *relay.Graph, nodes []relay.NodeID) (values []relay.NodeID) {
	for _, v := range nodes {
		if op := g.Nodes[v].Op; op == "nn.conv2d" || op == "nn.dense" {
			values = append(values, g.Nodes[v].Inputs[0])
		}
	}
	return values
}

// RoundedModule is conv -> relu -> conv (NHWC) -> dense, and its values by these names. lib takes each of them, and
// the first two, and the last three, together; bytes takes those that multiply.
func RoundedModule(t *testing.T) (*placing.Module, map[string]relay.NodeID) {
	t.Helper()
	m := relay.NewGraph("main")
	image := relay.Tensor("float32", 1, 8, 8, 8)
	x := m.Var([]int64{1, 8, 8, 8}, "float32")
	first := m.Call("nn.conv2d", image, map[string]any{"data_layout": "NCHW"}, x, m.Const([]int64{8, 8, 3, 3}, "float32"))
	relu := m.Call("nn.relu", image, nil, first)
	second := m.Call("nn.conv2d", image, map[string]any{"data_layout": "NHWC"}, relu,
		m.Const([]int64{3, 3, 8, 8}, "float32"))
	dense := m.Call("nn.dense", image, nil, second, m.Const([]int64{8, 8}, "float32"))
	g := m.Finish(dense)
	f := &placing.Function{Set: &candidate.Set{Graph: g}}
	add := func(backend string, nodes ...relay.NodeID) {
		inputs, constants := g.Boundary(nodes)
		f.Set.Candidates = append(f.Set.Candidates, candidate.Candidate{Backend: backend, Nodes: nodes,
			Root: nodes[len(nodes)-1], Inputs: inputs, Constants: constants, Key: backend})
		f.Costs = append(f.Costs, cost.FromMilliseconds(1))
		f.Options = append(f.Options, place.Option{Nodes: nodes, Cost: 1})
	}
	for _, v := range []relay.NodeID{first, relu, second, dense} {
		add("tvm", v)
		add("lib", v)
	}
	add("lib", first, relu)
	add("lib", relu, second, dense)
	add("bytes", first)
	add("bytes", second)
	add("bytes", dense)
	s := &placing.Module{Config: &settings.Config{}, ByName: map[string]byoc.Backend{}, Functions: []*placing.Function{f},
		Backends: []byoc.Backend{Offered{Called: "tvm"}, Offered{Called: "lib"}, inBytes{Offered{Called: "bytes"}}}}
	for _, b := range s.Backends {
		s.ByName[b.Name()] = b
	}
	var err error
	f.Solution, err = place.Solve(f.Options, place.TreeOf(g))
	require.NoError(t, err)
	return s, map[string]relay.NodeID{"x": x, "first": first, "relu": relu, "second": second, "dense": dense}
}
