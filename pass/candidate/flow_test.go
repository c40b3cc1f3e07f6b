// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// nested has a Let whose value and body are scopes, an If, and a called function.
func nested() (g *relay.Graph, let, bound, value, body, chosen, then, called, literal relay.NodeID) {
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	c := m.Var(nil, "bool")
	bound = m.LocalVar(shape, "float32")
	value = m.Call("exp", act, nil, x)
	body = m.Call("nn.relu", act, nil, bound)
	let = m.Let(bound, value, body)
	then = m.Call("exp", act, nil, let)
	other := m.Call("nn.relu", act, nil, let)
	chosen = m.If(c, then, other, act)
	p := m.LocalVar(shape, "float32")
	literal = m.Function([]relay.NodeID{p}, m.Call("add", act, nil, p, m.Scalar(1, "float32")), nil)
	called = m.CallFunction(literal, act, chosen)
	return m.Finish(called), let, bound, value, body, chosen, then, called, literal
}

func TestFlowGoesThroughScopes(t *testing.T) {
	t.Parallel()
	g, let, bound, value, body, chosen, then, called, literal := nested()
	f := flowOf(g)
	require.Contains(t, f.outputs[value], bound, "the value of a Let flows into its variable")
	require.NotContains(t, f.outputs[value], let)
	require.Equal(t, []relay.NodeID{let}, f.outputs[body])
	require.Contains(t, f.outputs[then], chosen)
	require.Contains(t, f.inputs[called], literal)
	require.Equal(t, []relay.NodeID{body}, f.outputs[bound])

	// Downstream is what can be reached, asked for once and once more.
	for v := range g.Nodes {
		reached := map[relay.NodeID]bool{}
		var visit func(relay.NodeID)
		visit = func(u relay.NodeID) {
			for _, w := range f.outputs[u] {
				if !reached[w] {
					reached[w] = true
					visit(w)
				}
			}
		}
		visit(relay.NodeID(v))
		for range 2 {
			set := f.Downstream(relay.NodeID(v))
			require.Len(t, reached, set.Len(), "%%%d", v)
			for u := range reached {
				require.True(t, set.Has(u), "%%%d flows into %%%d", v, u)
			}
		}
	}
}

func TestOnlyScalarsAndFunctionsAreInlined(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	scalar, vector, small := m.Scalar(2, "float32"), m.Const([]int64{1}, "float32"), m.Scalar(2, "int8")
	sum := m.Call("add", act, nil, m.Call("add", act, nil, m.Call("add", act, nil, x, scalar), vector), small)
	g := m.Finish(sum)
	for v, want := range map[relay.NodeID]bool{x: false, scalar: true, vector: false, small: false, sum: false} {
		require.Equal(t, want, Inlinable(&g.Nodes[v]), "%%%d", v)
	}

	// What is inlined is no entry of a group; a constant that may be shared is no exit, and has no depth by itself.
	f := flowOf(g)
	first := g.Nodes[vector+3].Inputs[0]
	require.Equal(t, "add", g.Nodes[first].Op)
	single := f.Single(first, "")
	require.Equal(t, []relay.NodeID{first}, single.entries.Nodes())
	require.Equal(t, []relay.NodeID{x}, single.sources.Nodes())
	require.Equal(t, 1, single.Depth)
	f.SharedConstants = true
	require.Zero(t, f.Single(vector, "").Depth)
	require.Equal(t, 0, f.Single(vector, "").exits.Len())
}

// Sets of any size are what a map says that they are.
func TestNodeSetsOfAnySize(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 200} {
		require.Len(t, NewNodeSet(n), (n-1)/64+1)
		for round := range 60 {
			rare := 4 + 96*(round%2) // half of them hold next to nothing
			sets, lists := [2]NodeSet{}, [2][]relay.NodeID{}
			for k := range sets {
				sets[k] = NewNodeSet(n)
				for v := range relay.NodeID(n) {
					if r.IntN(rare) == 0 {
						sets[k].Add(v)
						lists[k] = append(lists[k], v)
					}
					require.Equal(t, slices.Contains(lists[k], v), sets[k].Has(v))
				}
				require.Equal(t, len(lists[k]), sets[k].Len())
				require.ElementsMatch(t, lists[k], sets[k].Nodes())
				first, last := relay.NoNode, relay.NoNode
				if len(lists[k]) > 0 {
					first, last = lists[k][0], lists[k][len(lists[k])-1]
				}
				require.Equal(t, first, sets[k].First())
				require.Equal(t, last, sets[k].Last())
			}
			require.Equal(t, slices.Equal(lists[0], lists[1]), sets[0].key() == sets[1].key())
			// The one with the first node in which they differ comes first.
			less := false
			for v := range relay.NodeID(n) {
				if a, b := sets[0].Has(v), sets[1].Has(v); a != b {
					less = a
					break
				}
			}
			require.Equal(t, less, sets[0].Less(sets[1]))
		}
	}
}

func TestCheckRefusesWhatIsNoNode(t *testing.T) {
	t.Parallel()
	g := chain()
	for _, v := range []relay.NodeID{-1, relay.NodeID(len(g.Nodes)), 1 << 30} {
		require.ErrorContains(t, Check(g, []relay.NodeID{v}), "is no node of the graph")
	}
	require.NoError(t, Check(g, []relay.NodeID{g.Root()}))
}

func TestWhatIsTakenAndWhatHasNoKernel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		attrs map[string]string
		taken bool
	}{{nil, false}, {map[string]string{"Primitive": "0"}, false}, {map[string]string{"Primitive": "1"}, true},
		{map[string]string{"Primitive": ""}, false}, {map[string]string{"Compiler": "x"}, true},
		{map[string]string{"Composite": "x"}, true},
		{map[string]string{"Other": "x"}, false}} {
		require.Equal(t, c.taken, isTaken(c.attrs), c.attrs)
	}
	for _, op := range []string{"on_device", "device_copy", "call_lowered", "annotation.x", "memory.alloc",
		"vm.shape_of"} {
		require.True(t, noKernel(op), op)
	}
	require.False(t, noKernel("nn.relu"))
}

// only is a library with one pattern.
func only(name string, shape relay.Pattern) library {
	return library{name, []byoc.Pattern{{Composite: name + ".p", Shape: shape}}}
}

// TVM's groups are cut where another backend takes over, and nowhere else.
func TestFusedGroupsAreCutWhereOthersTakeOver(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	c := conv(m, x)                                            // %2
	b := m.Call("add", act, nil, c, m.Const(shape, "float32")) // %4
	r := m.Call("nn.relu", act, nil, b)                        // %5
	g := m.Finish(m.Call("exp", act, nil, r))                  // %6
	anything := relay.Wildcard
	tvms := func(others ...byoc.Backend) string {
		var lines []string
		for line := range strings.SplitSeq(list(propose(t, g, append([]byoc.Backend{tvm}, others...)...)), "\n") {
			if nodes, _, found := strings.Cut(strings.TrimPrefix(line, "tvm "), " <-"); found &&
				strings.HasPrefix(line, "tvm") {
				lines = append(lines, nodes)
			}
		}
		return strings.Join(lines, " ")
	}
	// What another one takes has a mirror on TVM, too.
	require.Equal(t, "[2] [4] [5] [2 4 5 6] [6]", tvms())
	require.Equal(t, "[2] [4] [5] [2 4 5 6] [4 5 6] [6]",
		tvms(only("a", relay.Op("nn.conv2d", anything(), anything()))))
	require.Equal(t, "[2] [4] [2 4 5] [5] [2 4 5 6] [6]",
		tvms(only("b", relay.Op("nn.relu", relay.Op("add", relay.Op("nn.conv2d", anything(), anything()),
			anything())))))
	require.Equal(t, "[2] [4] [2 4 5] [5] [2 4 5 6] [6]", tvms(only("c", relay.Op("exp", anything()))))

	// Ranks: nothing for TVM against a region, and the earlier backend wins a tie.
	set := propose(t, g, tvm, only("a", relay.Op("exp", anything())), only("d", relay.Op("exp", anything())))
	ranks := map[string]int{}
	for _, c := range set.Candidates {
		ranks[c.Backend] = c.Rank
	}
	require.Less(t, ranks["tvm"], ranks["a"])
	require.Less(t, ranks["a"], ranks["d"])
}
