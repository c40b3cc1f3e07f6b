// SPDX-License-Identifier: Apache-2.0

// Package rounding makes bytes of weights, and says to which bytes other tensors are rounded.
//
// What comes in: the elements of a constant, and how its output channels lie in it. What goes out: as many signed
// bytes, and the scale of each channel, so that value = byte * scale; or, for numbers that were seen of a tensor
// (Seen), the Steps by which they are off the least. Code generators make bytes of weights where a backend multiplies
// bytes: so they stand in the artefact, a quarter as large.
package rounding

import (
	"encoding/binary"
	"fmt"
	"math"
)

// View is how a plain tensor is seen, or the part of it that begins at Offset: dimensions, output channels first, and
// their steps in elements.
type View struct {
	Dims, Steps []int64
	Offset      int64
}

// Channels rounds a plain tensor of float32 so that each of its channels, of which the view tells, reaches from -127 to
// 127: value = byte * scale. Elements outside of the view are 0. finite says that all within it are finite; without,
// there is no result.
func Channels(elements []byte, view View) (rounded, scales []byte, finite bool, err error) {
	count := int64(len(elements) / 4)
	last := view.Offset
	for i, n := range view.Dims {
		last += (n - 1) * view.Steps[i]
	}
	if len(view.Dims) == 0 || last >= count || view.Offset < 0 {
		return nil, nil, false, fmt.Errorf("a weight of %d elements is seen as %v by steps of %v from %d on", count,
			view.Dims, view.Steps, view.Offset)
	}
	at := func(i int64) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(elements[4*i:])) }
	rounded, scales = make([]byte, count), make([]byte, 4*view.Dims[0])
	for channel := range view.Dims[0] {
		most := float32(0)
		places := view.of(channel)
		for i := range places {
			x := at(i)
			if x != x || math.IsInf(float64(x), 0) {
				return nil, nil, false, nil
			}
			most = max(most, x, -x)
		}
		scale := most / 127
		if scale < 0x1p-126 {
			continue // denormal, as good as 0
		}
		binary.LittleEndian.PutUint32(scales[4*channel:], math.Float32bits(scale))
		for i := range places {
			byte8 := math.Round(float64(at(i) / scale))
			rounded[i] = byte(int8(max(-127, min(127, byte8))))
		}
	}
	return rounded, scales, true, nil
}

// of gives where the elements of a channel are, the first of the view's dimensions.
func (s View) of(channel int64) func(func(int64) bool) {
	return func(yield func(int64) bool) {
		at := make([]int64, len(s.Dims))
		for place := s.Offset + channel*s.Steps[0]; ; {
			if !yield(place) {
				return
			}
			i := len(s.Dims) - 1
			for ; i > 0; i-- {
				place += s.Steps[i]
				if at[i]++; at[i] < s.Dims[i] {
					break
				}
				place -= s.Dims[i] * s.Steps[i]
				at[i] = 0
			}
			if i == 0 {
				return
			}
		}
	}
}
