// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNearestOfBfloat16(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, want uint32 }{
		{0x3f800000, 0x3f80}, {0xbf800000, 0xbf80},
		{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, // halves, to the even one
		{0x3f807fff, 0x3f80}, {0x3f808001, 0x3f81}, {0x3fffffff, 0x4000},
		{0x7f7fffff, 0x7f80}, {0xff7fffff, 0xff80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
		{0x00800000, 0x0080}, {0x007fffff, 0}, {0x80000001, 0x8000}, {0x80000000, 0x8000},
	} {
		got := BF16(binary.LittleEndian.AppendUint32(nil, c.from))
		require.Equal(t, uint16(c.want), binary.LittleEndian.Uint16(got), "%08x", c.from)
	}
	for _, none := range []uint32{0x7f800001, 0xffffffff, 0x7fc00000} {
		got := BF16(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, none), 0))
		wide := math.Float32frombits(uint32(binary.LittleEndian.Uint16(got)) << 16)
		require.True(t, wide != wide, "%08x", none)
		require.Len(t, got, 4)
	}
}
