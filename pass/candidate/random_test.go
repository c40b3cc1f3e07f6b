// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// randomGraph makes a graph of n operators with branches, skips, tuples, projections and a conditional now and then.
func randomGraph(r *rand.Rand, n int) *relay.Graph {
	m := relay.NewGraph("main")
	condition := m.Var(nil, "bool")
	values := []relay.NodeID{m.Var(shape, "float32")}
	unused := map[relay.NodeID]bool{}
	take := func() relay.NodeID {
		v := values[len(values)-1-r.IntN(min(len(values), 1+r.IntN(6)))]
		delete(unused, v)
		return v
	}
	for range n {
		var v relay.NodeID
		switch r.IntN(12) {
		case 0, 1, 2:
			v = conv(m, take())
		case 3:
			v = m.Call("add", act, nil, take(), m.Const([]int64{8, 1, 1}, "float32"))
		case 4, 5:
			v = m.Call("add", act, nil, take(), take())
		case 6, 7:
			v = m.Call("nn.relu", act, nil, take())
		case 8:
			v = m.Call("nn.softmax", act, nil, take())
		case 9:
			v = m.Call("concatenate", act, nil, m.Tuple(take(), take()))
		case 10:
			s := m.Call("split", relay.TupleOf(act, act), nil, take())
			v = m.Call("multiply", act, nil, m.Get(s, 0), m.Get(s, 1))
		case 11:
			v = m.If(condition, m.Call("exp", act, nil, take()), take(), act)
		}
		values = append(values, v)
		unused[v] = true
	}
	var outputs []relay.NodeID
	for _, v := range values {
		if unused[v] {
			outputs = append(outputs, v)
		}
	}
	if len(outputs) == 1 {
		return m.Finish(outputs[0])
	}
	return m.Finish(m.Tuple(outputs...))
}

func TestRandomGraphsGiveLegalCandidatesThatCover(t *testing.T) {
	t.Parallel()
	fused, outlined := 0, 0
	for seed := range rounds.Seeds(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := randomGraph(r, 2+r.IntN(40))
		set := propose(t, g, tvm, convolutions())
		require.Equal(t, set, propose(t, g, tvm, convolutions()), "seed %d: not deterministic", seed)
		options := make([]place.Option, len(set.Candidates))
		for i, c := range set.Candidates {
			options[i] = place.Option{Nodes: c.Nodes, Rank: c.Rank}
			if !c.Free {
				options[i].Cost = r.Float64()
			}
			if c.Backend == "tvm" && c.Operators(g) > 1 {
				fused++
			}
		}
		tree := place.TreeOf(g)
		p, err := place.Solve(options, tree)
		require.NoError(t, err, "seed %d", seed)
		require.NoError(t, place.Verify(options, tree, p), "seed %d", seed)
		for _, i := range p.Chosen {
			if set.Candidates[i].Backend == "dnnl" {
				outlined++
			}
		}
	}
	require.Greater(t, fused, rounds.Of(1000))
	require.Greater(t, outlined, rounds.Of(1000))
}

func TestWithoutTVMNotEverythingIsCovered(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	g := randomGraph(r, 30)
	set := propose(t, g, convolutions())
	options := make([]place.Option, len(set.Candidates))
	for i, c := range set.Candidates {
		options[i] = place.Option{Nodes: c.Nodes, Cost: 1}
	}
	_, err := place.Solve(options, place.TreeOf(g))
	var uncovered *place.UncoveredError
	require.ErrorAs(t, err, &uncovered)
	require.NotEmpty(t, uncovered.Without)
}

func BenchmarkPropose(b *testing.B) {
	g := randomGraph(rand.New(rand.NewPCG(1, 1)), 10_000)
	for b.Loop() {
		if _, err := Propose(g, []byoc.Backend{tvm, convolutions()}, Options{OpPattern: patterns}); err != nil {
			b.Fatal(err)
		}
	}
}
