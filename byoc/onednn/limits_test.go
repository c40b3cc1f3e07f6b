// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// conv2d is a graph with one convolution.
func conv2d(data, weight, out *relay.Type, attrs map[string]any) *relay.Graph {
	m := relay.NewGraph("main")
	x := m.Var(data.Shape, data.DType)
	w := m.Const(weight.Shape, weight.DType)
	return m.Finish(m.Call("nn.conv2d", out, attrs, x, w))
}

func TestConvolutionLimits(t *testing.T) {
	x, w, y := f(1, 16, 8, 8), f(32, 16, 3, 3), f(1, 32, 8, 8)
	a := conv2dAttrs()
	requireTaken(t, conv2d(x, w, y, a), "nn.conv2d")
	requireTaken(t, conv2d(x, w, y, with(a, "padding", []int64{1, 1})), "nn.conv2d")
	requireTaken(t, conv2d(x, w, y, with(a, "padding", []int64{1})), "nn.conv2d")
	requireTaken(t, conv2d(x, f(32, 4, 3, 3), y, with(a, "groups", 4)), "nn.conv2d")
	requireTaken(t, conv2d(f(1, 8, 8, 16), f(3, 3, 16, 32), f(1, 8, 8, 32),
		with(a, "data_layout", "NHWC", "kernel_layout", "HWIO")), "nn.conv2d")
	requireTaken(t, conv2d(f(1, 8, 8, 16), f(3, 3, 16, 1), f(1, 8, 8, 16),
		with(a, "data_layout", "NHWC", "kernel_layout", "HWOI", "groups", 16)), "nn.conv2d")

	for _, c := range []struct {
		name    string
		g       *relay.Graph
		because string
	}{
		{"float16", conv2d(relay.Tensor("float16", 1, 16, 8, 8), w, y, a),
			"the data of nn.conv2d is float16; only float32"},
		{"int8 weight", conv2d(x, relay.Tensor("int8", 32, 16, 3, 3), y, a), "the weight of nn.conv2d is int8"},
		{"int32 result", conv2d(x, w, relay.Tensor("int32", 1, 32, 8, 8), a), "the result of nn.conv2d is int32"},
		{"any", conv2d(f(relay.AnyDim, 16, 8, 8), w, f(relay.AnyDim, 32, 8, 8), a),
			"dimensions that are known only at run time"},
		{"empty", conv2d(f(0, 16, 8, 8), w, f(0, 32, 8, 8), a), "each dimension must be 1 to"},
		{"blocked", conv2d(x, w, y, with(a, "data_layout", "NCHW16c", "kernel_layout", "OIHW16i16o")),
			"has data in NCHW16c"},
		{"mixed layouts", conv2d(x, w, y, with(a, "kernel_layout", "HWIO")), "weights in HWIO"},
		{"out layout", conv2d(x, w, y, with(a, "out_layout", "NHWC")), "stores its result in NHWC and reads NCHW"},
		{"out dtype", conv2d(x, w, y, with(a, "out_dtype", "float16")), "out_dtype float16"},
		{"strides", conv2d(x, w, y, with(a, "strides", []int64{0, 1})), "strides [0, 1]; each must be at least 1"},
		{"padding", conv2d(x, w, y, with(a, "padding", []int64{-1, 0, 0, 0})),
			"padding [-1, 0, 0, 0]; negative padding"},
		{"odd padding", conv2d(x, w, y, with(a, "padding", []int64{1, 1, 1})), "3 values of padding for 2"},
		{"groups", conv2d(x, w, y, with(a, "groups", 3)), "16 input and 32 output channels in 3 groups"},
		{"weights do not fit", conv2d(x, f(32, 8, 3, 3), y, a),
			"weights of shape [32, 8, 3, 3] in OIHW, which do not fit"},
		{"auto-scheduler", conv2d(x, w, y, with(a, "auto_scheduler_rewritten_layout", "2o8i")), "auto-scheduler"},
		{"meta-schedule", conv2d(x, w, y, with(a, "meta_schedule_original_shape", []int64{1})), "meta-schedule"},
		{"HWOI multiplier", conv2d(f(1, 8, 8, 16), f(3, 3, 16, 2), f(1, 8, 8, 32),
			with(a, "data_layout", "NHWC", "kernel_layout", "HWOI", "groups", 16)), "only one channel a group"},
	} {
		t.Run(c.name, func(t *testing.T) { requireRefused(t, c.g, "nn.conv2d", c.because) })
	}
}

func TestTransposedConvolutionLimits(t *testing.T) {
	deconv := func(weight *relay.Type, out *relay.Type, constant bool, changes ...any) *relay.Graph {
		m := relay.NewGraph("main")
		x := m.Var([]int64{1, 16, 8, 8}, f32)
		var w relay.NodeID
		if constant {
			w = m.Const(weight.Shape, f32)
		} else {
			w = m.Call("exp", weight, nil, m.Var(weight.Shape, f32))
		}
		a := with(conv2dAttrs(), append([]any{"kernel_layout", "IOHW", "strides", []int64{2, 2}, "output_padding",
			[]int64{1, 1}}, changes...)...)
		return m.Finish(m.Call("nn.conv2d_transpose", out, a, x, w))
	}
	requireTaken(t, deconv(f(16, 32, 3, 3), f(1, 32, 16, 16), true), "nn.conv2d_transpose")
	requireTaken(t, deconv(f(16, 8, 3, 3), f(1, 32, 16, 16), true, "groups", 4), "nn.conv2d_transpose")
	requireRefused(t, deconv(f(16, 8, 3, 3), f(1, 32, 16, 16), false, "groups", 4), "nn.conv2d_transpose",
		"its weight is not a constant")
	requireRefused(t, deconv(f(8, 16, 3, 3), f(1, 32, 16, 16), true, "groups", 4, "kernel_layout", "OIHW"),
		"nn.conv2d_transpose",
		"groups need the weights in IO")
	requireRefused(t, deconv(f(16, 16, 3, 3), f(1, 32, 16, 16), true), "nn.conv2d_transpose",
		"do not fit 16 input and 32 output")
}

// biased is a convolution (or dense layer) with an addend, made by addition.
func biased(layer string, attrs map[string]any, data, weight, out, bias *relay.Type, add string,
	addAttrs map[string]any, swapped bool) *relay.Graph {
	m := relay.NewGraph("main")
	y := m.Call(layer, out, attrs, m.Var(data.Shape, f32), m.Const(weight.Shape, f32))
	b := m.Const(bias.Shape, f32)
	if swapped {
		return m.Finish(m.Call(add, out, addAttrs, b, y))
	}
	return m.Finish(m.Call(add, out, addAttrs, y, b))
}

func TestBiasLimits(t *testing.T) {
	conv := func(bias *relay.Type, add string, attrs map[string]any) *relay.Graph {
		return biased("nn.conv2d", conv2dAttrs(), f(2, 8, 8, 8), f(8, 8, 3, 3), f(2, 8, 8, 8), bias, add, attrs, false)
	}
	for _, shape := range [][]int64{{8, 1, 1}, {1, 8, 1, 1}} {
		requireTaken(t, conv(f(shape...), "add", nil), "dnnl.conv2d_bias")
	}
	requireTaken(t, biased("nn.conv2d", conv2dAttrs(), f(2, 8, 8, 8), f(8, 8, 3, 3), f(2, 8, 8, 8), f(8, 1, 1), "add",
		nil, true), "dnnl.conv2d_bias")
	requireTaken(t, conv(f(8), "nn.bias_add", map[string]any{"axis": 1}), "dnnl.conv2d_bias")
	requireTaken(t, conv(f(8), "nn.bias_add", map[string]any{"axis": -3}), "dnnl.conv2d_bias")
	requireTaken(t, conv(f(2, 8, 8, 8), "add", nil), "dnnl.conv2d_sum")

	// Traps: shapes that hold eight values and are broadcast along another axis than the channels.
	for _, shape := range [][]int64{{8}, {8, 1}, {1, 1, 8}, {8, 8, 1}, {1}, {}, {1, 1, 1, 1}, {2, 8, 1, 1},
		{1, 1, 8, 1, 1}} {
		requireRefused(t, conv(f(shape...), "add", nil), "dnnl.conv2d_bias", "not one value for each of the 8 channels")
	}
	requireRefused(t, conv(f(8), "nn.bias_add", map[string]any{"axis": 3}), "dnnl.conv2d_bias",
		"nn.bias_add works along axis 3; the channels of the layer are axis 1")

	nhwc := func(bias *relay.Type) *relay.Graph {
		return biased("nn.conv2d", with(conv2dAttrs(), "data_layout", "NHWC", "kernel_layout", "HWIO"),
			f(2, 8, 8, 8), f(3, 3, 8, 8), f(2, 8, 8, 8), bias, "add", nil, false)
	}
	requireTaken(t, nhwc(f(8)), "dnnl.conv2d_bias")
	requireTaken(t, nhwc(f(1, 1, 1, 8)), "dnnl.conv2d_bias")
	requireRefused(t, nhwc(f(8, 1, 1)), "dnnl.conv2d_bias", "not one value for each")

	dense := func(bias *relay.Type, add string) *relay.Graph {
		return biased("nn.dense", nil, f(4, 16), f(4, 16), f(4, 4), bias, add, map[string]any{"axis": -1}, false)
	}
	requireTaken(t, dense(f(4), "add"), "dnnl.dense_bias")
	requireTaken(t, dense(f(1, 4), "add"), "dnnl.dense_bias")
	requireTaken(t, dense(f(4), "nn.bias_add"), "dnnl.dense_bias")
	requireTaken(t, dense(f(4, 4), "add"), "dnnl.dense_sum")
	requireRefused(t, dense(f(4, 1), "add"), "dnnl.dense_bias", "not one value for each")
	requireRefused(t, dense(f(1, 1), "add"), "dnnl.dense_sum",
		"the residual value has the shape [1, 1] and the result [4, 4]")
}

func TestResidualSumOfTwoLayers(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 8, 8, 8}, f32)
	left := m.Call("nn.conv2d", f(1, 8, 8, 8), conv2dAttrs(), x, m.Const([]int64{8, 8, 3, 3}, f32, "a"))
	right := m.Call("nn.conv2d", f(1, 8, 8, 8), conv2dAttrs(), x, m.Const([]int64{8, 8, 3, 3}, f32, "b"))
	sum := m.Call("add", f(1, 8, 8, 8), nil, left, right)
	g := m.Finish(m.Call("nn.relu", f(1, 8, 8, 8), nil, sum))
	// Either layer may take the sum, with the other one's result as its residual value.
	var covers [][]relay.NodeID
	for _, p := range Rules() {
		if p.Composite != "dnnl.conv2d_sum_relu" {
			continue
		}
		for _, match := range g.Match(p.Shape, g.Scopes[0].Root) {
			require.NoError(t, p.Limits(g, match))
			covers = append(covers, match.Nodes)
		}
	}
	require.Len(t, covers, 2)
	require.NotEqual(t, covers[0], covers[1])
}

func TestResidualMadeInsideThePattern(t *testing.T) {
	m := relay.NewGraph("main")
	y := m.Call("nn.conv2d", f(1, 8, 8, 8), conv2dAttrs(), m.Var([]int64{1, 8, 8, 8}, f32),
		m.Const([]int64{8, 8, 3, 3}, f32))
	requireRefused(t, m.Finish(m.Call("add", f(1, 8, 8, 8), nil, y, y)), "dnnl.conv2d_sum", "made inside the pattern")
}

// convolutionAndSum is conv2d with a bias and a residual value.
func convolutionAndSum(data, weight, out *relay.Type, attrs map[string]any) *relay.Graph {
	m := relay.NewGraph("main")
	y := m.Call("nn.conv2d", out, attrs, m.Var(data.Shape, f32), m.Const(weight.Shape, f32))
	y = m.Call("add", out, nil, y, m.Const([]int64{out.Shape[1], 1, 1}, f32))
	return m.Finish(m.Call("add", out, nil, y, m.Var(out.Shape, f32)))
}

func TestResidualSumOfWindowsInThePadding(t *testing.T) {
	a := conv2dAttrs()
	for _, c := range []struct {
		name      string
		in, out   int64
		kernel    int64
		attrs     map[string]any
		elsewhere bool // a window lies wholly in the padding
	}{
		{"front", 4, 5, 1, with(a, "padding", []int64{1, 0, 0, 0}), true},
		{"columns", 4, 5, 1, with(a, "padding", []int64{0, 1, 0, 0}), true},
		{"back", 4, 5, 1, with(a, "padding", []int64{0, 0, 1, 0}), true},
		{"stepped over", 4, 2, 1, with(a, "padding", []int64{0, 0, 1, 0}, "strides", []int64{3, 1}), false},
		{"3x3", 6, 8, 3, with(a, "padding", []int64{2, 2, 2, 2}), false},
		{"wide padding", 6, 9, 3, with(a, "padding", []int64{3, 2, 2, 2}), true},
		{"dilated around", 1, 1, 2, with(a, "padding", []int64{1, 1, 1, 1}, "dilation", []int64{2, 2}), true},
		{"dilated", 2, 4, 2, with(a, "padding", []int64{2, 2, 2, 2}, "dilation", []int64{2, 2}), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, w, y := f(1, 8, c.in, c.in), f(8, 8, c.kernel, c.kernel), f(1, 8, c.out, c.out)
			g := convolutionAndSum(x, w, y, c.attrs)
			if c.elsewhere {
				requireRefused(t, g, "dnnl.conv2d_bias_sum", "windows that lie wholly in the padding")
			} else {
				requireTaken(t, g, "dnnl.conv2d_bias_sum")
			}
			requireTaken(t, conv2d(x, w, y, c.attrs), "nn.conv2d")
		})
	}
}

func one(op string, attrs map[string]any, out *relay.Type, in ...*relay.Type) *relay.Graph {
	m := relay.NewGraph("main")
	var ids []relay.NodeID
	for _, t := range in {
		ids = append(ids, m.Var(t.Shape, t.DType))
	}
	return m.Finish(m.Call(op, out, attrs, ids...))
}

func TestOperatorLimits(t *testing.T) {
	x := f(2, 4, 8, 8)
	for _, c := range []struct {
		name string
		g    *relay.Graph
	}{
		{"nn.relu", one("nn.relu", nil, x, x)},
		{"sqrt", one("sqrt", nil, f(), f())},
		{"clip", one("clip", map[string]any{"a_min": 0.0, "a_max": 6.0}, x, x)},
		{"clip", one("clip", map[string]any{"a_min": math.Inf(-1), "a_max": 1e300}, x, x)},
		{"nn.leaky_relu", one("nn.leaky_relu", map[string]any{"alpha": 0.1}, x, x)},
		{"add", one("add", nil, x, x, x)},
		{"nn.softmax", one("nn.softmax", map[string]any{"axis": -1}, x, x)},
		{"nn.batch_matmul", one("nn.batch_matmul", map[string]any{"transpose_a": false, "transpose_b": true},
			f(3, 4, 5), f(3, 4, 6), f(3, 5, 6))},
		{"nn.layer_norm", one("nn.layer_norm",
			map[string]any{"axis": 1, "epsilon": 1e-5, "center": true, "scale": true}, f(4, 8), f(4, 8), f(8), f(8))},
		{"nn.max_pool2d", one("nn.max_pool2d", poolAttrs(), f(2, 4, 4, 4), x)},
		{"nn.max_pool2d", one("nn.max_pool2d", with(poolAttrs(), "ceil_mode", true), f(1, 1, 4, 4), f(1, 1, 7, 7))},
		{"nn.avg_pool2d", one("nn.avg_pool2d", with(poolAttrs(), "count_include_pad", true), f(2, 4, 4, 4), x)},
		{"nn.avg_pool2d", one("nn.avg_pool2d", with(poolAttrs(), "ceil_mode", true, "count_include_pad", true),
			f(1, 1, 4, 4), f(1, 1, 7, 7))},
		{"nn.global_avg_pool2d", one("nn.global_avg_pool2d", map[string]any{"layout": "NHWC", "out_layout": ""},
			f(2, 1, 1, 8), f(2, 7, 7, 8))},
		{"nn.adaptive_avg_pool1d", one("nn.adaptive_avg_pool1d",
			map[string]any{"layout": "NCW", "out_layout": "", "output_size": []int64{5}}, f(2, 3, 5), f(2, 3, 15))},
	} {
		t.Run(c.name, func(t *testing.T) { requireTaken(t, c.g, c.name) })
	}
	for _, c := range []struct {
		name    string
		g       *relay.Graph
		because string
	}{
		{"nn.relu", one("nn.relu", nil, relay.Tensor("int32", 4), relay.Tensor("int32", 4)), "is int32; only float32"},
		{"nn.relu", one("nn.relu", nil, f(1, 1, 1, 1, 1, 1, 2), f(1, 1, 1, 1, 1, 1, 2)), "7 dimensions; at most 6"},
		{"clip", one("clip", map[string]any{"a_min": 1.0, "a_max": 0.0}, x, x),
			"lower bound 1 above the upper bound 0"},
		{"clip", one("clip", map[string]any{"a_min": math.NaN(), "a_max": 0.0}, x, x),
			"lower bound of clip is not a number"},
		{"clip", one("clip", map[string]any{"a_min": 1e-42, "a_max": 1.0}, x, x), "too small for a float32"},
		{"add", one("add", nil, x, x, f(4, 1, 1)), "slow reference kernel"},
		{"multiply", one("multiply", nil, x, x, f()), "operands of different shapes"},
		{"nn.softmax", one("nn.softmax", map[string]any{"axis": 4}, x, x), "axis 4 of 4"},
		{"nn.batch_matmul", one("nn.batch_matmul", map[string]any{"transpose_a": false, "transpose_b": false},
			f(3, 4, 5), f(1, 4, 6), f(3, 6, 5)), "batches of 1 and 3"},
		{"nn.dense", one("nn.dense", nil, f(2, 3, 5), f(2, 3, 4), f(5, 4)), "other than 2 dimensions"},
		{"nn.layer_norm", one("nn.layer_norm",
			map[string]any{"axis": 0, "epsilon": 1e-5, "center": true, "scale": true}, f(4, 4), f(4, 4), f(4), f(4)),
			"only the last axis"},
		{"nn.layer_norm", one("nn.layer_norm",
			map[string]any{"axis": -1, "epsilon": 1e-5, "center": false, "scale": true}, f(4, 4), f(4, 4), f(4), f(4)),
			"without its shift"},
		{"nn.max_pool2d", one("nn.max_pool2d", with(poolAttrs(), "layout", "NCHW8c"), f(2, 4, 4, 4), x),
			`data in "NCHW8c"`},
		{"nn.avg_pool2d", one("nn.avg_pool2d",
			with(poolAttrs(), "pool_size", []int64{3, 2}, "strides", []int64{2, 3}, "dilation", []int64{1, 2},
				"padding", []int64{1, 1, 1, 1}), f(3, 16, 1, 1), f(3, 16, 2, 1)), "wholly in the padding"},
		{"nn.avg_pool2d", one("nn.avg_pool2d",
			with(poolAttrs(), "pool_size", []int64{2, 3}, "strides", []int64{1, 1}, "dilation", []int64{1, 3},
				"padding", []int64{0, 3, 0, 3}), f(1, 2, 1, 2), f(1, 2, 2, 2)), "too great for oneDNN"},
		{"nn.max_pool2d", one("nn.max_pool2d", with(poolAttrs(), "padding", []int64{2, 2, 2, 2}), f(2, 4, 6, 6), x),
			"wholly in the padding"},
		{"nn.max_pool2d", one("nn.max_pool2d",
			with(poolAttrs(), "ceil_mode", true, "pool_size", []int64{1, 1}, "strides", []int64{3, 3}), f(1, 1, 4, 4),
			f(1, 1, 8, 8)), "wholly in the padding"},
		{"nn.avg_pool2d", one("nn.avg_pool2d",
			with(poolAttrs(), "ceil_mode", true, "count_include_pad", true, "padding", []int64{1, 1, 0, 0}),
			f(1, 1, 5, 5), f(1, 1, 8, 8)), "counts its padding"},
		{"nn.max_pool2d", one("nn.max_pool2d", poolAttrs(), f(2, 4, 5, 4), x), "which its attributes do not explain"},
		{"nn.adaptive_avg_pool2d", one("nn.adaptive_avg_pool2d", map[string]any{"layout": "NCHW", "out_layout": ""},
			f(2, 4, 3, 3), x), "windows of different sizes"},
	} {
		t.Run(c.name+" "+c.because, func(t *testing.T) { requireRefused(t, c.g, c.name, c.because) })
	}
	accepted, _ := matched(one("round", nil, x, x), 1)
	require.Empty(t, accepted, "oneDNN rounds halves to even numbers")
}
