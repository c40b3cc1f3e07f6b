// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func TestOwnRules(t *testing.T) {
	x := f(2, 4, 8, 8)
	keep := map[string]any{"axis": []int64{-1}, "keepdims": true, "exclude": false}
	resize := map[string]any{"layout": "NCHW", "method": "nearest_neighbor",
		"coordinate_transformation_mode": "half_pixel", "rounding_method": "round"}
	for _, c := range []struct {
		name string
		g    *relay.Graph
	}{
		{"add", one("add", nil, x, x, f(4, 1, 1))},
		{"divide", one("divide", nil, x, f(), x)},
		{"nn.bias_add", one("nn.bias_add", map[string]any{"axis": 1}, x, x, f(4))},
		{"nn.bias_add", one("nn.bias_add", map[string]any{"axis": -1}, x, x, f(8))},
		{"reshape", one("reshape", nil, f(2, 256), x)},
		{"transpose", one("transpose", map[string]any{"axes": nil}, f(8, 8, 4, 2), x)},
		{"sum", one("sum", map[string]any{"axis": nil, "keepdims": false, "exclude": false}, f(), x)},
		{"mean", one("mean", map[string]any{"axis": []int64{1}, "keepdims": true, "exclude": true}, f(2, 4, 1, 1),
			f(2, 4, 8))},
		{"mean", one("mean", keep, f(2, 4, 8, 1), x)},
		{"variance", one("variance", with(keep, "unbiased", true), f(2, 4, 8, 1), x, f(2, 4, 8, 1))},
		{"nn.upsampling", one("nn.upsampling", map[string]any{"layout": "NHWC", "method": "nearest_neighbor"},
			f(2, 8, 16, 8), x)},
		{"image.resize2d", one("image.resize2d", resize, f(2, 4, 16, 24), x)},
		{"image.resize2d", one("image.resize2d", with(resize, "method", "linear"), f(2, 4, 5, 5), x)},
	} {
		if c.name == "mean" && c.g.Nodes[0].Type.Rank() == 3 {
			taken, why := verdict(c.g, c.name)
			require.False(t, taken)
			require.Contains(t, why, "only axes that follow one another")
			continue
		}
		taken, why := verdict(c.g, c.name)
		require.True(t, taken, "%s: %s", c.name, why)
	}
	for _, c := range []struct {
		name    string
		g       *relay.Graph
		because string
	}{
		{"add", one("add", nil, relay.Tensor("int32", 4), relay.Tensor("int32", 4), relay.Tensor("int32", 4)),
			"only float32"},
		{"add", one("add", nil, f(1, 1, 1, 1, 1, 1, 2), f(1, 1, 1, 1, 1, 1, 2), f(2)), "at most 6"},
		{"reshape", one("reshape", nil, f(0, 4), f(0, 4)), "each dimension must be 1"},
		{"nn.bias_add", one("nn.bias_add", map[string]any{"axis": 2}, x, x, f(4)), "along axis 2"},
		{"sum", one("sum", map[string]any{"axis": []int64{0, 2}, "keepdims": false, "exclude": false}, f(4, 8), x),
			"only axes that follow one another"},
		{"variance", one("variance", with(keep, "unbiased", true), f(4, 1), f(4, 1), f(4, 1)), "of one element"},
		{"variance", one("variance", keep, f(4, 1), f(4, 2), f(4)), "about a mean of the shape [4]"},
		{"image.resize2d", one("image.resize2d", with(resize, "rounding_method", "floor"), f(2, 4, 16, 16), x),
			"takes pixels otherwise"},
		{"image.resize2d", one("image.resize2d", resize, f(2, 4, 12, 12), x), "takes pixels otherwise"},
		{"image.resize2d", one("image.resize2d", with(resize, "method", "cubic"), f(2, 4, 16, 16), x),
			`the method "cubic"`},
		{"nn.upsampling", one("nn.upsampling", map[string]any{"layout": "NCHW", "method": "bilinear"}, f(2, 4, 16, 16),
			x), "half pixels"},
		{"nn.upsampling", one("nn.upsampling", map[string]any{"layout": "NCHW8c", "method": "bilinear"},
			f(2, 4, 16, 16), x), `data in "NCHW8c"`},
	} {
		taken, why := verdict(c.g, c.name)
		require.False(t, taken, c.name)
		require.Contains(t, why, c.because, c.name)
	}
}

func TestConcatenation(t *testing.T) {
	concat := func(axis int64, dtype string, n int) *relay.Graph {
		m := relay.NewGraph("main")
		var fields []relay.NodeID
		for range n {
			fields = append(fields, m.Var([]int64{2, 3}, dtype))
		}
		return m.Finish(m.Call("concatenate", relay.Tensor(dtype, 2, int64(3*n)), map[string]any{"axis": axis},
			m.Tuple(fields...)))
	}
	taken, why := verdict(concat(-1, f32, 3), "concatenate")
	require.True(t, taken, why)
	taken, why = verdict(concat(1, "float64", 2), "concatenate")
	require.False(t, taken)
	require.Contains(t, why, "float64; only float32")
	taken, _ = verdict(concat(1, f32, 17), "concatenate")
	require.False(t, taken)
}

func TestRulesHaveDifferentNames(t *testing.T) {
	require.NotPanics(t, func() { index() })
}
