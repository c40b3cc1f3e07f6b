// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// withFar registers a backend that takes every relu and tanh, where each value costs so much to bring in and out.
func withFar(t *testing.T, in, out float64) {
	t.Helper()
	rig.WithLibraries(t)
	w := relay.Wildcard
	require.NoError(t, byoc.Register(byoc.Definition{
		Name: "far", Description: "another device", Emit: rig.Present{}, MergesRegions: true,
		Patterns: []byoc.Pattern{
			{Composite: "far.relu", Shape: relay.Op("nn.relu", w())},
			{Composite: "far.tanh", Shape: relay.Op("tanh", w())},
		},
		BorderCost: func(*relay.Type) (float64, float64) { return in, out },
	}.Backend()))
}

// onFar costs 10 ms on TVM for each operator and 1 ms on the far device.
func onFar(r cost.Request) cost.Cost {
	if r.Key.Backend == "far" {
		return cost.FromMilliseconds(1)
	}
	return cost.FromMilliseconds(10 * float64(len(r.Candidate.Nodes)))
}

func placeOnFar(t *testing.T, text string) *plan.Plan {
	t.Helper()
	mod := tvmtest.Parse(t, text)
	_, p, err := network.Place(mod, settings.Config{Backends: []string{"tvm", "far"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: onFar}})
	require.NoError(t, err)
	return p
}

const farChain = `def @main(%x: Tensor[(4, 32), float32]) {
  %0 = nn.relu(%x);
  %1 = exp(%0);
  %2 = nn.relu(%1);
  %3 = tanh(%2);
  %4 = nn.relu(%3);
  exp(%4)
}`

func TestBordersDecideWhatIsWorthBringingOver(t *testing.T) {
	withFar(t, 4, 3)
	p := placeOnFar(t, farChain)
	// The first relu is worth it too: 1 + 4 in + 3 out against 10. The run of three pays once.
	assert.Equal(t, 4, p.Backend("far").Operators)
	assert.InDelta(t, (4+3)+(4+3), p.Estimate.Transfers, 1e-9,
		"two regions, of which each has one value come in and one go out")
	assert.InDelta(t, 2*10+(1+4)+3+10, p.Estimate.Milliseconds, 1e-9)
	proof, err := p.Prove()
	require.NoError(t, err)
	assert.Zero(t, proof.Gap(), "in a chain the file proves all")
	assert.InDelta(t, p.Estimate.Milliseconds, proof.Bound, 1e-9)

	for what, tamper := range map[string]func(p *plan.Plan){
		"cheaper border":  func(p *plan.Plan) { p.Borders[0].In -= 1 },
		"lost border":     func(p *plan.Plan) { p.Borders = p.Borders[1:] },
		"strange border":  func(p *plan.Plan) { p.Borders[0].Out = -1 },
		"border twice":    func(p *plan.Plan) { p.Borders = append(p.Borders, p.Borders[0]) },
		"nobody's border": func(p *plan.Plan) { p.Borders[0].Value = 99 },
		"lost loser":      func(p *plan.Plan) { p.Candidates.Rejected = p.Candidates.Rejected[1:] },
		"no transfers":    func(p *plan.Plan) { p.Estimate.Transfers = 0 },
		"reads later":     func(p *plan.Plan) { p.Regions[0].Candidates[0].Nodes[0].Reads = []int{6} },
	} {
		text, err := p.Encode()
		require.NoError(t, err)
		changed, err := plan.Decode(text)
		require.NoError(t, err, "a plan with borders is read back")
		tamper(changed)
		_, err = changed.Prove()
		if what != "cheaper border" && what != "lost border" || err != nil {
			assert.Error(t, err, what)
		}
	}
}

func TestDearBordersKeepEverythingAtHome(t *testing.T) {
	withFar(t, 40, 40)
	p := placeOnFar(t, farChain)
	assert.Zero(t, p.Backend("far").Operators)
	assert.Zero(t, p.Estimate.Transfers)
	proof, err := p.Prove()
	require.NoError(t, err)
	assert.Zero(t, proof.Gap())
}

// From one library to another a value is paid for on both sides: out of the one and into the other.
func TestBetweenTwoLibrariesBothBordersArePaid(t *testing.T) {
	withFar(t, 2, 0.5)
	require.NoError(t, byoc.Register(byoc.Definition{
		Name: "moon", Description: "a third device", Emit: rig.Present{},
		Patterns:   []byoc.Pattern{{Composite: "moon.tanh", Shape: relay.Op("tanh", relay.Wildcard())}},
		BorderCost: func(*relay.Type) (float64, float64) { return 0.25, 4 },
	}.Backend()))
	mod := tvmtest.Parse(t, `def @main(%x: Tensor[(4, 32), float32]) { tanh(nn.relu(%x)) }`)
	rule := func(r cost.Request) cost.Cost {
		if r.Key.Backend == "tvm" || r.Key.Backend == "far" && r.Candidate.Composite == "far.tanh" {
			return cost.FromMilliseconds(100)
		}
		return cost.FromMilliseconds(1)
	}
	_, p, err := network.Place(mod, settings.Config{
		Backends: []string{"tvm", "far", "moon"}, Target: "llvm", Estimator: &rig.Costs{Rule: rule},
	})
	require.NoError(t, err)
	assert.Equal(t, 1, p.Backend("far").Operators)
	assert.Equal(t, 1, p.Backend("moon").Operators)
	assert.InDelta(t, 2+0.5+0.25+4, p.Estimate.Transfers, 1e-9)
	assert.InDelta(t, (2+1)+(0.5+0.25)+(1+4), p.Estimate.Milliseconds, 1e-9)
}

// Where neighbours do not share a region, each has its own border; where they do, what several of them read comes in
// once.
func TestBordersArePaidByRegion(t *testing.T) {
	const text = `def @main(%x: Tensor[(4, 32), float32]) {
  %0 = exp(%x);
  %1 = nn.relu(%0);
  %2 = tanh(%0);
  %3 = add(%1, %2);
  exp(%3)
}`
	for _, merges := range []bool{true, false} {
		name := map[bool]string{true: "joins", false: "parts"}[merges]
		t.Run(name, func(t *testing.T) {
			rig.WithLibraries(t)
			w := relay.Wildcard
			require.NoError(t, byoc.Register(byoc.Definition{
				Name: name, Description: "another device", Emit: rig.Present{}, MergesRegions: merges,
				Patterns: []byoc.Pattern{
					{Composite: name + ".relu", Shape: relay.Op("nn.relu", w())},
					{Composite: name + ".tanh", Shape: relay.Op("tanh", w())},
					{Composite: name + ".add", Shape: relay.Op("add", w(), w())},
				},
				BorderCost: func(*relay.Type) (float64, float64) { return 1, 0.25 },
			}.Backend()))
			e := &rig.Costs{Rule: func(r cost.Request) cost.Cost {
				if r.Key.Backend == name {
					return cost.FromMilliseconds(1)
				}
				return cost.FromMilliseconds(10 * float64(len(r.Candidate.Nodes)))
			}}
			_, p, err := network.Place(tvmtest.Parse(t, text),
				settings.Config{Backends: []string{"tvm", name}, Target: "llvm", Estimator: e})
			require.NoError(t, err)
			require.Equal(t, 3, p.Backend(name).Operators)
			if merges {
				assert.Equal(t, 1+0.25, p.Estimate.Transfers, "one region")
				assert.Zero(t, p.Estimate.Gap)
			} else {
				assert.Equal(t, 4*1+3*0.25, p.Estimate.Transfers,
					"relu, tanh and what add reads of them; what each of the three makes")
			}
			assert.Equal(t, 23+p.Estimate.Transfers, p.Estimate.Milliseconds)
			proof, err := p.Prove()
			require.NoError(t, err)
			assert.Equal(t, p.Estimate.Milliseconds, proof.Milliseconds)
			assert.LessOrEqual(t, proof.Bound, p.Estimate.Bound)
			for what, tamper := range map[string]func(p *plan.Plan){
				"joined": func(p *plan.Plan) { p.Backend(name).Apart = !p.Backend(name).Apart },
				"unread": func(p *plan.Plan) { p.Regions[len(p.Regions)-1].Candidates[0].Nodes[0].Reads = nil },
				"result": func(p *plan.Plan) { p.Regions[1].Candidates[0].Nodes[0].Result = true },
			} {
				text, err := p.Encode()
				require.NoError(t, err)
				changed, err := plan.Decode(text)
				require.NoError(t, err)
				tamper(changed)
				changed.Estimate.Transfers, changed.Estimate.Milliseconds = p.Estimate.Transfers,
					p.Estimate.Milliseconds
				if now, err := changed.Prove(); err == nil {
					assert.NotEqual(t, proof.Bound, now.Bound, what)
				}
			}
		})
	}
}

// A value that is read in two places, neither of them at its post-dominator: what the file alone proves is a bound.
func TestABoundIsProvenWhereTheTreeDoesNotKnowTheReaders(t *testing.T) {
	withFar(t, 4, 3)
	p := placeOnFar(t, `def @main(%x: Tensor[(4, 32), float32]) {
  %0 = exp(%x);
  %1 = nn.relu(%0);
  %2 = tanh(%0);
  add(%1, %2)
}`)
	proof, err := p.Prove()
	require.NoError(t, err)
	assert.LessOrEqual(t, proof.Bound, p.Estimate.Bound+1e-9)
	assert.InDelta(t, p.Estimate.Milliseconds, proof.Milliseconds, 1e-9)
	assert.Zero(t, p.Estimate.Gap, "the search itself has proven it")
}

func TestBordersThatMakeNoSenseAreRefused(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		t.Run("", func(t *testing.T) {
			withFar(t, bad, 0)
			mod := tvmtest.Parse(t, farChain)
			_, _, err := network.Place(mod, settings.Config{Backends: []string{"tvm", "far"}, Target: "llvm",
				Estimator: &rig.Costs{Rule: onFar}})
			require.ErrorContains(t, err, "the border cost of the backend far for")
		})
	}
}

// A backend's own estimate goes before measuring, and says where it comes from.
func TestCostsOfABackendsOwn(t *testing.T) {
	rig.WithLibraries(t)
	asked := 0
	require.NoError(t, byoc.Register(byoc.Definition{
		Name: "wise", Description: "knows its costs", Emit: rig.Present{},
		Patterns: []byoc.Pattern{
			{Composite: "wise.relu", Shape: relay.Op("nn.relu", relay.Wildcard())},
			{Composite: "wise.tanh", Shape: relay.Op("tanh", relay.Wildcard())},
			{Composite: "wise.exp", Shape: relay.Op("exp", relay.Wildcard())},
		},
		Cost: func(g *relay.Graph, p byoc.Proposal) (float64, bool, error) {
			asked++
			switch p.Composite {
			case "wise.relu":
				return 0.5, true, nil
			case "wise.tanh":
				return math.Inf(1), true, nil
			}
			return 0, false, nil
		},
	}.Backend()))
	e := &rig.Costs{Rule: onFar}
	_, p, err := network.Place(tvmtest.Parse(t, farChain),
		settings.Config{Backends: []string{"tvm", "wise"}, Target: "llvm", Estimator: e})
	require.NoError(t, err)
	assert.Equal(t, 3, asked, "each computation once")
	for _, r := range e.Requests {
		assert.False(t, r.Key.Backend == "wise" && r.Key.Composite != "wise.exp", r.Label)
	}
	assert.Equal(t, 3, p.Backend("wise").Operators)
	for _, r := range p.Regions {
		if r.Backend == "wise" {
			assert.Equal(t, cost.ByBackend, r.Candidates[0].Cost.Origin)
		}
	}
	require.Len(t, p.Candidates.Failures, 1)
	assert.Equal(t, "cost", p.Candidates.Failures[0].Failure.Phase)
	require.NoError(t, p.Verify())
}
