// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func TestConvolutionWithBiasAndClip(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 4, 4)
	x := r.Var(y.Shape, f32)
	// The constants stand outside of the Composite function, and the bias comes before the data in the addition.
	w, b := r.Const([]int64{8, 8, 3, 3}, f32), r.Const([]int64{8, 1, 1}, f32)
	call := r.composite("dnnl.conv2d_bias_clip", y, func(p []relay.NodeID) relay.NodeID {
		conv := r.Call("nn.conv2d", y, with(conv2dAttrs(), "padding", []int64{1}), p[1], p[2])
		return r.Call("clip", y, map[string]any{"a_min": 0.0, "a_max": math.Inf(1)}, r.Call("add", y, nil, p[0], conv))
	}, []*relay.Type{f(8, 1, 1), y, f(8, 8, 3, 3)}, b, x, w)
	constants := golden(t, "conv2d_bias_clip.json", r.Finish(call))
	require.Len(t, constants, 2)
}

func TestNeighboursAreFused(t *testing.T) {
	// Operators that stand alone in the region, as after merging: a convolution, its bias, a residual value, an
	// activation.
	r := newRegion()
	y := f(1, 8, 4, 4)
	x := r.Var(y.Shape, f32)
	first := r.Call("nn.relu", y, nil, x)
	conv := r.Call("nn.conv2d", y, conv2dAttrs(), first, r.Const([]int64{8, 8, 3, 3}, f32))
	biased := r.Call("add", y, nil, conv, r.Const([]int64{8, 1, 1}, f32))
	summed := r.Call("add", y, nil, first, biased)
	out := r.Call("tanh", y, nil, r.Call("multiply", y, nil, summed, r.Scalar(0.5, f32)))
	golden(t, "fused_neighbours.json", r.Finish(out))
}

func TestWhatIsReadElsewhereIsNotFused(t *testing.T) {
	r := newRegion()
	y := f(2, 4)
	dense := r.Call("nn.dense", y, nil, r.Var([]int64{2, 3}, f32), r.Const([]int64{4, 3}, f32))
	relu := r.Call("nn.relu", y, nil, dense)
	got, _ := text(t, r.Finish(r.Tuple(relu, dense)))
	require.NotContains(t, got, "post")

	r = newRegion()
	dense = r.Call("nn.dense", y, nil, r.Var([]int64{2, 3}, f32), r.Const([]int64{4, 3}, f32))
	got, _ = text(t, r.Finish(r.Call("multiply", y, nil, dense, dense)))
	require.NotContains(t, got, "post")
}

func TestThroughReshape(t *testing.T) {
	r := newRegion()
	flat, full := f(6, 4), f(2, 3, 4)
	x, residual := r.Var([]int64{6, 5}, f32), r.Var(full.Shape, f32)
	dense := r.Call("nn.dense", flat, nil, x, r.Const([]int64{4, 5}, f32))
	shaped := r.Call("reshape", full, map[string]any{"newshape": full.Shape}, dense)
	biased := r.Call("add", full, nil, shaped, r.Const([]int64{4}, f32))
	summed := r.Call("add", full, nil, residual, biased)
	golden(t, "through_reshape.json", r.Finish(r.Call("nn.relu", full, nil, summed)))

	// What is broadcast along an axis that the reshape takes apart stays behind it.
	r = newRegion()
	dense = r.Call("nn.dense", flat, nil, r.Var([]int64{6, 5}, f32), r.Const([]int64{4, 5}, f32))
	shaped = r.Call("reshape", full, map[string]any{"newshape": full.Shape}, dense)
	got, _ := text(t, r.Finish(r.Call("add", full, nil, shaped, r.Const([]int64{3, 1}, f32))))
	require.Contains(t, got, `"op": "binary"`)
}

func TestNumbersMakeFunctions(t *testing.T) {
	for _, c := range []struct {
		op     string
		number float64
		first  bool
		want   string
	}{
		{"add", 2, false, `"linear", "in": [0], "out": 1, "alpha": 1, "beta": 2`},
		{"subtract", 2, false, `"alpha": 1, "beta": -2`},
		{"subtract", 2, true, `"alpha": -1, "beta": 2`},
		{"multiply", 3, true, `"alpha": 3`},
		{"divide", 4, false, `"alpha": 0.25`},
		{"divide", 3, false, `"op": "binary", "algorithm": "divide"`}, // 1/3 is not exact
		{"maximum", 3, false, `"op": "binary", "algorithm": "maximum"`},
	} {
		r := newRegion()
		x, n := r.Var([]int64{4}, f32), r.Scalar(c.number, f32)
		in := []relay.NodeID{x, n}
		if c.first {
			in = []relay.NodeID{n, x}
		}
		got, _ := text(t, r.Finish(r.Call(c.op, f(4), nil, in...)))
		require.Contains(t, got, c.want, c.op)
	}
}

func TestWeightViews(t *testing.T) {
	for _, c := range []struct {
		layout        string
		shape         []int64
		groups        int64
		transposed    bool
		dims, strides []int64
	}{
		{"OIHW", []int64{8, 4, 3, 2}, 1, false, []int64{8, 4, 3, 2}, []int64{24, 6, 2, 1}},
		{"HWIO", []int64{3, 2, 4, 8}, 1, false, []int64{8, 4, 3, 2}, []int64{1, 8, 64, 32}},
		{"OIHW", []int64{8, 2, 3, 2}, 4, false, []int64{4, 2, 2, 3, 2}, []int64{24, 12, 6, 2, 1}},
		{"HWOI", []int64{3, 2, 8, 1}, 8, false, []int64{8, 1, 1, 3, 2}, []int64{1, 1, 1, 16, 8}},
		{"IOHW", []int64{4, 8, 3, 2}, 1, true, []int64{8, 4, 3, 2}, []int64{6, 48, 2, 1}},
		{"IOHW", []int64{4, 3, 3, 2}, 2, true, []int64{2, 3, 2, 3, 2}, []int64{36, 6, 18, 2, 1}},
	} {
		dims, strides := weightView(&onednn.Convolution{KernelLayout: c.layout, Groups: c.groups,
			Transposed: c.transposed}, c.shape)
		require.Equal(t, c.dims, dims, c.layout)
		require.Equal(t, c.strides, strides, c.layout)
	}
}

func TestSeveralResults(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{2, 3}, f32)
	relu := r.Call("nn.relu", f(2, 3), nil, x)
	c := r.Const([]int64{2, 3}, f32)
	g := r.Finish(r.Tuple(relu, r.Call("nn.softmax", f(2, 3), map[string]any{"axis": -1}, relu), relu, x, c))
	constants := golden(t, "several_results.json", g)
	require.Len(t, constants, 1)
}

func TestEmitRefusals(t *testing.T) {
	for _, c := range []struct {
		because string
		make    func(r maker, x relay.NodeID) relay.NodeID
	}{
		{"the oneDNN runtime knows no round", func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("round", f(4, 4), nil, x)
		}},
		{"the oneDNN runtime knows no dnnl.qnn.conv2d", func(r maker, x relay.NodeID) relay.NodeID {
			return r.composite("dnnl.qnn.conv2d", f(4, 4),
				func(p []relay.NodeID) relay.NodeID { return r.Call("exp", f(4, 4), nil, p[0]) },
				[]*relay.Type{f(4, 4)}, x)
		}},
		{"dnnl.dense_bias: its body is not what the name says", func(r maker, x relay.NodeID) relay.NodeID {
			return r.composite("dnnl.dense_bias", f(4, 4),
				func(p []relay.NodeID) relay.NodeID { return r.Call("exp", f(4, 4), nil, p[0]) },
				[]*relay.Type{f(4, 4)}, x)
		}},
		{"dnnl.dense_relu: its body is not what the name says", func(r maker, x relay.NodeID) relay.NodeID {
			return r.composite("dnnl.dense_relu", f(4, 4), func(p []relay.NodeID) relay.NodeID {
				return r.Call("nn.relu", f(4, 4), nil,
					r.Call("nn.dense", f(4, 4), nil, p[0], r.Call("exp", f(4, 4), nil, p[0])))
			}, []*relay.Type{f(4, 4)}, x)
		}},
		{"add: the right side of add is int32; only float32", func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("add", f(4, 4), nil, x, r.Const([]int64{4}, "int32"))
		}},
	} {
		t.Run(c.because, func(t *testing.T) {
			r := newRegion()
			p, err := region.FromGraph(r.Finish(c.make(r, r.Var([]int64{4, 4}, f32))), "s")
			require.NoError(t, err)
			_, _, err = emit(p)
			require.ErrorContains(t, err, c.because)
		})
	}
}

func TestEveryOperationKindIsWritten(t *testing.T) {
	got, _ := text(t, func() *relay.Graph {
		r := newRegion()
		x := r.Var([]int64{1, 4, 4, 4}, f32)
		up := r.Call("nn.upsampling", f(1, 4, 8, 8), map[string]any{"layout": "NCHW", "method": "nearest_neighbor"}, x)
		both := r.Call("concatenate", f(1, 8, 8, 8), map[string]any{"axis": 1}, r.Tuple(up, up))
		turned := r.Call("transpose", f(1, 8, 8, 8), map[string]any{"axes": []int64{0, 2, 3, 1}}, both)
		mean := r.Call("mean", f(1, 8), map[string]any{"axis": []int64{1, 2}, "keepdims": false, "exclude": false},
			turned)
		return r.Finish(r.Call("nn.bias_add", f(1, 8), map[string]any{"axis": -1}, mean, r.Const([]int64{8}, f32)))
	}())
	for _, want := range []string{`"op": "resample", "algorithm": "nearest"`, `"op": "concat"`, `"op": "transpose"`,
		`"perm": [0, 2, 3, 1]`,
		`"op": "reduce", "algorithm": "mean"`, `"axes": [1, 2]`, `"op": "binary", "algorithm": "add"`} {
		require.Contains(t, got, want)
	}
	require.Equal(t, 1, strings.Count(got, "version"))
}
