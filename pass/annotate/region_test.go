// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/growth"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// library is a backend that takes single operators.
type library struct {
	name   string
	merges bool
}

// lodger is a library that shares lib's regions.
type lodger struct{ library }

func (lodger) Compiler() string     { return "lib" }
func (lodger) SharesCompiler() bool { return true }

func (l library) Name() string             { return l.name }
func (l library) Description() string      { return "a library of the tests" }
func (l library) Level() byoc.Level        { return byoc.OperatorLevel }
func (l library) Compiler() string         { return l.name }
func (l library) Patterns() []byoc.Pattern { return nil }
func (l library) TakesAnything() bool      { return false }
func (l library) MergesRegions() bool      { return l.merges }
func (l library) Probe() byoc.Probe        { return byoc.Probe{Usable: true} }
func (l library) Install() error           { return nil }

var libraries = map[string]byoc.Backend{"lib": library{"lib", true}, "other": library{"other", true},
	"single": library{"single", false}, "lodger": lodger{library{"lodger", true}}}

var vector = relay.Tensor("float32", 8)

// placedSet is a graph each of whose operators is on the backend that on names ("" for TVM).
func placedSet(g *relay.Graph, on func(v relay.NodeID) string) (*candidate.Set, []int) {
	set := &candidate.Set{Graph: g}
	var chosen []int
	for v := range g.Nodes {
		id := relay.NodeID(v)
		if !g.Placeable(id) {
			continue
		}
		backend := on(id)
		if backend == "" {
			backend = "tvm"
		}
		inputs, constants := g.Boundary([]relay.NodeID{id})
		chosen = append(chosen, len(set.Candidates))
		set.Candidates = append(set.Candidates, candidate.Candidate{Backend: backend, Scope: g.Nodes[id].Scope,
			Nodes: []relay.NodeID{id}, Root: id, Inputs: inputs, Constants: constants})
	}
	return set, chosen
}

func nodesOf(regions []Region) [][]relay.NodeID {
	var nodes [][]relay.NodeID
	for _, r := range regions {
		nodes = append(nodes, r.Nodes)
	}
	return nodes
}

func TestNeighboursAreJoined(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{8}, "float32")
	a := m.Call("exp", vector, nil, x)
	b := m.Call("tanh", vector, nil, a)
	c := m.Call("sqrt", vector, nil, b)
	g := m.Finish(m.Tuple(c, b))
	set, chosen := placedSet(g, func(v relay.NodeID) string {
		return map[relay.NodeID]string{a: "lib", b: "lib", c: "lib"}[v]
	})
	regions := Regions(set, chosen, libraries)
	require.Len(t, regions, 1)
	r := regions[0]
	assert.Equal(t, []relay.NodeID{a, b, c}, r.Nodes)
	assert.Equal(t, []relay.NodeID{x}, r.Inputs)
	assert.Equal(t, []relay.NodeID{b, c}, r.Outputs, "two values are used outside")
	assert.Equal(t, "lib", r.Compiler)

	for v := range set.Candidates {
		if set.Candidates[v].Backend == "lib" {
			set.Candidates[v].Backend = "single"
		}
	}
	assert.Len(t, Regions(set, chosen, libraries), 3, "a backend that does not merge")
}

func TestNeighboursOfOneCompilerShareARegion(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{8}, "float32")
	a := m.Call("exp", vector, nil, x)
	b := m.Call("tanh", vector, nil, a)
	c := m.Call("sqrt", vector, nil, b)
	d := m.Call("exp", vector, nil, c)
	e := m.Call("tanh", vector, nil, d)
	set, chosen := placedSet(m.Finish(e), func(v relay.NodeID) string {
		return map[relay.NodeID]string{a: "lodger", b: "lib", c: "other", d: "lib", e: "lib"}[v]
	})
	regions := Regions(set, chosen, libraries)
	require.Equal(t, [][]relay.NodeID{{a, b}, {c}, {d, e}}, nodesOf(regions))
	for i, want := range [][2]string{{"lib+lodger", "lib"}, {"other", "other"}, {"lib", "lib"}} {
		assert.Equal(t, want, [2]string{regions[i].Backend, regions[i].Compiler})
	}
	never := RegionsWhere(set, chosen, libraries, func(int, int) bool { return false })
	require.Len(t, never, 5, "nobody may join")
	assert.Equal(t, "lodger", never[0].Backend)
}

// a feeds b directly and through TVM's t: one region of a and b would need its own result.
func TestARegionNeverNeedsItsOwnResult(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{8}, "float32")
	a := m.Call("exp", vector, nil, x)
	between := m.Call("tanh", vector, nil, a)
	b := m.Call("add", vector, nil, a, between)
	g := m.Finish(b)
	set, chosen := placedSet(g, func(v relay.NodeID) string {
		return map[relay.NodeID]string{a: "lib", b: "lib"}[v]
	})
	assert.Equal(t, [][]relay.NodeID{{a}, {b}}, nodesOf(Regions(set, chosen, libraries)))
}

// Two regions, each of which is convex, and each of which needs a result of the other: convexity is not enough.
func TestTwoRegionsNeverNeedEachOther(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{8}, "float32")
	y := m.Var([]int64{8}, "float32")
	a1 := m.Call("exp", vector, nil, x)
	b1 := m.Call("tanh", vector, nil, y)
	a2 := m.Call("add", vector, nil, a1, b1) // lib; reads the other's b1
	b2 := m.Call("multiply", vector, nil, b1, a1)
	g := m.Finish(m.Tuple(a2, b2))
	set, chosen := placedSet(g, func(v relay.NodeID) string {
		return map[relay.NodeID]string{a1: "lib", a2: "lib", b1: "other", b2: "other"}[v]
	})
	regions := Regions(set, chosen, libraries)
	assertAcyclic(t, g, regions)
	assert.Equal(t, [][]relay.NodeID{{b1}, {a1, a2}, {b2}}, nodesOf(regions))
}

func TestScopesAreNotJoined(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{8}, "float32")
	condition := m.Var(nil, "bool")
	outer := m.Call("exp", vector, nil, x)
	then := m.Call("tanh", vector, nil, outer)
	otherwise := m.Call("sqrt", vector, nil, outer)
	g := m.Finish(m.If(condition, then, otherwise, vector))
	set, chosen := placedSet(g, func(v relay.NodeID) string {
		if g.Nodes[v].Kind == relay.KindCall {
			return "lib"
		}
		return ""
	})
	regions := Regions(set, chosen, libraries)
	assert.Equal(t, [][]relay.NodeID{{outer}, {then}, {otherwise}}, nodesOf(regions))
	for _, r := range regions {
		assert.Equal(t, r.Nodes, r.Outputs)
	}
}

// assertAcyclic checks by repeated removal that the graph of regions and remaining nodes has no cycle. It shares
// nothing with quotient.
func assertAcyclic(t *testing.T, g *relay.Graph, regions []Region) {
	t.Helper()
	group := make([]int, len(g.Nodes))
	for v := range group {
		group[v] = v
	}
	for k, r := range regions {
		for _, v := range r.Nodes {
			group[v] = len(g.Nodes) + k
		}
	}
	needs := map[int]map[int]bool{}
	for v := range g.Nodes {
		if needs[group[v]] == nil {
			needs[group[v]] = map[int]bool{}
		}
		for _, in := range g.Reads(relay.NodeID(v)) {
			if group[in] != group[v] {
				needs[group[v]][group[in]] = true
			}
		}
	}
	for len(needs) > 0 {
		before := len(needs)
		for x, of := range needs {
			for y := range of {
				if _, open := needs[y]; !open {
					delete(of, y)
				}
			}
			if len(of) == 0 {
				delete(needs, x)
			}
		}
		require.Less(t, len(needs), before, "a cycle among %v", needs)
	}
}

// randomGraph has operators that read one to three earlier values, near ones more often.
func randomGraph(rng *rand.Rand, n int) *relay.Graph {
	m := relay.NewGraph("main")
	values := []relay.NodeID{m.Var([]int64{8}, "float32")}
	used := map[relay.NodeID]bool{}
	for range n {
		var inputs []relay.NodeID
		for range 1 + rng.IntN(3) {
			back := min(1+int(rng.ExpFloat64()*4), len(values))
			in := values[len(values)-back]
			inputs = append(inputs, in)
			used[in] = true
		}
		values = append(values, m.Call("add", vector, nil, inputs...))
	}
	var open []relay.NodeID
	for _, v := range values {
		if !used[v] {
			open = append(open, v)
		}
	}
	return m.Finish(m.Tuple(open...))
}

func TestRandomGraphsStayAcyclicAndJoinAllThatCanBe(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	joined := 0
	for range 400 {
		g := randomGraph(rng, 5+rng.IntN(60))
		backends := []string{"", "lib", "lodger", "other"}
		on := map[relay.NodeID]string{}
		for v := range g.Nodes {
			if g.Nodes[v].Kind == relay.KindCall {
				on[relay.NodeID(v)] = backends[rng.IntN(len(backends))]
			}
		}
		set, chosen := placedSet(g, func(v relay.NodeID) string { return on[v] })
		regions := Regions(set, chosen, libraries)
		assertAcyclic(t, g, regions)
		covered := map[relay.NodeID]bool{}
		for _, r := range regions {
			joined += len(r.Candidates) - 1
			for _, v := range r.Nodes {
				require.False(t, covered[v])
				covered[v] = true
				require.Equal(t, r.Compiler, libraries[on[v]].Compiler())
				require.Contains(t, strings.Split(r.Backend, "+"), on[v])
			}
		}
		// No two regions of one compiler could be joined in addition.
		for i, a := range regions {
			for _, b := range regions[i+1:] {
				if a.Compiler == b.Compiler && adjacent(g, a, b) {
					require.True(t, cyclicIfJoined(g, regions, a, b), "%v and %v could be one region", a.Nodes, b.Nodes)
				}
			}
		}
	}
	assert.Positive(t, joined)
}

func adjacent(g *relay.Graph, a, b Region) bool {
	for _, pair := range [][2]Region{{a, b}, {b, a}} {
		for _, in := range pair[1].Inputs {
			if slices.Contains(pair[0].Nodes, in) {
				return true
			}
		}
	}
	return false
}

// cyclicIfJoined says whether a way leads from one of two regions out and into the other.
func cyclicIfJoined(g *relay.Graph, regions []Region, a, b Region) bool {
	group := func(v relay.NodeID) []relay.NodeID {
		for _, r := range regions {
			if slices.Contains(r.Nodes, v) {
				return r.Nodes
			}
		}
		return []relay.NodeID{v}
	}
	both := append(slices.Clone(a.Nodes), b.Nodes...)
	seen := map[relay.NodeID]bool{}
	var walk func(nodes []relay.NodeID, outside bool) bool
	walk = func(nodes []relay.NodeID, outside bool) bool {
		for _, v := range nodes {
			for _, c := range g.Consumers(v) {
				if slices.Contains(both, c) {
					if outside {
						return true
					}
					continue
				}
				if !seen[c] {
					next := group(c)
					for _, w := range next {
						seen[w] = true
					}
					if walk(next, true) {
						return true
					}
				}
			}
		}
		return false
	}
	return walk(both, false)
}

// A long network must not take quadratic time.
func TestJoiningTakesLinearTime(t *testing.T) {
	growth.Linear(t, 3_000, func(n int) func() {
		m := relay.NewGraph("main")
		v := m.Var([]int64{8}, "float32")
		for i := range n {
			if i%3 == 2 {
				v = m.Call("add", vector, nil, v, m.Call("exp", vector, nil, v))
			} else {
				v = m.Call("exp", vector, nil, v)
			}
		}
		set, chosen := placedSet(m.Finish(v), func(v relay.NodeID) string {
			if v%7 == 0 {
				return ""
			}
			return "lib"
		})
		return func() { assert.Greater(t, len(Regions(set, chosen, libraries)), n/10) }
	})
}
