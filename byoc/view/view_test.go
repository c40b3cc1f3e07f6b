// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReshapesAndTransposesAreViews(t *testing.T) {
	// The heads of two sequences: [2, 64, 256] -> [2, 64, 8, 32] -> [2, 8, 64, 32] -> [16, 64, 32].
	v, ok := Plain([]int64{2, 64, 256}).Reshaped([]int64{2, 64, 8, 32})
	require.True(t, ok)
	v, ok = v.Permuted([]int64{0, 2, 1, 3}).Reshaped([]int64{16, 64, 32})
	require.True(t, ok)
	require.Equal(t, []Factor{{2, 64 * 256}, {8, 32}}, Joined(v.Axes[0]))
	rows, ok := Even(v.Axes[1])
	require.True(t, ok)
	require.EqualValues(t, 256, rows)
	_, ok = Even(v.Axes[0])
	require.False(t, ok)

	// And back, with a last axis that joins what was apart.
	v, ok = v.Reshaped([]int64{2, 8, 64, 32})
	require.True(t, ok)
	v, ok = v.Permuted([]int64{0, 2, 1, 3}).Reshaped([]int64{128, 256})
	require.True(t, ok)
	require.Equal(t, Plain([]int64{128, 256}).Axes[0], Joined(v.Axes[0]))
	require.Equal(t, Plain([]int64{128, 256}).Axes[1], Joined(v.Axes[1]))

	// 6 cannot be made of factors of 4.
	_, ok = Plain([]int64{4, 3}).Permuted([]int64{1, 0}).Reshaped([]int64{2, 6})
	require.False(t, ok)
	_, ok = Plain([]int64{4, 3}).Reshaped([]int64{2, 3})
	require.False(t, ok, "half of the elements")
	one, ok := Plain([]int64{1, 1}).Reshaped([]int64{})
	require.True(t, ok)
	require.Empty(t, one.Axes)
}

// at lists the elements of a view in order.
func at(v View) []int64 {
	all := []int64{v.Offset}
	for _, axis := range v.Axes {
		for _, f := range axis {
			var next []int64
			for _, from := range all {
				for i := range f.Extent {
					next = append(next, from+i*f.Stride)
				}
			}
			all = next
		}
	}
	return all
}

func TestRepetitionsAndParts(t *testing.T) {
	v := Plain([]int64{2, 3})
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5}, at(v))
	require.Equal(t, []int64{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, at(v.Repeated(1, 2)))
	require.Equal(t, []int64{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, at(v.Tiled(1, 2)))
	require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, at(v.Tiled(0, 2)))

	spread, ok := Plain([]int64{2, 1}).Broadcast([]int64{2, 2, 3})
	require.True(t, ok)
	require.Equal(t, []int64{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}, at(spread))
	_, ok = v.Broadcast([]int64{2, 4})
	require.False(t, ok)
	_, ok = v.Broadcast([]int64{3})
	require.False(t, ok, "fewer axes")
	// Heads of groups: each key is that of two heads.
	grouped, ok := Plain([]int64{2, 1, 3}).Broadcast([]int64{2, 2, 3})
	require.True(t, ok)
	grouped, ok = grouped.Reshaped([]int64{4, 3})
	require.True(t, ok)
	require.Equal(t, []Factor{{2, 3}, {2, 0}}, Joined(grouped.Axes[0]))

	part, ok := v.Part(1, 1, 2)
	require.True(t, ok)
	require.Equal(t, []int64{1, 2, 4, 5}, at(part))
	part, ok = part.Part(0, 1, 1)
	require.True(t, ok)
	require.Equal(t, []int64{4, 5}, at(part))
	_, ok = v.Repeated(0, 2).Part(0, 1, 2)
	require.False(t, ok)
}
