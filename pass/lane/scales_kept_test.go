// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/relay"
)

// Where the backend that computes the same in float32 is not offered, TVM runs what is watched.
func TestValuesAreWatchedOnTVMWithoutTheWideBackend(t *testing.T) {
	t.Parallel()
	n, v := roundedOfLane(t)
	f := n.Placing.Functions[0]
	candidates := f.Set.Candidates
	f.Set.Candidates, f.Costs, f.Options = nil, nil, nil
	for _, c := range candidates {
		if c.Backend != "lib" {
			f.Set.Candidates = append(f.Set.Candidates, c)
			f.Costs = append(f.Costs, cost.FromMilliseconds(1))
			f.Options = append(f.Options, place.Option{Nodes: c.Nodes, Cost: 1})
		}
	}
	n.Placing.Backends = slices.DeleteFunc(n.Placing.Backends, func(b byoc.Backend) bool { return b.Name() == "lib" })
	delete(n.Placing.ByName, "lib")
	var err error
	f.Solution, err = place.Solve(f.Options, place.TreeOf(f.Set.Graph))
	require.NoError(t, err)
	n, err = network.New(n.Placing, n.Hash)
	require.NoError(t, err)

	values, wide := n.Watched()
	assert.Equal(t, "tvm", wide)
	assert.Len(t, values, 3)
	assert.Zero(t, n.Apart(wide, values).Outlined())
	looks := 0
	l := watching(n, filepath.Join(t.TempDir(), "costs.jsonl"), &looks, scalesOf(v))
	require.NoError(t, l.recall())
	require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	assert.Equal(t, 1, looks)
	delete(n.Placing.ByName, "tvm")
	require.NoError(t, l.recall(), "nor need TVM be")
}

// watching is a lane of which only looking at values is asked: what it finds, one after the other, and how often it
// was asked.
func watching(n *network.Network, store string, looks *int, found ...any) *Lane {
	l := &Lane{network: n, built: map[string]*Executable{},
		options: Options{Store: store, Inputs: &measure.Inputs{Searched: measure.RandomInputs(1, 2)}}}
	l.looks = func(context.Context, []relay.NodeID, string) (*cost.Scales, *cost.Failure, error) {
		*looks++
		next := found[0]
		found = found[1:]
		if f, failed := next.(*cost.Failure); failed {
			return nil, f, nil
		}
		return next.(*cost.Scales), nil, nil
	}
	return l
}

func scalesOf(values map[string]relay.NodeID) *cost.Scales {
	return &cost.Scales{Inputs: 2, Values: []cost.Scale{
		{Value: int32(values["x"]),
			Learnt: rounding.Learnt{Steps: rounding.Steps{Scale: 0.5, Zero: 3}, Noise: 1e-4, Gain: 0.1 + 0.2}},
		{Value: int32(values["relu"]), Learnt: rounding.Learnt{Steps: rounding.Steps{Scale: 0.25}, ChannelGain: 7}},
		{Value: int32(values["second"]), Learnt: rounding.Learnt{Steps: rounding.Steps{Scale: 2, Zero: 255}}},
	}}
}

// What was seen once is in the store: another search of the same network with the same options does not look again,
// and knows the same, to the last bit; one on other inputs does.
func TestWhatWasSeenIsKept(t *testing.T) {
	t.Parallel()
	n, v := roundedOfLane(t)
	store, looks := filepath.Join(t.TempDir(), "costs.jsonl"), 0
	l := watching(n, store, &looks, scalesOf(v))
	require.NoError(t, l.recall())
	require.NoError(t, l.Know(t.Context(), n.Alone("lib")))
	assert.Zero(t, looks, "nothing is rounded there")
	bytes := n.Alone("bytes")
	require.True(t, l.mustKnow(bytes))
	require.NoError(t, l.Know(t.Context(), bytes))
	require.NoError(t, l.Know(t.Context(), bytes))
	assert.Equal(t, 1, looks)
	r := n.Alone("bytes").Regions[0][0]
	n.Rounded(0, &r)
	assert.Equal(t, rounding.Steps{Scale: 0.5, Zero: 3}, r.Steps[v["x"]], "its regions have the steps")

	again, _ := roundedOfLane(t)
	l = watching(again, store, &looks)
	require.NoError(t, l.recall())
	assert.False(t, l.mustKnow(again.Alone("bytes")))
	require.NoError(t, l.Know(t.Context(), again.Alone("bytes")))
	assert.Equal(t, n.Learnt, again.Learnt)
	assert.Equal(t, n.Scales(), again.Scales())
	assert.Equal(t, 2, again.Scales().Inputs)

	for name, change := range map[string]func(n *network.Network, l *Lane){
		"other data":   func(_ *network.Network, l *Lane) { l.options.Data = "0123456789ab" },
		"other inputs": func(_ *network.Network, l *Lane) { l.options.Inputs.Searched = measure.RandomInputs(3, 2) },
		"other method": func(_ *network.Network, l *Lane) { l.options.ScaleMethod = rounding.MinMax },
		"compared on others": func(_ *network.Network, l *Lane) {
			l.options.Inputs.Compared = measure.RandomInputs(3, 2)
		},
		"compared in another measure": func(_ *network.Network, l *Lane) { l.options.ErrorMeasure = cost.Top1 },
		"other network":               func(n *network.Network, _ *Lane) { n.Hash = "other" },
		"other target":                func(n *network.Network, _ *Lane) { n.Placing.Env.Target = "llvm -mcpu=other" },
		"other engine":                func(n *network.Network, _ *Lane) { n.Placing.Libraries.Store("lib", "lib 2.0") },
	} {
		other, _ := roundedOfLane(t)
		l := watching(other, store, &looks)
		change(other, l)
		require.NoError(t, l.recall())
		assert.True(t, l.mustKnow(other.Alone("bytes")), name)
	}
	one, other := watching(n, store, &looks), watching(n, store, &looks)
	one.options.ScaleMethod, other.options.ScaleMethod = rounding.MinMax, rounding.Entropy
	assert.NotEqual(t, one.scalesKey(nil, "lib"), other.scalesKey(nil, "lib"))
	s, err := cost.OpenStore(store)
	require.NoError(t, err)
	defer s.Close()
	require.Len(t, s.Entries(), 1)
	assert.Equal(t, cost.ScalesKind, s.Entries()[0].Key.Kind)
}

// What may have been the machine's fault is tried once more, and never kept; what is the network's is.
func TestScalesThatCannotBeFound(t *testing.T) {
	t.Parallel()
	busy := &cost.Failure{Phase: "run", Kind: cost.KindTimeout, Detail: "no answer within 10m"}
	full := &cost.Failure{Phase: "build", Kind: cost.KindOutOfMemory}
	infinite := &cost.Failure{Phase: "check", Kind: cost.KindNotANumber}
	entries := func(store string) int {
		s, err := cost.OpenStore(store)
		require.NoError(t, err)
		defer s.Close()
		return s.Len()
	}

	n, v := roundedOfLane(t)
	store, looks := filepath.Join(t.TempDir(), "costs.jsonl"), 0
	l := watching(n, store, &looks, busy, scalesOf(v))
	bytes := n.Alone("bytes")
	require.NoError(t, l.Know(t.Context(), bytes))
	assert.Equal(t, cost.KindTimeout, l.unknown.Kind)
	assert.True(t, l.unknown.Unkept)
	assert.Zero(t, entries(store))
	require.True(t, l.mustKnow(bytes), "once more")
	require.NoError(t, l.Know(t.Context(), bytes))
	assert.Nil(t, l.unknown)
	assert.NotEmpty(t, n.Learnt)

	n, _ = roundedOfLane(t)
	store, looks = filepath.Join(t.TempDir(), "costs.jsonl"), 0
	l = watching(n, store, &looks, busy, full)
	for range 3 {
		require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	}
	assert.Equal(t, 2, looks, "not for ever")
	assert.True(t, l.unknown.Unkept)
	assert.Zero(t, entries(store))

	gone := &cost.Failure{Phase: cost.PhaseSetup, Kind: cost.KindError, Detail: "the library is not there any more"}
	n, _ = roundedOfLane(t)
	store, looks = filepath.Join(t.TempDir(), "costs.jsonl"), 0
	l = watching(n, store, &looks, gone)
	require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	assert.True(t, l.unknown.Unkept)
	assert.Zero(t, entries(store), "it may be there again")

	n, _ = roundedOfLane(t)
	l = watching(n, store, &looks, infinite)
	for range 3 {
		require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	}
	assert.Equal(t, 2, looks, "that would be the same again")
	assert.False(t, l.unknown.Unkept)
	assert.Equal(t, 1, entries(store))
	n, v = roundedOfLane(t)
	l = watching(n, store, &looks)
	require.NoError(t, l.recall())
	assert.False(t, l.mustKnow(n.Alone("bytes")), "nor in another run")
	assert.Equal(t, cost.KindNotANumber, l.unknown.Kind)
	l = watching(n, store, &looks, scalesOf(v))
	l.options.RetryFailures = true
	require.NoError(t, l.recall())
	assert.True(t, l.mustKnow(n.Alone("bytes")), "unless that is asked for")
}

// Nothing is looked at where no errors are taken.
func TestScalesNeedInputs(t *testing.T) {
	t.Parallel()
	n, _ := roundedOfLane(t)
	looks := 0
	l := watching(n, filepath.Join(t.TempDir(), "costs.jsonl"), &looks)
	l.options.Inputs = nil
	require.NoError(t, l.recall())
	assert.False(t, l.mustKnow(n.Alone("bytes")))
	require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	assert.Zero(t, looks)
}

// roundedOfLane is rig.RoundedModule, placed.
func roundedOfLane(t *testing.T) (*network.Network, map[string]relay.NodeID) {
	t.Helper()
	s, values := rig.RoundedModule(t)
	n, err := network.New(s, "hash")
	require.NoError(t, err)
	return n, values
}
