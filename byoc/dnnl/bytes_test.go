// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/relay"
)

// Candidates of native_int8 stand beside those of dnnl in one region, with what follows them hung on them.
func TestWhatIsComputedInBytesNamesItsKernel(t *testing.T) {
	m := newRegion()
	data, weight := f(1, 8, 6, 6), f(8, 8, 3, 3)
	x := m.Var(data.Shape, "float32")
	w := m.Const(weight.Shape, f32)
	y := m.composite(native.INT8Name+".conv2d_relu", data, func(p []relay.NodeID) relay.NodeID {
		return m.Call("nn.relu", data, nil, m.Call("nn.conv2d", data, conv2dAttrs(), p...))
	}, []*relay.Type{data, weight}, x, w)
	z := m.Call("nn.conv2d", data, conv2dAttrs(), y, w)
	flat := m.Call("nn.batch_flatten", f(1, 288), nil, z)
	v := m.as(native.INT8Name+".dense", "nn.dense", nil, f(1, 16), []*relay.Type{f(1, 288), f(16, 288)}, flat,
		m.Const([]int64{16, 288}, f32))
	program, _ := text(t, m.Finish(v))
	assert.Contains(t, program, `{"op": "conv", "kernel": "bytes"`)
	assert.Contains(t, program, `"post": [{"op": "relu"`)
	assert.Contains(t, program, `{"op": "conv", "algorithm"`, "the second one is oneDNN's")
	assert.Contains(t, program, `{"op": "matmul", "kernel": "bytes"`)
}
