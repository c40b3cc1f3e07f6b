// SPDX-License-Identifier: Apache-2.0

package native

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/onednn/onednntest"
	"github.com/collage-tvm/collage/relay"
)

const f32 = onednntest.F32

var (
	f           = onednntest.Float
	with        = onednntest.With
	conv2dAttrs = onednntest.Conv2DAttrs
)

func TestBackendIsValid(t *testing.T) {
	b := New(func() error { return errors.New("nothing to install") })
	require.NoError(t, byoc.Validate(b))
	require.True(t, byoc.SharesCompiler(b))
	require.ErrorContains(t, b.Install(), "native: nothing to install")
	seen := map[string]bool{}
	for _, p := range b.Patterns() {
		require.False(t, seen[p.Composite], "two patterns named %s", p.Composite)
		seen[p.Composite] = true
		require.True(t, strings.HasPrefix(p.Composite, "native."), p.Composite)
		require.NotEmpty(t, p.Kernel, p.Composite)
		require.False(t, p.Bare, "%s would be taken for oneDNN's", p.Composite)
		require.NotEmpty(t, p.LimitsText, p.Composite)
		require.Equal(t, p.Kernel == "winograd" || p.Kernel == "upsampled", p.Reassociates, p.Composite)
		require.Equal(t, OnStrips(p.Kernel), p.Grouped, p.Composite)
	}
}

func TestTheBackendOfBytesIsValid(t *testing.T) {
	b := NewINT8(func() error { return nil })
	require.NoError(t, byoc.Validate(b))
	require.Equal(t, byoc.INT8, byoc.PrecisionOf(b))
	require.Equal(t, Name, byoc.WideOf(b))
	require.True(t, byoc.ShareRegions(b, New(func() error { return nil })))
	require.Equal(t, []string{BytesKernel}, byoc.Kernels(b))
	for _, p := range b.Patterns() {
		require.True(t, strings.HasPrefix(p.Composite, INT8Name+"."), p.Composite)
		require.False(t, p.Bare || p.Grouped || p.Reassociates, p.Composite)
	}
}

func TestTheBackendOfBfloat16IsValid(t *testing.T) {
	b := NewBF16(func() error { return nil })
	require.NoError(t, byoc.Validate(b))
	require.Equal(t, byoc.BF16, byoc.PrecisionOf(b))
	require.Equal(t, Name, byoc.WideOf(b))
	require.True(t, byoc.ShareRegions(b, New(func() error { return nil })))
	require.Equal(t, []string{PairsKernel}, byoc.Kernels(b))
	for _, r := range PairRules() {
		require.True(t, r.BF16 && strings.HasPrefix(r.Composite, BF16Name+"."), r.Composite)
		require.False(t, r.Bare || r.Grouped || r.Reassociates, r.Composite)
	}
}

// verdict is what a composite's limits say of a graph's root: why it is refused, "" if it is taken.
func verdict(t *testing.T, g *relay.Graph, composite string) string {
	t.Helper()
	return verdictAt(t, g, g.Root(), composite)
}

// verdictAt is verdict of another node of the graph.
func verdictAt(t *testing.T, g *relay.Graph, node relay.NodeID, composite string) string {
	t.Helper()
	refusal := "it is no match"
	for _, r := range slices.Concat(Rules(), ByteRules(), PairRules()) {
		if r.Composite != composite {
			continue
		}
		for _, m := range g.Match(r.Shape, node) {
			err := r.Limits(g, m)
			if err == nil {
				require.NoError(t, limitsOf(r)(g, m), "what is placed can be written")
				return ""
			}
			refusal = err.Error()
		}
	}
	return refusal
}

func limitsOf(r *onednn.Rule) func(*relay.Graph, *relay.Match) error {
	if r.Correct != nil {
		return r.Correct
	}
	return r.Limits
}

// layer is a graph of one operator on a variable and a constant weight.
func layer(op string, attrs map[string]any, out, in, weight *relay.Type) *relay.Graph {
	m := relay.NewGraph("main")
	return m.Finish(m.Call(op, out, attrs, m.Var(in.Shape, in.DType), m.Const(weight.Shape, weight.DType)))
}

// made is layer with a weight that is a variable.
func made(op string, attrs map[string]any, out, in, weight *relay.Type) *relay.Graph {
	m := relay.NewGraph("main")
	return m.Finish(m.Call(op, out, attrs, m.Var(in.Shape, in.DType), m.Var(weight.Shape, weight.DType)))
}

func conv3dAttrs() map[string]any {
	return with(conv2dAttrs(), "strides", []int64{1, 1, 1}, "padding", []int64{1, 1, 1, 1, 1, 1}, "dilation",
		[]int64{1, 1, 1},
		"data_layout", "NCDHW", "kernel_layout", "OIDHW")
}

// An expansion works ahead of windows, so that nothing else may read its result.
func TestExpansionLimits(t *testing.T) {
	unpadded := with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0})
	y := f(1, 8, 8, 8)
	conv := func(m *relay.GraphMaker, x relay.NodeID, attrs map[string]any, weight ...int64) relay.NodeID {
		return m.Call("nn.conv2d", y, attrs, x, m.Const(weight, f32))
	}
	depthwise := func(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
		return conv(m, x, with(conv2dAttrs(), "groups", 8), 8, 1, 3, 3)
	}
	pool := map[string]any{"pool_size": []int64{3, 3}, "strides": []int64{1, 1}, "padding": []int64{1, 1, 1, 1}}
	for _, c := range []struct {
		name    string
		read    func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID
		refusal string // "": taken
	}{
		{"a depthwise convolution", depthwise, ""},
		{"a pool", func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID {
			return m.Call("nn.max_pool2d", y, pool, wide)
		}, ""},
		{"two windows", func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID {
			return m.Call("add", y, nil, depthwise(m, wide), m.Call("nn.avg_pool2d", y, pool, wide))
		}, ""},
		{"another convolution", func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID {
			return conv(m, wide, conv2dAttrs(), 8, 8, 3, 3)
		}, "nn.conv2d reads its result"},
		{"a convolution in groups", func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID {
			return conv(m, wide, with(conv2dAttrs(), "groups", 4), 8, 2, 3, 3)
		}, "nn.conv2d reads its result"},
		{"a convolution in groups with fewer results", func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID {
			return m.Call("nn.conv2d", f(1, 4, 8, 8), with(conv2dAttrs(), "groups", 4), wide, m.Const([]int64{4, 2, 3, 3},
				f32))
		}, "nn.conv2d reads its result"},
		{"a window and a sum", func(m *relay.GraphMaker, wide relay.NodeID) relay.NodeID {
			return m.Call("add", y, nil, depthwise(m, wide), wide)
		}, "add reads its result"},
		{"nobody", func(_ *relay.GraphMaker, wide relay.NodeID) relay.NodeID { return wide }, "nothing does"},
	} {
		m := relay.NewGraph("main")
		wide := conv(m, m.Var(y.Shape, f32), unpadded, 8, 8, 1, 1)
		g := m.Finish(c.read(m, wide))
		got := verdictAt(t, g, wide, "native.expansion_conv2d")
		if c.refusal == "" {
			require.Empty(t, got, c.name)
		} else {
			require.Contains(t, got, c.refusal, c.name)
		}
	}
}

func TestConvolutionLimits(t *testing.T) {
	flat := func(in, out int64, kernel []int64, changes ...any) *relay.Graph {
		return layer("nn.conv2d", with(conv2dAttrs(), changes...), f(1, out, 8, 8), f(1, in, 8, 8),
			f(append([]int64{out, in}, kernel...)...))
	}
	deep := func(in, out int64, kernel []int64, changes ...any) *relay.Graph {
		return layer("nn.conv3d", with(conv3dAttrs(), changes...), f(1, out, 4, 8, 8), f(1, in, 4, 8, 8),
			f(append([]int64{out, in}, kernel...)...))
	}
	last := []any{"data_layout", "NHWC", "kernel_layout", "HWIO"}
	square, cube, dot := []int64{3, 3}, []int64{3, 3, 3}, []int64{1, 1}
	unpadded := []any{"padding", []int64{0, 0, 0, 0}}
	for _, c := range []struct {
		composite string
		g         *relay.Graph
		refusal   string // "": taken
	}{
		{"native.winograd_conv2d", flat(16, 16, square), ""},
		{"native.winograd_conv2d", flat(32, 48, square, "padding", []int64{2, 2, 0, 0}), ""},
		{"native.winograd_conv2d", layer("nn.conv2d", with(conv2dAttrs(), last...), f(1, 8, 8, 16), f(1, 8, 8, 32),
			f(3, 3, 32, 16)), ""},
		{"native.winograd_conv2d", flat(17, 16, square), "blocks of 16 channels"},
		{"native.winograd_conv2d", flat(16, 16, square, "strides", []int64{2, 2}), "strides of 1"},
		{"native.winograd_conv2d", flat(16, 16, square, "dilation", []int64{2, 2}), "dilation of 1"},
		{"native.winograd_conv2d", flat(16, 16, []int64{5, 5}), "kernels of 3x3"},
		{"native.winograd_conv2d", made("nn.conv2d", conv2dAttrs(), f(1, 16, 8, 8), f(1, 16, 8, 8), f(16, 16, 3, 3)),
			"a weight that is a constant"},
		{"native.winograd_conv2d", layer("nn.conv2d", with(conv2dAttrs(), "groups", 2), f(1, 32, 8, 8), f(1, 32, 8, 8),
			f(32, 16, 3, 3)), "knows no groups"},
		{"native.winograd_conv3d", deep(32, 16, cube), ""},
		{"native.winograd_conv3d", deep(32, 32, []int64{5, 3, 3}, "padding", []int64{4, 1, 1, 4, 1, 1}, "dilation",
			[]int64{2, 1, 1}), ""},
		{"native.winograd_conv3d", deep(32, 32, cube, "strides", []int64{2, 1, 1}, "padding",
			[]int64{3, 1, 1, 2, 1, 1}), ""},
		{"native.winograd_conv3d", deep(16, 16, []int64{3, 3, 1}), "kernels of 3x3"},
		{"native.winograd_conv3d", deep(16, 16, cube, "strides", []int64{1, 2, 1}), "strides of 1"},
		{"native.winograd_conv3d", deep(16, 16, cube, "dilation", []int64{1, 1, 2}), "dilation of 1"},

		{"native_int8.conv2d", flat(5, 7, square), ""},
		{"native_int8.conv2d", flat(5, 7, []int64{5, 2}, "strides", []int64{2, 1}, "dilation", []int64{1, 3}), ""},
		{"native_int8.conv2d", layer("nn.conv2d", with(conv2dAttrs(), last...), f(1, 8, 8, 16), f(1, 8, 8, 32),
			f(3, 3, 32, 16)), ""},
		{"native_int8.conv2d", made("nn.conv2d", conv2dAttrs(), f(1, 16, 8, 8), f(1, 16, 8, 8), f(16, 16, 3, 3)),
			"a weight that is a constant"},
		{"native_int8.conv2d", layer("nn.conv2d", with(conv2dAttrs(), "groups", 2), f(1, 32, 8, 8), f(1, 32, 8, 8),
			f(32, 16, 3, 3)), "knows no groups"},
		{"native_int8.conv2d", flat(7280, 16, square), ""},
		{"native_int8.conv2d", flat(7284, 16, square), "adds up at most 65536 products of bytes, these are 65556"},

		{"native.narrow_conv2d", flat(5, 6, []int64{5, 2}, "strides", []int64{2, 1}), ""},
		{"native.narrow_conv2d", flat(5, 7, square), "at most 6 output channels"},

		{"native.strip_conv2d", flat(5, 7, dot, unpadded...), ""},
		{"native.strip_conv2d", flat(5, 7, square), "one element"},
		{"native.strip_depthwise_conv2d", layer("nn.conv2d", with(conv2dAttrs(), "groups", 5), f(1, 5, 8, 8),
			f(1, 5, 8, 8), f(5, 1, 3, 3)), ""},
		{"native.strip_depthwise_conv2d", layer("nn.conv2d", with(conv2dAttrs(), "groups", 5), f(1, 10, 8, 8),
			f(1, 5, 8, 8), f(10, 1, 3, 3)), "one channel in and out"},
		{"native.strip_depthwise_conv2d", layer("nn.conv2d", with(conv2dAttrs(), "groups", 5), f(1, 5, 8, 8),
			f(1, 5, 8, 8), f(5, 1, 3, 4)), ""},
		{"native.strip_depthwise_conv2d", flat(1, 1, square), "in 1 groups"},
		{"native.strip_conv2d", layer("nn.conv2d", with(with(conv2dAttrs(), last...), unpadded...), f(1, 8, 8, 7),
			f(1, 8, 8, 5), f(1, 1, 5, 7)), ""},
		{"native.strip_depthwise_conv2d", layer("nn.conv2d",
			with(conv2dAttrs(), "groups", 5, "data_layout", "NHWC", "kernel_layout", "HWOI"), f(1, 8, 8, 5),
			f(1, 8, 8, 5), f(3, 3, 5, 1)), ""},
	} {
		if got := verdict(t, c.g, c.composite); c.refusal == "" {
			require.Empty(t, got, "%s: %v", c.composite, c.g)
		} else {
			require.Contains(t, got, c.refusal, c.composite)
		}
	}
}

func TestDenseLimits(t *testing.T) {
	dense := func(rows, units int64, from func(string, map[string]any, *relay.Type, *relay.Type,
		*relay.Type) *relay.Graph) *relay.Graph {
		return from("nn.dense", nil, f(rows, units), f(rows, 24), f(units, 24))
	}
	require.Empty(t, verdict(t, dense(1, 16, layer), "native.product_dense"))
	require.Empty(t, verdict(t, dense(1000, 48, layer), "native.product_dense"), "any number of rows")
	require.Empty(t, verdict(t, dense(8, 20, layer), "native.product_dense"))
	require.Contains(t, verdict(t, dense(8, 16, made), "native.product_dense"), "constants")
	require.Empty(t, verdict(t, dense(8, 20, layer), "native_int8.dense"))
	require.Contains(t, verdict(t, dense(8, 16, made), "native_int8.dense"), "constants")
	require.Empty(t, verdict(t, dense(8, 20, layer), "native_bf16.dense"))
	require.Contains(t, verdict(t, dense(8, 16, made), "native_bf16.dense"), "constants")
}

func TestBatchLimits(t *testing.T) {
	by := func(turned bool, right func(m *relay.GraphMaker) relay.NodeID) *relay.Graph {
		m := relay.NewGraph("main")
		left := f(3, 4, 5)
		if turned {
			left = f(3, 5, 4)
		}
		return m.Finish(m.Call("nn.batch_matmul", f(3, 4, 6),
			map[string]any{"transpose_a": turned, "transpose_b": true}, m.Var(left.Shape, f32), right(m)))
	}
	batches := func(turned bool) *relay.Graph {
		return by(turned, func(m *relay.GraphMaker) relay.NodeID { return m.Var([]int64{3, 6, 5}, f32) })
	}
	constant := func(turned bool) *relay.Graph {
		return by(turned, func(m *relay.GraphMaker) relay.NodeID { return m.Const([]int64{3, 6, 5}, f32) })
	}
	require.Empty(t, verdict(t, batches(false), "native.product_batch_matmul"))
	require.Contains(t, verdict(t, batches(true), "native.product_batch_matmul"), "this one is transposed")
	require.Empty(t, verdict(t, constant(false), "native_bf16.batch_matmul"))
	require.Contains(t, verdict(t, constant(true), "native_bf16.batch_matmul"), "this one is transposed")
	require.Contains(t, verdict(t, batches(false), "native_bf16.batch_matmul"), "a right side that is a constant")
}

func TestStripLimits(t *testing.T) {
	pool := func(width, stride, dilation int64, layout string) *relay.Graph {
		m := relay.NewGraph("main")
		x, out := f(1, 8, 24, 24), f(1, 8, 24, (24+2*3-((width-1)*dilation+1))/stride+1)
		return m.Finish(m.Call("nn.max_pool2d", out,
			map[string]any{"pool_size": []int64{1, width}, "strides": []int64{1, stride},
				"dilation": []int64{1, dilation}, "padding": []int64{0, 3, 0, 3}, "ceil_mode": false, "layout": layout,
				"out_layout": ""}, m.Var(x.Shape, f32)))
	}
	require.Empty(t, verdict(t, pool(7, 2, 1, "NCHW"), "native.strip_max_pool2d"))
	require.Empty(t, verdict(t, pool(5, 3, 2, "NCHW"), "native.strip_max_pool2d"))
	m := relay.NewGraph("main")
	last := m.Finish(m.Call("nn.max_pool2d", f(1, 4, 4, 8),
		map[string]any{"pool_size": []int64{2, 2}, "strides": []int64{2, 2},
			"dilation": []int64{1, 1}, "padding": []int64{0, 0, 0, 0}, "ceil_mode": false, "layout": "NHWC",
			"out_layout": ""}, m.Var([]int64{1, 8, 8, 8}, f32)))
	require.Empty(t, verdict(t, last, "native.strip_max_pool2d"))

	pair := func(op string, out, a, b *relay.Type) *relay.Graph {
		m := relay.NewGraph("main")
		return m.Finish(m.Call(op, out, nil, m.Var(a.Shape, f32), m.Var(b.Shape, f32)))
	}
	four, two := f(1, 8, 4, 4), f(2, 8, 4, 4)
	require.Empty(t, verdict(t, pair("add", four, four, four), "native.strip_add"))
	require.Contains(t, verdict(t, pair("add", four, four, f(1, 8, 1, 1)), "native.strip_add"), "different shapes")
	require.Contains(t, verdict(t, pair("add", f(4, 4), f(4, 4), f(4, 4)), "native.strip_add"),
		"4 dimensions, this tensor has 2")
	for _, c := range []struct {
		out, a, b *relay.Type
		refusal   string
	}{
		{four, four, four, ""},
		{four, four, f(1, 8, 1, 1), ""},
		{two, f(2, 8, 1, 1), two, ""},
		{two, two, f(1, 8, 1, 1), ""},
		{two, two, f(2, 1, 1, 4), ""},
		{two, f(1, 1, 1, 4), two, ""},
		{two, two, four, "one factor for each channel"},
		{four, four, f(1, 1, 1, 1), "one factor for each channel"},
		{four, four, f(8, 1, 1), "one factor for each channel"},
		{four, four, f(1, 8, 1, 4), "one factor for each channel"},
		{two, f(2, 8, 4, 1), f(1, 8, 1, 4), "one factor for each channel"},
		{f(4, 4), f(4, 4), f(4, 4), "4 dimensions, this tensor has 2"},
	} {
		got := verdict(t, pair("multiply", c.out, c.a, c.b), "native.strip_multiply")
		if c.refusal == "" {
			require.Empty(t, got, "%v", c)
		} else {
			require.Contains(t, got, c.refusal, "%v", c)
		}
	}
	m = relay.NewGraph("main")
	require.Empty(t, verdict(t, m.Finish(m.Call("sigmoid", four, nil, m.Var(four.Shape, f32))), "native.strip_sigmoid"))
	join := func(axis int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{1, 8, 4, 4}
		shape[axis] *= 2
		return m.Finish(m.Call("concatenate", f(shape...), map[string]any{"axis": axis},
			m.Tuple(m.Var(four.Shape, f32), m.Var(four.Shape, f32))))
	}
	require.Empty(t, verdict(t, join(1), "native.strip_concatenate"))
	require.Empty(t, verdict(t, join(3), "native.strip_concatenate"))
	require.Contains(t, verdict(t, join(2), "native.strip_concatenate"), "which are axis 1 or 3, not 2")
}

// normal writes (x - mean) / sqrt(variance + epsilon) over axes.
func normal(m *relay.GraphMaker, x relay.NodeID, shape []int64, epsilon float64, axes ...int64) relay.NodeID {
	full, column := f(shape...), slices.Clone(shape)
	for _, axis := range axes {
		column[axis] = 1
	}
	over := map[string]any{"axis": axes, "keepdims": true, "exclude": false}
	mean := m.Call("mean", f(column...), over, x)
	variance := m.Call("variance", f(column...), with(over, "unbiased", false), x, mean)
	root := m.Call("sqrt", f(column...), nil, m.Call("add", f(column...), nil, variance, m.Scalar(epsilon, f32)))
	return m.Call("divide", full, nil, m.Call("subtract", full, nil, x, mean), root)
}

// scaled writes x * gain + shift.
func scaled(m *relay.GraphMaker, x relay.NodeID, shape []int64, gain, shift []int64) relay.NodeID {
	return m.Call("add", f(shape...), nil, m.Call("multiply", f(shape...), nil, x, m.Const(gain, f32, "gain")),
		m.Const(shift, f32, "shift"))
}

func TestNormLimits(t *testing.T) {
	rows := func(gain, shift []int64, epsilon float64, axes ...int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 4, 8}
		return m.Finish(scaled(m, normal(m, m.Var(shape, f32), shape, epsilon, axes...), shape, gain, shift))
	}
	groups := func(parts []int64, gain []int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 6, 5, 4}
		back := m.Call("reshape", f(shape...), map[string]any{"newshape": shape},
			normal(m, m.Call("reshape", f(parts...), map[string]any{"newshape": parts}, m.Var(shape, f32)), parts, 1e-5,
				2, 3, 4))
		return m.Finish(scaled(m, back, shape, gain, gain))
	}
	images := func(gain []int64, axes ...int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 6, 5, 4}
		return m.Finish(scaled(m, normal(m, m.Var(shape, f32), shape, 1e-5, axes...), shape, gain, gain))
	}
	// NHWC: what is normalised, by which axes, and the gain.
	last := func(parts []int64, gain []int64, axes ...int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 5, 4, 6}
		x := m.Var(shape, f32)
		if parts == nil {
			return m.Finish(scaled(m, normal(m, x, shape, 1e-5, axes...), shape, gain, gain))
		}
		inner := normal(m, m.Call("reshape", f(parts...), map[string]any{"newshape": parts}, x), parts, 1e-5, axes...)
		return m.Finish(scaled(m, m.Call("reshape", f(shape...), map[string]any{"newshape": shape}, inner), shape, gain,
			gain))
	}
	bare := func(axes ...int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 5, 4, 6}
		return m.Finish(normal(m, m.Var(shape, f32), shape, 1e-5, axes...))
	}
	six := []int64{6}
	sum := func(left, right []int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 4, 8}
		total := m.Call("add", f(shape...), nil, m.Var(left, f32), m.Var(right, f32))
		return m.Finish(scaled(m, normal(m, total, shape, 1e-5, 2), shape, shape[2:], shape[2:]))
	}
	// Of [2, 6, 5, 4], channels in axis 1 or, after, the last; the addend has that shape.
	imageSum := func(addend []int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 6, 5, 4}
		total := m.Call("add", f(shape...), nil, m.Var(shape, f32), m.Var(addend, f32))
		return m.Finish(scaled(m, normal(m, total, shape, 1e-5, 2, 3), shape, []int64{6, 1, 1}, []int64{6, 1, 1}))
	}
	groupSum := func(addend []int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape, parts := []int64{2, 5, 4, 6}, []int64{2, 5, 4, 3, 2}
		total := m.Call("add", f(shape...), nil, m.Var(addend, f32), m.Var(shape, f32))
		inner := normal(m, m.Call("reshape", f(parts...), map[string]any{"newshape": parts}, total), parts, 1e-5, 1, 2, 4)
		back := m.Call("reshape", f(shape...), map[string]any{"newshape": shape}, inner)
		return m.Finish(scaled(m, back, shape, six, six))
	}
	scaleSum := func(addend []int64) *relay.Graph {
		m := relay.NewGraph("main")
		shape := []int64{2, 6, 5, 4}
		total := m.Call("add", f(shape...), nil, m.Var(shape, f32), m.Var(addend, f32))
		return m.Finish(scaled(m, total, shape, []int64{6, 1, 1}, []int64{6, 1, 1}))
	}
	scale := func(shape, gain, shift []int64) *relay.Graph {
		m := relay.NewGraph("main")
		return m.Finish(scaled(m, m.Var(shape, f32), shape, gain, shift))
	}
	one, channels := []int64{8}, []int64{6, 1, 1}
	for _, c := range []struct {
		composite string
		g         *relay.Graph
		refusal   string // "": taken
	}{
		{"native.layer_norm", rows(one, one, 1e-5, 2), ""},
		{"native.layer_norm", rows([]int64{1, 8}, one, 0, 2), ""},
		{"native.layer_norm", rows([]int64{4, 8}, []int64{4, 8}, 1e-5, 1, 2), ""},
		{"native.layer_norm", rows([]int64{2, 4, 8}, []int64{2, 4, 8}, 1e-5, 0, 1, 2), ""},
		{"native.layer_norm", rows(one, []int64{8}, 1e-5, 1, 2), "the gain has the shape [8]; it must be [1, 4, 8]"},
		{"native.layer_norm", rows(one, []int64{1}, 1e-5, 2), "the shift has the shape [1]; it must be [1, 1, 8]"},
		{"native.layer_norm", rows([]int64{4, 1}, []int64{4, 1}, 1e-5, 1), "only the last axes are supported"},
		{"native.layer_norm", rows(one, one, -1, 2), "not negative"},
		{"native.layer_norm", rows(one, one, 1e-45, 2), "too small for a float32"},
		{"native.layer_norm", images(channels, 2, 3), "the gain has the shape [6, 1, 1]"},
		{"native.sum_layer_norm", sum([]int64{2, 4, 8}, []int64{2, 4, 8}), ""},
		{"native.sum_layer_norm", sum([]int64{8}, []int64{2, 4, 8}), ""},
		{"native.sum_layer_norm", sum([]int64{2, 4, 8}, []int64{4, 8}), "the pattern makes [2, 4, 8] of [4, 8]"},
		{"native.sum_layer_norm", sum([]int64{2, 4, 8}, []int64{2, 1, 8}), "the pattern makes [2, 4, 8] of [2, 1, 8]"},
		{"native.sum_layer_norm", sum([]int64{2, 4, 8}, []int64{2, 4, 1}), "the pattern makes [2, 4, 8] of [2, 4, 1]"},
		{"native.sum_layer_norm", sum([]int64{2, 1, 8}, []int64{4, 1}), "the pattern makes"},
		{"native.layer_norm", sum([]int64{2, 1, 8}, []int64{4, 1}), ""},
		{"native.instance_norm", images(channels, 2, 3), ""},
		{"native.instance_norm", images([]int64{1, 1, 4}, 2, 3), "the gain has the shape [1, 1, 4]"},
		{"native.instance_norm", images(channels, 1, 2, 3), "only those behind the second"},
		{"native.instance_norm", bare(2, 3), "without scale and shift it is native.layer_norm's"},
		{"native.instance_norm", bare(1, 2), ""},
		{"native.instance_norm", last(nil, six, 1, 2), ""},
		{"native.instance_norm", last(nil, []int64{1, 1, 1, 6}, 1, 2), ""},
		{"native.instance_norm", last(nil, []int64{5, 1, 1}, 1, 2), "the gain has the shape [5, 1, 1]"},
		{"native.instance_norm", last(nil, six, 1), "or between the first and the last"},
		{"native.instance_norm", last(nil, six, 0, 1, 2), "or between the first and the last"},
		{"native.instance_norm", last(nil, six, 1, 3), "or between the first and the last"},
		{"native.group_norm", last([]int64{2, 5, 4, 3, 2}, six, 1, 2, 4), ""},
		{"native.group_norm", last([]int64{2, 20, 3, 2}, six, 1, 3), ""},
		{"native.group_norm", last([]int64{2, 5, 4, 3, 2}, []int64{5, 1, 1}, 1, 2, 4), "the gain has the shape [5, 1, 1]"},
		{"native.group_norm", last([]int64{2, 5, 4, 3, 2}, six, 4), "no groups of channels"},
		{"native.group_norm", last([]int64{2, 5, 4, 3, 2}, six, 1, 4), "no groups of channels"},
		{"native.group_norm", last([]int64{2, 5, 4, 3, 2}, six, 1, 2, 3), "no groups of channels"},
		{"native.group_norm", last([]int64{2, 5, 2, 4, 3}, six, 1, 2, 4), "no groups of channels"},
		{"native.group_norm", last([]int64{1, 10, 4, 3, 2}, six, 1, 2, 4), "no groups of channels"},
		{"native.layer_norm", rows([]int64{2, 1, 8}, one, 1e-5, 0, 2), "only the last axes are supported"},
		{"native.group_norm", groups([]int64{2, 3, 2, 5, 4}, channels), ""},
		{"native.group_norm", groups([]int64{2, 1, 6, 5, 4}, channels), ""},
		{"native.group_norm", groups([]int64{2, 4, 3, 5, 2}, channels), "no groups of channels"},
		{"native.group_norm", groups([]int64{4, 3, 1, 5, 4}, channels), "no groups of channels"},
		{"native.group_norm", groups([]int64{2, 3, 2, 5, 4}, []int64{5, 4}), "the gain has the shape [5, 4]"},
		{"native.channel_scale", scale([]int64{2, 6, 5, 4}, channels, channels), ""},
		{"native.channel_scale", scale([]int64{2, 8}, one, []int64{1, 8}), ""},
		{"native.channel_scale", scale([]int64{2, 6, 5, 4}, channels, []int64{5, 4}), "the shift has the shape [5, 4]"},
		{"native.channel_scale", scale([]int64{2, 6, 5, 4}, []int64{5, 4}, []int64{5, 4}), "not along one axis"},
		{"native.channel_scale", scale([]int64{2, 6, 5, 4}, []int64{1}, []int64{1}), "the gain has the shape [1]"},
		{"native.channel_scale", rows(one, one, 1e-5, 2), "it is no match"},
		{"native.sum_instance_norm", imageSum([]int64{2, 6, 5, 4}), ""},
		{"native.sum_instance_norm", imageSum([]int64{2, 6, 1, 1}), ""},
		{"native.sum_instance_norm", imageSum([]int64{6, 1, 1}), ""},
		{"native.sum_instance_norm", imageSum([]int64{1, 6, 5, 4}), "the pattern makes [2, 6, 5, 4] of [1, 6, 5, 4]"},
		{"native.sum_instance_norm", imageSum([]int64{2, 1, 1, 1}), "the pattern makes [2, 6, 5, 4] of [2, 1, 1, 1]"},
		{"native.sum_instance_norm", imageSum([]int64{4}), "the pattern makes [2, 6, 5, 4] of [4]"},
		{"native.instance_norm", imageSum([]int64{4}), ""},
		{"native.sum_group_norm", groupSum([]int64{2, 5, 4, 6}), ""},
		{"native.sum_group_norm", groupSum([]int64{2, 1, 1, 6}), ""},
		{"native.sum_group_norm", groupSum(six), ""},
		{"native.sum_group_norm", groupSum([]int64{2, 5, 1, 1}), "what is added to [2, 5, 4, 6] has the shape [2, 5, 1, 1]"},
		{"native.sum_channel_scale", scaleSum([]int64{2, 6, 5, 4}), ""},
		{"native.sum_channel_scale", scaleSum([]int64{2, 6, 1, 1}), ""},
		{"native.sum_channel_scale", scaleSum([]int64{5, 4}), "the pattern makes [2, 6, 5, 4] of [5, 4]"},
		{"native.sum_channel_scale", images(channels, 2, 3), "it is no match"},
	} {
		if got := verdict(t, c.g, c.composite); c.refusal == "" {
			require.Empty(t, got, "%s: %v", c.composite, c.g)
		} else {
			require.Contains(t, got, c.refusal, c.composite)
		}
	}
}

// A normalisation is taken with its gain and its shift, and not without them where they are there.
func TestNormalisationsAreTakenWhole(t *testing.T) {
	taken := func(g *relay.Graph) []string {
		var all []string
		for _, r := range normRules() {
			for id := range g.Nodes {
				for _, m := range g.Match(r.Shape, relay.NodeID(id)) {
					if r.Limits(g, m) == nil {
						all = append(all, r.Composite)
					}
				}
			}
		}
		return all
	}
	shape := []int64{4, 8}
	m := relay.NewGraph("main")
	require.Equal(t, []string{"native.layer_norm"},
		taken(m.Finish(scaled(m, normal(m, m.Var(shape, f32), shape, 1e-5, 1), shape, shape[1:], shape[1:]))))
	m = relay.NewGraph("main")
	require.Equal(t, []string{"native.layer_norm"}, taken(m.Finish(normal(m, m.Var(shape, f32), shape, 1e-5, 1))))
	m = relay.NewGraph("main")
	plain := normal(m, m.Var(shape, f32), shape, 1e-5, 1)
	require.Equal(t, []string{"native.layer_norm"},
		taken(m.Finish(m.Call("add", f(shape...), nil, plain, m.Var(shape, f32)))), "a residual value is no shift")
}

func TestStandardise(t *testing.T) {
	full, column := f(2, 4, 8), f(2, 4, 1)
	over := map[string]any{"axis": []int64{-1}, "keepdims": true, "exclude": false}
	form := func(axis int64, twice, divideFirst bool) *relay.Graph {
		m := relay.NewGraph("main")
		x := m.Var(full.Shape, f32)
		over := with(over, "axis", []int64{axis})
		mean := m.Call("mean", column, over, x)
		centred := m.Call("subtract", full, nil, x, mean)
		if twice {
			mean = m.Call("mean", column, over, x)
		}
		deviation := m.Call("sqrt", column, nil, m.Call("variance", column, with(over, "unbiased", true), x, mean))
		deviation = m.Call("add", column, nil, deviation, m.Scalar(1e-6, f32))
		gain := m.Const([]int64{8}, f32, "gain")
		var scaled relay.NodeID
		if divideFirst {
			scaled = m.Call("multiply", full, nil, gain, m.Call("divide", full, nil, centred, deviation))
		} else {
			scaled = m.Call("divide", full, nil, m.Call("multiply", full, nil, gain, centred), deviation)
		}
		return m.Finish(m.Call("add", full, nil, scaled, m.Const([]int64{8}, f32, "shift")))
	}
	for _, twice := range []bool{false, true} {
		for _, divideFirst := range []bool{false, true} {
			require.Empty(t, verdict(t, form(-1, twice, divideFirst), "native.standardise"))
		}
	}
	require.Contains(t, verdict(t, form(1, true, false), "native.standardise"), "only the last axes")
}

func TestInstructionSets(t *testing.T) {
	require.Equal(t, avx512, ofProcessor([]string{"avx2", "avx512_core"}))
	require.Equal(t, avx512VNNI, ofProcessor([]string{"avx2", "avx512_core", "avx512_core_vnni"}))
	require.Equal(t, avx512BF16, ofProcessor([]string{"avx2", "avx512_core", "avx512_core_vnni", "avx512_core_bf16"}))
	require.Equal(t, amx, ofProcessor([]string{"avx2", "avx512_core", "avx512_core_vnni", "avx512_core_bf16",
		"avx512_core_amx"}))
	require.Equal(t, avx2, ofProcessor([]string{"sse41", "avx", "avx2"}))
	require.Equal(t, plain, ofProcessor(nil))
	for _, c := range []struct {
		ours, theirs string
		want         instructionSet
	}{
		{"", "", amx}, {"plain", "", plain}, {"AVX2", "AVX512_CORE", avx2}, {"avx512", "SSE41", avx512},
		{"avx512_vnni", "", avx512VNNI}, {"avx512_bf16", "", avx512BF16}, {"amx", "", amx},
		{"", "AVX512_CORE_VNNI", avx512VNNI}, {"", "AVX512_CORE_BF16", avx512BF16}, {"", "SSE41", plain},
		{"", "AVX2", avx2}, {"", "AVX512_CORE", avx512}, {"what", "AVX", plain}, {"", "AVX512_CORE_AMX", amx},
	} {
		set := capOf(func(name string) string {
			return map[string]string{"COLLAGE_MAX_CPU_ISA": c.ours, "ONEDNN_MAX_CPU_ISA": c.theirs}[name]
		})
		require.Equal(t, c.want, set, "%+v", c)
	}
}
