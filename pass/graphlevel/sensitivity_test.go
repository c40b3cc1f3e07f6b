// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// slim computes in bfloat16.
type slim struct{ library }

func (slim) Precision() byoc.Precision { return byoc.BF16 }
func (slim) Wide() string              { return "tvm" }

// narrowable is a chain of operators that take times on TVM, and others computed narrowly, one or two of them as one.
func narrowable(t *testing.T, r *rand.Rand, operators int) *genome.Space {
	t.Helper()
	m := relay.NewGraph("main")
	v := m.Var([]int64{8}, "float32")
	for range operators {
		v = m.Call("nn.dense", relay.Tensor("float32", 8), nil, v)
	}
	g := m.Finish(v)
	set := &candidate.Set{Graph: g}
	var costs []float64
	var before relay.NodeID
	add := func(backend string, ms float64, nodes ...relay.NodeID) {
		inputs, _ := g.Boundary(nodes)
		set.Candidates = append(set.Candidates, candidate.Candidate{Backend: backend, Nodes: nodes,
			Root: nodes[len(nodes)-1], Inputs: inputs, Key: fmt.Sprint(backend, nodes)})
		costs = append(costs, ms)
	}
	for id := range g.Nodes {
		node := relay.NodeID(id)
		if !g.Placeable(node) {
			continue
		}
		add("tvm", 1+r.Float64(), node)
		add("slim", 0.2+1.5*r.Float64(), node)
		if before != 0 && r.IntN(2) == 0 {
			add("slim", 0.5+2*r.Float64(), before, node)
		}
		before = node
	}
	s, err := genome.NewSpace([]byoc.Backend{library{"tvm", false}, slim{library{"slim", false}}},
		[]genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: costs}})
	require.NoError(t, err)
	return s
}

// placements are all ways to cover a function with its candidates.
func placements(f *genome.Function) [][]int {
	var all [][]int
	var nodes []relay.NodeID
	for v, needs := range f.Tree.Needs {
		if needs {
			nodes = append(nodes, relay.NodeID(v))
		}
	}
	var cover func(chosen []int, covered map[relay.NodeID]bool)
	cover = func(chosen []int, covered map[relay.NodeID]bool) {
		for _, v := range nodes {
			if covered[v] {
				continue
			}
			for k := range f.Set.Candidates {
				if f.Set.Candidates[k].Nodes[0] != v {
					continue
				}
				with := map[relay.NodeID]bool{}
				for n := range covered {
					with[n] = true
				}
				for _, n := range f.Set.Candidates[k].Nodes {
					with[n] = true
				}
				cover(append(append([]int{}, chosen...), k), with)
			}
			return
		}
		all = append(all, chosen)
	}
	cover(nil, map[relay.NodeID]bool{})
	return all
}

func milliseconds(f *genome.Function, chosen []int) float64 {
	sum := 0.0
	for _, k := range chosen {
		sum += f.Costs[k]
	}
	return sum
}

// The placement that the price of errors leads to keeps to what is allowed, and no placement that is off by no more is
// faster. Where the fastest that is allowed is a corner of the lower hull of time against error, as all are where the
// frontier is convex, it is that one; elsewhere what it misses is within the gap that is told.
func TestThePriceOfErrorsLeadsToTheFastestThatIsOffByNoMore(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	paid, convex, concave := 0, 0, 0
	for range 300 {
		s := narrowable(t, r, 6)
		n := newSensitivity(s, cost.Limit{Most: 0.001 + 0.01*r.Float64(), Measure: cost.L2}, nil)
		require.NotNil(t, n)
		for v := range n.share[0] {
			n.share[0][v] *= 20 * r.Float64()
		}
		f := &s.Functions[0]
		options := func(i int) []place.Option { return believed(s, i, place.Overhead{}) }
		relaxed, err := n.relaxed(options)
		require.NoError(t, err)
		price := relaxed.Price
		placed, err := place.Solve(n.priced(0, options(0), price), f.Tree)
		require.NoError(t, err)
		off := func(chosen []int) float64 { return n.sum(n.covered([][]int{chosen})) }
		allowed := n.squared(margin * n.limit.Most)
		found, at := off(placed.Chosen), milliseconds(f, placed.Chosen)
		require.LessOrEqual(t, found, allowed)
		require.InDelta(t, at, relaxed.Milliseconds, 1e-9)
		require.InDelta(t, math.Sqrt(found), relaxed.Error, 1e-12)
		all := placements(f)
		fastest := math.Inf(1)
		var best []int
		for _, p := range all {
			if off(p) <= found*(1-1e-9) || off(p) == found {
				require.GreaterOrEqual(t, milliseconds(f, p), at-1e-6, "off by no more, and faster")
			}
			require.GreaterOrEqual(t, milliseconds(f, p)+price*off(p), at+price*found-1e-6)
			if off(p) <= allowed && milliseconds(f, p) < fastest {
				fastest, best = milliseconds(f, p), p
			}
		}
		require.LessOrEqual(t, relaxed.Bound, fastest+1e-6, "the bound holds for all that are allowed")
		require.InDelta(t, relaxed.Milliseconds-relaxed.Bound, relaxed.Gap, 1e-9)
		require.GreaterOrEqual(t, relaxed.Gap, at-fastest-1e-6, "what is missed is told")
		if price > 0 {
			paid++
		} else {
			require.InDelta(t, 0, relaxed.Gap, 1e-6, "the fastest of all is allowed")
		}
		// Some price makes a corner of the hull the cheapest.
		least, most := 0.0, math.Inf(1)
		for _, p := range all {
			switch more, slower := off(p)-off(best), milliseconds(f, p)-fastest; {
			case more > 0:
				least = max(least, -slower/more)
			case more < 0:
				most = min(most, -slower/more)
			}
		}
		switch {
		case least < most*(1-1e-4):
			convex++
			require.InDelta(t, fastest, at, 1e-6, "the frontier is convex there")
		case least > most*(1+1e-4):
			concave++
			require.Greater(t, relaxed.Gap, 0.0)
			require.Greater(t, at, fastest)
		}
	}
	t.Logf("of 300 budgets %d had to be paid for; the fastest that is allowed is on the hull for %d, and above it for %d",
		paid, convex, concave)
	assert.Greater(t, paid, 100, "the budget mattered")
	assert.Greater(t, convex, 150)
	assert.Greater(t, concave, 10)
}

// What all narrow operators of each network add together tells, with enough networks, what each of them adds.
func TestWhatIsSensitiveIsFoundOut(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	s := narrowable(t, r, 8)
	n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2}, nil)
	f := &s.Functions[0]
	var share []float64
	for range f.Set.Graph.Nodes {
		share = append(share, 1e-6)
	}
	sensitive := int(f.Set.Candidates[len(f.Set.Candidates)-1].Root)
	share[sensitive] = 1e-3
	all := placements(f)
	for range 25 {
		p := s.Place([][]int{all[r.IntN(len(all))]})
		square := 0.0
		for _, v := range n.covered(p.Chosen)[0] {
			square += share[v]
		}
		n.observe(&Trial{Placement: p, Cost: cost.Cost{Samples: []float64{1},
			Network: &cost.Network{Errors: &cost.Errors{L2: math.Sqrt(square)}}}})
	}
	for v := range share {
		if f.Tree.Needs[v] && v != sensitive {
			assert.Less(t, n.share[0][v], 1e-4, v)
		}
	}
	assert.InEpsilon(t, 1e-3, n.share[0][sensitive], 0.2)
	for _, p := range all[:200] {
		without := true
		for _, v := range n.covered([][]int{p})[0] {
			without = without && v != sensitive
		}
		assert.Equal(t, !without, n.exceeds(s.Place([][]int{p})))
	}
}

// slimmer computes in bytes.
type slimmer struct{ slim }

func (slimmer) Precision() byoc.Precision { return byoc.INT8 }

// inTwoPrecisions is a chain that slim and slimmer compute narrowly, off by so much each, and what is believed of that;
// all gives the candidates of single operators of a backend.
func inTwoPrecisions(t *testing.T, most float64, offs map[string]float64) (s *genome.Space, n *sensitivity,
	all func(backend string) []int) {
	narrow := narrowable(t, rand.New(rand.NewPCG(5, 6)), 6)
	f := narrow.Functions[0]
	for k := range f.Set.Candidates {
		if c := f.Set.Candidates[k]; c.Backend == "slim" {
			c.Backend, c.Key = "slimmer", "bytes "+c.Key
			f.Set.Candidates, f.Costs = append(f.Set.Candidates, c), append(f.Costs, f.Costs[k]/2)
		}
	}
	s, err := genome.NewSpace(append(narrow.Backends, slimmer{slim{library{"slimmer", false}}}),
		[]genome.Function{f})
	require.NoError(t, err)
	all = func(backend string) []int {
		var chosen []int
		for k := range f.Set.Candidates {
			if c := &f.Set.Candidates[k]; c.Backend == backend && len(c.Nodes) == 1 {
				chosen = append(chosen, k)
			}
		}
		return chosen
	}
	n = newSensitivity(s, cost.Limit{Most: most, Measure: cost.L2}, nil)
	for backend, off := range offs {
		n.observe(&Trial{Placement: s.Place([][]int{all(backend)}), Cost: cost.Cost{Samples: []float64{1},
			Network: &cost.Network{Errors: &cost.Errors{L2: off}}}})
	}
	return s, n, all
}

// giving computes in bytes and gives all that it makes rounded.
type giving struct{ slimmer }

func (giving) Given(_ *relay.Graph, nodes []relay.NodeID) []relay.NodeID { return nodes[len(nodes)-1:] }

// What is given rounded adds to the error by itself, whoever reads it.
func TestWhatIsGivenRoundedCounts(t *testing.T) {
	t.Parallel()
	narrow := narrowable(t, rand.New(rand.NewPCG(5, 6)), 3)
	for _, c := range []struct {
		b    byoc.Backend
		want float64
	}{{slimmer{slim{library{"slim", false}}}, 2}, {giving{slimmer{slim{library{"slim", false}}}}, 5}} {
		s, err := genome.NewSpace([]byoc.Backend{library{"tvm", false}, c.b}, narrow.Functions)
		require.NoError(t, err)
		n := newSensitivity(s, cost.Limit{Most: 0.1, Measure: cost.L2}, func(_ int, _ relay.NodeID, in byoc.Precision) (float64,
			bool) {
			return map[byoc.Precision]float64{byoc.INT8: 2, Given: 3}[in], in != byoc.BF16
		})
		for k := range narrow.Functions[0].Set.Candidates {
			if of := &narrow.Functions[0].Set.Candidates[k]; of.Backend == "slim" && len(of.Nodes) == 1 {
				sum := 0.0
				for _, p := range n.parts(0, k) {
					sum += n.share[0][p]
				}
				assert.InDelta(t, c.want, sum, 1e-9)
			}
		}
	}
}

// A measure that often says 0 (no answer changed) leaves shares that can be counted with.
func TestErrorsOfNothing(t *testing.T) {
	t.Parallel()
	s, n, all := inTwoPrecisions(t, 0.01, map[string]float64{"slim": 0, "slimmer": 0.1})
	n.observe(&Trial{Placement: s.Place([][]int{all("slim")}), Cost: cost.Cost{Samples: []float64{1},
		Network: &cost.Network{Errors: &cost.Errors{}}}})
	for v, share := range n.share[0] {
		assert.Greater(t, share, 1e-25, v)
	}
	corners, err := n.corners(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
	require.NoError(t, err)
	assert.Greater(t, len(corners), 1)
	for _, c := range corners {
		assert.False(t, math.IsNaN(c.Error+c.Price+c.Gap))
	}
}

// Where nothing is allowed but what takes forever, the price rises until costs add up to more than the solver counts:
// the best that was found until then is the answer.
func TestAPriceThatTheSolverCannotCountWith(t *testing.T) {
	t.Parallel()
	s, n, _ := inTwoPrecisions(t, 1e-6, map[string]float64{"slim": 0.001, "slimmer": 0.3})
	relaxed, err := n.relaxed(func(i int) []place.Option {
		options := believed(s, i, place.Overhead{})
		for k := range options {
			switch s.Functions[i].Set.Candidates[k].Backend {
			case "tvm":
				options[k].Cost = 1e7
			case "slimmer":
				options[k].Cost = 1e3
			}
		}
		return options
	})
	require.NoError(t, err)
	assert.Greater(t, relaxed.Error, relaxed.Allowed)
	assert.InDelta(t, 0.001, relaxed.Error, 1e-4)
}

// What an operator adds in bytes says nothing of what it adds in bfloat16, and the price of errors chooses between the
// two.
func TestEachPrecisionHasSharesOfItsOwn(t *testing.T) {
	t.Parallel()
	s, n, all := inTwoPrecisions(t, 0.01, map[string]float64{"slim": 0.004, "slimmer": 0.05})
	f := s.Functions[0]
	for backend, off := range map[string]float64{"tvm": 0, "slim": 0.004, "slimmer": 0.05} {
		assert.InDelta(t, off*off, n.sum(n.covered([][]int{all(backend)})), 1e-7, backend)
		assert.Equal(t, backend == "slimmer", n.exceeds(s.Place([][]int{all(backend)})), backend)
	}
	options := func(i int) []place.Option { return believed(s, i, place.Overhead{}) }
	relaxed, err := n.relaxed(options)
	require.NoError(t, err)
	placed, err := place.Solve(n.priced(0, options(0), relaxed.Price), f.Tree)
	require.NoError(t, err)
	used := map[string]bool{}
	for _, k := range placed.Chosen {
		used[f.Set.Candidates[k].Backend] = true
	}
	assert.True(t, used["slim"], "bytes alone are off by too much")
	assert.LessOrEqual(t, n.sum(n.covered([][]int{placed.Chosen})), 1e-4)
}

// What is expected to take less, but is believed to be off by more times as much as it is quicker, comes later.
func TestSeedsComeByTimeAndByHowFarOffTheyAreBelievedToBe(t *testing.T) {
	t.Parallel()
	for off, want := range map[float64][]string{0.005: {"slimmer", "slim", "tvm"}, 0.05: {"slim", "slimmer", "tvm"},
		0.5: {"slim", "tvm", "slimmer"}} {
		s, n, all := inTwoPrecisions(t, 0.01, map[string]float64{"slim": 0.004, "slimmer": off})
		for k := range s.Functions[0].Set.Candidates {
			c := &s.Functions[0].Set.Candidates[k]
			s.Functions[0].Costs[k] = map[string]float64{"tvm": 10, "slim": 2, "slimmer": 1}[c.Backend]
		}
		var seeds []Seed
		for _, name := range []string{"tvm", "slim", "slimmer"} {
			seeds = append(seeds, Seed{Name: name, Placement: s.Place([][]int{all(name)})})
		}
		(&search{space: s, sensitivity: n, result: &Result{}}).byPromise(seeds)
		var names []string
		for _, seed := range seeds {
			names = append(names, seed.Name)
		}
		assert.Equal(t, want, names, off)

		// Once a network ran, none counts as more than twice as fast, and of those that would, the faster comes first.
		ran := &Result{Trials: []Trial{{Cost: cost.Cost{Samples: []float64{40}}}}}
		(&search{space: s, sensitivity: n, result: ran}).byPromise(seeds)
		names = nil
		for _, seed := range seeds {
			names = append(names, seed.Name)
		}
		if off == 0.05 {
			want = []string{"slim", "tvm", "slimmer"}
		}
		assert.Equal(t, want, names, off)
	}
}

func TestNothingIsBelievedOfErrorsWhereNoneAreLimited(t *testing.T) {
	t.Parallel()
	s := narrowable(t, rand.New(rand.NewPCG(1, 1)), 3)
	assert.Nil(t, newSensitivity(s, cost.Limit{}, nil))
	assert.Nil(t, newSensitivity(chain(t, ten...), cost.Limit{Most: 1, Measure: cost.L2}, nil), "all of it is float32")
	var n *sensitivity
	n.observe(&Trial{})
	assert.False(t, n.exceeds(&genome.Placement{}))
	relaxed, err := n.relaxed(nil)
	require.NoError(t, err)
	assert.Nil(t, relaxed)
}

// What is known of nodes beforehand decides which of them bear it, once the whole was measured.
func TestWhatIsKnownBeforehandDividesWhatIsMeasured(t *testing.T) {
	t.Parallel()
	s := narrowable(t, rand.New(rand.NewPCG(5, 6)), 3)
	f := s.Functions[0]
	var nodes []relay.NodeID
	single := map[relay.NodeID]int{}
	for k := range f.Set.Candidates {
		if c := &f.Set.Candidates[k]; c.Backend == "slim" && len(c.Nodes) == 1 {
			single[c.Root] = k
			nodes = append(nodes, c.Root)
		}
	}
	require.Len(t, nodes, 3)
	adds := func(_ int, v relay.NodeID, in byoc.Precision) (float64, bool) {
		return map[relay.NodeID]float64{nodes[0]: 1e-6, nodes[1]: 8e-6, nodes[2]: 1e-6}[v], in == byoc.BF16
	}
	n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2}, adds)
	all := []int{single[nodes[0]], single[nodes[1]], single[nodes[2]]}
	assert.InDelta(t, 10e-6, n.sum(n.covered([][]int{all})), 1e-12)
	n.observe(&Trial{Placement: s.Place([][]int{all}), Cost: cost.Cost{Samples: []float64{1},
		Network: &cost.Network{Errors: &cost.Errors{L2: 0.02}}}})
	assert.InDelta(t, 4e-4, n.sum(n.covered([][]int{all})), 1e-7)
	assert.InDelta(t, 3.2e-4, n.sum(n.covered([][]int{{single[nodes[1]]}})), 1e-6)
}

// In bytes what does not multiply is done on sums of float32, and adds nothing; in bfloat16 it does.
func TestInBytesOnlyProductsAddToTheError(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	product := m.Call("nn.dense", vector, nil, m.Var([]int64{8}, "float32"), m.Const([]int64{8, 8}, "float32"))
	tanh := m.Call("tanh", vector, nil, product)
	g := m.Finish(tanh)
	set := &candidate.Set{Graph: g}
	for _, backend := range []string{"tvm", "slim", "slimmer"} {
		for _, v := range []relay.NodeID{product, tanh} {
			inputs, _ := g.Boundary([]relay.NodeID{v})
			set.Candidates = append(set.Candidates, candidate.Candidate{Backend: backend, Nodes: []relay.NodeID{v}, Root: v,
				Inputs: inputs, Key: fmt.Sprint(backend, v)})
		}
	}
	s, err := genome.NewSpace([]byoc.Backend{library{"tvm", false}, slim{library{"slim", false}},
		slimmer{slim{library{"slimmer", false}}}},
		[]genome.Function{{Set: set, Tree: place.TreeOf(g), Costs: []float64{1, 1, 1, 1, 1, 1}}})
	require.NoError(t, err)
	n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2}, nil)
	assert.Equal(t, n.sum(n.covered([][]int{{4, 1}})), n.sum(n.covered([][]int{{4, 5}})), "bytes")
	assert.Less(t, n.sum(n.covered([][]int{{2, 1}})), n.sum(n.covered([][]int{{2, 3}})), "bfloat16")
	assert.Zero(t, n.sum(n.covered([][]int{{0, 5}})))
}
