// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"encoding/binary"
	"math"
)

// BF16 rounds numbers of float32 to the nearest of bfloat16, the even one of two; both are little-endian. What is no
// number stays none, and what is smaller than float32's least normal number becomes 0 with its sign, as processors'
// instructions have it (byoc/runtime/native/pairs.h).
func BF16(elements []byte) []byte {
	rounded := make([]byte, len(elements)/2)
	for i := range len(elements) / 4 {
		bits := binary.LittleEndian.Uint32(elements[4*i:])
		size := bits &^ (1 << 31)
		cut := uint16(bits >> 16)
		switch {
		case size > math.Float32bits(float32(math.Inf(1))):
			cut |= 0x40
		case size < math.Float32bits(0x1p-126):
			cut &= 1 << 15
		default:
			cut = uint16((bits + 0x7fff + bits>>16&1) >> 16)
		}
		binary.LittleEndian.PutUint16(rounded[2*i:], cut)
	}
	return rounded
}
