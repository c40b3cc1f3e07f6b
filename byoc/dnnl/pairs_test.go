// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Candidates of native_bf16 stand beside those of dnnl and dnnl_bf16 in one region. Their weights are bfloat16, once for
// all that read them; the others' stay as they were.
func TestWhatIsComputedInPairsHasItsWeightsSo(t *testing.T) {
	t.Parallel()
	m := newRegion()
	data, weight := f(1, 16), f(16, 16)
	w := m.Const(weight.Shape, f32)
	y := m.composite(native.BF16Name+".dense_relu", data, func(p []relay.NodeID) relay.NodeID {
		return m.Call("nn.relu", data, nil, m.Call("nn.dense", data, nil, p...))
	}, []*relay.Type{data, weight}, m.Var(data.Shape, f32), w)
	y = m.as(BF16Name+".dense", "nn.dense", nil, data, []*relay.Type{data, weight}, y, w)
	y = m.as(native.BF16Name+".dense", "nn.dense", nil, data, []*relay.Type{data, weight}, y, w)
	y = m.Call("nn.dense", data, nil, y, w)
	y = m.Call("reshape", f(1, 1, 16), map[string]any{"newshape": []int64{1, 1, 16}}, y)
	y = m.as(native.BF16Name+".batch_matmul", "nn.batch_matmul", map[string]any{"transpose_a": false, "transpose_b": true},
		f(1, 1, 4), []*relay.Type{f(1, 1, 16), f(1, 4, 16)}, y, m.Const([]int64{1, 4, 16}, f32))
	p, err := region.FromGraph(m.Finish(y), "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	l, err := lower(p)
	require.NoError(t, err)
	l.fuse()
	gone := errors.New("gone")
	require.ErrorIs(t, l.pairWeights(func(region.ValueID) ([]byte, error) { return nil, gone }), gone)
	require.NoError(t, l.pairWeights(func(v region.ValueID) ([]byte, error) {
		return make([]byte, 4*relay.Elements(p.Values[v].Type.Shape)), nil
	}))
	written, constants, err := l.text()
	require.NoError(t, err)
	text := string(written)
	goldenText(t, "pairs.json", text)
	assert.Equal(t, 3, strings.Count(text, `{"op": "matmul", "kernel": "pairs"`))
	assert.Equal(t, 4, strings.Count(text, `"bf16": true`))
	types := map[string]int{}
	for _, v := range constants {
		types[p.Values[v].Type.DType+relay.IntsText(p.Values[v].Type.Shape)]++
	}
	assert.Equal(t, map[string]int{"bfloat16[16, 16]": 1, "float32[16, 16]": 1, "bfloat16[1, 4, 16]": 1}, types)
}
