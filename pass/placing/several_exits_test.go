// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// levels is an encoder of three levels of exp and tanh, all of which the way back reads, by operators that the engine
// of these tests does not take.
const levels = `def @main(%x: Tensor[(8), float32]) {
  %0 = tanh(exp(%x));
  %1 = tanh(exp(%0));
  %2 = tanh(exp(%1));
  %3 = sqrt(%2);
  %4 = sqrt(add(%3, %1));
  sqrt(add(%4, %0))
}`

// wholeRegions is an engine that takes exp and tanh. Its neighbours stay apart, so that what is one region was
// proposed as one.
type wholeRegions struct{ rig.Library }

func (*wholeRegions) Level() byoc.Level { return byoc.GraphLevel }

func (*wholeRegions) Propose(g *relay.Graph, _ []byoc.Learnt) []byoc.Proposal {
	return propose.Regions(g, func(v relay.NodeID) bool { return g.Nodes[v].Op == "exp" || g.Nodes[v].Op == "tanh" },
		propose.Limit)
}

func withEngine(t *testing.T) {
	t.Helper()
	rig.WithLibraries(t)
	require.NoError(t, byoc.Register(&wholeRegions{rig.Library{Called: "engine",
		State: byoc.Probe{Usable: true, Version: "1"}}}))
}

// byRegion costs a region of the engine 1 ms whatever it holds, an operator on TVM 2 ms.
func byRegion(r cost.Request) cost.Cost {
	if r.Key.Backend == "engine" {
		return cost.FromMilliseconds(1)
	}
	return cost.FromMilliseconds(2 * float64(len(r.Candidate.Nodes)))
}

func TestARegionWithSeveralExitsWins(t *testing.T) {
	withEngine(t)
	cfg := settings.Config{Backends: []string{"tvm", "engine"}, Target: "llvm"}
	e := &rig.Costs{Rule: byRegion}
	cfg.Estimator = e
	mod, p, err := network.Place(tvmtest.Parse(t, levels), cfg)
	require.NoError(t, err)
	assert.InDelta(t, 11, p.Estimate.Milliseconds, 1e-9,
		"one region and five operators; three regions with one exit each take 13")
	assert.True(t, p.Estimate.Optimal)
	require.NoError(t, p.Verify())
	assert.Equal(t, 1, p.Outlined())
	assert.Len(t, e.Requests, e.Built, "what has several exits can be built by itself")

	// It is one function that gives three values.
	m, err := relay.Read(mod)
	require.NoError(t, err)
	text := ""
	for _, g := range m.Functions {
		if g.Attrs["Compiler"] == "engine" {
			text = g.String()
			result := g.Nodes[g.Root()].Type
			require.Equal(t, relay.TypeTuple, result.Kind)
			assert.Len(t, result.Fields, 3)
		}
	}
	assert.Equal(t, 3, strings.Count(text, "exp"), text)

	// Its plan is replayed, and says why it is there and what else there was.
	got, err := placing.Replay(tvmtest.Parse(t, levels), saved(t, p), settings.Config{})
	require.NoError(t, err)
	wantHash, err := placing.Hash(mod)
	require.NoError(t, err)
	gotHash, err := placing.Hash(got)
	require.NoError(t, err)
	assert.Equal(t, wantHash, gotHash)
	selector, err := plan.ParseSelector("exp")
	require.NoError(t, err)
	why, err := saved(t, p).Explain(selector)
	require.NoError(t, err)
	require.Len(t, why, 1)
	assert.Len(t, why[0].Nodes, 6)
	assert.Equal(t, "engine", why[0].Backend)
	for _, other := range why[0].Others {
		require.NotNil(t, other.Regret)
		assert.Positive(t, *other.Regret, "%v", other)
	}
	assert.NotEmpty(t, why[0].Others)

	// A plan that lost who reads what cannot show that the region can be run.
	lost := saved(t, p)
	for i := range lost.Regions {
		for k := range lost.Regions[i].Candidates {
			for n := range lost.Regions[i].Candidates[k].Nodes {
				lost.Regions[i].Candidates[k].Nodes[n].Reads = nil
			}
		}
	}
	require.ErrorContains(t, lost.Verify(), "not connected with its root")
}

// Where it costs more than what it holds, it is rejected, and the plan says by how much.
func TestARegionWithSeveralExitsLoses(t *testing.T) {
	withEngine(t)
	_, p, err := network.Place(tvmtest.Parse(t, levels), settings.Config{Backends: []string{"tvm", "engine"},
		Target: "llvm",
		Estimator: &rig.Costs{Rule: func(r cost.Request) cost.Cost {
			if len(r.Candidate.Exits) > 0 {
				return cost.FromMilliseconds(3.5)
			}
			return byRegion(r)
		}}})
	require.NoError(t, err)
	assert.InDelta(t, 13, p.Estimate.Milliseconds, 1e-9)
	assert.Equal(t, 3, p.Outlined())
	require.NoError(t, saved(t, p).Verify())
	rivals, err := saved(t, p).Closest(len(p.Candidates.Rejected))
	require.NoError(t, err)
	at := slices.IndexFunc(rivals, func(r plan.Rival) bool { return r.Backend == "engine" && len(r.Nodes) == 6 })
	require.GreaterOrEqual(t, at, 0)
	assert.InDelta(t, 0.5, *rivals[at].Regret, 1e-9)
}

// Pins and prohibitions hold for what has several exits as for all else.
func TestRulesBindWhatHasSeveralExits(t *testing.T) {
	withEngine(t)
	cfg := settings.Config{Backends: []string{"tvm", "engine"}, Target: "llvm", Estimator: &rig.Costs{Rule: byRegion}}
	cfg.Forbid = []string{"%2=engine"}
	_, p, err := network.Place(tvmtest.Parse(t, levels), cfg)
	require.NoError(t, err)
	require.NoError(t, p.Verify())
	assert.InDelta(t, 16, p.Estimate.Milliseconds, 1e-9, "the first level on TVM, the others by themselves")
	dear := &rig.Costs{Rule: func(r cost.Request) cost.Cost {
		if r.Key.Backend == "engine" {
			return cost.FromMilliseconds(100)
		}
		return cost.FromMilliseconds(2)
	}}
	_, p, err = network.Place(tvmtest.Parse(t, levels),
		settings.Config{Backends: []string{"tvm", "engine"}, Target: "llvm", Pin: []string{"exp=engine"},
			Estimator: dear})
	require.NoError(t, err)
	assert.InDelta(t, 102, p.Estimate.Milliseconds, 1e-9, "one region for all that is pinned, one kernel for the rest")
	require.NoError(t, p.Verify())
}

// distant is the engine with borders that cost something.
type distant struct{ wholeRegions }

func (*distant) BorderCost() byoc.BorderCost {
	return func(*relay.Type) (float64, float64) { return 0.25, 0.25 }
}

// Each of several exits pays for its border, and the plan proves what it can of that.
func TestBordersOfSeveralExits(t *testing.T) {
	rig.WithLibraries(t)
	require.NoError(t, byoc.Register(&distant{wholeRegions{rig.Library{Called: "engine",
		State: byoc.Probe{Usable: true, Version: "1"}}}}))
	_, p, err := network.Place(tvmtest.Parse(t, levels), settings.Config{Backends: []string{"tvm", "engine"},
		Target:    "llvm",
		Estimator: &rig.Costs{Rule: byRegion}})
	require.NoError(t, err)
	assert.Equal(t, 1, p.Outlined())
	assert.InDelta(t, 11+4*0.25, p.Estimate.Milliseconds, 1e-9, "the input and three levels cross the border")
	proof, err := saved(t, p).Prove()
	require.NoError(t, err)
	assert.InDelta(t, p.Estimate.Milliseconds, proof.Milliseconds, 1e-9)
	assert.LessOrEqual(t, proof.Bound, proof.Milliseconds)
	assert.Greater(t, proof.Bound, 10.0)
}
