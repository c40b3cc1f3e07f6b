// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// withSeveralExits offers, beside what a space has, convex groups of nodes with several exits, as engines propose them:
// often cheaper than their parts.
func withSeveralExits(t *testing.T, s *Space, r *rand.Rand) *Space {
	t.Helper()
	f := s.Functions[0]
	g := f.Set.Graph
	within := func(nodes []relay.NodeID, v relay.NodeID) bool { return slices.Contains(nodes, v) }
	known := map[string]bool{}
	for range 40 {
		nodes := []relay.NodeID{relay.NodeID(r.IntN(len(g.Nodes)))}
		for range 1 + r.IntN(6) {
			at := nodes[r.IntN(len(nodes))]
			near := slices.Concat(g.Reads(at), g.Consumers(at))
			if v := near[r.IntN(max(1, len(near)))]; !within(nodes, v) && g.Placeable(v) {
				nodes = append(nodes, v)
			}
		}
		slices.Sort(nodes)
		if candidate.CheckSeveral(g, nodes) != nil || len(g.Exits(nodes)) < 2 {
			continue
		}
		backend := backends[1+r.IntN(3)].Name()
		c := candidate.Candidate{Backend: backend, Nodes: nodes, Root: nodes[len(nodes)-1], Bare: true,
			Scope: g.Nodes[nodes[0]].Scope}
		c.Border(g)
		if key := backend + c.Label(g) + string(runesOf(nodes)); known[key] {
			continue
		} else {
			known[key] = true
		}
		f.Set.Candidates = append(f.Set.Candidates, c)
		f.Costs = append(f.Costs, float64(1+r.IntN(12)))
	}
	s, err := NewSpace(backends, []Function{{Set: f.Set, Tree: f.Tree, Costs: f.Costs}})
	require.NoError(t, err)
	return s
}

func runesOf(nodes []relay.NodeID) (text []rune) {
	for _, v := range nodes {
		text = append(text, rune(v))
	}
	return text
}

// severalIn counts what was chosen with several exits.
func severalIn(s *Space, p *Placement) (n int) {
	for _, k := range p.Chosen[0] {
		if len(s.Functions[0].Set.Candidates[k].Exits) > 0 {
			n++
		}
	}
	return n
}

// What a placement is, its genome says: decoded it is the same, also where candidates have several exits, and so it is
// for whatever is made of it.
func TestGenomesWithSeveralExitsAreWhatTheySay(t *testing.T) {
	t.Parallel()
	several := 0
	for seed := range rounds.Seeds(100) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := withSeveralExits(t, randomSpace(t, r, 5+r.IntN(30)), r)
		var all []*Placement
		for _, b := range s.numbers() {
			p, err := s.Decode(s.Uniform(b))
			require.NoError(t, err)
			all = append(all, p)
		}
		p, err := s.Decode(randomGenome(s, r))
		require.NoError(t, err)
		all = append(all, p)
		for range 6 {
			p, other := all[r.IntN(len(all))], all[r.IntN(len(all))]
			if r.IntN(2) == 0 {
				other = nil
			}
			child, err := s.Decode(otherwise(s, p, other, r))
			require.NoError(t, err)
			all = append(all, child)
		}
		for _, p := range all {
			require.NoError(t, s.Check(p))
			several += severalIn(s, p)
			same(t, s, p)
		}
	}
	assert.Greater(t, several, rounds.Of(150), "hardly any region with several exits was tried")
}

// A choice that was made elsewhere (the operator level's, by costs with borders, of costs before others were learnt)
// is a genome, too.
func TestChosenRegionsWithSeveralExitsAreGenomes(t *testing.T) {
	t.Parallel()
	several := 0
	for seed := range rounds.Seeds(100) {
		r := rand.New(rand.NewPCG(seed, 6))
		s := withSeveralExits(t, randomSpace(t, r, 5+r.IntN(30)), r)
		f := &s.Functions[0]
		options := make([]place.Option, len(f.Costs))
		for k := range options {
			c := &f.Set.Candidates[k]
			options[k] = place.Option{Nodes: c.Nodes, Cost: f.Costs[k], Rank: c.Rank}
			if c.Free {
				options[k].Cost = 0
			} else if !math.IsInf(f.Costs[k], 1) {
				options[k].Cost = float64(1 + r.IntN(30)) // whatever it was believed to cost then
			}
		}
		placed, err := place.Solve(options, f.Tree)
		require.NoError(t, err)
		p := s.Place([][]int{placed.Chosen})
		require.NoError(t, s.Check(p))
		several += severalIn(s, p)
		same(t, s, p)
	}
	assert.Greater(t, several, rounds.Of(100))
}

// offer is a candidate of spaceOf.
type offer struct {
	backend string
	cost    float64
	nodes   []relay.NodeID
}

func spaceOf(t *testing.T, g *relay.Graph, offers []offer) *Space {
	t.Helper()
	set := &candidate.Set{Graph: g}
	var costs []float64
	for _, o := range offers {
		require.NoError(t, candidate.CheckEither(g, o.nodes, true))
		c := candidate.Candidate{Backend: o.backend, Nodes: o.nodes, Root: o.nodes[len(o.nodes)-1], Bare: true}
		c.Border(g)
		set.Candidates, costs = append(set.Candidates, c), append(costs, o.cost)
	}
	s, err := NewSpace(backends, []Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	return s
}

func TestWhatAGenomeSaysOfARegionHoldsUntilOneOfItsGenesChanges(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	var n []relay.NodeID
	var offers []offer
	for range 4 {
		x = m.Call("tanh", vector, nil, x)
		n = append(n, x)
		offers = append(offers, offer{"tvm", 9, []relay.NodeID{x}}, offer{"merging", 2, []relay.NodeID{x}})
	}
	offers = append(offers, offer{"merging", 3, n[1:3]}, offer{"merging", 3, n[2:4]})
	s := spaceOf(t, m.Finish(x), offers)
	p, err := s.Decode(s.Uniform(1))
	require.NoError(t, err)
	require.Len(t, p.Regions[0], 1)
	require.Equal(t, []int{1, 8, 7}, p.Chosen[0], "one of the pairs that cost less")
	decoded := func(g Genome) []int {
		p, err := s.Decode(g)
		require.NoError(t, err)
		require.NoError(t, s.Check(p))
		return p.Chosen[0]
	}
	costs := s.Functions[0].Costs
	s.Functions[0].Costs = slices.Clone(costs)
	s.Functions[0].Costs[8] = 8
	assert.Equal(t, p.Chosen[0], decoded(p.Genome), "later costs do not change it")

	g := p.Genome.Clone()
	g[0][n[0]] = Gene{}
	assert.Equal(t, []int{0, 3, 9}, decoded(g), "they decide about what is left of the region")
	g = p.Genome.Clone()
	g[0][n[1]] = Gene{}
	assert.Equal(t, []int{1, 2, 9}, decoded(g), "a candidate that a gene is taken from is no candidate any more")
	g = p.Genome.Clone()
	for _, v := range n {
		g[0][v].Colour += 5
	}
	assert.Equal(t, p.Chosen[0], decoded(g), "a colour is a name")
	g[0][n[1]].Colour++
	assert.Equal(t, []int{1, 3, 9}, decoded(g))
	s.Functions[0].Costs[8] = math.Inf(1)
	assert.Equal(t, []int{1, 3, 9}, decoded(p.Genome), "what must not be taken is not")
}

func TestACandidateThatIsTornIsNotKept(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	var n []relay.NodeID
	var offers []offer
	for range 4 {
		x = m.Call("tanh", vector, nil, x)
		n = append(n, x)
		offers = append(offers, offer{"tvm", 9, []relay.NodeID{x}}, offer{"merging", 2, []relay.NodeID{x}})
	}
	s := spaceOf(t, m.Finish(x), append(offers, offer{"merging", 3, n[:2]}, offer{"merging", 3, n[2:]}))
	g := s.Uniform(1)
	g[0][n[2]].Colour, g[0][n[3]].Colour = 1, 1
	p, err := s.Decode(g)
	require.NoError(t, err)
	require.Equal(t, []int{8, 9}, p.Chosen[0])
	g = p.Genome.Clone()
	g[0][n[1]].Colour, g[0][n[2]].Colour = g[0][n[2]].Colour, g[0][n[1]].Colour
	p, err = s.Decode(g)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 3, 5, 7}, p.Chosen[0], "what is fused has one colour")
}

// Two regions with several exits may need each other's results. One that is kept and one that a move asks for beside it
// are not both there then.
func TestKeptRegionsAndNewOnesDoNotNeedEachOther(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x, y := m.Var([]int64{8}, "float32"), m.Var([]int64{8}, "float32")
	a := m.Call("tanh", vector, nil, x)
	b := m.Call("tanh", vector, nil, a)
	c := m.Call("tanh", vector, nil, y)
	d := m.Call("tanh", vector, nil, c)
	graph := m.Finish(m.Tuple(b, d))
	offers := []offer{{"engine", 1, []relay.NodeID{a, d}}, {"merging", 1, []relay.NodeID{b, c}}}
	for v := range graph.Nodes {
		if id := relay.NodeID(v); graph.Placeable(id) {
			offers = append(offers, offer{"tvm", 5, []relay.NodeID{id}})
		}
	}
	s := spaceOf(t, graph, offers)
	g := s.Uniform(0)
	for _, v := range []relay.NodeID{a, d} {
		g[0][v] = Gene{Backend: s.Backend("engine")}
	}
	p, err := s.Decode(g)
	require.NoError(t, err)
	require.Contains(t, p.Chosen[0], 0)
	same(t, s, p)
	g = p.Genome.Clone()
	for _, v := range []relay.NodeID{b, c} {
		g[0][v] = Gene{Backend: s.Backend("merging"), Colour: 7}
	}
	q, err := s.Decode(g)
	require.NoError(t, err)
	require.NoError(t, s.Check(q))
	assert.Equal(t, 1, severalIn(s, q))
}

// Where a node has nothing left to go to but a candidate that reaches into what is kept, that is not kept.
func TestWhatIsKeptLeavesNoNodeUncovered(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	a := m.Call("tanh", vector, nil, m.Var([]int64{8}, "float32"))
	b := m.Call("tanh", vector, nil, a)
	s := spaceOf(t, m.Finish(b), []offer{{"tvm", 5, []relay.NodeID{a}}, {"merging", 1, []relay.NodeID{a}},
		{"tvm", 5, []relay.NodeID{b}}, {"tvm", 5, []relay.NodeID{a, b}}})
	p, err := s.Decode(s.Uniform(1))
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, p.Chosen[0])
	s.Functions[0].Costs[2] = math.Inf(1)
	p, err = s.Decode(p.Genome)
	require.NoError(t, err)
	assert.Equal(t, []int{3}, p.Chosen[0])
}
