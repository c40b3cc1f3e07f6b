// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Shift is the mean of what each channel of a product's results is off by where its weights are rounded as Channels
// rounds them: what Nagel et al. ("Data-Free Quantization Through Weight Equalization and Bias Correction", 2019,
// section 4.2) take off the bias. elements are the weight's, float32 of this shape, little-endian; its first axis is that
// of the results' channels, its second that of the data's, of a group. means are the means of the data's channels. ok is
// false where they are of other channels, and where something is not finite.
func Shift(elements []byte, shape []int64, means []float32) (shift []float32, ok bool) {
	if len(shape) < 2 || shape[0] < 1 || shape[1] < 1 || int64(len(means))%shape[1] != 0 {
		return nil, false
	}
	groups := int64(len(means)) / shape[1]
	if groups < 1 || shape[0]%groups != 0 {
		return nil, false
	}
	steps := make([]int64, len(shape))
	for i, step := len(steps)-1, int64(1); i >= 0; i-- {
		steps[i] = step
		step *= shape[i]
	}
	rounded, scales, finite, err := Channels(elements, View{Dims: shape, Steps: steps})
	if err != nil || !finite {
		return nil, false
	}
	float := func(data []byte, i int64) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	shift = make([]float32, shape[0])
	for channel := range shape[0] {
		sum, first := 0.0, channel/(shape[0]/groups)*shape[1]
		for i := range steps[0] {
			at := channel*steps[0] + i
			off := float64(int8(rounded[at]))*float(scales, channel) - float(elements, at)
			sum += off * float64(means[first+i/steps[1]])
		}
		if shift[channel] = float32(sum); math.IsNaN(sum) || math.IsInf(float64(shift[channel]), 0) {
			return nil, false
		}
	}
	return shift, true
}

// Corrected is a bias, float32, little-endian, a number for each channel, without a shift. The error says that it has
// another number of them.
func Corrected(bias []byte, shift []float32) ([]byte, error) {
	if len(bias) != 4*len(shift) {
		return nil, fmt.Errorf("a bias of %d bytes is none of %d channels", len(bias), len(shift))
	}
	corrected := make([]byte, 0, len(bias))
	for i, off := range shift {
		now := float64(math.Float32frombits(binary.LittleEndian.Uint32(bias[4*i:]))) - float64(off)
		corrected = binary.LittleEndian.AppendUint32(corrected, math.Float32bits(float32(now)))
	}
	return corrected, nil
}
