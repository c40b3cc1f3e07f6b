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

func floatsOf(values ...float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// Whatever the order of a weight's axes, each channel reaches to 127 or -127, and no number is off by more than half a
// step.
func TestChannelsAreRounded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, view := range []View{
		{[]int64{3, 4, 2, 2}, []int64{16, 4, 2, 1}, 0}, {[]int64{3, 4, 2, 2}, []int64{1, 3, 24, 12}, 0},
		{[]int64{5, 7}, []int64{7, 1}, 0}, {[]int64{5, 7}, []int64{1, 5}, 0}, {[]int64{2, 3}, []int64{3, 1}, 4}, {[]int64{4}, []int64{1}, 0},
	} {
		count := view.Offset + 1
		for i, n := range view.Dims {
			count += (n - 1) * view.Steps[i]
		}
		values := make([]float32, count)
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		rounded, scales, finite, err := Channels(floatsOf(values...), view)
		require.NoError(t, err)
		require.True(t, finite)
		seen := 0
		for channel := range view.Dims[0] {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(scales[4*channel:]))
			greatest := 0.0
			for i := range view.of(channel) {
				byte8 := float64(int8(rounded[i]))
				greatest = max(greatest, math.Abs(byte8))
				assert.InDelta(t, values[i], byte8*float64(scale), 0.5001*float64(scale))
				seen++
			}
			assert.Equal(t, 127.0, greatest)
		}
		assert.Equal(t, int(count-view.Offset), seen, "each element once: %v", view)
	}
	rounded, scales, finite, err := Channels(floatsOf(0, 0, 1e-42, 0), View{[]int64{2, 2}, []int64{2, 1}, 0})
	require.NoError(t, err)
	assert.True(t, finite)
	assert.Equal(t, make([]byte, 4), rounded)
	assert.Equal(t, make([]byte, 8), scales)
	_, _, _, err = Channels(floatsOf(0, 0), View{[]int64{2, 2}, []int64{2, 1}, 0})
	require.ErrorContains(t, err, "a weight of 2 elements is seen as [2 2]")
}
