// SPDX-License-Identifier: Apache-2.0

package pass

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
	"github.com/collage-tvm/collage/pass/plan"
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
	withLibraries(t)
	for _, cfg := range []Config{{}, {Pin: []string{"nn.dense=tvm"}}, {Only: "lib"}, {Only: "tvm"}} {
		mod := tvmtest.Parse(t, layers)
		cfg.Backends, cfg.Target = []string{"tvm", "lib"}, "llvm"
		cfg.Estimator = &estimator{rule: byBackend(map[string]float64{"tvm": 2, "lib": 1})}
		want, p, err := Partition(mod, cfg)
		require.NoError(t, err)
		got, err := Replay(tvmtest.Parse(t, layers), saved(t, p), Config{})
		require.NoError(t, err)
		same, err := bridge.Global("node.StructuralEqual", want, got, false, true)
		require.NoError(t, err)
		equal, err := same.Bool()
		require.NoError(t, err)
		assert.True(t, equal, "%v", cfg)
		wantHash, err := Hash(want)
		require.NoError(t, err)
		gotHash, err := Hash(got)
		require.NoError(t, err)
		assert.Equal(t, wantHash, gotHash)
		assert.Equal(t, placement(t, want), placement(t, got))
	}
}

// For each kind of network that may be kept: the plan is that network's, and replaying it gives the same module.
func TestReplayGivesWhatWasKept(t *testing.T) {
	withFamily(t, nil)
	n, err := explore(tvmtest.Parse(t, layers), Config{Backends: []string{"tvm", "host", "guest"}, Target: "llvm",
		Estimator: &estimator{rule: familyCosts}}, nil)
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
		want, err = WithLevel(want, Level(p.Level)) // which the replayed module says of itself
		require.NoError(t, err, name)
		got, err := Replay(tvmtest.Parse(t, layers), saved(t, p), Config{})
		require.NoError(t, err, name)
		wantHash, err := Hash(want)
		require.NoError(t, err)
		gotHash, err := Hash(got)
		require.NoError(t, err)
		assert.Equal(t, wantHash, gotHash, name)
		regions[gotHash] = true
	}
	assert.GreaterOrEqual(t, len(regions), 4, "they are different networks")
}

// roundsLater is a library that has what it reads rounded once that is switched on.
type roundsLater struct {
	*testLibrary
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
	withLibraries(t)
	w, on := relay.Wildcard, false
	require.NoError(t, byoc.Register(roundsLater{&testLibrary{name: "bytes", probe: byoc.Probe{Usable: true},
		patterns: []byoc.Pattern{{Composite: "bytes.dense", Shape: relay.Op("nn.dense", w(), w())}}}, &on}))
	_, p, err := Partition(tvmtest.Parse(t, layers), Config{Backends: []string{"tvm", "bytes"}, Target: "llvm",
		Estimator: &estimator{rule: byBackend(map[string]float64{"tvm": 2, "bytes": 1})}})
	require.NoError(t, err)
	require.Positive(t, p.Outlined())
	replay := func() error { _, err := Replay(tvmtest.Parse(t, layers), saved(t, p), Config{}); return err }
	require.NoError(t, replay())
	on = true
	var refused *ReplayError
	require.ErrorAs(t, replay(), &refused)
	assert.Contains(t, refused.Reason, "does not say by which scale it rounds %")
}

// What the store knows to fail here is refused by name, for the environment that the plan is for.
func TestReplayRefusesWhatFailed(t *testing.T) {
	withLibraries(t)
	known := &estimator{rule: byBackend(map[string]float64{"tvm": 2, "lib": 1})}
	_, p, err := Partition(tvmtest.Parse(t, layers),
		Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Estimator: known})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	replay := func(cfg Config) error {
		cfg.Store = path
		_, err := Replay(tvmtest.Parse(t, layers), saved(t, p), cfg)
		return err
	}
	require.NoError(t, replay(Config{}), "a store that is not there knows nothing")
	assert.NoFileExists(t, path)
	fail := func(change func(k *cost.Key)) {
		store, err := cost.OpenStore(path)
		require.NoError(t, err)
		for _, r := range known.requests {
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
	require.NoError(t, replay(Config{}), "another version's failure is not ours")
	fail(func(*cost.Key) {})
	err = replay(Config{})
	var refused *ReplayError
	require.ErrorAs(t, err, &refused)
	assert.ErrorContains(t, err, "lib.dense_relu on lib at %")
	assert.ErrorContains(t, err, "(nn.relu) is known to fail here: wrong-result in check: by 3")
	require.NoError(t, replay(Config{RetryFailures: true}))
}

func TestReplayRefusesWhatDoesNotFit(t *testing.T) {
	withLibraries(t)
	_, p, err := Partition(tvmtest.Parse(t, layers),
		Config{Backends: []string{"tvm", "lib"}, Target: "llvm", ModuleName: "layers",
			Estimator: &estimator{rule: byBackend(map[string]float64{"tvm": 2, "lib": 1})}})
	require.NoError(t, err)
	replay := func(text string, spoil func(p *plan.Plan)) error {
		changed := saved(t, p)
		if spoil != nil {
			spoil(changed)
		}
		out, err := Replay(tvmtest.Parse(t, text), changed, Config{})
		if err != nil {
			assert.Nil(t, out)
		}
		return err
	}
	other := `def @main(%x: Tensor[(4, 32), float32]) { tanh(%x) }`
	require.ErrorContains(t, replay(other, nil), "it is for another network: layers has the hash "+p.Module.Hash)
	var refused *ReplayError
	require.ErrorAs(t, replay(other, nil), &refused)

	region := func(p *plan.Plan) *plan.Region {
		for i := range p.Regions {
			if p.Regions[i].Backend == "lib" {
				return &p.Regions[i]
			}
		}
		return nil
	}
	err = replay(layers, func(p *plan.Plan) { region(p).Candidates[0].Composite = "lib.unheard" })
	require.ErrorContains(t, err, "lib does not take lib.unheard at %")
	err = replay(layers, func(p *plan.Plan) { region(p).Candidates = nil })
	require.ErrorContains(t, err, "it holds nothing")

	err = replay(layers, func(p *plan.Plan) {
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
			gone := *b.(*testLibrary)
			gone.probe = byoc.Probe{Reason: "liblib.so is not there", Remedy: "get it"}
			b = &gone
		}
		require.NoError(t, byoc.Register(b))
	}
	err = replay(layers, nil)
	require.ErrorContains(t, err, `the backend "lib" cannot be used here: liblib.so is not there`)
	var unusable *UnusableError
	require.ErrorAs(t, err, &unusable)
}
