// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"math"

	"github.com/collage-tvm/collage/bridge"
)

// NewRounded makes what a network that comes quantised has of a tensor of float32: bytes, from 0 to 255, and the way
// back. number = (byte - zero) * scale.
func NewRounded(tensor *bridge.Object, scale float64, zero int) (*bridge.Object, error) {
	by, err := newScalar("float32", math.Float32bits(float32(scale)))
	if err != nil {
		return nil, err
	}
	defer by.Release()
	from, err := newScalar("int32", uint32(zero))
	if err != nil {
		return nil, err
	}
	defer from.Release()
	const lastAxis = -1
	bytes, err := object("relay.qnn.op._make.quantize", tensor, by, from, lastAxis, "uint8")
	if err != nil {
		return nil, err
	}
	defer bytes.Release()
	return object("relay.qnn.op._make.dequantize", bytes, by, from, lastAxis, "float32")
}

// NewFloat makes a constant of one number of float32, without dimensions.
func NewFloat(value float64) (*bridge.Object, error) {
	return newScalar("float32", math.Float32bits(float32(value)))
}

// newScalar makes a constant of one element of four bytes.
func newScalar(dtype string, bits uint32) (*bridge.Object, error) {
	of, err := bridge.ParseDataType(dtype)
	if err != nil {
		return nil, err
	}
	data, err := bridge.Empty(nil, of, bridge.CPU())
	if err != nil {
		return nil, err
	}
	defer data.Release()
	if err := data.CopyFromBytes(binary.LittleEndian.AppendUint32(nil, bits)); err != nil {
		return nil, err
	}
	return NewConstant(data)
}
