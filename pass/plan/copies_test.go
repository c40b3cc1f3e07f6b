// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

// What a region copies is what is paid for at its border: the count by which borders cost something says the same.
func TestCopiesAreWhatIsPaidForAtTheBorder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m := relay.NewGraph("main")
		values := []relay.NodeID{m.Var([]int64{4}, "float32"), m.Var([]int64{8}, "float32")}
		kinds := []*relay.Type{relay.Tensor("float32", 4), relay.Tensor("int8", 8)}
		read := map[relay.NodeID]bool{}
		for range 2 + r.IntN(12) {
			reads := []relay.NodeID{values[r.IntN(len(values))], values[r.IntN(len(values))]}
			if r.IntN(3) == 0 {
				reads[1] = m.Const([]int64{4}, "float32")
			}
			read[reads[0]], read[reads[1]] = true, true
			values = append(values, m.Call("add", kinds[r.IntN(2)], nil, reads...))
		}
		g := m.Finish(m.Tuple(unread(values[2:], read)...))
		flow := border.FlowOf(g)
		regions := &border.Regions{Of: make([]int32, len(g.Nodes)), Sides: []border.Side{0, 1}}
		var nodes []relay.NodeID
		for v := range g.Nodes {
			if g.Nodes[v].Op == "add" && r.IntN(2) == 0 {
				nodes, regions.Of[v] = append(nodes, relay.NodeID(v)), 1
			}
		}
		if len(nodes) == 0 {
			continue
		}
		want := Copies{}
		flow.Each(regions, func(p border.Payment) {
			size, _ := g.Nodes[p.Value].Type.NumBytes()
			switch {
			case p.Region != 1:
			case p.Out:
				want.FromDevice, want.FromBytes = want.FromDevice+1, want.FromBytes+size
			default:
				want.ToDevice, want.ToBytes = want.ToDevice+1, want.ToBytes+size
			}
		})
		require.Equal(t, want, *copiesOf(g, nodes))
	}
}

// unread are the values that nobody reads.
func unread(values []relay.NodeID, read map[relay.NodeID]bool) (left []relay.NodeID) {
	for _, v := range values {
		if !read[v] {
			left = append(left, v)
		}
	}
	return left
}

func TestCopiesOfTuples(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	both := m.Tuple(m.Var([]int64{4}, "float32"), m.Var([]int64{8}, "int8"))
	joined := m.Call("concatenate", relay.Tensor("float32", 12), nil, both)
	g := m.Finish(joined)
	g.Nodes[both].Type = &relay.Type{Kind: relay.TypeTuple,
		Fields: []*relay.Type{relay.Tensor("float32", 4), relay.Tensor("int8", 8)}}
	require.Equal(t, Copies{ToDevice: 2, ToBytes: 24, FromDevice: 1, FromBytes: 48}, *copiesOf(g, []relay.NodeID{joined}))
}

func TestCopiesOfAPlan(t *testing.T) {
	t.Parallel()
	on := func(backend string, to, from int) Region {
		r := Region{Backend: backend, Candidates: []Candidate{{}}}
		if to > 0 {
			r.Copies = &Copies{ToDevice: to, ToBytes: int64(10 * to), FromDevice: from, FromBytes: int64(100 * from)}
		}
		return r
	}
	p := &Plan{Backends: []Backend{{Name: "tvm"}, {Name: "a", Device: "opencl"}, {Name: "b", Device: "cuda"}},
		Regions: []Region{on("tvm", 0, 0), on("a", 1, 2), on("b", 3, 1), on("a", 2, 1)}}
	require.Equal(t, map[string]Copies{
		"opencl": {ToDevice: 3, ToBytes: 30, FromDevice: 3, FromBytes: 300},
		"cuda":   {ToDevice: 3, ToBytes: 30, FromDevice: 1, FromBytes: 100},
	}, p.Copies())
	p.Regions = p.Regions[:1]
	require.Empty(t, p.Copies())
}
