// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	backend "github.com/collage-tvm/collage/byoc/tvm"
	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/relay"
)

func flowOf(g *relay.Graph) *Flow {
	return NewFlow(g, func(call *relay.Node) OpPattern { return patterns(call.Op) })
}

// legal gives the nodes of the groups that the rules make and that can be candidates, sorted.
func legal(f *Flow, rules Rules) [][]relay.NodeID {
	groups, _ := f.Combine(f.Singles(), rules)
	var found [][]relay.NodeID
	for _, g := range groups {
		if f.Legal(g, rules.MaxDepth) {
			found = append(found, f.Placeable(g))
		}
	}
	slices.SortFunc(found, slices.Compare)
	return found
}

func TestStylesAndDepthOfAChain(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	v := m.Var(shape, "float32")
	for range 4 {
		v = m.Call("nn.relu", act, nil, v)
	}
	f := flowOf(m.Finish(v))
	require.Len(t, legal(f, StyleRules(byoc.NoFusion, 8)), 4)
	for depth, runs := range map[int]int{1: 4, 2: 7, 3: 9, 4: 10, 8: 10} { // runs of at most depth operators
		require.Len(t, legal(f, StyleRules(byoc.TVMFusion, depth)), runs, "depth %d", depth)
		require.Len(t, legal(f, StyleRules(byoc.ArbitraryFusion, depth)), runs, "depth %d", depth)
	}
}

func TestKindsDecideWhatTVMFuses(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	a := conv(m, m.Var(shape, "float32"))
	b := m.Call("nn.relu", act, nil, a)
	c := conv(m, b)
	f := flowOf(m.Finish(c))
	require.Equal(t, [][]relay.NodeID{{a}, {a, b}, {b}, {c}}, legal(f, NativeRules(8)),
		"nothing goes into a convolution")
	require.Contains(t, legal(f, StyleRules(byoc.ArbitraryFusion, 8)), []relay.NodeID{a, b, c})
}

func TestADiamondIsTakenWhole(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	a := m.Call("exp", act, nil, m.Var(shape, "float32"))
	b, c := m.Call("nn.relu", act, nil, a), m.Call("exp", act, nil, a)
	d := m.Call("add", act, nil, b, c)
	f := flowOf(m.Finish(d))
	rules := NativeRules(8)
	rules.Complete = true
	found := legal(f, rules)
	require.Contains(t, found, []relay.NodeID{a, b, c, d})
	require.NotContains(t, found, []relay.NodeID{a, b}, "a escapes")
	// Both branches and their reader: a group that has been looked at is joined with one that came later.
	require.Contains(t, found, []relay.NodeID{b, c, d})
	require.NotContains(t, legal(f, NativeRules(8)), []relay.NodeID{b, c, d}, "TVM's prototype forgets it")
}

func TestTuplesAndProjectionsAreFused(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	a, b := m.Call("exp", act, nil, x), m.Call("nn.relu", act, nil, x)
	tuple := m.Tuple(a, b)
	joined := m.Call("concatenate", act, nil, tuple)
	parts := m.Call("split", relay.TupleOf(act, act), nil, joined)
	first := m.Get(parts, 0)
	f := flowOf(m.Finish(first))
	rules := NativeRules(8)
	require.Contains(t, legal(f, rules), []relay.NodeID{a, b, tuple, joined})
	require.Contains(t, legal(f, rules), []relay.NodeID{parts, first})
	rules.TupleArguments, rules.Projections = false, false
	for _, nodes := range legal(f, rules) {
		require.NotContains(t, nodes, tuple)
		require.NotContains(t, nodes, first)
	}
	// The same value in two fields, where TVM's prototype ends the process of partitioning.
	m = relay.NewGraph("main")
	a = m.Call("exp", act, nil, m.Var(shape, "float32"))
	tuple = m.Tuple(a, a)
	joined = m.Call("concatenate", act, nil, tuple)
	require.Contains(t, legal(flowOf(m.Finish(joined)), NativeRules(8)), []relay.NodeID{a, tuple, joined})
}

func TestConstantsJoinTheirReader(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	weight := m.Const([]int64{8, 1, 1}, "float32")
	a := m.Call("add", act, nil, m.Var(shape, "float32"), weight)
	f := flowOf(m.Finish(a))
	groups, complete := f.Combine(f.Singles(), Rules{Constants: true, MaxDepth: 8})
	require.True(t, complete)
	require.Len(t, groups, 2)
	require.Equal(t, []relay.NodeID{weight, a}, groups[1].Nodes.Nodes())
	require.Equal(t, []relay.NodeID{a}, f.Placeable(groups[1]))
}

func TestALimitEndsTheRounds(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	v := m.Var(shape, "float32")
	for range 40 {
		v = m.Call("nn.relu", act, nil, v)
	}
	rules := StyleRules(byoc.ArbitraryFusion, 20)
	rules.Limit = 100
	f := flowOf(m.Finish(v))
	groups, complete := f.Combine(f.Singles(), rules)
	require.False(t, complete)
	require.LessOrEqual(t, len(groups), 101)
}

func TestRulesOnRandomGraphsGiveLegalGroups(t *testing.T) {
	t.Parallel()
	made := 0
	for seed := range rounds.Seeds(150) {
		g := randomGraph(rand.New(rand.NewPCG(seed, 2)), 12)
		f := flowOf(g)
		for _, rules := range []Rules{NativeRules(4), StyleRules(byoc.ArbitraryFusion, 3)} {
			narrow := legal(f, rules)
			rules.Complete, rules.Limit = true, 4000
			wide := legal(f, rules)
			seen := map[string]bool{}
			for _, nodes := range wide {
				require.NoError(t, Check(g, nodes), "seed %d", seed)
				id := NewNodeSet(len(g.Nodes))
				for _, v := range nodes {
					id.Add(v)
				}
				seen[id.key()] = true
			}
			for _, nodes := range narrow {
				id := NewNodeSet(len(g.Nodes))
				for _, v := range nodes {
					id.Add(v)
				}
				require.True(t, seen[id.key()], "seed %d: %v is missing from the complete search", seed, nodes)
			}
			made += len(wide)
		}
	}
	require.Greater(t, made, rounds.Of(4000))
}

func TestNodeSet(t *testing.T) {
	t.Parallel()
	a, b := NewNodeSet(130), NewNodeSet(130)
	for _, v := range []relay.NodeID{3, 64, 129} {
		a.Add(v)
	}
	b.Add(64)
	require.Equal(t, []relay.NodeID{3, 64, 129}, a.Nodes())
	require.Equal(t, relay.NodeID(3), a.First())
	require.Equal(t, relay.NodeID(129), a.Last())
	require.Equal(t, relay.NoNode, NewNodeSet(130).First())
	require.True(t, b.SubsetOf(a) && a.Intersects(b) && !a.SubsetOf(b))
	require.True(t, a.Less(b) && !b.Less(a) && !a.Less(a))
	require.Equal(t, a, a.Or(b))
}

func TestTVMProposesWhatIsLeftOfAFusedGroup(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	a := conv(m, m.Var(shape, "float32"))
	b := m.Call("nn.relu", act, nil, a)
	c := m.Call("exp", act, nil, b)
	d := m.Call("nn.relu", act, nil, c)
	g := m.Finish(d)
	native := backend.New()
	set, err := Propose(g, []byoc.Backend{native}, Options{OpPattern: patterns})
	require.NoError(t, err)
	has := func(set *Set, nodes ...relay.NodeID) bool {
		return slices.ContainsFunc(set.Candidates, func(c Candidate) bool { return slices.Equal(c.Nodes, nodes) })
	}
	require.True(t, has(set, a, b, c, d), "what FuseOps makes")
	require.False(t, has(set, c, d))
	var learnt []byoc.Learnt
	for i := range set.Candidates {
		learnt = append(learnt, set.Candidates[i].Learnt(1, ""))
	}
	dear := byoc.Learnt{Backend: "dnnl", Composite: "dnnl.conv2d_relu", Nodes: []relay.NodeID{a, b},
		Milliseconds: math.Inf(1)}
	_, added, err := Extend(set, []byoc.Backend{native}, Options{OpPattern: patterns}, append(learnt, dear))
	require.NoError(t, err)
	require.Zero(t, added, "it failed over there")
	cheap := dear
	cheap.Milliseconds = 0.5
	wider, added, err := Extend(set, []byoc.Backend{native}, Options{OpPattern: patterns}, append(learnt, cheap))
	require.NoError(t, err)
	require.Equal(t, 1, added)
	require.True(t, has(wider, c, d))
	require.NoError(t, Check(g, []relay.NodeID{c, d}))
	again, added, err := Extend(wider, []byoc.Backend{native}, Options{OpPattern: patterns}, append(learnt, cheap))
	require.NoError(t, err)
	require.Zero(t, added)
	require.Equal(t, wider, again)
}
