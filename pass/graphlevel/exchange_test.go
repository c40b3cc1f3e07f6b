// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// What a candidate would cost a network more is counted from the regions that form with it, those of both its
// neighbours joined by it included. Regions that a cycle keeps apart now stay apart, though they might be joined then.
func TestExchangesCountBorders(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 3))
	exact, all, saves := 0, 0, 0
	for range 60 {
		s := randomNetwork(t, r, 12)
		rate := 0.002 * r.Float64()
		s.Border = func(_ int, v relay.NodeID, backend int16) (in, out float64) {
			if backend == s.Free() {
				return 0, 0
			}
			bytes, _ := s.Functions[0].Set.Graph.Nodes[v].Type.NumBytes()
			return rate * float64(bytes), rate * float64(bytes) / 2
		}
		f := &s.Functions[0]
		var chosen []int
		for k := 0; k < len(f.Set.Candidates); k += len(engines) {
			chosen = append(chosen, k+r.IntN(len(engines)))
		}
		p := s.Place([][]int{chosen})
		more := s.Exchanges(p, 0, believed(s, 0, place.Overhead{}))
		for k := range f.Set.Candidates {
			if slices.Contains(chosen, k) {
				assert.True(t, math.IsNaN(more[k]), "it is there")
				continue
			}
			instead := slices.Clone(chosen)
			instead[k/len(engines)] = k
			want := float64(sum(s, s.Place([][]int{instead}))-sum(s, p)) / 1e9
			require.GreaterOrEqual(t, more[k], want-1e-9)
			all++
			if math.Abs(more[k]-want) < 1e-9 {
				exact++
			}
			if more[k] < 0 {
				saves++
			}
		}
	}
	assert.Greater(t, float64(exact)/float64(all), 0.95)
	assert.Greater(t, saves, all/10, "a random placement can be bettered")
	assert.Less(t, saves, all)
}

// tanhs is a chain of operators with candidates that take some of them at a cost.
type tanhs struct {
	set   *candidate.Set
	nodes []relay.NodeID
	costs []float64
}

func newTanhs(count int) *tanhs {
	m, c := relay.NewGraph("main"), &tanhs{}
	x := m.Var([]int64{8}, "float32")
	for range count {
		x = m.Call("tanh", relay.Tensor("float32", 8), nil, x)
		c.nodes = append(c.nodes, x)
	}
	c.set = &candidate.Set{Graph: m.Finish(x)}
	return c
}

func (c *tanhs) add(backend string, ms float64, of ...relay.NodeID) {
	inputs, constants := c.set.Graph.Boundary(of)
	c.set.Candidates = append(c.set.Candidates, candidate.Candidate{Backend: backend, Nodes: of, Root: of[len(of)-1],
		Inputs: inputs, Constants: constants, Key: "tanh"})
	c.costs = append(c.costs, ms)
}

func (c *tanhs) space(t *testing.T) *genome.Space {
	t.Helper()
	s, err := genome.NewSpace([]byoc.Backend{engines[0], engines[1]},
		[]genome.Function{{Set: c.set, Tree: place.TreeOf(c.set.Graph), Costs: c.costs}})
	require.NoError(t, err)
	return s
}

// What is left of a group that a candidate overlaps is covered as cheaply as may be.
func TestExchangesCoverWhatIsLeft(t *testing.T) {
	c := newTanhs(3)
	add, nodes := c.add, c.nodes
	add("tvm", 3, nodes...)
	for _, v := range nodes {
		add("tvm", 2, v)
	}
	add("tvm", 2.5, nodes[:2]...)
	add("red", 0.5, nodes[2])
	add("red", 0.75, nodes[1])
	add("red", math.Inf(1), nodes[0])
	s := c.space(t)
	s.Border = func(_ int, _ relay.NodeID, backend int16) (in, out float64) {
		if backend == s.Free() {
			return 0, 0
		}
		return 0.125, 0.25
	}
	more := s.Exchanges(s.Place([][]int{{0}}), 0, believed(s, 0, place.Overhead{}))
	assert.InDelta(t, 2.5+0.5+0.375-3, more[5], 1e-9, "the first two together, and one region's borders")
	assert.InDelta(t, 2+0.75+0.5+0.375-3, more[6], 1e-9, "and what follows with it, in one region")
	assert.InDelta(t, 2.5+2-3, more[3], 1e-9, "nothing is outlined")
	assert.True(t, math.IsNaN(more[0]) && math.IsNaN(more[7]))
}

// Where one candidate stands for a whole large network, the effort goes to what has the least to lose.
func TestExchangesBeginWithTheClosest(t *testing.T) {
	c := newTanhs(600)
	add, nodes := c.add, c.nodes
	add("red", 500, nodes...)
	for i, v := range nodes {
		add("tvm", 1, v)
		add("red", 1+float64((i*37)%600)/600, v)
	}
	s := c.space(t)
	s.Border = func(int, relay.NodeID, int16) (in, out float64) { return 0, 0 }
	more := s.Exchanges(s.Place([][]int{{0}}), 0, believed(s, 0, place.Overhead{}))
	var known []float64
	for k := 2; k < len(c.costs); k += 2 {
		if !math.IsNaN(more[k]) {
			known = append(known, c.costs[k])
		}
	}
	assert.Greater(t, len(known), 100)
	assert.Less(t, len(known), len(nodes))
	slices.Sort(known)
	assert.Less(t, known[len(known)-1], 1+float64(len(known)+1)/600, "none is left out before one that is further off")
}
