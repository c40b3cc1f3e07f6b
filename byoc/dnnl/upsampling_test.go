// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func TestUpsampledConvolution(t *testing.T) {
	r := newRegion()
	small, large := f(1, 4, 8, 8), f(1, 4, 16, 24)
	x := r.Var(small.Shape, f32)
	attrs := map[string]any{"layout": "NCHW", "method": "nearest_neighbor"}
	call := r.composite("native.upsampled_conv2d_bias", large, func(p []relay.NodeID) relay.NodeID {
		up := r.Call("nn.upsampling", large, attrs, p[0])
		conv := r.Call("nn.conv2d", large, with(conv2dAttrs(), "padding", []int64{1}), up, p[1])
		return r.Call("add", large, nil, conv, p[2])
	}, []*relay.Type{small, f(4, 4, 3, 3), f(4, 1, 1)}, x, r.Const([]int64{4, 4, 3, 3}, f32),
		r.Const([]int64{4, 1, 1}, f32))
	// What stands behind the candidate in the region is joined with it.
	constants := golden(t, "upsampled_conv2d.json", r.Finish(r.Call("nn.relu", large, nil, call)))
	require.Len(t, constants, 2)
}

func TestUpsampledConvolutionKeepsItsTaps(t *testing.T) {
	// The outer taps meet nothing in a tensor of one pixel, but they do in the enlarged one.
	r := newRegion()
	small, large := f(1, 4, 1, 1), f(1, 4, 2, 2)
	call := r.composite("native.upsampled_conv2d", large, func(p []relay.NodeID) relay.NodeID {
		up := r.Call("nn.upsampling", large, map[string]any{"layout": "NCHW", "method": "nearest_neighbor"}, p[0])
		return r.Call("nn.conv2d", large, with(conv2dAttrs(), "padding", []int64{1}), up, p[1])
	}, []*relay.Type{small, f(4, 4, 3, 3)}, r.Var(small.Shape, f32), r.Const([]int64{4, 4, 3, 3}, f32))
	got, _ := text(t, r.Finish(call))
	require.Contains(t, got, `"weight": {"dims": [4, 4, 3, 3]`)
}
