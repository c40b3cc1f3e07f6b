// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// seenIn are the tables after networks that took so much in place, each of its candidates as a part.
func seenIn(n *Network, ms func(backend string) float64, placements ...*genome.Placement) []*feedback.Table {
	tables := n.tables()
	for _, p := range placements {
		for i := range p.Chosen {
			profile := &feedback.Profile{}
			for _, k := range p.Chosen[i] {
				c := &n.Placing.Functions[i].Set.Candidates[k]
				profile.Parts = append(profile.Parts, feedback.Part{Nodes: append([]relay.NodeID(nil), c.Nodes...),
					Milliseconds: ms(c.Backend) * float64(c.Operators(n.Placing.Functions[i].Set.Graph))})
			}
			tables[i].Observe(profile, p.Chosen[i], 1)
		}
	}
	return tables
}

func opened(t *testing.T, e *rig.Costs) *Network {
	t.Helper()
	rig.WithLibraries(t)
	n, err := Open(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "lib"},
		Target: "llvm", Estimator: e})
	require.NoError(t, err)
	return n
}

// A network that was opened without measuring has every placement that needs no costs, and a plan of each that claims
// nothing.
func TestANetworkIsOpenedWithoutMeasuring(t *testing.T) {
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	n := opened(t, e)
	assert.Empty(t, e.Requests)
	plain, err := n.Reference()
	require.NoError(t, err)
	alone := n.Single("lib")
	require.NotNil(t, alone)
	assert.Positive(t, alone.Outlined())
	for _, p := range []*genome.Placement{plain, alone, n.Placed} {
		written, err := n.Plan(p, nil)
		require.NoError(t, err)
		assert.False(t, written.Estimate.Optimal, "bounds prove nothing about what it takes")
		assert.Zero(t, written.Candidates.Measured+written.Candidates.Given+written.Candidates.Stored)
		assert.Equal(t, p.Outlined(), written.Outlined())
	}
	// What was seen in place stands in the plan as that.
	tables := seenIn(n, func(string) float64 { return 3 }, alone)
	written, err := n.Plan(alone, &graphlevel.Result{Tables: tables})
	require.NoError(t, err)
	assert.Positive(t, written.Candidates.InPlace)
	for _, r := range written.Regions {
		for _, c := range r.Candidates {
			assert.Equal(t, cost.Context, c.Cost.Origin)
			assert.InDelta(t, c.Context, c.Milliseconds, 1e-9)
		}
	}
}

// TVM's graph executor calls no functions of a module.
func TestANetworkThatCannotRun(t *testing.T) {
	rig.WithLibraries(t)
	mod := tvmtest.Parse(t, `def @helper(%a: Tensor[(4, 32), float32]) -> Tensor[(4, 32), float32] { tanh(%a) }
def @main(%x: Tensor[(4, 32), float32]) -> Tensor[(4, 32), float32] { tanh(@helper(%x)) }`)
	cfg := settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.ByBackend(nil)}}
	network, err := Open(mod, cfg)
	require.NoError(t, err)
	require.ErrorContains(t, network.Whole(), "calls the function helper of the module: put it through Normalise first")
	normal, err := normalise.Normalise(mod, normalise.Options{})
	require.NoError(t, err)
	network, err = Open(normal, cfg)
	require.NoError(t, err)
	require.NoError(t, network.Whole())
}

// Candidates are measured alone where that can change a decision: those that were seen in place are known, and those
// whose bound is above what their nodes take have no chance.
func TestOnlyWhatHasSlackIsMeasured(t *testing.T) {
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	n := opened(t, e)
	plain, err := n.Reference()
	require.NoError(t, err)
	seen := seenIn(n, func(string) float64 { return 3 }, plain)
	require.NoError(t, n.Learn(context.Background(), seen, false))
	asked := map[string]bool{}
	for _, r := range e.Requests {
		asked[r.Key.Backend] = true
		if r.Key.Backend != "tvm" {
			continue
		}
		for _, k := range plain.Chosen[0] {
			assert.NotEqual(t, n.Placing.Functions[0].Set.Candidates[k].Nodes, r.Candidate.Nodes,
				"it was seen in place on TVM")
		}
	}
	assert.True(t, asked["lib"])
	assert.Positive(t, n.Placed.Outlined())

}

func TestNothingIsMeasuredWhereNothingCanGain(t *testing.T) {
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	n := opened(t, e)
	plain, err := n.Reference()
	require.NoError(t, err)
	require.NoError(t, n.Learn(context.Background(), seenIn(n, func(string) float64 { return 0 }, plain), false))
	for _, r := range e.Requests {
		t.Errorf("%s is measured", r.Label)
	}
}

func TestMeasuringEndsWithItsTime(t *testing.T) {
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	n := opened(t, e)
	until, end := context.WithCancel(context.Background())
	end()
	plain, err := n.Reference()
	require.NoError(t, err)
	require.NoError(t, n.Learn(until, seenIn(n, func(string) float64 { return 3 }, plain), false))
	assert.Empty(t, e.Requests)
	require.NotNil(t, n.Placed)
	_, err = n.Plan(n.Placed, nil)
	require.NoError(t, err)
}

// What Learn is told is what it is measured by.
func TestLearnKeepsToWhatIsLikely(t *testing.T) {
	n := opened(t, &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})})
	for _, likelyOnly := range []bool{false, true} {
		require.NoError(t, n.Learn(context.Background(), nil, likelyOnly))
		assert.Equal(t, likelyOnly, n.Placing.Slack.LikelyOnly)
	}
}

// What may gain most comes first.
func TestTheMostPromisingCandidateIsMeasuredFirst(t *testing.T) {
	var order []float64
	var n *Network
	e := &rig.Costs{}
	e.Rule = func(r cost.Request) cost.Cost {
		gain := 0.0 // wherever the computation stands
		set := n.Placing.Functions[0].Set
		for k := range set.Candidates {
			if c := &set.Candidates[k]; c.Backend == r.Key.Backend && c.Composite == r.Key.Composite &&
				c.Key == r.Key.Structure {
				gain += 3 * float64(c.Operators(set.Graph)) // what its operators took, of which each has a like share
			}
		}
		order = append(order, gain)
		return cost.FromMilliseconds(1)
	}
	n = opened(t, e)
	plain, err := n.Reference()
	require.NoError(t, err)
	seen := seenIn(n, func(string) float64 { return 3 }, plain)
	require.NoError(t, n.Learn(context.Background(), seen, false))
	require.Greater(t, len(order), 2)
	assert.IsNonIncreasing(t, order)
}

// A backend alone is the same network before anything was measured and afterwards: a search that goes on finds it in
// the store.
func TestABackendAloneIsTheSameWhateverIsKnown(t *testing.T) {
	rig.WithFamily(t, nil)
	cheap := "strassen"
	n, err := Open(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host", "guest"},
		Target: "llvm",
		Estimator: &rig.Costs{Rule: func(r cost.Request) cost.Cost {
			if strings.Contains(r.Key.Composite, cheap) {
				return cost.FromMilliseconds(0.01)
			}
			return cost.FromMilliseconds(1)
		}}})
	require.NoError(t, err)
	before := n.Alone("guest")
	require.NotNil(t, before)
	for _, k := range before.Chosen[0] {
		if strings.Contains(n.Placing.Functions[0].Set.Candidates[k].Composite, cheap) {
			cheap = "narrow" // the other one becomes the cheaper
		}
	}
	plain, err := n.Reference()
	require.NoError(t, err)
	require.NoError(t, n.Learn(context.Background(), seenIn(n, func(string) float64 { return 3 }, plain), false))
	assert.Equal(t, before.Key, n.Alone("guest").Key)
	assert.NotEqual(t, before.Key, n.Single("guest").Key, "which has learnt")
}
