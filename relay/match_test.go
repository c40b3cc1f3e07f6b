// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// convPattern is conv, + bias, + sum, + relu, each of these optional.
func convPattern() Pattern {
	p := Named("conv", Op("nn.conv2d", Wildcard(), IsConstant()))
	p = Optional(p, func(p Pattern) Pattern { return Op("add", p, Named("bias", IsConstant())) })
	p = Optional(p, func(p Pattern) Pattern { return Op("add", p, Named("sum", Wildcard())) })
	return Optional(p, func(p Pattern) Pattern { return Op("nn.relu", p) })
}

func nodesOf(ms []*Match) [][]NodeID {
	var out [][]NodeID
	for _, m := range ms {
		out = append(out, m.Nodes)
	}
	return out
}

func TestOperatorsOfAPattern(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"add", "nn.conv2d", "nn.relu"}, Operators(convPattern()))
	x := Wildcard()
	p := TupleGetItem(Op("split", Where(AnyOf([]string{"tanh", "abs"}, x), nil)), 0)
	assert.Equal(t, []string{"abs", "concatenate", "split", "tanh"},
		Operators(Op("concatenate", TuplePattern(p, x, p))))
	assert.Empty(t, Operators(x))
}

func TestOperatorsThatAPatternTakesAlone(t *testing.T) {
	t.Parallel()
	x, tanh := Wildcard(), Op("tanh", Wildcard())
	for name, c := range map[string]struct {
		p    Pattern
		want []string
	}{
		"any arguments":      {Op("abs"), []string{"abs"}},
		"arguments outside":  {Op("add", x, IsConstant()), []string{"add"}},
		"several names":      {AnyOf([]string{"tanh", "abs"}, x), []string{"abs", "tanh"}},
		"another inside":     {Op("abs", tanh), nil},
		"one may be left":    {Optional(tanh, func(p Pattern) Pattern { return Op("abs", p) }), []string{"tanh"}},
		"an inner one may":   {Op("abs", Or(tanh, IsVar())), []string{"abs"}},
		"a tuple":            {Op("concatenate", TuplePattern(x, IsVar())), []string{"concatenate"}},
		"a tuple of results": {TuplePattern(tanh, x, Or(x, Op("abs"))), []string{"tanh"}},
		"two results":        {TuplePattern(tanh, Op("abs")), nil},
		"the same twice":     {TuplePattern(tanh, tanh), []string{"tanh"}},
		"a field":            {Named("n", HasDType(TupleGetItem(Op("split"), 1), "bool")), []string{"split"}},
		"nothing":            {TupleGetItem(x, 0), nil},
	} {
		assert.Equal(t, c.want, Alone(c.p), name)
	}
	// A layer with its options begins with the operator alone.
	assert.Equal(t, []string{"nn.conv2d"}, Alone(convPattern()))
}

func TestMatchOptionals(t *testing.T) {
	t.Parallel()
	g := residual()
	p := convPattern()
	ms := g.Match(p, 11)
	require.Equal(t, [][]NodeID{{8, 9, 10, 11}}, nodesOf(ms))
	m := ms[0]
	assert.Equal(t, []NodeID{5, 0}, m.Inputs)
	assert.Equal(t, []NodeID{7, 6}, m.Constants)
	assert.Equal(t, map[string]NodeID{"conv": 8, "bias": 6, "sum": 0}, m.Named)
	// At the first relu the add can be seen as the bias or as the sum: same nodes, other names, the bias first.
	ms = g.Match(p, 5)
	require.Equal(t, [][]NodeID{{3, 4, 5}, {3, 4, 5}}, nodesOf(ms))
	assert.Equal(t, map[string]NodeID{"conv": 3, "sum": 1}, ms[1].Named)
	assert.Equal(t, map[string]NodeID{"conv": 3, "bias": 1}, ms[0].Named)
	assert.Equal(t, [][]NodeID{{3}}, nodesOf(g.Match(p, 3)))
	assert.Empty(t, g.Match(p, 0))
}

func TestMatchNoEscapes(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x := m.Var([]int64{1, 32, 14, 14}, "float32")
	c := conv(m, x)
	r := relu(m, c)
	g := m.Finish(m.Call("add", act, nil, r, c)) // the convolution is also used behind the relu
	assert.Empty(t, g.Match(Op("nn.relu", Op("nn.conv2d")), r))
	add := Op("add", Op("nn.relu", Wildcard()), Wildcard())
	require.Equal(t, [][]NodeID{{3, 4}}, nodesOf(g.Match(add, 4)))

	// The whole is legal: the escaping use is covered as well, and the operand is the same node.
	cp := Op("nn.conv2d")
	whole := g.Match(Op("add", Op("nn.relu", cp), cp), 4)
	require.Equal(t, [][]NodeID{{2, 3, 4}}, nodesOf(whole))
	assert.Equal(t, []NodeID{x}, whole[0].Inputs)
}

func TestMatchSharedPatternIsOneNode(t *testing.T) {
	t.Parallel()
	swish := func() Pattern {
		x := Wildcard()
		return Op("multiply", x, Op("sigmoid", x))
	}()
	build := func(same, swap bool) (*Graph, NodeID) {
		m := NewGraph("main")
		x, y := m.Var([]int64{4}, "float32"), m.Var([]int64{4}, "float32")
		s := m.Call("sigmoid", nil, nil, x)
		other := y
		if same {
			other = x
		}
		in := []NodeID{other, s}
		if swap {
			in = []NodeID{s, other}
		}
		r := m.Call("multiply", nil, nil, in...)
		return m.Finish(r), r
	}
	for _, swap := range []bool{false, true} {
		g, r := build(true, swap)
		assert.Len(t, g.Match(swish, r), 1)
		g, r = build(false, swap)
		assert.Empty(t, g.Match(swish, r))
	}
}

func TestMatchCommutativeBothWays(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x := m.Var([]int64{1, 32, 14, 14}, "float32")
	a, b := conv(m, x), conv(m, m.Var([]int64{1, 32, 14, 14}, "float32"))
	sum := m.Call("add", act, nil, a, b)
	g := m.Finish(sum)
	p := Op("add", Op("nn.conv2d"), Wildcard())
	assert.Equal(t, [][]NodeID{{a, sum}, {b, sum}}, nodesOf(g.Match(p, sum)))
	both := Op("add", Op("nn.conv2d"), Op("nn.conv2d"))
	assert.Equal(t, [][]NodeID{{a, b, sum}}, nodesOf(g.Match(both, sum)))
	assert.Empty(t, g.Match(Op("subtract", Op("nn.conv2d"), Wildcard()), sum))

	m = NewGraph("main")
	x = m.Var([]int64{4}, "float32")
	g = m.Finish(m.Call("subtract", nil, nil, x, m.Call("tanh", nil, nil, x)))
	assert.Empty(t, g.Match(Op("subtract", Op("tanh"), Wildcard()), 2), "subtract does not commute")
}

func TestMatchScopes(t *testing.T) {
	t.Parallel()
	g := branches()
	tanh, add := find(g, "tanh"), find(g, "add")
	assert.Empty(t, g.Match(Op("add", Op("tanh"), Wildcard()), add), "tanh belongs to the scope outside")
	assert.Equal(t, [][]NodeID{{find(g, "exp"), add}}, nodesOf(g.Match(Op("add", Wildcard(), Op("exp")), add)))
	_ = tanh
	// A value that its scope returns cannot be inside a group, whoever else uses it.
	m := NewGraph("main")
	x := m.Var([]int64{4}, "float32")
	y := m.Call("tanh", nil, nil, x)
	g = m.Finish(m.Tuple(y, m.Call("exp", nil, nil, y)))
	assert.Empty(t, g.Match(TuplePattern(Wildcard(), Op("exp", Op("tanh"))), 2))
	assert.Equal(t, [][]NodeID{{2, 3}}, nodesOf(g.Match(TuplePattern(Wildcard(), Op("exp")), 3)))
}

func TestMatchConstraints(t *testing.T) {
	t.Parallel()
	m := NewGraph("main")
	x := m.Var([]int64{1, 32, 14, 14}, "float32")
	c := conv(m, x)
	split := m.Call("split", TupleOf(act, act), map[string]any{"indices_or_sections": 2, "axis": 1, "ok": true}, c)
	g := m.Finish(m.Tuple(m.Get(split, 1), m.Get(split, 0)))
	count := func(p Pattern, at NodeID) int { return len(g.Match(p, at)) }
	conv := Op("nn.conv2d")
	assert.Equal(t, 1, count(HasAttr(conv, "padding", []int{1, 1, 1, 1}), c))
	assert.Equal(t, 0, count(HasAttr(conv, "padding", []int{1, 1}), c))
	assert.Equal(t, 0, count(HasAttr(conv, "absent", nil), c))
	assert.Equal(t, 1, count(HasAttr(HasAttr(Op("split"), "axis", int64(1)), "ok", true), split))
	assert.Equal(t, 1, count(HasShape(HasDType(conv, "float32"), 1, AnyDim, 14, 14), c))
	assert.Equal(t, 0, count(HasShape(conv, 1, 32, 14), c))
	assert.Equal(t, 0, count(HasDType(conv, "float16"), c))
	assert.Equal(t, 0, count(HasDType(Op("split"), "float32"), split))
	assert.Equal(t, 1, count(AnyOf([]string{"nn.conv1d", "nn.conv2d"}, IsVar(), IsConstant()), c))
	assert.Equal(t, 0, count(Op("nn.conv2d", Wildcard()), c), "wrong number of arguments")
	assert.Equal(t, 1, count(TupleGetItem(Wildcard(), 1), 4))
	assert.Equal(t, 0, count(TupleGetItem(Wildcard(), 0), 4))
	assert.Equal(t, 1, count(TupleGetItem(Wildcard(), -1), 5))
	assert.Equal(t, 0, count(TupleGetItem(Op("split"), 1), 4), "the split is used by the other field too")
	s := Op("split")
	assert.Equal(t, 1, count(TuplePattern(TupleGetItem(s, 1), TupleGetItem(s, 0)), 6))
	assert.Equal(t, 1, count(Where(conv, func(g *Graph, id NodeID) bool { return id == c }), c))
	assert.Equal(t, 0, count(Wildcard(), c), "a match covers its root")
	assert.Equal(t, 1, count(Or(Op("nn.relu"), conv, HasAttr(conv, "groups", 1)), c), "the same nodes once")
}

func TestMatchesAreLegalAndRepeat(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var tree func(depth int) Pattern
	tree = func(depth int) Pattern {
		if depth == 0 {
			return Or(Wildcard(), AnyOf([]string{"add", "multiply", "subtract", "tanh", "nn.relu"}))
		}
		return Or(Wildcard(), AnyOf([]string{"add", "multiply", "subtract"}, tree(depth-1), tree(depth-1)),
			AnyOf([]string{"tanh", "nn.relu"}, tree(depth-1)))
	}
	deep := tree(3)
	total := 0
	for range 100 {
		g := randomGraph(r, 30)
		post := g.PostDominators()
		for i := range g.Nodes {
			ms := g.Match(deep, NodeID(i))
			require.Equal(t, ms, g.Match(deep, NodeID(i)))
			for k, m := range ms {
				total++
				require.True(t, g.OneExit(m.Nodes))
				require.Equal(t, NodeID(i), m.Root)
				if k > 0 {
					require.LessOrEqual(t, len(m.Nodes), len(ms[k-1].Nodes))
				}
				for _, id := range m.Nodes { // a connected subtree of the post-dominator tree
					require.True(t, id == m.Root || m.Covers(post.Parent(id)))
				}
			}
		}
	}
	assert.Greater(t, total, 1000)
}

func BenchmarkMatch(b *testing.B) {
	m := NewGraph("main")
	at := m.Var([]int64{1, 32, 14, 14}, "float32")
	for range 50 {
		at = relu(m, m.Call("add", act, nil, biased(m, relu(m, biased(m, at))), at))
	}
	g := m.Finish(at)
	p := convPattern()
	for b.Loop() {
		n := 0
		for i := range g.Nodes {
			n += len(g.Match(p, NodeID(i)))
		}
		if n == 0 {
			b.Fatal("no match")
		}
	}
}
