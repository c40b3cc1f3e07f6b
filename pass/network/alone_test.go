// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// asOnly has what a network was explored from placed by Config.Only.
func asOnly(t *testing.T, n *Network, backend string) (regions []annotate.Region, chosen []int) {
	t.Helper()
	cfg := *n.Placing.Config
	cfg.Only = backend
	only := &placing.Module{Config: &cfg, Backends: n.Placing.Backends, ByName: n.Placing.ByName,
		Functions: []*placing.Function{{Set: n.Placing.Functions[0].Set}}}
	require.NoError(t, only.PlaceOnly())
	f := only.Functions[0]
	for k := range f.Options {
		assert.False(t, f.Costs[k].Known(), "what a candidate counts for here is no time")
	}
	return f.Regions, f.Solution.Chosen
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
	f := n.Placing.Functions[0]
	round := f.Set.Candidates[6].Nodes
	// A candidate of everything is fewer than two, and one that leaves an operator less is worth any number of them.
	add := func(backend, composite string, nodes ...relay.NodeID) {
		f.Set.Candidates = append(f.Set.Candidates,
			candidate.Candidate{Backend: backend, Composite: composite, Rank: 1, Nodes: nodes, Root: nodes[len(nodes)-1]})
		f.Costs = append(f.Costs, cost.FromMilliseconds(1))
		require.NoError(t, n.open())
	}
	add("lib", "lib.round", round...)
	assert.Equal(t, []string{"lib.conv2d_relu", "lib.round"}, composites(n.Single("lib")))
	add("lib", "lib.all", f.Set.Candidates[0].Root, f.Set.Candidates[1].Root, round[0])
	assert.Equal(t, []string{"lib.all"}, composites(n.Single("lib")), "the fewer candidates the better")
	f.Costs[8] = cost.Cost{Failure: &cost.Failure{Phase: "run", Kind: cost.KindError}}
	f.Costs[2], f.Costs[4], f.Costs[5] = f.Costs[8], f.Costs[8], f.Costs[8]
	require.NoError(t, n.open())
	assert.Equal(t, []string{"", "lib.relu", "lib.round"}, composites(n.Single("lib")), "what failed is TVM's")
}

func TestWhatIsPinnedElsewhereIsCoveredThere(t *testing.T) {
	n, composites := explored(t, nil)
	f := n.Placing.Functions[0]
	round := f.Set.Candidates[6].Nodes
	n.Placing.Backends = append(n.Placing.Backends, rig.Offered{Called: "pinned"})
	n.Placing.ByName["pinned"] = n.Placing.Backends[2]
	f.Set.Candidates[6].Backend, f.Set.Candidates[6].Composite = "pinned", "pinned.round"
	require.NoError(t, n.open())
	assert.Nil(t, n.Single("lib"), "nobody else has it")
	n.Placing.Config.Pin = []string{"round=pinned"}
	assert.Equal(t, []string{"lib.conv2d_relu", "pinned.round"}, composites(n.Single("lib")))
	f.Set.Candidates = append(f.Set.Candidates,
		candidate.Candidate{Backend: "tvm", Nodes: round, Root: round[0], Rank: 99})
	f.Costs = append(f.Costs, cost.FromMilliseconds(1))
	require.NoError(t, n.open())
	assert.Equal(t, []string{"lib.conv2d_relu", ""}, composites(n.Single("lib")), "rather TVM's, where it may be")
}

func TestABackendAloneOfAnyNumberOfOperators(t *testing.T) {
	const operators = 60_000 // 1e5 ms each are more than the solver adds up
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 8)
	value := m.Var([]int64{8}, "float32")
	f := &placing.Function{Set: &candidate.Set{}}
	for i := range operators {
		value = m.Call("nn.relu", vector, nil, value)
		of := candidate.Candidate{Backend: "tvm", Nodes: []relay.NodeID{value}, Root: value}
		f.Set.Candidates = append(f.Set.Candidates, of)
		if of.Backend = "lib"; i%2 == 0 {
			f.Set.Candidates = append(f.Set.Candidates, of)
		}
	}
	f.Set.Graph = m.Finish(value)
	f.Costs = make([]cost.Cost, len(f.Set.Candidates))
	s := &placing.Module{Config: &settings.Config{}, Functions: []*placing.Function{f},
		ByName: map[string]byoc.Backend{"tvm": rig.Offered{Called: "tvm"}, "lib": rig.Offered{Called: "lib"}}}
	chosen, err := s.Alone([]string{"lib"}, func(int, int) float64 { return 1 })
	require.NoError(t, err)
	theirs := 0
	for _, k := range chosen[0] {
		if f.Set.Candidates[k].Backend == "lib" {
			theirs++
		}
	}
	assert.Equal(t, operators/2, theirs)
}
