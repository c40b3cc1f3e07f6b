// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReshapesAndTransposesAreViews(t *testing.T) {
	// The heads of two sequences: [2, 64, 256] -> [2, 64, 8, 32] -> [2, 8, 64, 32] -> [16, 64, 32].
	s, ok := plain(0, []int64{2, 64, 256}).reshaped([]int64{2, 64, 8, 32})
	require.True(t, ok)
	s, ok = s.permuted([]int64{0, 2, 1, 3}).reshaped([]int64{16, 64, 32})
	require.True(t, ok)
	require.Equal(t, []factor{{2, 64 * 256}, {8, 32}}, joined(s.axes[0]))
	rows, ok := even(s.axes[1])
	require.True(t, ok)
	require.EqualValues(t, 256, rows)
	_, ok = even(s.axes[0])
	require.False(t, ok)
	outer, inner, ok := halves(s.axes[0], 8)
	require.True(t, ok)
	require.Equal(t, []int64{64 * 256, 32}, []int64{outer, inner})
	_, _, ok = halves(s.axes[0], 4)
	require.False(t, ok, "half of the heads do not follow the others evenly")
	_, _, ok = halves(s.axes[0], 5)
	require.False(t, ok)

	// And back, with a last axis that joins what was apart.
	s, ok = s.reshaped([]int64{2, 8, 64, 32})
	require.True(t, ok)
	s, ok = s.permuted([]int64{0, 2, 1, 3}).reshaped([]int64{128, 256})
	require.True(t, ok)
	require.Equal(t, plain(0, []int64{128, 256}).axes[0], joined(s.axes[0]))
	require.Equal(t, plain(0, []int64{128, 256}).axes[1], joined(s.axes[1]))

	// 6 cannot be made of factors of 4.
	_, ok = plain(0, []int64{4, 3}).permuted([]int64{1, 0}).reshaped([]int64{2, 6})
	require.False(t, ok)
	one, ok := plain(0, []int64{1, 1}).reshaped([]int64{})
	require.True(t, ok)
	require.Empty(t, one.axes)
}
