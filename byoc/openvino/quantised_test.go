// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// steps is a tensor on its way to bytes and back.
func steps(m *relay.GraphMaker, x relay.NodeID, t *relay.Type, dtype string, scale, zero float64) relay.NodeID {
	by := []relay.NodeID{m.Scalar(scale, f32), m.Scalar(zero, "int32")}
	bytes := m.Call("qnn.quantize", relay.Tensor(dtype, t.Shape...), nil, x, by[0], by[1])
	return m.Call("qnn.dequantize", t, nil, bytes, by[0], by[1])
}

// quantisedNetwork has a convolution of what is no bytes, one of bytes, a dense layer of bytes that were laid out anew,
// and a constant that is a weight and more.
func quantisedNetwork() *relay.Graph {
	m := relay.NewGraph("tvmgen_default_collage_openvino_main_0")
	image := f(1, 4, 8, 8)
	conv := func(x relay.NodeID, name string) relay.NodeID {
		return m.Call("nn.conv2d", image, convAttrs(), x, m.Const([]int64{4, 4, 3, 3}, f32, name))
	}
	x := conv(m.Var(image.Shape, f32), "first")
	x = m.Call("nn.relu", image, nil, conv(steps(m, x, image, "uint8", 0.25, 3), "second"))
	flat := m.Call("reshape", f(1, 256), map[string]any{"newshape": []int{1, -1}}, steps(m, x, image, "int8", 0.5, -128))
	dense := m.Call("nn.dense", f(1, 8), nil, flat, m.Const([]int64{8, 256}, f32))
	shared := m.Const([]int64{8, 8}, f32, "shared")
	last := m.Call("nn.dense", f(1, 8), nil, steps(m, dense, f(1, 8), "uint8", 1, 0), shared)
	return m.Finish(m.Tuple(last, m.Call("add", f(8, 8), nil, shared, last)))
}

// ones are the elements of any constant, but for one.
func ones(p *region.Program, odd float32) func(region.ValueID) ([]byte, error) {
	return func(v region.ValueID) ([]byte, error) {
		size, _ := p.Values[v].Type.NumBytes()
		var data []byte
		for range size/4 - 1 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(1))
		}
		return binary.LittleEndian.AppendUint32(data, math.Float32bits(odd)), nil
	}
}

func TestGoldenQuantisedIR(t *testing.T) {
	t.Parallel()
	p := program(t, quantisedNetwork())
	w, constants, err := writeWith(in(p, byoc.INT8), ones(p, -1))
	require.NoError(t, err)
	types := map[string]int{}
	for _, v := range constants {
		types[p.Values[v].Type.String()]++
	}
	assert.Equal(t, 1, types["Tensor[(4, 4, 3, 3), int8]"], "the one that reads bytes")
	assert.Equal(t, 1, types["Tensor[(4, 4, 3, 3), float32]"], "the one that does not")
	assert.Equal(t, 1, types["Tensor[(8, 256), int8]"])
	assert.Equal(t, 1, types["Tensor[(8, 8), float32]"], "somebody else reads it, too")
	text, err := w.net.text()
	require.NoError(t, err)
	path := filepath.Join("testdata", "quantised.xml")
	if *update {
		require.NoError(t, os.WriteFile(path, text, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./byoc/openvino -update and review the diff")
	require.Equal(t, string(want), string(text))
}

func TestWeightsThatAreNotFiniteStayFloat32(t *testing.T) {
	t.Parallel()
	for _, odd := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		p := program(t, quantisedNetwork())
		_, constants, err := writeWith(in(p, byoc.INT8), ones(p, odd))
		require.NoError(t, err)
		for _, v := range constants {
			assert.NotEqual(t, "int8", p.Values[v].Type.DType)
		}
	}
}

// In float32 nothing is put into the bounds of a quantisation that stands behind it.
func TestInFloat32WeightsStayAndRoundingIsSpelledOut(t *testing.T) {
	t.Parallel()
	p := program(t, quantisedNetwork())
	w, constants, err := write(p)
	require.NoError(t, err)
	for _, v := range constants {
		assert.NotEqual(t, "int8", p.Values[v].Type.DType)
	}
	count := map[string]int{}
	for _, l := range w.net.Layers {
		count[l.Type]++
	}
	assert.Zero(t, count["FakeQuantize"])
	assert.Equal(t, []int{3, 3, 3}, []int{count["Divide"], count["Round"], count["Clamp"]})
}

func TestQuantisationLimits(t *testing.T) {
	t.Parallel()
	for because, change := range map[string]func(m *relay.GraphMaker) relay.NodeID{
		"": func(m *relay.GraphMaker) relay.NodeID {
			return steps(m, m.Var([]int64{2, 3}, f32), f(2, 3), "int8", 0.5, -3)
		},
		"qnn.quantize has as steps a tensor of int16; only uint8, int8 is supported": func(m *relay.GraphMaker) relay.NodeID {
			return steps(m, m.Var([]int64{2, 3}, f32), f(2, 3), "int16", 0.5, -3)
		},
		"qnn.quantize has the scale 0, which is no length of a step": func(m *relay.GraphMaker) relay.NodeID {
			return steps(m, m.Var([]int64{2, 3}, f32), f(2, 3), "int8", 0, -3)
		},
		"qnn.quantize has the zero -3, which is no uint8": func(m *relay.GraphMaker) relay.NodeID {
			return steps(m, m.Var([]int64{2, 3}, f32), f(2, 3), "uint8", 1, -3)
		},
		"qnn.quantize has a scale or a zero that is not one constant number for all elements": func(m *relay.GraphMaker) relay.NodeID {
			return m.Call("qnn.quantize", relay.Tensor("int8", 2, 3), nil, m.Var([]int64{2, 3}, f32), m.Const([]int64{3}, f32),
				m.Scalar(0, "int32"))
		},
	} {
		m := relay.NewGraph("main")
		g := m.Finish(change(m))
		told := ""
		for id := range g.Nodes {
			if g.Nodes[id].Kind == relay.KindCall && told == "" {
				if err := check(callOf(g, relay.NodeID(id))); err != nil {
					told = err.Error()
				}
			}
		}
		require.Equal(t, because, told)
	}
}

// What is multiplied by constants is rounded by scales that are found, unless the network has its own.
func TestRounded(t *testing.T) {
	t.Parallel()
	b := NewINT8()
	require.NoError(t, byoc.Validate(b))
	require.Equal(t, byoc.INT8, byoc.PrecisionOf(b))
	require.Equal(t, Name, byoc.WideOf(b))
	every := func(g *relay.Graph) []relay.NodeID {
		var nodes []relay.NodeID
		for id := range g.Nodes {
			nodes = append(nodes, relay.NodeID(id))
		}
		return byoc.RoundedBy(b, g, nodes)
	}
	m := relay.NewGraph("main")
	image := f(1, 4, 8, 8)
	x := m.Var(image.Shape, f32)
	weight := m.Const([]int64{4, 4, 3, 3}, f32)
	conv := m.Call("nn.conv2d", image, convAttrs(), x, weight)
	relu := m.Call("nn.relu", image, nil, conv)
	again := m.Call("nn.conv2d", image, convAttrs(), relu, weight)
	beside := m.Call("nn.conv2d", image, convAttrs(), relu, m.Const([]int64{4, 4, 3, 3}, f32, "beside"))
	flat := m.Call("reshape", f(1, 256), map[string]any{"newshape": []int{1, -1}}, m.Call("add", image, nil, again, beside))
	product := m.Call("nn.dense", f(1, 1), nil, flat, flat) // of no constant
	open := m.Call("nn.dense", f(relay.AnyDim, 2), nil, m.Var([]int64{relay.AnyDim, 3}, f32), m.Const([]int64{2, 3}, f32))
	g := m.Finish(m.Tuple(product, open))
	require.Equal(t, []relay.NodeID{x, relu}, every(g))
	require.Equal(t, []relay.NodeID{relu}, byoc.RoundedBy(b, g, []relay.NodeID{again, beside}))
	require.Empty(t, byoc.RoundedBy(b, g, []relay.NodeID{relu, product}))
	require.Empty(t, byoc.RoundedBy(New(), g, []relay.NodeID{conv}))
	require.Empty(t, byoc.RoundedBy(NewBF16(), g, []relay.NodeID{conv}))
	require.Empty(t, every(quantisedNetwork()))
	require.Equal(t, []relay.NodeID{x, relu}, every(g), "asked again")
}
