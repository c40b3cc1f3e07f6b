// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// saved is a plan that went through its file's format.
func saved(t *testing.T, p *plan.Plan) *plan.Plan {
	t.Helper()
	text, err := p.Encode()
	require.NoError(t, err)
	back, err := plan.Decode(text)
	require.NoError(t, err)
	return back
}

func TestReplayGivesTheSameModule(t *testing.T) {
	rig.WithLibraries(t)
	for _, cfg := range []settings.Config{{}, {Pin: []string{"nn.dense=tvm"}}, {Only: "lib"}, {Only: "tvm"}} {
		mod := tvmtest.Parse(t, rig.Layers)
		cfg.Backends, cfg.Target = []string{"tvm", "lib"}, "llvm"
		cfg.Estimator = &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
		want, p, err := network.Place(mod, cfg)
		require.NoError(t, err)
		got, err := placing.Replay(tvmtest.Parse(t, rig.Layers), saved(t, p), settings.Config{})
		require.NoError(t, err)
		same, err := bridge.Global("node.StructuralEqual", want, got, false, true)
		require.NoError(t, err)
		equal, err := same.Bool()
		require.NoError(t, err)
		assert.True(t, equal, "%v", cfg)
		wantHash, err := placing.Hash(want)
		require.NoError(t, err)
		gotHash, err := placing.Hash(got)
		require.NoError(t, err)
		assert.Equal(t, wantHash, gotHash)
		assert.Equal(t, rig.OperatorsOf(t, want), rig.OperatorsOf(t, got))
	}
}

// For each kind of network that may be kept: the plan is that network's, and replaying it gives the same module.
func TestReplayGivesWhatWasKept(t *testing.T) {
	rig.WithFamily(t, nil)
	n, err := network.Explore(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host",
		"guest"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.FamilyCosts}}, nil)
	require.NoError(t, err)
	plain, err := n.Reference()
	require.NoError(t, err)
	regions := map[string]bool{}
	for name, placement := range map[string]*genome.Placement{"tvm": plain, "host alone": n.Single("host"),
		"guest alone": n.Single("guest"),
		"the family":  n.Tuned("host", "guest"), "operator level": n.Placed} {
		require.NotNil(t, placement, name)
		p, err := n.Plan(placement, nil)
		require.NoError(t, err, name)
		assert.Equal(t, placement.Outlined(), p.Outlined(), name)
		want, err := n.Module(placement)
		require.NoError(t, err, name)
		want, err = placing.WithLevel(want, settings.Level(p.Level)) // which the replayed module says of itself
		require.NoError(t, err, name)
		got, err := placing.Replay(tvmtest.Parse(t, rig.Layers), saved(t, p), settings.Config{})
		require.NoError(t, err, name)
		wantHash, err := placing.Hash(want)
		require.NoError(t, err)
		gotHash, err := placing.Hash(got)
		require.NoError(t, err)
		assert.Equal(t, wantHash, gotHash, name)
		regions[gotHash] = true
	}
	assert.GreaterOrEqual(t, len(regions), 4, "they are different networks")
}

// roundsLater is a library that has what it reads rounded once that is switched on.
type roundsLater struct {
	*rig.Library
	on *bool
}

func (r roundsLater) Rounded(g *relay.Graph, nodes []relay.NodeID) []relay.NodeID {
	if !*r.on {
		return nil
	}
	return []relay.NodeID{g.Nodes[nodes[0]].Inputs[0]}
}

// A plan without the scales of what its regions round is refused: nothing would say how it is to be built.
func TestReplayRefusesRegionsWithoutScales(t *testing.T) {
	rig.WithLibraries(t)
	w, on := relay.Wildcard, false
	require.NoError(t, byoc.Register(roundsLater{&rig.Library{Called: "bytes", State: byoc.Probe{Usable: true},
		Kinds: []byoc.Pattern{{Composite: "bytes.dense", Shape: relay.Op("nn.dense", w(), w())}}}, &on}))
	_, p, err := network.Place(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm",
		"bytes"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "bytes": 1})}})
	require.NoError(t, err)
	require.Positive(t, p.Outlined())
	replay := func() error {
		_, err := placing.Replay(tvmtest.Parse(t, rig.Layers), saved(t, p), settings.Config{})
		return err
	}
	require.NoError(t, replay())
	on = true
	var refused *placing.ReplayError
	require.ErrorAs(t, replay(), &refused)
	assert.Contains(t, refused.Reason, "does not say by which scale it rounds %")
}

// What the store knows to fail here is refused by name, for the environment that the plan is for.
func TestReplayRefusesWhatFailed(t *testing.T) {
	rig.WithLibraries(t)
	known := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	_, p, err := network.Place(tvmtest.Parse(t, rig.Layers),
		settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Estimator: known})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	replay := func(cfg settings.Config) error {
		cfg.Store = path
		_, err := placing.Replay(tvmtest.Parse(t, rig.Layers), saved(t, p), cfg)
		return err
	}
	require.NoError(t, replay(settings.Config{}), "a store that is not there knows nothing")
	assert.NoFileExists(t, path)
	fail := func(change func(k *cost.Key)) {
		store, err := cost.OpenStore(path)
		require.NoError(t, err)
		for _, r := range known.Requests {
			if r.Key.Backend == "lib" && r.Key.Composite == "lib.dense_relu" {
				key := r.Key
				change(&key)
				require.NoError(t, store.Put(key,
					cost.FromFailure(cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: "by 3"},
						time.Now())))
			}
		}
		require.NoError(t, store.Close())
	}
	fail(func(k *cost.Key) { k.Library = "testlib 0.9" })
	fail(func(k *cost.Key) { k.Threads++ })
	require.NoError(t, replay(settings.Config{}), "another version's failure is not ours")
	fail(func(*cost.Key) {})
	err = replay(settings.Config{})
	var refused *placing.ReplayError
	require.ErrorAs(t, err, &refused)
	assert.ErrorContains(t, err, "lib.dense_relu on lib at %")
	assert.ErrorContains(t, err, "(nn.relu) is known to fail here: wrong-result in check: by 3")
	require.NoError(t, replay(settings.Config{RetryFailures: true}))
}

func TestReplayRefusesWhatDoesNotFit(t *testing.T) {
	rig.WithLibraries(t)
	_, p, err := network.Place(tvmtest.Parse(t, rig.Layers),
		settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm", ModuleName: "layers",
			Estimator: &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}})
	require.NoError(t, err)
	replay := func(text string, spoil func(p *plan.Plan)) error {
		changed := saved(t, p)
		if spoil != nil {
			spoil(changed)
		}
		out, err := placing.Replay(tvmtest.Parse(t, text), changed, settings.Config{})
		if err != nil {
			assert.Nil(t, out)
		}
		return err
	}
	other := `def @main(%x: Tensor[(4, 32), float32]) { tanh(%x) }`
	require.ErrorContains(t, replay(other, nil), "it is for another network: layers has the hash "+p.Module.Hash)
	var refused *placing.ReplayError
	require.ErrorAs(t, replay(other, nil), &refused)

	region := func(p *plan.Plan) *plan.Region {
		for i := range p.Regions {
			if p.Regions[i].Backend == "lib" {
				return &p.Regions[i]
			}
		}
		return nil
	}
	err = replay(rig.Layers, func(p *plan.Plan) { region(p).Candidates[0].Composite = "lib.unheard" })
	require.ErrorContains(t, err, "lib does not take lib.unheard at %")
	err = replay(rig.Layers, func(p *plan.Plan) { region(p).Candidates = nil })
	require.ErrorContains(t, err, "it holds nothing")

	err = replay(rig.Layers, func(p *plan.Plan) {
		for i := range p.Regions {
			if p.Regions[i].Backend == "lib" {
				p.Regions[i].Backend = "zzz"
			}
		}
		p.Backends[1].Name = "zzz"
	})
	var unknown *byoc.UnknownBackendError
	require.ErrorAs(t, err, &unknown)

	// The library is gone.
	known := byoc.All()
	t.Cleanup(byoc.Reset())
	for _, b := range known {
		if b.Name() == "lib" {
			gone := *b.(*rig.Library)
			gone.State = byoc.Probe{Reason: "liblib.so is not there", Remedy: "get it"}
			b = &gone
		}
		require.NoError(t, byoc.Register(b))
	}
	err = replay(rig.Layers, nil)
	require.ErrorContains(t, err, `the backend "lib" cannot be used here: liblib.so is not there`)
	var unusable *settings.UnusableError
	require.ErrorAs(t, err, &unusable)
}
