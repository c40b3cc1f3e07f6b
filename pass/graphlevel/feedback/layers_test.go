// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// layered is a region that an engine has as one model: single operators, each a group.
type layered struct {
	set    *candidate.Set
	region annotate.Region
	e      *trace.Executable
	groups []annotate.Group
	of     map[relay.NodeID]int // the group of each node
}

// layeredOf makes it of the nodes of a graph behind its variables; the region is one bare candidate, number 0.
func layeredOf(m *relay.GraphMaker, root relay.NodeID) *layered {
	g := m.Finish(root)
	var nodes []relay.NodeID
	for v := range g.Nodes {
		if g.Nodes[v].Kind == relay.KindCall {
			nodes = append(nodes, relay.NodeID(v))
		}
	}
	l := &layered{of: map[relay.NodeID]int{}}
	l.set = &candidate.Set{Graph: g, Candidates: []candidate.Candidate{{Backend: "engine", Nodes: nodes, Root: root,
		Bare: true, Key: "all"}}}
	l.region = annotate.Region{Backend: "engine", Compiler: "engine", Symbol: "engine_0", Nodes: nodes,
		Candidates: []int{0}}
	l.region.Border(g)
	l.e = &trace.Executable{Kernels: []string{"engine_0"}, Root: 0,
		Ops: []trace.Op{{Name: "@engine_0", Kernel: 0, Args: []int{-1}}}}
	l.groups = annotate.Groups(l.set, &l.region)
	for i, group := range l.groups {
		for _, v := range group.Nodes {
			l.of[v] = i
		}
	}
	return l
}

// profile is what is learnt where the engine has told of layers, each with the operators in its name.
func (l *layered) profile(t *testing.T, whole, call float64, layers ...[]relay.NodeID) *Profile {
	t.Helper()
	inside := &trace.Inside{Layers: true, Call: call}
	for _, group := range l.groups {
		inside.Groups = append(inside.Groups, group.Name)
	}
	for i, nodes := range layers {
		step := trace.Step{Milliseconds: float64(i + 1)}
		for _, v := range nodes {
			step.Of = append(step.Of, l.of[v])
		}
		inside.Steps = append(inside.Steps, step)
	}
	times := trace.Times{Kernels: []float64{whole}, Inside: map[string]*trace.Inside{"engine_0": inside}}
	p, err := Attribute(l.set, []annotate.Region{l.region}, l.e, times)
	require.NoError(t, err)
	require.Empty(t, p.Whole)
	return p
}

func (l *layered) parts(p *Profile) [][]relay.NodeID {
	var parts [][]relay.NodeID
	for _, part := range p.Parts {
		parts = append(parts, part.Nodes)
	}
	return parts
}

func TestOperatorsThatNoLayerNamesAreDoneByANeighbour(t *testing.T) {
	t.Parallel()
	f := relay.Tensor("float32", 1, 8, 8, 8)
	m := relay.NewGraph("main")
	x, w := m.Var([]int64{1, 8, 8, 8}, "float32"), m.Const([]int64{8, 8, 1, 1}, "float32")
	b := m.Const([]int64{8, 1, 1}, "float32")
	shaped := m.Call("reshape", f, nil, x)
	conv := m.Call("nn.conv2d", f, nil, shaped, w)
	bias := m.Call("add", f, nil, conv, b)
	relu := m.Call("nn.relu", f, nil, bias)
	turned := m.Call("transpose", f, nil, relu)
	conv2 := m.Call("nn.conv2d", f, nil, turned, w)
	sum := m.Call("add", f, nil, conv2, relu)
	last := m.Call("reshape", f, nil, sum)
	l := layeredOf(m, last)
	for name, c := range map[string]struct {
		layers [][]relay.NodeID
		parts  [][]relay.NodeID
	}{
		"each by itself": {[][]relay.NodeID{{shaped}, {conv}, {bias}, {relu}, {turned}, {conv2}, {sum}, {last}},
			[][]relay.NodeID{{shaped}, {conv}, {bias}, {relu}, {turned}, {conv2}, {sum}, {last}}},
		"named after the first": {[][]relay.NodeID{{shaped}, {conv}, {turned}, {conv2}, {last}},
			[][]relay.NodeID{{shaped}, {conv, bias, relu}, {turned}, {conv2, sum}, {last}}},
		"named after the last": {[][]relay.NodeID{{shaped}, {relu}, {turned}, {sum}, {last}},
			[][]relay.NodeID{{shaped}, {conv, bias, relu}, {turned}, {conv2, sum}, {last}}},
		"named after one in the middle": {[][]relay.NodeID{{shaped}, {bias}, {turned}, {conv2, sum}, {last}},
			[][]relay.NodeID{{shaped}, {conv, bias, relu}, {turned}, {conv2, sum}, {last}}},
		"what moves goes to who wants it, at the end to who made it": {[][]relay.NodeID{{conv}, {bias, relu}, {conv2},
			{sum}},
			[][]relay.NodeID{{shaped, conv}, {bias, relu}, {turned, conv2}, {sum, last}}},
		"one for all": {[][]relay.NodeID{{sum}},
			[][]relay.NodeID{{shaped, conv, bias, relu, turned, conv2, sum, last}}},
	} {
		p := l.profile(t, 100, 5, c.layers...)
		assert.ElementsMatch(t, c.parts, l.parts(p), name)
		assert.InDelta(t, 100, p.Total(), 1e-9, "%s: the parts and the call are the whole", name)
		sum := 5.0
		for i := range c.layers {
			sum += float64(i + 1)
		}
		for i, layer := range c.layers {
			at := partWith(t, p, layer[0])
			if len(c.layers) == len(p.Parts) {
				assert.InDelta(t, 100*float64(i+1)/sum, at.Milliseconds, 1e-9, name)
			}
		}
	}
}

// Engines that are given whole regions run them as they like: what was seen of operators in one holds for each
// candidate that is exactly those operators, whichever candidate was chosen. Of backends whose candidates say how they
// are run it does not.
func TestLayersTellOfCandidatesThatWereNotChosen(t *testing.T) {
	t.Parallel()
	f := relay.Tensor("float32", 1, 8, 8, 8)
	m := relay.NewGraph("main")
	x, w := m.Var([]int64{1, 8, 8, 8}, "float32"), m.Const([]int64{8, 8, 1, 1}, "float32")
	conv := m.Call("nn.conv2d", f, nil, x, w)
	relu := m.Call("nn.relu", f, nil, conv)
	pool := m.Call("nn.max_pool2d", f, nil, relu)
	l := layeredOf(m, pool)
	add := func(backend, composite string, nodes ...relay.NodeID) int {
		l.set.Candidates = append(l.set.Candidates,
			candidate.Candidate{Backend: backend, Composite: composite, Nodes: nodes,
				Root: nodes[len(nodes)-1], Bare: composite == "", Key: backend + composite})
		return len(l.set.Candidates) - 1
	}
	alone, fused := add("engine", "", conv), add("engine", "engine.conv2d_relu", conv, relu)
	after := add("engine", "", pool)
	other := add("tvm", "", pool)
	p := l.profile(t, 9, 0, []relay.NodeID{conv, relu}, []relay.NodeID{pool}) // 1 and 2, scaled to 9
	costs := []float64{8, 5, 5, 5, 5}
	observe := func(graph bool) *Table {
		table := NewTable(l.set, costs, make([]bool, 5), func(name string) Traits {
			return Traits{Anything: name == "tvm", Merges: name != "tvm", Graph: graph && name != "tvm", Compiler: name}
		})
		table.Observe(p, []int{0}, 1)
		return table
	}
	table := observe(true)
	for k, want := range map[int]float64{0: 9, fused: 3, after: 6} {
		ms, seen := table.Seen(k)
		require.True(t, seen, "candidate %d", k)
		assert.InDelta(t, want, ms, 1e-9, "candidate %d", k)
	}
	for _, k := range []int{alone, other} {
		_, seen := table.Seen(k)
		assert.False(t, seen, "candidate %d: only a part of a part, or of another backend", k)
	}
	table = observe(false)
	for _, k := range []int{fused, after} {
		_, seen := table.Seen(k)
		assert.False(t, seen, "candidate %d", k)
	}
	// What runs inline is nobody's layer.
	inline := &Profile{Parts: []Part{{Nodes: []relay.NodeID{pool}, Milliseconds: 4}}}
	table = NewTable(l.set, costs, make([]bool, 5), func(name string) Traits {
		return Traits{Anything: name == "tvm", Graph: name != "tvm"}
	})
	table.Observe(inline, nil, 1)
	_, seen := table.Seen(after)
	assert.False(t, seen)
	_, seen = table.Seen(other)
	assert.True(t, seen)
}

// TestLayersAddUp: whatever the names tell, each operator is in one part and the sum is the region's time.
func TestLayersAddUp(t *testing.T) {
	t.Parallel()
	ops := []string{"nn.conv2d", "add", "nn.relu", "reshape", "nn.dense", "tanh", "nn.max_pool2d"}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		f := relay.Tensor("float32", 4, 4)
		m := relay.NewGraph("main")
		values := []relay.NodeID{m.Var([]int64{4, 4}, "float32")}
		for range 12 {
			some := []relay.NodeID{values[len(values)-1]}
			if random.IntN(2) == 0 {
				some = append(some, values[random.IntN(len(values))])
			}
			values = append(values, m.Call(ops[random.IntN(len(ops))], f, nil, some...))
		}
		l := layeredOf(m, values[len(values)-1])
		layers := [][]relay.NodeID{{values[1+random.IntN(12)]}}
		for _, v := range values[1:] {
			if random.IntN(2) == 0 {
				layers = append(layers, []relay.NodeID{v, values[1+random.IntN(12)]})
			}
		}
		p := l.profile(t, 50, random.Float64(), layers...)
		require.InDelta(t, 50, p.Total(), 1e-9)
		all := slices.Sorted(slices.Values(slices.Concat(l.parts(p)...)))
		require.Equal(t, values[1:], all, "each operator once")
	}
}
