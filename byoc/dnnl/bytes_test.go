// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// bytesRegion has two convolutions of one weight in bytes, one of oneDNN's between them, and a dense layer in bytes.
func bytesRegion(t *testing.T) *region.Program {
	t.Helper()
	m := newRegion()
	data, weight := f(1, 8, 6, 6), f(8, 8, 3, 3)
	x := m.Var(data.Shape, "float32")
	w := m.Const(weight.Shape, f32)
	y := m.composite(native.INT8Name+".conv2d_relu", data, func(p []relay.NodeID) relay.NodeID {
		return m.Call("nn.relu", data, nil, m.Call("nn.conv2d", data, conv2dAttrs(), p...))
	}, []*relay.Type{data, weight}, x, w)
	z := m.Call("nn.conv2d", data, conv2dAttrs(), y, w)
	z = m.as(native.INT8Name+".conv2d", "nn.conv2d", conv2dAttrs(), data, []*relay.Type{data, weight}, z, w)
	flat := m.Call("nn.batch_flatten", f(1, 288), nil, z)
	v := m.as(native.INT8Name+".dense", "nn.dense", nil, f(1, 16), []*relay.Type{f(1, 288), f(16, 288)}, flat,
		m.Const([]int64{16, 288}, f32))
	p, err := region.FromGraph(m.Finish(v), "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	return p
}

// bytesText is the program of bytesRegion where constants have the elements that data gives.
func bytesText(t *testing.T, p *region.Program, data func(region.ValueID) ([]byte, error)) (string, []region.ValueID) {
	t.Helper()
	l, err := lower(p)
	require.NoError(t, err)
	l.fuse()
	require.NoError(t, l.roundWeights(data))
	text, constants, err := l.text()
	require.NoError(t, err)
	return string(text), constants
}

func floatsOf(values ...float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// Candidates of native_int8 stand beside those of dnnl in one region, with what follows them hung on them. Their
// weights are bytes with scales, once for all that read them; oneDNN's stay as they were.
func TestWhatIsComputedInBytesHasItsWeightsSo(t *testing.T) {
	t.Parallel()
	p := bytesRegion(t)
	text, constants := bytesText(t, p, func(v region.ValueID) ([]byte, error) {
		n := int64(1)
		for _, extent := range p.Values[v].Type.Shape {
			n *= extent
		}
		return make([]byte, 4*n), nil
	})
	goldenText(t, "bytes.json", text)
	assert.Contains(t, text, `{"op": "conv", "kernel": "bytes"`)
	assert.Contains(t, text, `"post": [{"op": "relu"`)
	assert.Contains(t, text, `{"op": "conv", "algorithm"`, "the second one is oneDNN's")
	assert.Contains(t, text, `{"op": "matmul", "kernel": "bytes"`)
	types := map[string]int{}
	for _, v := range constants {
		typ := p.Values[v].Type
		types[typ.DType+relay.IntsText(typ.Shape)]++
		require.True(t, v >= 0 && int(v) < len(p.Values))
	}
	assert.Equal(t, map[string]int{"int8[8, 8, 3, 3]": 1, "float32[8]": 1, "float32[8, 8, 3, 3]": 1, "int8[16, 288]": 1,
		"float32[16]": 1}, types)
}

func TestWeightsThatAreNotFiniteStayWithOneDNN(t *testing.T) {
	t.Parallel()
	for _, odd := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		p := bytesRegion(t)
		text, _ := bytesText(t, p, func(v region.ValueID) ([]byte, error) {
			n := 576
			if len(p.Values[v].Type.Shape) == 2 {
				n = 16 * 288
			}
			return append(make([]byte, 4*(n-1)), floatsOf(odd)...), nil
		})
		assert.NotContains(t, text, "bytes")
		assert.NotContains(t, text, "s8")
	}
	l, err := lower(bytesRegion(t))
	require.NoError(t, err)
	gone := errors.New("gone")
	require.ErrorIs(t, l.roundWeights(func(region.ValueID) ([]byte, error) { return nil, gone }), gone)
}
