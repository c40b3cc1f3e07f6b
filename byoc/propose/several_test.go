// SPDX-License-Identifier: Apache-2.0

package propose

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// convex says by the definition that no way leads out of a set of nodes and back.
func convex(g *relay.Graph, nodes []relay.NodeID) bool {
	inside := func(v relay.NodeID) bool { return slices.Contains(nodes, v) }
	after := map[relay.NodeID]bool{} // outside, and depends on the set
	for v := nodes[0]; int(v) < len(g.Nodes); v++ {
		depends := slices.ContainsFunc(g.Reads(v), func(in relay.NodeID) bool { return after[in] })
		if inside(v) && depends {
			return false
		}
		after[v] = !inside(v) && (depends || slices.ContainsFunc(g.Reads(v), inside))
	}
	return true
}

// network makes graphs of convolutions with what stands around them.
type network struct {
	*relay.GraphMaker
}

func (m network) conv(in relay.NodeID) relay.NodeID {
	w := m.Const([]int64{8, 8, 3, 3}, "float32", fmt.Sprint(in))
	return m.Call("nn.relu", act, nil, m.Call("nn.conv2d", act, nil, in, w))
}

func (m network) op(name string, in ...relay.NodeID) relay.NodeID {
	return m.Call(name, act, nil, in...)
}

// unet has levels of two convolutions each on the way down, and of one on the way up, joined by concatenate. down is
// all on the way down, bottom the convolution at its end.
func unet(levels int, up string) (g *relay.Graph, down, bottom []relay.NodeID) {
	m := network{relay.NewGraph("main")}
	at := m.Var(act.Shape, "float32")
	var skips []relay.NodeID
	for range levels {
		at = m.conv(m.conv(at))
		skips = append(skips, at)
		at = m.op("nn.max_pool2d", at)
	}
	last := at
	at = m.conv(at)
	end := at
	for k := levels - 1; k >= 0; k-- {
		at = m.conv(m.op("concatenate", m.Tuple(m.op(up, at), skips[k])))
	}
	g = m.Finish(m.op("nn.softmax", at))
	for v := relay.NodeID(0); v <= end; v++ {
		switch {
		case g.Nodes[v].Kind != relay.KindCall:
		case v <= last:
			down = append(down, v)
		default:
			bottom = append(bottom, v)
		}
	}
	return g, down, bottom
}

func has(proposals []byoc.Proposal, nodes []relay.NodeID) bool {
	return slices.ContainsFunc(proposals, func(p byoc.Proposal) bool { return slices.Equal(p.Nodes, nodes) })
}

func except(g *relay.Graph, ops ...string) func(relay.NodeID) bool {
	return func(v relay.NodeID) bool { return !slices.Contains(ops, g.Nodes[v].Op) }
}

// All levels of the encoder are read by the decoder, so no region with one exit holds more than one of them. Where
// the engine takes everything the encoder is where the network is cut; where it cannot do the way up, the encoder is
// all that it can.
func TestAnEncoderIsOneRegion(t *testing.T) {
	g, encoder, _ := unet(4, "nn.upsampling")
	require.Len(t, g.Exits(encoder), 5, "four levels and what goes to the bottom")
	proposals := Regions(g, all, Limit)
	requireLegal(t, g, all, proposals)
	require.True(t, has(proposals, encoder))
	decoder := slices.DeleteFunc(slices.Clone(proposals[0].Nodes),
		func(v relay.NodeID) bool { return slices.Contains(encoder, v) })
	require.True(t, has(proposals, decoder), "what is left is proposed, too")

	g, down, bottom := unet(4, "image.odd")
	encoder = slices.Concat(down, bottom)
	supported := except(g, "image.odd")
	proposals = Regions(g, supported, Limit)
	requireLegal(t, g, supported, proposals)
	require.True(t, has(proposals, encoder))
	for _, p := range proposals {
		if len(g.Exits(p.Nodes)) == 1 {
			require.LessOrEqual(t, count(g, p.Nodes, "nn.conv2d"), 2, "with one exit a level by itself is all there is")
		}
	}
}

// A training graph reads what its forward part saved on the way back.
func TestAForwardPassWithAllThatItSaves(t *testing.T) {
	m := network{relay.NewGraph("main")}
	at := m.Var(act.Shape, "float32")
	var forward, saved []relay.NodeID
	for range 6 {
		at = m.conv(at)
		saved = append(saved, at)
	}
	gradient := m.op("image.loss", at)
	for k := len(saved) - 1; k >= 0; k-- {
		gradient = m.op("image.backward", gradient, saved[k])
	}
	g := m.Finish(gradient)
	for v := relay.NodeID(0); v <= saved[5]; v++ {
		if g.Nodes[v].Kind == relay.KindCall {
			forward = append(forward, v)
		}
	}
	supported := except(g, "image.loss", "image.backward")
	proposals := Regions(g, supported, Limit)
	requireLegal(t, g, supported, proposals)
	require.True(t, has(proposals, forward))
	require.Len(t, g.Exits(forward), 6)
}

// Each cell reads the two before it, so that between any two halves two values go (NASNet).
func TestCellsThatReadTwoBeforeThem(t *testing.T) {
	m := network{relay.NewGraph("main")}
	before, at := m.Var(act.Shape, "float32"), m.Var(act.Shape, "float32")
	for range 8 {
		before, at = at, m.op("add", m.conv(before), m.conv(at))
	}
	g := m.Finish(m.op("nn.softmax", at))
	proposals := Regions(g, all, Limit)
	requireLegal(t, g, all, proposals)
	halves := 0
	for _, p := range proposals {
		if n := count(g, p.Nodes, "nn.conv2d"); n >= 7 && n <= 9 {
			halves++
		}
	}
	require.GreaterOrEqual(t, halves, 2)
}

// A network that gives several values has no region with one exit that holds all of it (a detector's heads).
func TestAllOfANetworkWithSeveralResults(t *testing.T) {
	m := network{relay.NewGraph("main")}
	at := m.Var(act.Shape, "float32")
	var heads []relay.NodeID
	for range 3 {
		at = m.conv(at)
		heads = append(heads, m.conv(at))
	}
	g := m.Finish(m.Tuple(heads...))
	proposals := Regions(g, all, Limit)
	requireLegal(t, g, all, proposals)
	require.Equal(t, 6, slices.Max(convolutions(g, proposals)))
	require.Equal(t, heads, g.Exits(proposals[slices.Index(convolutions(g, proposals), 6)].Nodes))
}

func convolutions(g *relay.Graph, proposals []byoc.Proposal) []int {
	counts := make([]int, len(proposals))
	for i, p := range proposals {
		counts[i] = count(g, p.Nodes, "nn.conv2d")
	}
	return counts
}

// No tuple crosses the border of what has several exits: a split stays with all that takes its parts.
func TestTuplesStayOnOneSideOfAnyBorder(t *testing.T) {
	m := network{relay.NewGraph("main")}
	half := relay.Tensor("float32", 1, 4, 14, 14)
	a := m.conv(m.Var(act.Shape, "float32"))
	split := m.Call("split", relay.TupleOf(half, half), nil, a)
	left, right := m.Call("exp", half, nil, m.Get(split, 0)), m.Call("image.odd", half, nil, m.Get(split, 1))
	b := m.conv(m.op("concatenate", m.Tuple(left, right)))
	g := m.Finish(m.Tuple(a, b))
	supported := except(g, "image.odd")
	proposals := Regions(g, supported, Limit)
	requireLegal(t, g, supported, proposals)
	several := 0
	for _, p := range proposals {
		if len(g.Exits(p.Nodes)) > 1 {
			several++
		}
	}
	require.Positive(t, several)
	supported = func(v relay.NodeID) bool { return g.Nodes[v].Op != "image.odd" && g.Nodes[v].Op != "exp" }
	requireLegal(t, g, supported, Regions(g, supported, Limit))
}
