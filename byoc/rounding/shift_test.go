// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The shift is the mean of the difference between products with rounded weights and without, of data with such means,
// whatever the groups; without it nothing of that is left.
func TestTheShiftIsTheMeanOfWhatProductsAreOffBy(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		shape  []int64
		groups int64
	}{{[]int64{5, 7}, 1}, {[]int64{6, 4, 3}, 1}, {[]int64{6, 2, 3, 3}, 3}, {[]int64{8, 1, 3, 3}, 8}} {
		count, taps := int64(1), int64(1)
		for i, n := range c.shape {
			count *= n
			if i > 1 {
				taps *= n
			}
		}
		values := make([]float32, count)
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		elements := floatsOf(values...)
		means := make([]float32, c.groups*c.shape[1])
		for i := range means {
			means[i] = float32(3 * r.NormFloat64())
		}
		shift, ok := Shift(elements, c.shape, means)
		require.True(t, ok)
		steps := []int64{count / c.shape[0], 1}
		rounded, scales, _, err := Channels(elements, View{Dims: []int64{c.shape[0], steps[0]}, Steps: steps})
		require.NoError(t, err)
		for o := range c.shape[0] {
			want := 0.0
			for i := range steps[0] {
				scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(scales[4*o:])))
				off := float64(int8(rounded[o*steps[0]+i]))*scale - float64(values[o*steps[0]+i])
				group := o * c.groups / c.shape[0]
				want += off * float64(means[group*c.shape[1]+i/taps])
			}
			assert.InDelta(t, want, shift[o], 1e-5)
		}
		bias, err := Corrected(floatsOf(make([]float32, c.shape[0])...), shift)
		require.NoError(t, err)
		for o := range c.shape[0] {
			assert.InDelta(t, -shift[o], math.Float32frombits(binary.LittleEndian.Uint32(bias[4*o:])), 1e-6)
		}
	}
}

func TestShiftsThatThereAreNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		elements []byte
		shape    []int64
		means    []float32
	}{
		"other channels": {floatsOf(1, 2, 3, 4), []int64{2, 2}, []float32{1, 2, 3}},
		"no channels":    {floatsOf(1, 2, 3, 4), []int64{2, 2}, nil},
		"other groups":   {floatsOf(1, 2, 3), []int64{3, 1}, []float32{1, 2}},
		"one axis":       {floatsOf(1, 2), []int64{2}, []float32{1}},
		"no number":      {floatsOf(1, float32(math.NaN())), []int64{1, 2}, []float32{1, 2}},
		"without end":    {floatsOf(1, 0.3), []int64{1, 2}, []float32{1, float32(math.Inf(1))}},
	} {
		_, ok := Shift(c.elements, c.shape, c.means)
		assert.False(t, ok, name)
	}
	_, err := Corrected(floatsOf(1, 2), []float32{1})
	require.ErrorContains(t, err, "8 bytes is none of 1 channels")
}
