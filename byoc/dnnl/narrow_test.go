// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Candidates of dnnl_bf16 stand beside those of dnnl in one region; only their convolutions and products say so.
func TestWhatIsComputedInBfloat16SaysSo(t *testing.T) {
	m := newRegion()
	data, weight := f(1, 8, 6, 6), f(8, 8, 3, 3)
	x := m.Var(data.Shape, "float32")
	w := m.Const(weight.Shape, f32)
	y := m.composite(BF16Name+".conv2d_relu", data, func(p []relay.NodeID) relay.NodeID {
		return m.Call("nn.relu", data, nil, m.Call("nn.conv2d", data, conv2dAttrs(), p...))
	}, []*relay.Type{data, weight}, x, w)
	z := m.Call("nn.conv2d", data, conv2dAttrs(), y, w)
	v := m.as(BF16Name+".conv2d", "nn.conv2d", conv2dAttrs(), data, []*relay.Type{data, weight}, z, w)
	program, _ := text(t, m.Finish(v))
	goldenText(t, "bf16.json", program)
	assert.Equal(t, 2, strings.Count(program, `"bf16": true`))
	ops := strings.Split(program, `{"op": "conv"`)
	require.Len(t, ops, 4)
	for i, narrow := range []bool{true, false, true} {
		assert.Equal(t, narrow, strings.Contains(ops[i+1], `"bf16": true`), i)
	}
	assert.NotContains(t, strings.Split(ops[1], `"post"`)[1], "bf16", "what hangs on it is none of its kind")
}

func TestWhatMayBeComputedInBfloat16(t *testing.T) {
	t.Parallel()
	b := NewBF16()
	require.NoError(t, byoc.Validate(b))
	assert.Equal(t, byoc.BF16, byoc.PrecisionOf(b))
	assert.Equal(t, Name, byoc.WideOf(b))
	assert.True(t, byoc.ShareRegions(b, New()))
	var operators []string
	for _, p := range b.Patterns() {
		assert.True(t, strings.HasPrefix(p.Composite, BF16Name+"."), p.Composite)
		assert.False(t, p.Bare, p.Composite)
		operators = append(operators, relay.Operators(p.Shape)...)
	}
	for _, op := range []string{"nn.conv2d", "nn.conv3d", "nn.dense", "nn.batch_matmul"} {
		assert.Contains(t, operators, op)
	}
}
