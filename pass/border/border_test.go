// SPDX-License-Identifier: Apache-2.0

package border

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// fan is a value that fans out: x -> a -> b, c, d; e = b + c; the result is a tuple of d and e; b reads a weight, too.
func fan() (g *relay.Graph, x, a, b, c, d, e, t relay.NodeID) {
	m := relay.NewGraph("main")
	kind := relay.Tensor("float32", 8)
	x = m.Var([]int64{8}, "float32")
	a = m.Call("exp", kind, nil, x)
	b = m.Call("multiply", kind, nil, a, m.Const([]int64{8}, "float32"))
	c, d = m.Call("sqrt", kind, nil, a), m.Call("tanh", kind, nil, a)
	e = m.Call("add", kind, nil, b, c)
	t = m.Tuple(d, e)
	return m.Finish(t), x, a, b, c, d, e, t
}

// in puts nodes into regions of side 1; all others stay inline, side 0.
func in(g *relay.Graph, regions ...[]relay.NodeID) *Regions {
	r := &Regions{Of: make([]int32, len(g.Nodes)), Sides: []Side{0}}
	for i, nodes := range regions {
		r.Sides = append(r.Sides, 1)
		for _, v := range nodes {
			r.Of[v] = int32(i + 1)
		}
	}
	return r
}

func TestEachValueIsPaidForOncePerRegion(t *testing.T) {
	t.Parallel()
	g, x, a, b, c, d, e, tuple := fan()
	f := FlowOf(g)
	for name, of := range map[string]struct {
		regions [][]relay.NodeID
		paid    []Payment
	}{
		"nothing outlined": {nil, nil},
		"one region, two readers": {[][]relay.NodeID{{b, c, e}},
			[]Payment{{a, 0, true}, {a, 1, false}, {e, 1, true}, {e, 0, false}}},
		"two regions that read": {[][]relay.NodeID{{b}, {c}},
			[]Payment{{a, 0, true}, {a, 1, false}, {a, 2, false}, {b, 1, true}, {b, 0, false}, {c, 2, true},
				{c, 0, false}}},
		"a region that makes, one that reads, and readers inline": {[][]relay.NodeID{{a, b}, {c}},
			[]Payment{{x, 1, false}, {a, 1, true}, {a, 2, false}, {a, 0, false}, {b, 1, true}, {b, 0, false},
				{c, 2, true}, {c, 0, false}}},
		"a region with the result": {[][]relay.NodeID{{d, e, tuple}},
			[]Payment{{a, 0, true}, {a, 1, false}, {b, 0, true}, {b, 1, false}, {c, 0, true}, {c, 1, false},
				{tuple, 1, true}}},
		"everything": {[][]relay.NodeID{{a, b, c, d, e, tuple}}, []Payment{{x, 1, false}, {tuple, 1, true}}},
	} {
		var paid []Payment
		r := in(g, of.regions...)
		f.Each(r, func(p Payment) { paid = append(paid, p) })
		require.Equal(t, of.paid, paid, name)
		require.Equal(t, int64(len(paid)), f.Sum(r, func(relay.NodeID, Side) (int64, int64) { return 1, 1 }), name)
	}
}

func TestAFlowLeavesConstantsOut(t *testing.T) {
	t.Parallel()
	g, x, a, b, c, d, _, tuple := fan()
	f := FlowOf(g)
	require.Equal(t, []relay.NodeID{a}, f.Readers[x])
	require.Equal(t, []relay.NodeID{b, c, d}, f.Readers[a])
	require.False(t, f.Made[x])
	require.True(t, f.Made[a])
	require.True(t, f.Result[tuple])
	require.False(t, f.Result[a])
	for v := range g.Nodes {
		if g.Nodes[v].Kind == relay.KindConstant {
			require.Empty(t, f.Readers[v])
		}
	}
	for w, reads := range f.Reads() {
		for _, u := range reads {
			require.Contains(t, f.Readers[u], relay.NodeID(w))
		}
	}
}

func TestATupleCostsWhatItsFieldsCost(t *testing.T) {
	t.Parallel()
	tensor := func(k *relay.Type) (in, out float64) { return float64(k.Shape[0]), 100 }
	of := func(k *relay.Type) []float64 { i, o := OfType(tensor, k); return []float64{i, o} }
	require.Equal(t, []float64{3, 100}, of(relay.Tensor("float32", 3)))
	require.Equal(t, []float64{7, 300}, of(relay.TupleOf(relay.Tensor("float32", 3),
		relay.TupleOf(relay.Tensor("float32", 2), relay.Tensor("int8", 2)))))
	require.Equal(t, []float64{0, 0}, of(nil))
	in, out := Rounded(func(relay.NodeID, Side) (float64, float64) { return 1e-9 / 3, math.Pi })(0, 0)
	require.Equal(t, []int64{0, 3141592654}, []int64{in, out})
}

// Joining two regions of one side never makes anything dearer: what the solver's bounds rest on.
func TestFewerRegionsNeverCostMore(t *testing.T) {
	t.Parallel()
	cheaper := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := relay.NewGraph("main")
		values := []relay.NodeID{m.Var([]int64{8}, "float32")}
		for range 2 + r.IntN(12) {
			values = append(values, m.Call("add", relay.Tensor("float32", 8), nil, values[r.IntN(len(values))],
				values[len(values)-1]))
		}
		g := m.Finish(values[len(values)-1])
		f := FlowOf(g)
		costs := make([][2]int64, len(g.Nodes)*4)
		for i := range costs {
			costs[i] = [2]int64{r.Int64N(100), r.Int64N(100)}
		}
		ends := func(v relay.NodeID, s Side) (in, out int64) { e := costs[int(v)*4+int(s)]; return e[0], e[1] }
		regions := &Regions{Of: make([]int32, len(g.Nodes)), Sides: []Side{0, 1, 1, 2, 3, 1}}
		for v := range g.Nodes {
			if f.Made[v] {
				regions.Of[v] = r.Int32N(6)
			}
		}
		before := f.Sum(regions, ends)
		for v := range regions.Of {
			if n := regions.Of[v]; n == 2 || n == 5 {
				regions.Of[v] = 1
			}
		}
		after := f.Sum(regions, ends)
		require.LessOrEqual(t, after, before, "seed %d", seed)
		if after < before {
			cheaper++
		}
	}
	require.Greater(t, cheaper, 250)
}
