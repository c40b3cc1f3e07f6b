// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/relay"
)

func TestValuesThatAreWatched(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	values, wide := n.Watched()
	assert.Equal(t, []relay.NodeID{v["x"], v["relu"], v["second"]}, values)
	assert.Equal(t, "lib", wide)
	assert.Equal(t, []int{1, 3, -1}, n.Channels(values), "NCHW, NHWC, and what a dense layer reads")
	assert.True(t, n.Rounds(n.Alone("bytes")))
	assert.False(t, n.Rounds(n.Alone("lib")))
}

// The network is on the backend that computes in float32, and what is watched is what some region gives.
func TestWatchedValuesAreNotInsideOfRegions(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	require.Len(t, n.Alone("lib").Regions[0], 1, "all of it in one")
	values, wide := n.Watched()
	p := n.Apart(wide, values)
	set := n.Placing.Functions[0].Set
	var regions [][]relay.NodeID
	for i := range p.Regions[0] {
		assert.Equal(t, "lib", p.Regions[0][i].Backend)
		regions = append(regions, p.Regions[0][i].Nodes)
	}
	assert.ElementsMatch(t, [][]relay.NodeID{{v["first"], v["relu"]}, {v["second"]}, {v["dense"]}}, regions)
	for _, k := range p.Chosen[0] {
		assert.Less(t, len(set.Candidates[k].Nodes), 3, "relu is inside of the one with three")
	}
	assert.Len(t, n.Apart(wide, []relay.NodeID{v["second"]}).Regions[0], 2, "cut where something is watched alone")
}

// What is measured of a network that rounds is a record of these scales alone.
func TestScalesStandInTheKeysOfNetworks(t *testing.T) {
	t.Parallel()
	n, v := roundedNetwork(t)
	bytes := n.Alone("bytes")
	assert.Empty(t, n.ScalesText(n.Alone("lib")), "nothing is rounded there")
	texts := []string{n.ScalesText(bytes)}
	for _, scale := range []float64{0.5, 0.25} {
		n.Learnt = map[relay.NodeID]rounding.Learnt{v["x"]: {Steps: rounding.Steps{Scale: scale}}}
		texts = append(texts, n.ScalesText(bytes))
		n.Learnt[v["first"]] = rounding.Learnt{Steps: rounding.Steps{Scale: 7}}
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
	n.Learnt = map[relay.NodeID]rounding.Learnt{v["x"]: {Noise: 0.25, Gain: 3, ChannelGain: 5}, v["relu"]: {Noise: 0.25}}
	square, known := n.Adds(0, v["first"], byoc.INT8)
	require.True(t, known)
	assert.InDelta(t, 3*0.25+5*graphlevel.Rounding(byoc.INT8), square, 1e-12, "what data are off by is known")
	square, known = n.Adds(0, v["first"], byoc.BF16)
	require.True(t, known)
	assert.InDelta(t, 8*graphlevel.Rounding(byoc.BF16), square, 1e-12)
	square, known = n.Adds(0, v["x"], graphlevel.Given)
	require.True(t, known)
	assert.InDelta(t, 3*0.25, square, 1e-12, "rounded for all, it is off by its noise")
	_, known = n.Adds(0, v["first"], graphlevel.Given)
	assert.False(t, known, "nobody has seen that")
	for _, name := range []string{"x", "relu", "second", "dense"} {
		_, known = n.Adds(0, v[name], byoc.INT8)
		assert.False(t, known, "%s multiplies nothing, or what it reads does nothing or was not seen", name)
	}
	n.Placing.Functions[0].Set.Graph.Name = "other"
	_, known = n.Adds(0, v["first"], byoc.INT8)
	assert.False(t, known, "values of other functions are not watched")
}

// roundedNetwork is rig.RoundedModule, placed.
func roundedNetwork(t *testing.T) (*Network, map[string]relay.NodeID) {
	t.Helper()
	s, values := rig.RoundedModule(t)
	n, err := New(s, "hash")
	require.NoError(t, err)
	return n, values
}
