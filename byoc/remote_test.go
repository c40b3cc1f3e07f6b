// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCopiesTakeTheirLatencyAndTheirBandwidth(t *testing.T) {
	t.Parallel()
	of := func(c CopyCosts, bytes int64) [2]float64 {
		to, from := c.Of(bytes)
		return [2]float64{to, from}
	}
	require.Equal(t, [2]float64{}, of(nil, 100))
	one := CopyCosts{{Bytes: 100, To: 1, From: 2}}
	for _, bytes := range []int64{0, 100, 1 << 40} {
		require.Equal(t, [2]float64{1, 2}, of(one, bytes))
	}
	c := CopyCosts{{100, 1, 2}, {300, 3, 2}, {1300, 4, 12}}
	for bytes, want := range map[int64][2]float64{
		0: {1, 2}, 99: {1, 2}, 100: {1, 2}, 200: {2, 2}, 300: {3, 2}, 800: {3.5, 7}, 1300: {4, 12}, 3300: {6, 32},
	} {
		require.Equal(t, want, of(c, bytes), bytes)
	}
	// A larger copy that took less, since the smaller one was disturbed, does not make the next ones cheaper.
	require.Equal(t, [2]float64{5, 5}, of(CopyCosts{{100, 5, 5}, {200, 1, 1}}, 10000))
}
