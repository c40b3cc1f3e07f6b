// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// inBytes is a backend of the tests that has rounded what its convolutions and dense layers read.
type inBytes struct{ offered }

func (inBytes) Precision() byoc.Precision { return byoc.INT8 }
func (inBytes) Wide() string              { return "lib" }
func (inBytes) Compiler() string          { return "lib" }
func (inBytes) MergesRegions() bool       { return true }
func (inBytes) Rounded(g *relay.Graph, nodes []relay.NodeID) (values []relay.NodeID) {
	for _, v := range nodes {
		if op := g.Nodes[v].Op; op == "nn.conv2d" || op == "nn.dense" {
			values = append(values, g.Nodes[v].Inputs[0])
		}
	}
	return values
}

// roundedNetwork is conv -> relu -> conv (NHWC) -> dense, and its values by these names. lib takes each of them, and
// the first two, and the last three, together; bytes takes those that multiply.
func roundedNetwork(t *testing.T) (*Network, map[string]relay.NodeID) {
	t.Helper()
	m := relay.NewGraph("main")
	image := relay.Tensor("float32", 1, 8, 8, 8)
	x := m.Var([]int64{1, 8, 8, 8}, "float32")
	first := m.Call("nn.conv2d", image, map[string]any{"data_layout": "NCHW"}, x, m.Const([]int64{8, 8, 3, 3}, "float32"))
	relu := m.Call("nn.relu", image, nil, first)
	second := m.Call("nn.conv2d", image, map[string]any{"data_layout": "NHWC"}, relu,
		m.Const([]int64{3, 3, 8, 8}, "float32"))
	dense := m.Call("nn.dense", image, nil, second, m.Const([]int64{8, 8}, "float32"))
	g := m.Finish(dense)
	f := &function{set: &candidate.Set{Graph: g}}
	add := func(backend string, nodes ...relay.NodeID) {
		inputs, constants := g.Boundary(nodes)
		f.set.Candidates = append(f.set.Candidates, candidate.Candidate{Backend: backend, Nodes: nodes,
			Root: nodes[len(nodes)-1], Inputs: inputs, Constants: constants, Key: backend})
		f.costs = append(f.costs, cost.FromMilliseconds(1))
		f.options = append(f.options, place.Option{Nodes: nodes, Cost: 1})
	}
	for _, v := range []relay.NodeID{first, relu, second, dense} {
		add("tvm", v)
		add("lib", v)
	}
	add("lib", first, relu)
	add("lib", relu, second, dense)
	add("bytes", first)
	add("bytes", second)
	add("bytes", dense)
	s := &search{cfg: &Config{}, byName: map[string]byoc.Backend{}, functions: []*function{f},
		backends: []byoc.Backend{offered{"tvm"}, offered{"lib"}, inBytes{offered{"bytes"}}}}
	for _, b := range s.backends {
		s.byName[b.Name()] = b
	}
	var err error
	f.placement, err = place.Solve(f.options, place.TreeOf(g))
	require.NoError(t, err)
	n := &Network{s: s, Hash: "hash"}
	require.NoError(t, n.open())
	return n, map[string]relay.NodeID{"x": x, "first": first, "relu": relu, "second": second, "dense": dense}
}

func TestValuesThatAreWatched(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	values, wide := n.watched()
	assert.Equal(t, []relay.NodeID{v["x"], v["relu"], v["second"]}, values)
	assert.Equal(t, "lib", wide)
	assert.Equal(t, []int{1, 3, -1}, n.channels(values), "NCHW, NHWC, and what a dense layer reads")
	assert.True(t, n.rounds(n.Alone("bytes")))
	assert.False(t, n.rounds(n.Alone("lib")))
}

// The network is on the backend that computes in float32, and what is watched is what some region gives.
func TestWatchedValuesAreNotInsideOfRegions(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	require.Len(t, n.Alone("lib").Regions[0], 1, "all of it in one")
	values, wide := n.watched()
	p := n.apart(wide, values)
	set := n.s.functions[0].set
	var regions [][]relay.NodeID
	for i := range p.Regions[0] {
		assert.Equal(t, "lib", p.Regions[0][i].Backend)
		regions = append(regions, p.Regions[0][i].Nodes)
	}
	assert.ElementsMatch(t, [][]relay.NodeID{{v["first"], v["relu"]}, {v["second"]}, {v["dense"]}}, regions)
	for _, k := range p.Chosen[0] {
		assert.Less(t, len(set.Candidates[k].Nodes), 3, "relu is inside of the one with three")
	}
	assert.Len(t, n.apart(wide, []relay.NodeID{v["second"]}).Regions[0], 2, "cut where something is watched alone")
}

// Where the backend that computes the same in float32 is not offered, TVM runs what is watched.
func TestValuesAreWatchedOnTVMWithoutTheWideBackend(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	f := n.s.functions[0]
	candidates := f.set.Candidates
	f.set.Candidates, f.costs, f.options = nil, nil, nil
	for _, c := range candidates {
		if c.Backend != "lib" {
			f.set.Candidates = append(f.set.Candidates, c)
			f.costs = append(f.costs, cost.FromMilliseconds(1))
			f.options = append(f.options, place.Option{Nodes: c.Nodes, Cost: 1})
		}
	}
	n.s.backends = slices.DeleteFunc(n.s.backends, func(b byoc.Backend) bool { return b.Name() == "lib" })
	delete(n.s.byName, "lib")
	var err error
	f.placement, err = place.Solve(f.options, place.TreeOf(f.set.Graph))
	require.NoError(t, err)
	require.NoError(t, n.open())

	values, wide := n.watched()
	assert.Equal(t, "tvm", wide)
	assert.Len(t, values, 3)
	assert.Zero(t, n.apart(wide, values).Outlined())
	looks := 0
	l := watching(n, filepath.Join(t.TempDir(), "costs.jsonl"), &looks, scalesOf(v))
	require.NoError(t, l.recall())
	require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	assert.Equal(t, 1, looks)
	delete(n.s.byName, "tvm")
	require.NoError(t, l.recall(), "nor need TVM be")
}

// What is measured of a network that rounds is a record of these scales alone.
func TestScalesStandInTheKeysOfNetworks(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	bytes := n.Alone("bytes")
	assert.Empty(t, n.ScalesText(n.Alone("lib")), "nothing is rounded there")
	texts := []string{n.ScalesText(bytes)}
	for _, scale := range []float64{0.5, 0.25} {
		n.learnt = map[relay.NodeID]rounding.Learnt{v["x"]: {Steps: rounding.Steps{Scale: scale}}}
		texts = append(texts, n.ScalesText(bytes))
		n.learnt[v["first"]] = rounding.Learnt{Steps: rounding.Steps{Scale: 7}}
		assert.Equal(t, texts[len(texts)-1], n.ScalesText(bytes), "nobody has that rounded")
		assert.Empty(t, n.ScalesText(n.Alone("lib")))
	}
	slices.Sort(texts)
	assert.Len(t, slices.Compact(texts), 3, "unknown, and two: %v", texts)
}

func TestWhatAnOperatorAddsToErrors(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	_, known := n.Adds(0, v["first"], byoc.INT8)
	assert.False(t, known, "nobody has looked")
	n.learnt = map[relay.NodeID]rounding.Learnt{v["x"]: {Noise: 0.25, Gain: 3, ChannelGain: 5}, v["relu"]: {Noise: 0.25}}
	square, known := n.Adds(0, v["first"], byoc.INT8)
	require.True(t, known)
	assert.InDelta(t, 3*0.25+5*graphlevel.Rounding(byoc.INT8), square, 1e-12, "what data are off by is known")
	square, known = n.Adds(0, v["first"], byoc.BF16)
	require.True(t, known)
	assert.InDelta(t, 8*graphlevel.Rounding(byoc.BF16), square, 1e-12)
	for _, name := range []string{"x", "relu", "second", "dense"} {
		_, known = n.Adds(0, v[name], byoc.INT8)
		assert.False(t, known, "%s multiplies nothing, or what it reads does nothing or was not seen", name)
	}
	n.s.functions[0].set.Graph.Name = "other"
	_, known = n.Adds(0, v["first"], byoc.INT8)
	assert.False(t, known, "values of other functions are not watched")
}

// watching is a lane of which only looking at values is asked: what it finds, one after the other, and how often it
// was asked.
func watching(n *Network, store string, looks *int, found ...any) *Lane {
	l := &Lane{network: n, built: map[string]*Executable{},
		options: LaneOptions{Store: store, Inputs: &measure.Inputs{Searched: measure.RandomInputs(1, 2)}}}
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
	n, v := roundedNetwork(t)
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
	n.rounded(0, &r)
	assert.Equal(t, rounding.Steps{Scale: 0.5, Zero: 3}, r.Steps[v["x"]], "its regions have the steps")

	again, _ := roundedNetwork(t)
	l = watching(again, store, &looks)
	require.NoError(t, l.recall())
	assert.False(t, l.mustKnow(again.Alone("bytes")))
	require.NoError(t, l.Know(t.Context(), again.Alone("bytes")))
	assert.Equal(t, n.learnt, again.learnt)
	assert.Equal(t, n.Scales(), again.Scales())
	assert.Equal(t, 2, again.Scales().Inputs)

	for name, change := range map[string]func(n *Network, l *Lane){
		"other data":   func(_ *Network, l *Lane) { l.options.Data = "0123456789ab" },
		"other inputs": func(_ *Network, l *Lane) { l.options.Inputs.Searched = measure.RandomInputs(3, 2) },
		"other method": func(_ *Network, l *Lane) { l.options.ScaleMethod = rounding.MinMax },
		"compared on others": func(_ *Network, l *Lane) {
			l.options.Inputs.Compared = measure.RandomInputs(3, 2)
		},
		"compared in another measure": func(_ *Network, l *Lane) { l.options.ErrorMeasure = cost.Top1 },
		"other network":               func(n *Network, _ *Lane) { n.Hash = "other" },
		"other target":                func(n *Network, _ *Lane) { n.s.env.Target = "llvm -mcpu=other" },
		"other engine":                func(n *Network, _ *Lane) { n.s.libraries.Store("lib", "lib 2.0") },
	} {
		other, _ := roundedNetwork(t)
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

	n, v := roundedNetwork(t)
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
	assert.NotEmpty(t, n.learnt)

	n, _ = roundedNetwork(t)
	store, looks = filepath.Join(t.TempDir(), "costs.jsonl"), 0
	l = watching(n, store, &looks, busy, full)
	for range 3 {
		require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	}
	assert.Equal(t, 2, looks, "not for ever")
	assert.True(t, l.unknown.Unkept)
	assert.Zero(t, entries(store))

	n, _ = roundedNetwork(t)
	l = watching(n, store, &looks, infinite)
	for range 3 {
		require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	}
	assert.Equal(t, 3, looks, "that would be the same again")
	assert.False(t, l.unknown.Unkept)
	assert.Equal(t, 1, entries(store))
	n, v = roundedNetwork(t)
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
	n, _ := roundedNetwork(t)
	looks := 0
	l := watching(n, filepath.Join(t.TempDir(), "costs.jsonl"), &looks)
	l.options.Inputs = nil
	require.NoError(t, l.recall())
	assert.False(t, l.mustKnow(n.Alone("bytes")))
	require.NoError(t, l.Know(t.Context(), n.Alone("bytes")))
	assert.Zero(t, looks)
}
