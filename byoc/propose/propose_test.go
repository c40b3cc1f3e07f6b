// SPDX-License-Identifier: Apache-2.0

package propose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

var act = relay.Tensor("float32", 1, 8, 14, 14)

func all(relay.NodeID) bool { return true }

// block is conv, bias, relu, conv, bias, + input, relu.
func block(m *relay.GraphMaker, in relay.NodeID) relay.NodeID {
	layer := func(x relay.NodeID) relay.NodeID {
		w := m.Const([]int64{8, 8, 3, 3}, "float32", fmt.Sprint(x))
		b := m.Const([]int64{8, 1, 1}, "float32", fmt.Sprint(x))
		return m.Call("add", act, nil, m.Call("nn.conv2d", act, nil, x, w), b)
	}
	sum := m.Call("add", act, nil, layer(m.Call("nn.relu", act, nil, layer(in))), in)
	return m.Call("nn.relu", act, nil, sum)
}

func count(g *relay.Graph, nodes []relay.NodeID, op string) int {
	n := 0
	for _, v := range nodes {
		if g.Nodes[v].Op == op {
			n++
		}
	}
	return n
}

func requireLegal(t *testing.T, g *relay.Graph, supported func(relay.NodeID) bool, proposals []byoc.Proposal) {
	seen := map[string]bool{}
	for _, p := range proposals {
		require.True(t, slices.IsSorted(p.Nodes))
		exits := g.Exits(p.Nodes)
		require.True(t, convex(g, p.Nodes), "%v in\n%s", p.Nodes, g)
		for _, v := range exits {
			require.Equal(t, relay.TypeTensor, g.Nodes[v].Type.Kind)
		}
		inputs, _ := g.Boundary(p.Nodes)
		for _, v := range inputs {
			require.Equal(t, relay.TypeTensor, g.Nodes[v].Type.Kind)
		}
		require.False(t, seen[fmt.Sprint(p.Nodes)], "twice: %v", p.Nodes)
		seen[fmt.Sprint(p.Nodes)] = true
		tree, exit := g.PostDominators(), p.Nodes[len(p.Nodes)-1]
		for _, v := range p.Nodes {
			if g.Nodes[v].Kind == relay.KindCall {
				require.True(t, supported(v))
			}
			if v != exit && len(exits) == 1 {
				_, connected := slices.BinarySearch(p.Nodes, tree.Parent(v))
				require.True(t, connected)
			}
		}
	}
}

func TestStages(t *testing.T) {
	m := relay.NewGraph("main")
	at := m.Var(act.Shape, "float32")
	for range 4 {
		at = block(m, at)
	}
	g := m.Finish(at)
	proposals := Regions(g, all, Limit)
	requireLegal(t, g, all, proposals)
	require.Equal(t, 8, count(g, proposals[0].Nodes, "nn.conv2d"), "the whole comes first")
	require.Len(t, proposals[0].Nodes, 4*7)
	require.Equal(t, 4, count(g, proposals[1].Nodes, "nn.conv2d"), "then the halves")
	require.Equal(t, 4, count(g, proposals[2].Nodes, "nn.conv2d"))
	blocks := 0
	for _, p := range proposals {
		if len(p.Nodes) == 7 && count(g, p.Nodes, "nn.conv2d") == 2 {
			blocks++
		}
		first := g.Nodes[p.Nodes[0]].Op
		assert.Equal(t, "nn.conv2d", first, "no bias or activation without its operator: %v", p.Nodes)
	}
	require.Equal(t, 4, blocks)
	require.Equal(t, proposals[:3], Regions(g, all, 3), "the limit takes the first ones")
	require.Empty(t, Regions(g, all, 0))
}

func TestUnsupportedOperatorsCut(t *testing.T) {
	m := relay.NewGraph("main")
	a := block(m, m.Var(act.Shape, "float32"))
	odd := m.Call("image.odd", act, nil, a)
	g := m.Finish(block(m, odd))
	supported := func(v relay.NodeID) bool { return g.Nodes[v].Op != "image.odd" }
	proposals := Regions(g, supported, Limit)
	requireLegal(t, g, supported, proposals)
	require.Len(t, proposals[0].Nodes, 7)
	require.Len(t, proposals[1].Nodes, 7)
	require.Empty(t, Regions(g, func(relay.NodeID) bool { return false }, Limit))
}

func TestTuplesStayInside(t *testing.T) {
	m := relay.NewGraph("main")
	half := relay.Tensor("float32", 1, 4, 14, 14)
	relu := m.Call("nn.relu", act, nil, m.Var(act.Shape, "float32"))
	split := m.Call("split", relay.TupleOf(half, half), nil, relu)
	odd := m.Call("image.odd", relay.TupleOf(half, half), nil,
		m.Call("concatenate", act, nil, m.Tuple(m.Get(split, 1), m.Get(split, 0))))
	left := m.Call("tanh", half, nil, m.Get(odd, 0))
	sum := m.Call("add", half, nil, m.Call("exp", half, nil, left), m.Get(odd, 1))
	g := m.Finish(m.Tuple(sum, sum))
	supported := func(v relay.NodeID) bool { return g.Nodes[v].Op != "image.odd" }
	proposals := Regions(g, supported, Limit)
	requireLegal(t, g, supported, proposals)
	require.Len(t, proposals, 2)
	require.Len(t, proposals[0].Nodes, 6, "relu, split, two projections, tuple, concatenate")
	require.Len(t, proposals[1].Nodes, 3, "the projections of what another backend computes stay outside")
}

func TestBranchesOfACell(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var(act.Shape, "float32")
	conv := func(in relay.NodeID) relay.NodeID {
		return m.Call("nn.conv2d", act, nil, in, m.Const([]int64{8, 8, 1, 1}, "float32", fmt.Sprint(in)))
	}
	a, b := conv(conv(m.Call("nn.relu", act, nil, x))), conv(conv(m.Call("tanh", act, nil, x)))
	g := m.Finish(m.Call("add", act, nil, a, b))
	proposals := Regions(g, all, Limit)
	requireLegal(t, g, all, proposals)
	require.Len(t, proposals[0].Nodes, 7)
	require.GreaterOrEqual(t, len(proposals), 3)
}

func TestRandomGraphs(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	ops := []string{"add", "nn.conv2d", "nn.relu", "nn.dense", "image.odd"}
	for range 300 {
		m := relay.NewGraph("random")
		ids := []relay.NodeID{m.Var(act.Shape, "float32")}
		used := map[relay.NodeID]bool{}
		pick := func() relay.NodeID {
			v := ids[len(ids)-1-r.IntN(min(len(ids), 5))]
			used[v] = true
			return v
		}
		for range 3 + r.IntN(40) {
			ids = append(ids, m.Call(ops[r.IntN(len(ops))], act, nil, pick(), pick()))
		}
		var ends []relay.NodeID
		for _, v := range ids {
			if !used[v] {
				ends = append(ends, v)
			}
		}
		g := m.Finish(m.Tuple(ends...))
		supported := func(v relay.NodeID) bool { return g.Nodes[v].Op != "image.odd" }
		proposals := Regions(g, supported, Limit)
		requireLegal(t, g, supported, proposals)
		require.LessOrEqual(t, len(proposals), Limit)
		require.Equal(t, proposals, Regions(g, supported, Limit))
	}
}
