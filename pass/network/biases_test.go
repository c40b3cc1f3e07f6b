// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// biasedNetwork is rig.BiasedModule, placed, with weights of which two are rounded to 0.
func biasedNetwork(t *testing.T, biases string) (n *Network, first, second relay.NodeID) {
	t.Helper()
	s, first, second := rig.BiasedModule(t, biases)
	n, err := New(s, "hash")
	require.NoError(t, err)
	n.weights = func(*relay.Graph, relay.NodeID) ([]byte, error) {
		var data []byte
		for _, x := range []float32{127, 0.4, 0.4, 127} {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		return data, nil
	}
	return n, first, second
}

// Biases of regions are corrected by the means of what their products read, where that was decided.
func TestBiasesAreCorrectedByMeans(t *testing.T) {
	t.Parallel()
	for biases, corrected := range map[string]*cost.Biases{settings.BiasesOn: {Corrected: true}, "": {Corrected: true},
		settings.BiasesAuto: {Corrected: false}, settings.BiasesOff: nil} {
		n, first, second := biasedNetwork(t, biases)
		data := n.Placing.Functions[0].Set.Graph.Nodes[first].Inputs[0]
		values, _ := n.Watched()
		assert.Contains(t, values, data)
		scales := &cost.Scales{Inputs: 2, Biases: corrected, Values: []cost.Scale{
			{Value: int32(data), Learnt: rounding.Learnt{Steps: rounding.Steps{Scale: 1}, Means: []float32{10, 100}}},
			{Value: int32(n.Placing.Functions[0].Set.Graph.Nodes[second].Inputs[0]),
				Learnt: rounding.Learnt{Steps: rounding.Steps{Scale: 1}, Means: []float32{10, 100}}}}}
		n.Know(scales)
		p := n.Alone("bytes")
		var shifts []map[relay.NodeID][]float32
		for _, r := range p.Regions[0] {
			r.Shifts = nil
			n.correct(p, 0, &r)
			if r.Shifts != nil {
				shifts = append(shifts, r.Shifts)
			}
		}
		if corrected == nil || !corrected.Corrected {
			assert.Empty(t, shifts, biases)
			assert.NotContains(t, n.ScalesText(p), "biases")
			continue
		}
		// 0.4 is rounded to 0: 0.4 times the mean of what it multiplies is missing.
		require.Len(t, shifts, 1, biases)
		assert.InDeltaSlice(t, []float32{-40, -4}, shifts[0][first], 1e-4)
		assert.Contains(t, n.ScalesText(p), "biases", "what is measured of it is another network's")
		assert.Empty(t, n.ScalesText(n.Plain()))
		n.weights = func(*relay.Graph, relay.NodeID) ([]byte, error) { return nil, errors.New("not there") }
		n.Know(scales)
		assert.False(t, n.isCorrected(p), "what cannot be read is not corrected")
		n.Forget()
		assert.Nil(t, n.Scales())
	}
}

// A plan whose shifts are of no bias, or of other channels, is not replayed.
func TestShiftsOfPlansFit(t *testing.T) {
	t.Parallel()
	n, first, second := biasedNetwork(t, settings.BiasesOn)
	r := &n.Alone("bytes").Regions[0][0]
	for says, shifts := range map[string]map[relay.NodeID][]float32{
		"":                      {first: {1, 2}},
		"corrects 1 channels":   {first: {1}},
		"which it does not hav": {second: {1, 2}},
	} {
		r.Shifts = shifts
		err := n.Placing.FitsShifts(n.Placing.Functions[0].Set, r)
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
	var region annotate.Region
	require.NoError(t, n.Placing.FitsShifts(n.Placing.Functions[0].Set, &region))
}
