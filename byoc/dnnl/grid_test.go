// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// What a quantised network does between its layers is done on the way out of the layer before, behind its activation
// and a residual sum.
func TestGridsAreOnTheWayOut(t *testing.T) {
	t.Parallel()
	m := newRegion()
	image := f(1, 16, 6, 6)
	steps := relay.Tensor("uint8", image.Shape...)
	grid := func(x relay.NodeID, scale float64) relay.NodeID {
		by := []relay.NodeID{m.Scalar(scale, f32), m.Scalar(7, "int32")}
		return m.composite("native.grid", image, func(p []relay.NodeID) relay.NodeID {
			bytes := m.Call("qnn.quantize", steps, nil, p[0], by[0], by[1])
			return m.Call("qnn.dequantize", image, nil, bytes, by[0], by[1])
		}, []*relay.Type{image}, x)
	}
	conv := func(x relay.NodeID) relay.NodeID {
		return m.Call("nn.conv2d", image, conv2dAttrs(), x, m.Const([]int64{16, 16, 3, 3}, f32))
	}
	x := grid(m.Var(image.Shape, f32), 0.5)
	y := grid(m.Call("nn.relu", image, nil, conv(x)), 0.25)
	z := grid(m.Call("nn.relu", image, nil, m.Call("add", image, nil, grid(conv(y), 2), x)), 0.125)
	p, err := region.FromGraph(m.Finish(conv(z)), "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	text, _, err := emit(p)
	require.NoError(t, err)
	goldenText(t, "grid.json", string(text))
	assert.Contains(t, string(text), `{"op": "eltwise", "kernel": "grid", "algorithm": "grid", "in": [0], "out": 1, `+
		`"alpha": 0.5, "beta": -7}`, "the network's input is by itself")
	assert.Contains(t, string(text), `"post": [{"op": "relu"}, {"op": "grid", "alpha": 0.25, "beta": -7}]}`)
	assert.Contains(t, string(text), `"post": [{"op": "grid", "alpha": 2, "beta": -7}, {"op": "add", "in": 1}, `+
		`{"op": "relu"}, {"op": "grid", "alpha": 0.125, "beta": -7}]}`)
}
