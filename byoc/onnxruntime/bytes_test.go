// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

var image = float(1, 4, 8, 8)

// convolved is a convolution of four channels, by weights of its own.
func convolved(m *relay.GraphMaker, x relay.NodeID, name string) relay.NodeID {
	attrs := map[string]any{"strides": []int{1, 1}, "padding": []int{1, 1, 1, 1}, "dilation": []int{1, 1}, "groups": 1}
	return m.Call("nn.conv2d", image, attrs, x, m.Const([]int64{4, 4, 3, 3}, "float32", name))
}

func added(m *relay.GraphMaker, x relay.NodeID, name string) relay.NodeID {
	return m.Call("add", image, nil, x, m.Const([]int64{4, 1, 1}, "float32", name))
}

// rounded is a tensor on its way to bytes and back.
func rounded(m *relay.GraphMaker, x relay.NodeID, t *relay.Type, scale, zero float64) relay.NodeID {
	by := []relay.NodeID{m.Scalar(scale, "float32"), m.Scalar(zero, "int32")}
	bytes := m.Call("qnn.quantize", relay.Tensor("uint8", t.Shape...), nil, x, by[0], by[1])
	return m.Call("qnn.dequantize", t, nil, bytes, by[0], by[1])
}

// inBytesAll has all of a graph computed in bytes.
func inBytesAll(t *testing.T, m *relay.GraphMaker, root relay.NodeID) *region.Program {
	p, err := region.FromGraph(m.Finish(root), "r")
	require.NoError(t, err)
	names, _ := p.Groups()
	p.Graph.Attrs = map[string]string{region.PrecisionsAttr: strings.TrimSpace(strings.Repeat("int8 ", len(names)))}
	return p
}

// elementsOf gives constants the elements that a function has for them.
func elementsOf(p *region.Program, of func(t *relay.Type, i int64) float32) func(region.ValueID) ([]byte, error) {
	return func(v region.ValueID) ([]byte, error) {
		var data []byte
		size, _ := p.Values[v].Type.NumElements()
		for i := range size {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(of(p.Values[v].Type, i)))
		}
		return data, nil
	}
}

func half(*relay.Type, int64) float32 { return 0.5 }

// A convolution whose result is rounded behind its bias and activation reads bytes and has a bias in steps of its sums;
// what is rectified has no other bytes than what is not. One whose result nobody rounds stays in float32.
func TestConvolutionsInBytes(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	x := rounded(m, m.Var(image.Shape, "float32"), image, 0.25, 3)
	relu := m.Call("nn.relu", image, nil, added(m, convolved(m, x, "first"), "bias"))
	y := rounded(m, relu, image, 0.5, 0)
	clip := m.Call("clip", image, map[string]any{"a_min": 0.0, "a_max": 6.0}, convolved(m, y, "second"))
	z := rounded(m, clip, image, 6.0/255, 0)
	p := inBytesAll(t, m, convolved(m, z, "third"))
	w, err := write(p, elementsOf(p, half), false)
	require.NoError(t, err)
	d := decode(t, w.model)
	const conv = " {kernel_shape=[3 3], strides=[1 1], dilations=[1 1], pads=[1 1 1 1], group=1}"
	assert.Equal(t, []string{
		"QuantizeLinear(i0, k0, k1) -> g0/v3",
		"DequantizeLinear(g0/v3, k0, k1) -> g1/v4",
		"DequantizeLinear(c0, c1, k2) -> g2/g3/g4/t1 {axis=0}",
		"DequantizeLinear(c2, c3, k3) -> g2/g3/g4/t2 {axis=0}",
		"Conv(g1/v4, g2/g3/g4/t1, g2/g3/g4/t2) -> g4/v9" + conv,
		"QuantizeLinear(g4/v9, k4, k5) -> g5/v12",
		"DequantizeLinear(g5/v12, k4, k5) -> g6/v13",
		"DequantizeLinear(c4, c5, k2) -> g7/g8/t3 {axis=0}",
		"Conv(g6/v13, g7/g8/t3) -> g8/v16" + conv,
		"QuantizeLinear(g8/v16, k6, k5) -> g9/v19",
		"DequantizeLinear(g9/v19, k6, k5) -> g10/v20",
		"Conv(g10/v20, c6) -> g11/o0" + conv,
	}, d.nodes)
	types := map[string]int{}
	for _, v := range w.constants {
		types[p.Values[v].Type.String()]++
	}
	assert.Equal(t, map[string]int{"Tensor[(4, 4, 3, 3), int8]": 2, "Tensor[(4), float32]": 3, "Tensor[(4), int32]": 1,
		"Tensor[(4, 4, 3, 3), float32]": 1}, types, "nobody has a bias or weights that are not read")
	assert.Equal(t, byte(127), w.made[w.constants[0]][0])
	step := float32(0.25 * float32(0.5/127.0))
	got := int32(binary.LittleEndian.Uint32(w.made[w.constants[2]]))
	assert.InDelta(t, 0.5, float64(got)*float64(step), float64(step))
}

// Steps that an activation does not reach the ends of, as nothing that was seen has, are no reason to leave it out.
func TestActivationsThatDoMoreThanSaturate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op    string
		attrs map[string]any
		scale float64
		zero  float64
		bytes bool
	}{
		{"nn.relu", nil, 0.1, 0, true}, {"nn.relu", nil, 0.1, 1, false},
		{"clip", map[string]any{"a_min": 0.0, "a_max": 6.0}, 6.0 / 255, 0, true},
		{"clip", map[string]any{"a_min": 0.0, "a_max": 6.0}, 5.0 / 255, 0, true},
		{"clip", map[string]any{"a_min": 0.0, "a_max": 6.0}, 7.0 / 255, 0, false},
		{"clip", map[string]any{"a_min": -1.0, "a_max": 1.0}, 2.0 / 255, 128, true},
		{"clip", map[string]any{"a_min": -1.0, "a_max": 1.0}, 3.0 / 255, 128, false},
		{"clip", map[string]any{"a_min": -2.0, "a_max": 2.0}, 2.0 / 255, 127, true},
		{"sigmoid", nil, 1.0 / 255, 0, false},
	} {
		m := relay.NewGraph("r")
		x := rounded(m, m.Var(image.Shape, "float32"), image, 0.25, 3)
		p := inBytesAll(t, m, rounded(m, m.Call(c.op, image, c.attrs, convolved(m, x, "w")), image, c.scale, c.zero))
		w, err := write(p, elementsOf(p, half), false)
		require.NoError(t, err)
		nodes := strings.Join(decode(t, w.model).nodes, "\n")
		assert.Equal(t, c.bytes, strings.Contains(nodes, "DequantizeLinear(c0"), "%v\n%s", c, nodes)
		kept := strings.Contains(nodes, "Relu(") || strings.Contains(nodes, "Clip(") || strings.Contains(nodes, "Sigmoid(")
		assert.Equal(t, c.bytes, !kept, "%v", c)
	}
}

// A dense layer reads bytes and gives float32; what was not rounded for it is multiplied in float32.
func TestDenseLayersInBytes(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	x := rounded(m, m.Var([]int64{2, 3}, "float32"), float(2, 3), 0.25, 128)
	first := m.Call("add", float(2, 4), nil, m.Call("nn.dense", float(2, 4), nil, x, m.Const([]int64{4, 3}, "float32", "a")),
		m.Const([]int64{4}, "float32", "bias"))
	p := inBytesAll(t, m, m.Call("nn.dense", float(2, 5), nil, first, m.Const([]int64{5, 4}, "float32", "b")))
	w, err := write(p, elementsOf(p, func(_ *relay.Type, i int64) float32 { return float32(i) }), false)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"QuantizeLinear(i0, k0, k1) -> g0/v3",
		"DequantizeLinear(g0/v3, k0, k1) -> g1/v4",
		"DequantizeLinear(c0, c1, k2) -> g2/g3/t1 {axis=0}",
		"DequantizeLinear(c2, c3, k3) -> g2/g3/t2 {axis=0}",
		"Gemm(g1/v4, g2/g3/t1, g2/g3/t2) -> g3/v8 {transB=1}",
		"Gemm(g3/v8, c4) -> g4/o0 {transA=0, transB=1}",
	}, decode(t, w.model).nodes)
	assert.Equal(t, "Tensor[(4, 3), int8]", p.Values[w.constants[0]].Type.String())
}

// One of more dimensions is one of two.
func TestDenseLayersOfMoreDimensionsInBytes(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	x := rounded(m, m.Var([]int64{2, 7, 3}, "float32"), float(2, 7, 3), 0.25, 128)
	p := inBytesAll(t, m, m.Call("nn.dense", float(2, 7, 4), nil, x, m.Const([]int64{4, 3}, "float32", "a")))
	w, err := write(p, elementsOf(p, half), false)
	require.NoError(t, err)
	d := decode(t, w.model)
	assert.Equal(t, []string{
		"DequantizeLinear(c0, c1, k2) -> g2/t1 {axis=0}",
		"Reshape(g1/v4, k3) -> g2/t2",
		"Gemm(g2/t2, g2/t1) -> g2/t3 {transB=1}",
		"Reshape(g2/t3, k4) -> g2/o0",
	}, d.nodes[2:])
	assert.Contains(t, d.tensors, "k3 7[2] 14 3")
	assert.Contains(t, d.tensors, "k4 7[3] 2 7 4")
}

// Whatever a bias is against weights, what the steps stand for is it to a millionth, and weights are off by no more than
// half a step that is short against it.
func TestBiasesOfAllSizes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		const size = 9
		of := &inBytesOp{scale: float32(math.Exp(r.NormFloat64()))}
		weight, bias := float32(math.Exp(20*r.NormFloat64())), float32(math.Exp(20*r.NormFloat64()))
		switch r.IntN(8) {
		case 0:
			weight = 0
		case 1:
			bias = 0
		}
		for i := range size {
			of.elements = binary.LittleEndian.AppendUint32(of.elements, math.Float32bits(weight*float32(i-4)/4))
			of.weights = append(of.weights, byte(int8(math.Round(127*float64(i-4)/4))))
		}
		if weight == 0 {
			of.weights = make([]byte, size)
		}
		of.scales = binary.LittleEndian.AppendUint32(nil, math.Float32bits(weight/127))
		of.bias = binary.LittleEndian.AppendUint32(nil, math.Float32bits(bias))
		require.True(t, of.biasFits())
		steps, scales := of.biasSteps()
		scale, by := floatAt(of.scales, 0), floatAt(scales, 0)
		require.Equal(t, of.scale*scale, by)
		require.Positive(t, by)
		require.InEpsilon(t, 1+float64(bias), 1+float64(int32(binary.LittleEndian.Uint32(steps)))*float64(by), 1e-6+float64(by)/(1+float64(bias)))
		for i := range size {
			off := math.Abs(float64(int8(of.weights[i]))*float64(scale) - float64(floatAt(of.elements, i)))
			require.LessOrEqual(t, off, 0.5001*float64(scale))
			if scale > 1.001*weight/127 && bias > 0 {
				require.Less(t, 255*off*float64(of.scale), 2e-7*float64(bias)+1e-30, "longer for the sake of the bias only")
			}
		}
	}
}

func TestWhatIsNotFiniteStaysInFloat32(t *testing.T) {
	t.Parallel()
	for _, odd := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		for _, rank := range []int{3, 4} {
			m := relay.NewGraph("r")
			x := rounded(m, m.Var(image.Shape, "float32"), image, 0.25, 3)
			p := inBytesAll(t, m, rounded(m, added(m, convolved(m, x, "w"), "b"), image, 1, 0))
			w, err := write(p, elementsOf(p, func(of *relay.Type, i int64) float32 {
				if len(of.Shape) == rank && i == 2 {
					return odd
				}
				return 1
			}), false)
			require.NoError(t, err)
			for _, v := range w.constants {
				assert.Equal(t, "float32", p.Values[v].Type.DType)
			}
		}
	}
}

func TestScalesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, by := range [][2]float64{{0, 0}, {-1, 0}, {math.Inf(1), 0}, {1, 256}, {1, -1}} {
		m := relay.NewGraph("r")
		p := inBytesAll(t, m, rounded(m, m.Var(image.Shape, "float32"), image, by[0], by[1]))
		_, err := write(p, elementsOf(p, half), false)
		assert.ErrorContains(t, err, "is not one of each", by)
	}
}

// What convolutions make is rounded behind bias and activation, for all; what dense layers make is not. A candidate
// that cuts a convolution off from there is none, and nothing is of networks that come quantised.
func TestWhatIsRounded(t *testing.T) {
	t.Parallel()
	b := NewINT8()
	require.NoError(t, byoc.Validate(b))
	require.Equal(t, byoc.INT8, byoc.PrecisionOf(b))
	require.Equal(t, Name, byoc.WideOf(b))
	require.True(t, byoc.ShareRegions(b, New()))
	m := relay.NewGraph("main")
	x := m.Var(image.Shape, "float32")
	conv := convolved(m, x, "first")
	sum := added(m, conv, "bias")
	relu := m.Call("nn.relu", image, nil, sum)
	second := convolved(m, relu, "second")
	bias := added(m, second, "bias of it")
	residual := m.Call("add", image, nil, bias, relu)
	flat := m.Call("reshape", float(1, 256), map[string]any{"newshape": []int{1, -1}}, residual)
	dense := m.Call("nn.dense", float(1, 8), nil, flat, m.Const([]int64{8, 256}, "float32"))
	g := m.Finish(m.Call("nn.relu", float(1, 8), nil, dense))
	all := []relay.NodeID{conv, sum, relu, second, bias, residual, flat, dense}
	require.Equal(t, []relay.NodeID{x, relu, bias, flat}, byoc.RoundedBy(b, g, all))
	require.Equal(t, []relay.NodeID{relu, bias}, byoc.GivenBy(b, g, all))
	require.Empty(t, byoc.GivenBy(New(), g, all))
	require.Equal(t, []relay.NodeID{relu, bias}, byoc.RoundedBy(b, g, []relay.NodeID{second, bias}))
	found := map[string][]relay.NodeID{}
	for _, p := range b.Patterns() {
		for v := range g.Nodes {
			for _, match := range g.Match(p.Shape, relay.NodeID(v)) {
				if p.Limits(g, match) == nil {
					found[strings.TrimPrefix(p.Composite, "onnxruntime_int8.")] = match.Nodes
				}
			}
		}
	}
	require.Equal(t, []relay.NodeID{conv, sum, relu}, found["conv2d_bias_relu"])
	require.Equal(t, []relay.NodeID{second, bias}, found["conv2d_bias"])
	require.Equal(t, []relay.NodeID{second, bias, residual}, found["conv2d_bias_sum"])
	require.NotContains(t, found, "conv2d")
	require.Contains(t, found, "dense")
	proposals := b.(byoc.Proposer).Propose(g, nil)
	require.NotEmpty(t, proposals)

	m = relay.NewGraph("main")
	g = m.Finish(convolved(m, rounded(m, m.Var(image.Shape, "float32"), image, 1, 0), "first"))
	require.Empty(t, b.(byoc.Proposer).Propose(g, nil))
	var nodes []relay.NodeID
	for v := range g.Nodes {
		nodes = append(nodes, relay.NodeID(v))
	}
	require.Empty(t, byoc.RoundedBy(b, g, nodes))
	require.Empty(t, byoc.GivenBy(b, g, nodes))
}
