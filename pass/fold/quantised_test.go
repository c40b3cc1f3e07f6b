// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBytesAreWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	along := func(axis int64) attributes { return attributes{"axis": axis, "out_dtype": "float32"} }
	weights := tensor([]int8{-128, 127, 0, 1, 2, 3}, 3, 2)
	for _, c := range []struct {
		axis        int64
		scale, zero value
		want        []float32
	}{
		{-1, scalar(float32(0.5)), scalar(int32(2)), []float32{-65, 62.5, -1, -0.5, 0, 0.5}},
		{1, tensor([]float32{0.5, 0.25}), tensor([]int32{0, 1}), []float32{-64, 31.5, 0, 0, 1, 0.5}},
		{-2, tensor([]float32{1, 2, 4}), scalar(int8(1)), []float32{-129, 126, -2, 0, 4, 8}},
	} {
		got := call(t, "qnn.dequantize", along(c.axis), weights, c.scale, c.zero)
		assert.Equal(t, c.want, items[float32](got))
		assert.Equal(t, []int64{3, 2}, got.Shape)
	}
	// 255 - (-128) does not fit into a byte.
	got := call(t, "qnn.dequantize", along(0), tensor([]uint8{255}), scalar(float32(1)), scalar(int32(-128)))
	assert.Equal(t, []float32{383}, items[float32](got))
	refused(t, errLeft, "qnn.dequantize", along(0), weights, tensor([]float32{1, 2}), scalar(int32(0)))
	refused(t, errLeft, "qnn.dequantize", attributes{"axis": int64(0), "out_dtype": "float16"}, weights,
		scalar(float32(1)), scalar(int32(0)))
}

func TestWeightsThatComeAsBytesAreFoldedInModules(t *testing.T) {
	g, report := folded(t, `def @main(%x: Tensor[(2, 3), float32]) {
  %0 = qnn.dequantize(cast(4f, dtype="int8"), 0.5f, 0, out_dtype="float32", axis=-1);
  multiply(%x, %0)
}`)
	require.Equal(t, []string{"multiply"}, operatorsOf(g))
	assert.Equal(t, 2.0, g.Nodes[g.Nodes[g.Root()].Inputs[1]].Constant.Scalar)
	assert.Zero(t, report.Left)
}
