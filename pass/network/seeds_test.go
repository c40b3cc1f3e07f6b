// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// explored is a network conv -> relu -> round of which each candidate costs what is given; a negative cost is a bound.
func explored(t *testing.T, costs map[string]float64) (*Network, func(p *genome.Placement) []string) {
	t.Helper()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 1, 8, 8, 8)
	conv := m.Call("nn.conv2d", vector, nil, m.Var([]int64{1, 8, 8, 8}, "float32"),
		m.Const([]int64{8, 8, 3, 3}, "float32"))
	relu := m.Call("nn.relu", vector, nil, conv)
	round := m.Call("round", vector, nil, relu) // lib does not take it
	g := m.Finish(round)
	f := &placing.Function{Set: &candidate.Set{Graph: g}}
	add := func(backend, composite string, rank int, nodes ...relay.NodeID) {
		ms, ok := costs[backend+" "+composite]
		if !ok {
			ms = 1
		}
		known := cost.Cost{Samples: []float64{ms}, Origin: cost.Measured}
		if ms < 0 {
			known = cost.Cost{Samples: []float64{-ms}, Origin: cost.Bounded}
		}
		inputs, constants := g.Boundary(nodes)
		f.Set.Candidates = append(f.Set.Candidates,
			candidate.Candidate{Backend: backend, Composite: composite, Rank: rank, Nodes: nodes,
				Root: nodes[len(nodes)-1], Inputs: inputs, Constants: constants, Key: composite})
		f.Costs = append(f.Costs, known)
	}
	add("tvm", "", 10, conv)
	add("tvm", "", 10, relu)
	add("lib", "lib.conv2d", 1, conv)
	add("lib", "lib.relu", 1, relu)
	add("lib", "lib.conv2d_relu", 1, conv, relu)
	add("lib", "lib.winograd_conv2d_relu", 1, conv, relu)
	add("tvm", "", 10, round)
	s := &placing.Module{Config: &settings.Config{}, Backends: []byoc.Backend{rig.Offered{Called: "tvm"},
		rig.Offered{Called: "lib"}},
		ByName:    map[string]byoc.Backend{},
		Functions: []*placing.Function{f}}
	for _, b := range s.Backends {
		s.ByName[b.Name()] = b
	}
	f.Options = make([]place.Option, len(f.Costs))
	for k := range f.Options {
		f.Options[k] = place.Option{Nodes: f.Set.Candidates[k].Nodes, Cost: f.Costs[k].Estimate(),
			Rank: f.Set.Candidates[k].Rank}
	}
	var err error
	f.Solution, err = place.Solve(f.Options, place.TreeOf(g))
	require.NoError(t, err)
	n := &Network{Placing: s}
	require.NoError(t, n.open())
	return n, func(p *genome.Placement) []string {
		require.NotNil(t, p)
		require.NoError(t, n.Space.Check(p))
		var composites []string
		for _, k := range p.Chosen[0] {
			composites = append(composites, f.Set.Candidates[k].Composite)
		}
		return composites
	}
}

func TestASingleBackendWithItsCheapestCandidates(t *testing.T) {
	for _, of := range []struct {
		costs map[string]float64
		want  []string
	}{
		{map[string]float64{"lib lib.conv2d_relu": 3, "lib lib.winograd_conv2d_relu": 2},
			[]string{"lib.winograd_conv2d_relu", ""}},
		{map[string]float64{"lib lib.conv2d_relu": 2, "lib lib.winograd_conv2d_relu": 3},
			[]string{"lib.conv2d_relu", ""}},
		{map[string]float64{"lib lib.conv2d_relu": 9, "lib lib.winograd_conv2d_relu": 8},
			[]string{"lib.conv2d", "lib.relu", ""}},
		// TVM is cheaper, but it is not what is asked for; a bound is no time.
		{map[string]float64{"tvm ": 0.1, "lib lib.conv2d_relu": 2, "lib lib.winograd_conv2d_relu": -1,
			"lib lib.conv2d": 9},
			[]string{"lib.conv2d_relu", ""}},
	} {
		n, composites := explored(t, of.costs)
		assert.Equal(t, of.want, composites(n.Tuned("lib")), "%v", of.costs)
		assert.Equal(t, []string{"lib.conv2d_relu", ""}, composites(n.Single("lib")), "without regard to costs")
		assert.Equal(t, []string{"", "", ""}, composites(n.Plain()))
		assert.Len(t, n.Tuned("lib").Regions[0], 1)
	}
}

func TestRunnersUpKeepRegionsWhole(t *testing.T) {
	n, composites := explored(t, map[string]float64{"tvm ": 0.05, "lib lib.conv2d": 0.049, "lib lib.relu": 9,
		"lib lib.conv2d_relu":          9,
		"lib lib.winograd_conv2d_relu": 9})
	assert.Equal(t, []string{"lib.conv2d", "", ""}, composites(n.Placed), "cheaper by a microsecond")
	seeds := n.RunnersUp()
	require.NotEmpty(t, seeds)
	assert.Equal(t, "with borders", seeds[0].Name)
	assert.Equal(t, []string{"", "", ""}, composites(seeds[0].Placement))
	for _, seed := range seeds {
		assert.True(t, seed.Optional)
	}
}

// guest is a library that shares lib's regions.
type guest struct{ rig.Offered }

func (guest) Compiler() string    { return "lib" }
func (guest) MergesRegions() bool { return true }
func (guest) Patterns() []byoc.Pattern {
	return []byoc.Pattern{{Composite: "guest.conv2d", Kernel: "own"}, {Composite: "guest.a_conv2d", Kernel: "another"}}
}

// PaddingKernels: "clear" clears padding, without which "own" does.
func (guest) PaddingKernels() (clears string, without []string) { return "clear", []string{"own"} }

// thin does what guest does in bfloat16.
type thin struct{ guest }

func (thin) Precision() byoc.Precision { return byoc.BF16 }
func (thin) Wide() string              { return "guest" }

func TestBackendsThatShareRegionsAreASeedTogether(t *testing.T) {
	n, _ := explored(t, map[string]float64{"tvm ": 0.1, "lib lib.conv2d_relu": 4, "lib lib.winograd_conv2d_relu": 3,
		"lib lib.conv2d": 2,
		"lib lib.relu":   2})
	assert.Empty(t, n.Families())
	f := n.Placing.Functions[0]
	conv := f.Set.Candidates[2].Nodes
	inputs, constants := f.Set.Graph.Boundary(conv)
	f.Set.Candidates = append(f.Set.Candidates,
		candidate.Candidate{Backend: "guest", Composite: "guest.conv2d", Kernel: "own", Nodes: conv,
			Root: conv[0], Inputs: inputs, Constants: constants, Key: "guest.conv2d", Rank: 1})
	f.Costs = append(f.Costs, cost.Cost{Samples: []float64{0.5}, Origin: cost.Measured})
	f.Options = append(f.Options, place.Option{Nodes: conv, Cost: 0.5, Rank: 1})
	dearer := f.Set.Candidates[len(f.Set.Candidates)-1]
	dearer.Composite, dearer.Kernel, dearer.Rank = "guest.a_conv2d", "another", 0
	f.Set.Candidates = append(f.Set.Candidates, dearer)
	f.Costs = append(f.Costs, cost.Cost{Samples: []float64{7}, Origin: cost.Measured})
	f.Options = append(f.Options, place.Option{Nodes: conv, Cost: 7})
	n.Placing.Backends = append(n.Placing.Backends, guest{rig.Offered{Called: "guest"}})
	n.Placing.ByName["guest"] = n.Placing.Backends[2]
	require.NoError(t, n.open())
	composites := func(p *genome.Placement) (names []string) {
		require.NotNil(t, p)
		require.NoError(t, n.Space.Check(p))
		for _, k := range p.Chosen[0] {
			names = append(names, f.Set.Candidates[k].Composite)
		}
		return names
	}
	assert.Equal(t, [][]string{{"lib", "guest"}}, n.Families())
	assert.Empty(t, n.GroupedKernels(), "nobody works in groups")
	assert.Nil(t, n.Grouped("another", "lib", "guest"))

	n.Placing.All = &placing.Computations{Of: [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		Bounds: []float64{0, 0, 1, 0.5, 1.6, 1.4, 0, 1.001, 1.3}}
	together := n.Together("lib", "guest")
	assert.Equal(t, []string{"lib.winograd_conv2d_relu", ""}, composites(together),
		"the lowest of the bounds, whatever was measured")
	n.Placing.All.Bounds[7] = 0.8
	assert.Equal(t, []string{"guest.conv2d", "lib.relu", ""}, composites(n.Together("lib", "guest")))
	n.Placing.All.Bounds[7], n.Placing.All.Bounds[5] = 1.001, 2
	n.Placing.All.Bounds[4] = 2
	assert.Equal(t, []string{"guest.conv2d", "lib.relu", ""}, composites(n.Together("lib", "guest")),
		"as good as alike, and a kernel for it")

	n.Placing.All.Bounds[7] = 100
	assert.Equal(t, []string{"lib.conv2d", "lib.relu", ""}, composites(n.Together("lib", "guest")))
	f.Set.Candidates[len(f.Set.Candidates)-1].Kernel = "clear"
	assert.Equal(t, []string{"guest.conv2d", "lib.relu", ""}, composites(n.Together("lib", "guest")),
		"what does without padding, which somebody clears, whatever its bound")
	f.Set.Candidates[len(f.Set.Candidates)-1].Kernel = "another"
	n.Placing.All.Bounds[7] = 1.001

	f.Set.Candidates[len(f.Set.Candidates)-1].Grouped = true
	assert.Equal(t, []string{"guest.a_conv2d", "lib.relu", ""}, composites(n.Together("lib", "guest")),
		"whatever its bound")
	narrow := thin{guest{rig.Offered{Called: "thin"}}}
	n.Placing.Backends, n.Placing.ByName["thin"] = append(n.Placing.Backends, narrow), narrow
	assert.Equal(t, [][]string{{"lib", "guest"}, {"lib", "guest", "thin"}}, n.Families())
	n.Placing.All.Bounds[5] = 0.1
	assert.Equal(t, []string{"lib.winograd_conv2d_relu", ""}, composites(n.Together("lib", "guest", "thin")),
		"by its bound, since some of it may be narrow")
	n.Placing.All.Bounds[5] = 2
	n.Placing.Backends = n.Placing.Backends[:3]
	assert.Equal(t, []string{"another"}, n.GroupedKernels())
	assert.Equal(t, []string{"guest.a_conv2d", "lib.relu", ""}, composites(n.Grouped("another", "lib", "guest")),
		"whatever it takes alone")
	assert.Nil(t, n.Grouped("own", "lib", "guest"), "it works alone")
	f.Set.Candidates[len(f.Set.Candidates)-2].Grouped = true
	assert.Equal(t, []string{"own", "another"}, n.GroupedKernels(), "as the backend's patterns have them")
	for kernel, want := range map[string]string{"own": "guest.conv2d", "another": "guest.a_conv2d"} {
		assert.Equal(t, []string{want, "lib.relu", ""}, composites(n.Grouped(kernel, "lib", "guest")),
			"this one before the others")
	}
	own, another := &f.Set.Candidates[len(f.Set.Candidates)-2], &f.Set.Candidates[len(f.Set.Candidates)-1]
	for range 2 {
		first := own.Composite
		if another.Kernel == "own" {
			first = another.Composite
		}
		assert.Equal(t, []string{first, "lib.relu", ""}, composites(n.Together("lib", "guest")),
			"that of the first kernel before the others")
		own.Kernel, another.Kernel = another.Kernel, own.Kernel
	}
	f.Set.Candidates[len(f.Set.Candidates)-2].Grouped = false
	f.Set.Candidates[len(f.Set.Candidates)-1].Grouped = false
	both := n.Tuned("lib", "guest")
	assert.Equal(t, []string{"guest.conv2d", "lib.relu", ""}, composites(both),
		"each operator from the one that is the cheapest there")
	require.Len(t, both.Regions[0], 1)
	assert.Equal(t, "guest+lib", both.Regions[0][0].Backend)
	assert.Equal(t, []string{"lib.winograd_conv2d_relu", ""}, composites(n.Tuned("lib")), "alone it is still alone")
	assert.Equal(t, []string{"guest.conv2d", "", ""}, composites(n.Single("guest")), "costs choose among kernels")
	var names []string
	for _, seed := range n.RunnersUp() {
		names = append(names, seed.Name)
		if seed.Name == "without lib" {
			assert.NotContains(t, composites(seed.Placement), "lib.relu")
		}
	}
	assert.NotContains(t, names, "without lib+guest", "nothing of the family was chosen")
}
