// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// asOnly has what a network was explored from placed by Config.Only.
func asOnly(t *testing.T, n *Network, backend string) (regions []annotate.Region, chosen []int) {
	t.Helper()
	cfg := *n.s.cfg
	cfg.Only = backend
	only := &search{cfg: &cfg, backends: n.s.backends, byName: n.s.byName,
		functions: []*function{{set: n.s.functions[0].set}}}
	require.NoError(t, only.placeOnly())
	f := only.functions[0]
	for k := range f.options {
		assert.False(t, f.costs[k].Known(), "what a candidate counts for here is no time")
	}
	return f.regions, f.placement.Chosen
}

func TestABackendAloneIsTheSameAtBothLevels(t *testing.T) {
	n, composites := explored(t, nil)
	for backend, want := range map[string][]string{"lib": {"lib.conv2d_relu", ""}, "tvm": {"", "", ""}} {
		p := n.Single(backend)
		assert.Equal(t, want, composites(p))
		regions, chosen := asOnly(t, n, backend)
		assert.Equal(t, p.Chosen[0], chosen, backend)
		assert.Equal(t, p.Regions[0], regions, backend)
	}
}

func TestABackendAloneLeavesTheFewestOperators(t *testing.T) {
	n, composites := explored(t, nil)
	f := n.s.functions[0]
	round := f.set.Candidates[6].Nodes
	// A candidate of everything is fewer than two, and one that leaves an operator less is worth any number of them.
	add := func(backend, composite string, nodes ...relay.NodeID) {
		f.set.Candidates = append(f.set.Candidates,
			candidate.Candidate{Backend: backend, Composite: composite, Rank: 1, Nodes: nodes, Root: nodes[len(nodes)-1]})
		f.costs = append(f.costs, cost.FromMilliseconds(1))
		require.NoError(t, n.open())
	}
	add("lib", "lib.round", round...)
	assert.Equal(t, []string{"lib.conv2d_relu", "lib.round"}, composites(n.Single("lib")))
	add("lib", "lib.all", f.set.Candidates[0].Root, f.set.Candidates[1].Root, round[0])
	assert.Equal(t, []string{"lib.all"}, composites(n.Single("lib")), "the fewer candidates the better")
	f.costs[8] = cost.Cost{Failure: &cost.Failure{Phase: "run", Kind: cost.KindError}}
	f.costs[2], f.costs[4], f.costs[5] = f.costs[8], f.costs[8], f.costs[8]
	require.NoError(t, n.open())
	assert.Equal(t, []string{"", "lib.relu", "lib.round"}, composites(n.Single("lib")), "what failed is TVM's")
}

func TestWhatIsPinnedElsewhereIsCoveredThere(t *testing.T) {
	n, composites := explored(t, nil)
	f := n.s.functions[0]
	round := f.set.Candidates[6].Nodes
	n.s.backends = append(n.s.backends, offered{"pinned"})
	n.s.byName["pinned"] = n.s.backends[2]
	f.set.Candidates[6].Backend, f.set.Candidates[6].Composite = "pinned", "pinned.round"
	require.NoError(t, n.open())
	assert.Nil(t, n.Single("lib"), "nobody else has it")
	n.s.cfg.Pin = []string{"round=pinned"}
	assert.Equal(t, []string{"lib.conv2d_relu", "pinned.round"}, composites(n.Single("lib")))
	f.set.Candidates = append(f.set.Candidates,
		candidate.Candidate{Backend: "tvm", Nodes: round, Root: round[0], Rank: 99})
	f.costs = append(f.costs, cost.FromMilliseconds(1))
	require.NoError(t, n.open())
	assert.Equal(t, []string{"lib.conv2d_relu", ""}, composites(n.Single("lib")), "rather TVM's, where it may be")
}

func TestABackendAloneOfAnyNumberOfOperators(t *testing.T) {
	const operators = 60_000 // 1e5 ms each are more than the solver adds up
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	value := m.Var([]int64{8}, "float32")
	f := &function{set: &candidate.Set{}}
	for i := range operators {
		value = m.Call("nn.relu", vector, nil, value)
		of := candidate.Candidate{Backend: "tvm", Nodes: []relay.NodeID{value}, Root: value}
		f.set.Candidates = append(f.set.Candidates, of)
		if of.Backend = "lib"; i%2 == 0 {
			f.set.Candidates = append(f.set.Candidates, of)
		}
	}
	f.set.Graph = m.Finish(value)
	f.costs = make([]cost.Cost, len(f.set.Candidates))
	s := &search{cfg: &Config{}, functions: []*function{f},
		byName: map[string]byoc.Backend{"tvm": offered{"tvm"}, "lib": offered{"lib"}}}
	chosen, err := s.alone([]string{"lib"}, func(int, int) float64 { return 1 })
	require.NoError(t, err)
	theirs := 0
	for _, k := range chosen[0] {
		if f.set.Candidates[k].Backend == "lib" {
			theirs++
		}
	}
	assert.Equal(t, operators/2, theirs)
}
