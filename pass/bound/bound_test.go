// SPDX-License-Identifier: Apache-2.0

package bound

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

const f32 = "float32"

func conv(strides, padding, kernel []int64, channels int64) map[string]any {
	return map[string]any{"strides": strides, "padding": padding, "dilation": []int64{1, 1}, "kernel_size": kernel,
		"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "channels": channels, "groups": int64(1)}
}

// of makes a candidate of nodes, the last one its root.
func of(g *relay.Graph, nodes ...relay.NodeID) *candidate.Candidate {
	c := &candidate.Candidate{Nodes: nodes, Root: nodes[len(nodes)-1]}
	c.Inputs, c.Constants = g.Boundary(nodes)
	return c
}

func TestWorkOfConvolutions(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 64, 56, 56}, f32)
	w1 := m.Const([]int64{128, 64, 1, 1}, f32)
	one := m.Call("nn.conv2d", relay.Tensor(f32, 1, 128, 56, 56),
		conv([]int64{1, 1}, []int64{0, 0, 0, 0}, []int64{1, 1}, 128), x, w1)
	two := m.Call("nn.conv2d", relay.Tensor(f32, 1, 128, 28, 28),
		conv([]int64{2, 2}, []int64{0, 0, 0, 0}, []int64{1, 1}, 128), x, w1)
	w3 := m.Const([]int64{64, 64, 3, 3}, f32)
	three := m.Call("nn.conv2d", relay.Tensor(f32, 1, 64, 56, 56),
		conv([]int64{1, 1}, []int64{1, 1, 1, 1}, []int64{3, 3}, 64), x, w3)
	g := m.Finish(m.Tuple(one, two, three))

	w := Of(g, of(g, one))
	assert.Equal(t, 2.0*128*64*56*56, w.Flops)
	assert.Equal(t, 4.0*(64*56*56+128*64+128*56*56), w.Bytes)

	// Every second row and column is never looked at.
	w = Of(g, of(g, two))
	assert.Equal(t, 2.0*128*64*28*28, w.Flops)
	assert.Equal(t, 4.0*(64*28*28+128*64+128*28*28), w.Bytes)

	// Padding is not multiplied with, and Winograd's F(6, 3) saves a factor of 5.06.
	w = Of(g, of(g, three))
	assert.InDelta(t, 2.0*64*64*(3*56-2)*(3*56-2)/(2.25*2.25), w.Flops, 1)
	assert.Equal(t, 4.0*(64*56*56+64*64*9+64*56*56), w.Bytes)
	// As it is spelled out, padding is multiplied with, and Winograd's algorithm is not known.
	assert.Equal(t, 2.0*64*64*9*56*56, Direct(g, of(g, three)).Flops)
	assert.Equal(t, w.Bytes, Direct(g, of(g, three)).Bytes)

	// What the constants hold may spare any of it, and the constants themselves.
	own := of(g, three)
	own.OwnConstants = true
	assert.Equal(t, Work{Bytes: 4.0 * (64*56*56 + 64*56*56)}, Of(g, own))
	assert.Equal(t, Direct(g, of(g, three)), Direct(g, own))
}

func TestRooflineIsNoBound(t *testing.T) {
	m := Machine{Flops: 1e6, Reads: []Read{{Size: 1 << 20, Speed: 1e6}, {Size: 1 << 24, Speed: 1e5}}}
	// At the speeds that were measured; the bound distrusts them.
	assert.Equal(t, 3.0, m.Roofline(Work{Flops: 3e6}))
	assert.Equal(t, 2.0, m.Milliseconds(Work{Flops: 3e6}))
	// Of more than what fits the faster cache; the bound grants a part of it.
	assert.Equal(t, 20.0, m.Roofline(Work{Bytes: 2e6}))
	assert.Equal(t, 1.0, m.Milliseconds(Work{Bytes: 2e6}))
}

func TestWorkOfConvolutionsOfRepeatedPixels(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 8, 6, 6}, f32)
	up := m.Call("nn.upsampling", relay.Tensor(f32, 1, 8, 12, 18),
		map[string]any{"layout": "NCHW", "method": "nearest_neighbor"}, x)
	w := m.Const([]int64{4, 8, 3, 3}, f32)
	one := m.Call("nn.conv2d", relay.Tensor(f32, 1, 4, 10, 16),
		conv([]int64{1, 1}, []int64{0, 0, 0, 0}, []int64{3, 3}, 4), up, w)
	g := m.Finish(one)
	// The enlarged tensor has six times as many elements, which need not be multiplied with.
	large := 2.0 * 4 * 8 * 9 * 10 * 16 / (2.25 * 2.25)
	assert.InDelta(t, large, Of(g, of(g, one)).Flops, 1)
	assert.InDelta(t, large/6, Of(g, of(g, up, one)).Flops, 1)
	assert.Equal(t, 2.0*4*8*9*10*16, Direct(g, of(g, up, one)).Flops)
}

func TestWorkOfDepthwiseAndTransposedConvolutions(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 14, 14, 32}, f32)
	attrs := conv([]int64{1, 1}, []int64{0, 0, 0, 0}, []int64{3, 3}, 32)
	attrs["data_layout"], attrs["kernel_layout"], attrs["groups"] = "NHWC", "HWOI", int64(32)
	deep := m.Call("nn.conv2d", relay.Tensor(f32, 1, 12, 12, 32), attrs, x, m.Const([]int64{3, 3, 32, 1}, f32))
	y := m.Var([]int64{1, 8, 5, 5}, f32)
	up := m.Call("nn.conv2d_transpose", relay.Tensor(f32, 1, 4, 10, 10),
		conv([]int64{2, 2}, []int64{0, 0, 0, 0}, []int64{2, 2}, 4), y,
		m.Const([]int64{8, 4, 2, 2}, f32))
	g := m.Finish(m.Tuple(deep, up))
	assert.InDelta(t, 2.0*32*12*12*9/(2.25*2.25), Of(g, of(g, deep)).Flops, 1)
	assert.InDelta(t, 2.0*8*4*25*4/((12.0/7)*(12.0/7)), Of(g, of(g, up)).Flops, 1)
}

func TestWorkOfFusedGroups(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{8, 32}, f32)
	w := m.Const([]int64{64, 32}, f32)
	dense := m.Call("nn.dense", relay.Tensor(f32, 8, 64), nil, x, w)
	bias := m.Const([]int64{64}, f32)
	add := m.Call("nn.bias_add", relay.Tensor(f32, 8, 64), nil, dense, bias)
	relu := m.Call("nn.relu", relay.Tensor(f32, 8, 64), nil, add)
	flat := m.Call("reshape", relay.Tensor(f32, 512), nil, relu)
	slice := m.Call("strided_slice", relay.Tensor(f32, 100), nil, flat)
	g := m.Finish(slice)

	got := Of(g, of(g, dense, add, relu))
	assert.Equal(t, 2.0*8*64*32, got.Flops)
	assert.Equal(t, 4.0*(8*32+64*32+64+8*64), got.Bytes, "what is passed on inside need not be moved")
	assert.Equal(t, got, Of(g, of(g, dense, add, relu, flat)), "a reshape moves nothing")
	assert.Equal(t, Work{}, Of(g, of(g, flat)))
	// What a slice leaves out need not be computed.
	assert.Equal(t, Work{Bytes: 400}, Of(g, of(g, dense, add, relu, flat, slice)))
}

func TestWhatDependsOnNoInputIsFolded(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{64}, f32)
	folded := m.Call("exp", relay.Tensor(f32, 64), nil, m.Const([]int64{64}, f32))
	add := m.Call("add", relay.Tensor(f32, 64), nil, x, folded)
	g := m.Finish(add)
	assert.Equal(t, 4.0*(64+64), Of(g, of(g, folded, add)).Bytes)
}

func TestOnlyCalibratedTypesCountTheirOperations(t *testing.T) {
	for _, dtype := range []string{"int8", "float16", "bfloat16"} {
		m := relay.NewGraph("main")
		x := m.Var([]int64{8, 32}, dtype)
		dense := m.Call("nn.dense", relay.Tensor(dtype, 8, 64), nil, x, m.Const([]int64{64, 32}, dtype))
		g := m.Finish(dense)
		assert.Zero(t, Of(g, of(g, dense)).Flops, dtype)
		assert.NotZero(t, Of(g, of(g, dense)).Bytes, dtype)
	}
}

func TestMachine(t *testing.T) {
	env := cost.Environment{Target: "llvm", Device: "cpu", Library: "oneDNN", TVM: "0.19.0", Threads: 2}
	keys := Keys(env)
	assert.Equal(t, keys, Keys(cost.Environment{Target: "llvm -mcpu=x", Device: "cpu", TVM: "0.18.0", Threads: 2,
		Options: "O2"}))
	assert.NotEqual(t, keys, Keys(cost.Environment{Device: "cpu", Threads: 1}))
	costs := make([]cost.Cost, len(keys))
	costs[0].Samples = []float64{3, 2, 4} // 10^9 operations in 2 ms
	for i := range Sizes {
		costs[i+1].Samples = []float64{float64(i + 1), float64(i + 2)} // 2^30 bytes in 1, 2, ... ms
	}
	m, err := FromCosts(keys, costs)
	require.NoError(t, err)
	assert.Equal(t, 5e8, m.Flops)
	assert.InDelta(t, 2/flopsMargin, m.Milliseconds(Work{Flops: 1e9}), 1e-9)

	// Small working sets may be in the fastest cache, those that are far larger than all caches cannot.
	assert.InDelta(t, 1.0/(1<<14)/readMargin, m.Milliseconds(Work{Bytes: 1 << 16}), 1e-9)
	assert.InDelta(t, float64(len(Sizes))/readMargin, m.Milliseconds(Work{Bytes: 1 << 30}), 1e-9)
	assert.Equal(t, smallest, m.Milliseconds(Work{}))
	last := 0.0
	for size := 1.0; size < 1<<32; size *= 1.5 {
		ms := m.Milliseconds(Work{Bytes: size})
		assert.GreaterOrEqual(t, ms, last, "more is never faster")
		last = ms
	}
	assert.Equal(t, smallest, (&Machine{}).Milliseconds(Work{Flops: 1e12, Bytes: 1e12}))

	_, err = FromCosts(keys, slices.Repeat([]cost.Cost{{}}, len(keys)))
	assert.ErrorContains(t, err, "float32-gflop")
}

func TestTolerance(t *testing.T) {
	dense := func(dtype string, k int64) (rtol, atol float64) {
		m := relay.NewGraph("main")
		x := m.Var([]int64{8, k}, dtype)
		d := m.Call("nn.dense", relay.Tensor(dtype, 8, 64), nil, x, m.Const([]int64{64, k}, dtype))
		g := m.Finish(d)
		return Tolerance(g, of(g, d))
	}
	small, smallA := dense(f32, 64)
	large, largeA := dense(f32, 65536)
	assert.Less(t, small, 2e-4)
	assert.Greater(t, large, 5*small, "longer sums, more roundings")
	assert.Greater(t, largeA, 5*smallA)
	assert.Less(t, large+largeA, 0.01, "an error of 1 % never passes")
	double, _ := dense("float64", 64)
	assert.Less(t, double, 1e-11)
	half, _ := dense("float16", 64)
	assert.Greater(t, half, 1e-3)
	assert.Less(t, half, 0.01)
	exactly, _ := dense("int32", 64)
	assert.Less(t, exactly, 1e-9)
	assert.Greater(t, exactly, 0.0, "0 would leave the choice to the worker")

	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 64, 8, 8}, f32)
	c := m.Call("nn.conv2d", relay.Tensor(f32, 1, 32, 8, 8),
		conv([]int64{1, 1}, []int64{1, 1, 1, 1}, []int64{3, 3}, 32), x,
		m.Const([]int64{32, 64, 3, 3}, f32))
	q := m.Call("qnn.quantize", relay.Tensor("int8", 1, 32, 8, 8), nil, c)
	g := m.Finish(q)
	assert.Equal(t, 64.0*9, reduced(g, &g.Nodes[c]))
	_, atol := Tolerance(g, of(g, c, q))
	assert.InDelta(t, 1.0/127, atol, 1e-3, "one unit")
}
