// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func TestWinogradLimits(t *testing.T) {
	conv := func(channels int64, changes ...any) *relay.Graph {
		return one("nn.conv2d", with(conv2dAttrs(), changes...), f(1, 16, 8, 8), f(1, channels, 8, 8), f(16, channels, 3, 3))
	}
	deep := func(channels int64, kernel []int64, changes ...any) *relay.Graph {
		return one("nn.conv3d", with(conv3dAttrs(), changes...), f(1, 32, 4, 8, 8), f(1, channels, 4, 8, 8),
			f(append([]int64{32, channels}, kernel...)...))
	}
	cube := []int64{3, 3, 3}
	for name, graphs := range map[string][]*relay.Graph{
		"dnnl.winograd_conv2d": {
			conv(16),
			conv(17), // oneDNN's own
			conv(32, "padding", []int64{2, 2, 0, 0}),
			one("nn.conv2d", with(conv2dAttrs(), "data_layout", "NHWC", "kernel_layout", "HWIO"),
				f(1, 8, 8, 16), f(1, 8, 8, 32), f(3, 3, 32, 16)),
		},
		"dnnl.winograd_conv3d": {
			deep(16, cube),
			deep(32, []int64{1, 3, 3}, "padding", []int64{0, 1, 1, 0, 1, 1}),
			// Along the depth all goes.
			deep(32, []int64{5, 3, 3}, "padding", []int64{4, 1, 1, 4, 1, 1}, "dilation", []int64{2, 1, 1}),
			deep(32, cube, "strides", []int64{2, 1, 1}, "padding", []int64{3, 1, 1, 2, 1, 1}),
		},
	} {
		for i, g := range graphs {
			if taken, why := verdict(g, name); !taken {
				require.Contains(t, why, "needs AVX-512", "%s, graph %d", name, i)
			}
		}
	}
	for _, c := range []struct {
		because string
		g       *relay.Graph
	}{
		{"padding of at most 1", conv(17, "padding", []int64{2, 2, 0, 0})},
		{"strides of 1", conv(16, "strides", []int64{2, 2})},
		{"dilation of 1", conv(16, "dilation", []int64{2, 2})},
		{"blocks of 16 channels", conv(8)},
		{"has data in NHWC", one("nn.conv2d", with(conv2dAttrs(), "data_layout", "NHWC", "kernel_layout", "HWOI"),
			f(1, 8, 8, 16), f(1, 8, 8, 16), f(3, 3, 16, 16))},
		{"kernels of 3x3", one("nn.conv2d", conv2dAttrs(), f(1, 16, 8, 8), f(1, 16, 8, 8), f(16, 16, 5, 5))},
		{"in 3 dimensions cannot have numbers of channels that are no multiples of 16", deep(24, cube)},
		{"kernels of 3x3", deep(16, []int64{3, 3, 1})},
		{"strides of 1", deep(16, cube, "strides", []int64{1, 2, 1})},
		{"dilation of 1", deep(16, cube, "dilation", []int64{1, 1, 2})},
		{"no groups", one("nn.conv3d", with(conv3dAttrs(), "groups", 2), f(1, 32, 4, 8, 8), f(1, 32, 4, 8, 8), f(32, 16, 3, 3, 3))},
	} {
		name := "dnnl.winograd_conv2d"
		if _, ok := c.g.Nodes[c.g.Scopes[0].Root].Attrs.Ints("strides"); ok && c.g.Nodes[c.g.Scopes[0].Root].Op == "nn.conv3d" {
			name = "dnnl.winograd_conv3d"
		}
		taken, why := verdict(c.g, name)
		require.False(t, taken, c.because)
		require.Contains(t, why, c.because)
	}
	// A weight that is made in the network.
	m := relay.NewGraph("main")
	y := f(1, 16, 4, 8, 8)
	weight := m.Call("exp", f(16, 16, 3, 3, 3), nil, m.Var([]int64{16, 16, 3, 3, 3}, f32))
	taken, why := verdict(m.Finish(m.Call("nn.conv3d", y, conv3dAttrs(), m.Var(y.Shape, f32), weight)), "dnnl.winograd_conv3d")
	require.False(t, taken)
	require.Contains(t, why, "a weight that is not a constant")
}

func TestWinogradIsAsked(t *testing.T) {
	for _, c := range []struct {
		composite, op string
		y, weight     *relay.Type
		attrs         map[string]any
		file          string
	}{
		{"dnnl.winograd_conv2d_relu", "nn.conv2d", f(1, 16, 8, 8), f(16, 16, 3, 3), conv2dAttrs(), "winograd.json"},
		{"dnnl.winograd_conv3d_relu", "nn.conv3d", f(1, 16, 2, 8, 8), f(16, 16, 3, 3, 3), conv3dAttrs(), "winograd_conv3d.json"},
	} {
		r := newRegion()
		call := r.composite(c.composite, c.y, func(p []relay.NodeID) relay.NodeID {
			return r.Call("nn.relu", c.y, nil, r.Call(c.op, c.y, c.attrs, p[0], p[1]))
		}, []*relay.Type{c.y, c.weight}, r.Var(c.y.Shape, f32), r.Const(c.weight.Shape, f32))
		g := r.Finish(call)
		if p, err := region.FromGraph(g, "s"); err == nil {
			if _, _, err := emit(p); err != nil {
				require.ErrorContains(t, err, "AVX-512", "on a processor without it")
				return
			}
		}
		golden(t, c.file, g)
	}
}
