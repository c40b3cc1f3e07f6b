// SPDX-License-Identifier: Apache-2.0

package genome

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// library is a backend of the tests; "tvm" takes anything.
type library struct {
	name   string
	merges bool
}

func (l library) Name() string        { return l.name }
func (l library) Description() string { return "a library of the tests" }
func (l library) Level() byoc.Level   { return byoc.OperatorLevel }
func (l library) Compiler() string {
	if l.name == "tvm" {
		return ""
	}
	return l.name
}
func (l library) Patterns() []byoc.Pattern { return nil }
func (l library) TakesAnything() bool      { return l.name == "tvm" }
func (l library) MergesRegions() bool      { return l.merges }
func (l library) Probe() byoc.Probe        { return byoc.Probe{Usable: true} }
func (l library) Install() error           { return nil }

// lodger is a library that shares merging's regions.
type lodger struct{ library }

func (lodger) Compiler() string { return "merging" }

var backends = []byoc.Backend{library{"tvm", false}, library{"merging", true}, library{"single", false},
	library{"engine", true},
	lodger{library{"lodger", true}}}

// randomGraph has branches, values that are used several times, tuples and projections.
func randomGraph(r *rand.Rand, n int) *relay.Graph {
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	values := []relay.NodeID{m.Var([]int64{8}, "float32")}
	used := map[relay.NodeID]bool{}
	pick := func() relay.NodeID {
		v := values[len(values)-1-r.IntN(min(len(values), 5))]
		used[v] = true
		return v
	}
	for range n {
		switch r.IntN(8) {
		case 0:
			values = append(values, m.Call("concatenate", vector, nil, m.Tuple(pick(), pick())))
		case 1, 2, 3:
			values = append(values, m.Call("add", vector, nil, pick(), pick()))
		default:
			values = append(values, m.Call("tanh", vector, nil, pick()))
		}
	}
	var open []relay.NodeID
	for _, v := range values {
		if !used[v] {
			open = append(open, v)
		}
	}
	if len(open) == 1 {
		return m.Finish(open[0])
	}
	return m.Finish(m.Tuple(open...))
}

// randomSpace offers single operators and random groups, some of which failed.
func randomSpace(t *testing.T, r *rand.Rand, n int) *Space {
	t.Helper()
	g := randomGraph(r, n)
	set := &candidate.Set{Graph: g}
	var costs []float64
	composite := ""
	add := func(backend string, free bool, nodes ...relay.NodeID) {
		if candidate.Check(g, nodes) != nil {
			return
		}
		inputs, constants := g.Boundary(nodes)
		cost := float64(1 + r.IntN(20))
		if free {
			cost = 0
		} else if backend != "tvm" && r.IntN(15) == 0 {
			cost = math.Inf(1)
		}
		set.Candidates = append(set.Candidates,
			candidate.Candidate{Backend: backend, Composite: composite, Nodes: nodes, Root: nodes[len(nodes)-1],
				Free:  free,
				Scope: g.Nodes[nodes[0]].Scope, Inputs: inputs, Constants: constants,
				Key: g.Nodes[nodes[len(nodes)-1]].Op})
		costs = append(costs, cost)
	}
	for v := range g.Nodes {
		id := relay.NodeID(v)
		if !g.Placeable(id) {
			continue
		}
		add("tvm", !candidate.IsOperator(&g.Nodes[v]), id)
		for _, b := range backends[1:] {
			if candidate.IsOperator(&g.Nodes[v]) && r.IntN(3) > 0 {
				add(b.Name(), false, id)
				if r.IntN(3) == 0 {
					composite = "another algorithm"
					add(b.Name(), false, id)
					composite = ""
				}
			}
			if up := g.PostDominators().Parent(id); up != relay.NoNode && r.IntN(3) == 0 {
				add(b.Name(), false, id, up)
			}
		}
	}
	s, err := NewSpace(backends, []Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	return s
}

func randomGenome(s *Space, r *rand.Rand) Genome {
	g := s.Uniform(0)
	for v := range g[0] {
		g[0][v] = Gene{Backend: s.numbers()[r.IntN(4)], Colour: int32(r.IntN(3))}
	}
	return g
}

// same decodes a placement's own genome and compares.
func same(t *testing.T, s *Space, p *Placement) {
	t.Helper()
	again, err := s.Decode(p.Genome)
	require.NoError(t, err)
	require.Equal(t, p.Key, again.Key, "a placement's own genome is another placement")
}

func TestAnyGenomeIsALegalPlacement(t *testing.T) {
	t.Parallel()
	for seed := range rounds.Seeds(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomSpace(t, r, 5+r.IntN(30))
		for range 5 {
			p, err := s.Decode(randomGenome(s, r))
			require.NoError(t, err)
			require.NoError(t, s.Check(p))
			same(t, s, p)
		}
	}
}

// otherwise is a placement's genome with a stretch of it that is another's, or anything.
func otherwise(s *Space, p, other *Placement, r *rand.Rand) Genome {
	g := p.Genome.Clone()
	from, to := r.IntN(len(g[0])+1), r.IntN(len(g[0])+1)
	for v := min(from, to); v < max(from, to); v++ {
		if other == nil {
			g[0][v] = Gene{Backend: s.numbers()[r.IntN(4)], Colour: int32(r.IntN(3)), Variant: int16(r.IntN(4))}
		} else {
			g[0][v] = other.Genome[0][v]
		}
	}
	return g
}

func TestWhatIsMadeOfPlacementsIsLegal(t *testing.T) {
	t.Parallel()
	changed := 0
	for seed := range rounds.Seeds(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := randomSpace(t, r, 5+r.IntN(30))
		p, err := s.Decode(randomGenome(s, r))
		require.NoError(t, err)
		q, err := s.Decode(s.Uniform(1))
		require.NoError(t, err)
		for i := range 20 {
			other := q
			if i%2 == 0 {
				other = nil
			}
			before := p.Key
			child, err := s.Decode(otherwise(s, p, other, r))
			require.NoError(t, err)
			require.NoError(t, s.Check(child))
			same(t, s, child)
			if child.Key != before {
				changed++
			}
			if r.IntN(4) == 0 {
				p, q = child, p
			}
		}
	}
	assert.Greater(t, changed, rounds.Of(500))
}

func TestGenesAreFollowed(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	a := m.Call("exp", vector, nil, x)
	b := m.Call("tanh", vector, nil, a)
	c := m.Call("sqrt", vector, nil, b)
	g := m.Finish(c)
	set := &candidate.Set{Graph: g}
	var costs []float64
	for _, v := range []relay.NodeID{a, b, c} {
		for _, backend := range []string{"tvm", "merging"} {
			inputs, _ := g.Boundary([]relay.NodeID{v})
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: backend, Nodes: []relay.NodeID{v}, Root: v, Inputs: inputs})
			costs = append(costs, 1)
		}
	}
	inputs, _ := g.Boundary([]relay.NodeID{b, c})
	set.Candidates = append(set.Candidates, candidate.Candidate{Backend: "merging", Nodes: []relay.NodeID{b, c},
		Root: c, Inputs: inputs})
	costs = append(costs, 1)
	s, err := NewSpace(backends, []Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)

	decode := func(genes map[relay.NodeID]Gene) *Placement {
		genome := s.Uniform(0)
		for v, gene := range genes {
			genome[0][v] = gene
		}
		p, err := s.Decode(genome)
		require.NoError(t, err)
		require.NoError(t, s.Check(p))
		return p
	}
	lib := func(colour int32) Gene { return Gene{Backend: 1, Colour: colour} }
	whole := decode(map[relay.NodeID]Gene{a: lib(0), b: lib(0), c: lib(0)})
	require.Len(t, whole.Regions[0], 1, "neighbours of one colour are one region")
	assert.Equal(t, []int{1, 6}, whole.Chosen[0], "and the cheaper cover is taken: tanh and sqrt as one")

	split := decode(map[relay.NodeID]Gene{a: lib(1), b: lib(2), c: lib(2)})
	assert.Len(t, split.Regions[0], 2)
	assert.Equal(t, []int{1, 6}, split.Chosen[0])

	unfused := decode(map[relay.NodeID]Gene{a: lib(1), b: lib(1), c: lib(2)})
	assert.Equal(t, []int{1, 3, 5}, unfused.Chosen[0], "what is fused has one colour")
	assert.Len(t, unfused.Regions[0], 2)

	partly := decode(map[relay.NodeID]Gene{a: lib(0)})
	assert.Equal(t, []int{1, 2, 4}, partly.Chosen[0])
	tvm := decode(nil)
	assert.Empty(t, tvm.Regions[0])
	keys := map[string]bool{}
	for _, p := range []*Placement{whole, split, unfused, partly, tvm} {
		keys[p.Key] = true
	}
	assert.Len(t, keys, 5)
	assert.Equal(t, 3.0, s.Predict(tvm))
	assert.Equal(t, 2.0, s.Predict(whole))
}

func TestASpaceNeedsSomewhereToGo(t *testing.T) {
	t.Parallel()
	_, err := NewSpace(backends[1:], nil)
	assert.EqualError(t, err, "graph-level search: none of the backends takes anything, so there is nowhere to move "+
		"operators to: offer tvm")
}

func TestVariantsAreGenes(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	var nodes []relay.NodeID
	for range 3 {
		x = m.Call("tanh", vector, nil, x)
		nodes = append(nodes, x)
	}
	g := m.Finish(x)
	set := &candidate.Set{Graph: g}
	var costs []float64
	for _, v := range nodes {
		inputs, _ := g.Boundary([]relay.NodeID{v})
		for _, of := range []struct {
			backend, composite string
			cost               float64
		}{{"tvm", "", 5}, {"merging", "direct", 2}, {"merging", "winograd", 1}} {
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: of.backend, Composite: of.composite, Key: "tanh",
					Nodes: []relay.NodeID{v}, Root: v, Inputs: inputs})
			costs = append(costs, of.cost)
		}
	}
	s, err := NewSpace(backends, []Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	p, err := s.Decode(s.Uniform(1))
	require.NoError(t, err)
	assert.Equal(t, []int{2, 5, 8}, p.Chosen[0], "what no gene decides the costs decide")

	genome := p.Genome.Clone()
	genome[0][nodes[1]].Variant = 1
	q, err := s.Decode(genome)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 4, 8}, q.Chosen[0])
	assert.NotEqual(t, p.Key, q.Key)
	assert.Len(t, q.Regions[0], 1)
	// Later costs do not change what a placement is.
	s.Functions[0].Costs = []float64{5, 1, 2, 5, 1, 2, 5, 1, 2}
	again, err := s.Decode(q.Genome)
	require.NoError(t, err)
	assert.Equal(t, q.Key, again.Key)
	// A way that there is not is no wish at all.
	genome[0][nodes[1]].Variant = 3
	again, err = s.Decode(genome)
	require.NoError(t, err)
	assert.Equal(t, p.Chosen[0], again.Chosen[0])
	genome = s.Uniform(1)
	genome[0][nodes[1]].Variant = 3
	again, err = s.Decode(genome)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 4, 7}, again.Chosen[0], "where nobody says what makes the region, the costs do")

	var names []string
	for _, a := range s.Alternatives(p, 9) {
		child, err := s.Decode(a.Genome)
		require.NoError(t, err)
		require.NotEqual(t, p.Key, child.Key)
		if names = append(names, a.Name); a.Name == "3 tanh to direct" {
			assert.Equal(t, []int{1, 4, 7}, child.Chosen[0], "all that compute the same")
		}
	}
	assert.Contains(t, names, "3 tanh to direct")
}

// Two backends that share regions are one place to go to: which of them runs a node is a variant, and their steps mix.
func TestBackendsThatShareRegionsAreOnePlace(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	var nodes []relay.NodeID
	for range 3 {
		x = m.Call("tanh", vector, nil, x)
		nodes = append(nodes, x)
	}
	set := &candidate.Set{Graph: m.Finish(x)}
	var costs []float64
	for i, v := range nodes {
		inputs, _ := set.Graph.Boundary([]relay.NodeID{v})
		for _, of := range []struct {
			backend, composite string
			cost               float64
		}{{"tvm", "", 5}, {"merging", "merging.direct", 2}, {"lodger", "lodger.winograd", []float64{1, 9, 1}[i]}} {
			set.Candidates = append(set.Candidates,
				candidate.Candidate{Backend: of.backend, Composite: of.composite, Key: "tanh",
					Nodes: []relay.NodeID{v}, Root: v, Inputs: inputs})
			costs = append(costs, of.cost)
		}
	}
	s, err := NewSpace(backends, []Function{{Set: set, Tree: place.TreeOf(set.Graph), Costs: costs}})
	require.NoError(t, err)
	assert.Equal(t, s.Backend("merging"), s.Backend("lodger"))
	assert.Equal(t, []int16{0, 1, 2, 3}, s.numbers())
	assert.Equal(t, "lodger+merging", s.name(1))

	p, err := s.Decode(s.Uniform(1))
	require.NoError(t, err)
	require.NoError(t, s.Check(p))
	assert.Equal(t, []int{2, 4, 8}, p.Chosen[0], "the cheapest of both at each node")
	require.Len(t, p.Regions[0], 1)
	assert.Equal(t, "lodger+merging", p.Regions[0][0].Backend)
	same(t, s, p)
	var names []string
	for _, a := range s.Alternatives(p, 9) {
		q, err := s.Decode(a.Genome)
		require.NoError(t, err)
		require.NoError(t, s.Check(q))
		require.NotEqual(t, p.Key, q.Key)
		names = append(names, a.Name)
	}
	assert.Equal(t, []string{"2 tanh to tvm", "2 tanh to merging.direct", "1 tanh to tvm", "1 tanh to lodger.winograd"},
		names)

	// A choice that costs do not speak for stays what it is: one of them alone.
	alone := s.Place([][]int{{1, 4, 7}})
	require.NoError(t, s.Check(alone))
	assert.Equal(t, "merging", alone.Regions[0][0].Backend)
	same(t, s, alone)
	assert.NotEqual(t, p.Key, alone.Key)
	alone.Regions[0][0].Compiler = "engine"
	assert.ErrorContains(t, s.Check(alone), "does not belong into its region")
}

func TestAlternativesChangeOneComputationEverywhere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := randomSpace(t, r, 5+r.IntN(30))
		p, err := s.Decode(randomGenome(s, r))
		require.NoError(t, err)
		before := p.Genome.Clone()
		changed := 0
		list := s.Alternatives(p, 6)
		for _, a := range list {
			q, err := s.Decode(a.Genome)
			require.NoError(t, err)
			require.NoError(t, s.Check(q))
			if q.Key != p.Key {
				changed++
			}
		}
		require.Equal(t, before, p.Genome)
		if len(list) > 4 {
			assert.Greater(t, changed, len(list)/3)
		}
	}
}

func TestPredictKnowsBorders(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := randomSpace(t, r, 5+r.IntN(20))
		p, err := s.Decode(randomGenome(s, r))
		require.NoError(t, err)
		bare := s.Predict(p)
		s.Border = func(_ int, v relay.NodeID, backend int16) (in, out float64) {
			if backend == 0 {
				return 0, 0
			}
			return 1, 100
		}
		ins, outs := 0, 0
		for _, region := range p.Regions[0] {
			ins, outs = ins+len(region.Inputs), outs+len(region.Outputs)
		}
		assert.InDelta(t, bare+float64(ins)+100*float64(outs), s.Predict(p), 1e-9)
	}
}
