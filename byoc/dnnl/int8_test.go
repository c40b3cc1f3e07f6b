// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Candidates of dnnl_int8 stand beside those of dnnl and native_int8 in one region. A weight that both multiply as
// bytes is there once; one of groups has a scale for each of all their channels.
func TestWhatOneDNNComputesInBytes(t *testing.T) {
	t.Parallel()
	m := newRegion()
	data, weight, each := f(1, 16, 6, 6), f(16, 16, 3, 3), f(16, 8, 3, 3)
	x := m.Var(data.Shape, "float32")
	w := m.Const(weight.Shape, f32)
	y := m.composite(INT8Name+".conv2d_bias_relu", data, func(p []relay.NodeID) relay.NodeID {
		sum := m.Call("nn.conv2d", data, conv2dAttrs(), p[0], p[1])
		return m.Call("nn.relu", data, nil, m.Call("nn.bias_add", data, map[string]any{"axis": 1}, sum, p[2]))
	}, []*relay.Type{data, weight, f(16)}, x, w, m.Const([]int64{16}, f32))
	y = m.as(native.INT8Name+".conv2d", "nn.conv2d", conv2dAttrs(), data, []*relay.Type{data, weight}, y, w)
	y = m.Call("nn.relu", data, nil, y)
	y = m.as(INT8Name+".conv2d", "nn.conv2d", with(conv2dAttrs(), "groups", 2), data, []*relay.Type{data, each}, y,
		m.Const(each.Shape, f32))
	flat := m.Call("nn.batch_flatten", f(1, 576), nil, y)
	y = m.as(INT8Name+".dense", "nn.dense", nil, f(1, 16), []*relay.Type{f(1, 576), f(16, 576)}, flat,
		m.Const([]int64{16, 576}, f32))
	p, err := region.FromGraph(m.Finish(y), "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	text, constants := bytesText(t, p, func(v region.ValueID) ([]byte, error) {
		return make([]byte, 4*relay.Elements(p.Values[v].Type.Shape)), nil
	})
	goldenText(t, "onednn_bytes.json", text)
	assert.Equal(t, 2, strings.Count(text, `{"op": "conv", "kernel": "onednn_bytes"`))
	assert.Equal(t, 1, strings.Count(text, `{"op": "conv", "kernel": "bytes"`))
	assert.Equal(t, 1, strings.Count(text, `{"op": "matmul", "kernel": "onednn_bytes"`))
	types := map[string]int{}
	for _, v := range constants {
		types[p.Values[v].Type.DType+relay.IntsText(p.Values[v].Type.Shape)]++
	}
	assert.Equal(t, map[string]int{"int8[16, 16, 3, 3]": 1, "int8[16, 8, 3, 3]": 1, "int8[16, 576]": 1, "float32[16]": 4},
		types)
}

// Each channel of each group is rounded by a scale of its own, in whatever order its weight lies.
func TestChannelsOfGroupsAsBytes(t *testing.T) {
	t.Parallel()
	for layout, shape := range map[string][]int64{"OIHW": {16, 8, 1, 1}, "HWIO": {1, 1, 8, 16}} {
		m := newRegion()
		data := map[string]*relay.Type{"OIHW": f(1, 16, 4, 4), "HWIO": f(1, 4, 4, 16)}[layout]
		attrs := with(conv2dAttrs(), "groups", 2, "padding", []int64{0, 0, 0, 0}, "kernel_layout", layout)
		if layout == "HWIO" {
			attrs = with(attrs, "data_layout", "NHWC")
		}
		weight := f(shape...)
		y := m.as(INT8Name+".conv2d", "nn.conv2d", attrs, data, []*relay.Type{data, weight}, m.Var(data.Shape, f32),
			m.Const(shape, f32))
		p, err := region.FromGraph(m.Finish(y), "tvmgen_default_collage_dnnl_main_0")
		require.NoError(t, err)
		l, err := lower(p)
		require.NoError(t, err)
		require.NoError(t, l.roundWeights(func(region.ValueID) ([]byte, error) {
			numbers := make([]float32, 128)
			for i := range numbers {
				channel := i / 8
				if layout == "HWIO" {
					channel = i % 16
				}
				numbers[i] = float32(channel + 1)
			}
			return floatsOf(numbers...), nil
		}))
		o := l.ops[len(l.ops)-1]
		scales := l.made[o.in[len(o.in)-1]]
		require.Len(t, scales, 4*16)
		for channel := range 16 {
			want := floatsOf(float32(channel+1) / 127)
			assert.Equal(t, binary.LittleEndian.Uint32(want), binary.LittleEndian.Uint32(scales[4*channel:]), layout)
		}
		for _, b := range l.made[o.in[1]] {
			require.Equal(t, byte(127), b, layout)
		}
	}
}

func TestTheBackendOfBytesIsValid(t *testing.T) {
	t.Parallel()
	b := NewINT8()
	require.NoError(t, byoc.Validate(b))
	assert.Equal(t, byoc.INT8, byoc.PrecisionOf(b))
	assert.Equal(t, Name, byoc.WideOf(b))
	assert.True(t, byoc.ShareRegions(b, New()))
	assert.Equal(t, []string{native.GridKernel, BytesKernel}, byoc.Kernels(b))
	for _, p := range b.Patterns() {
		assert.True(t, strings.HasPrefix(p.Composite, INT8Name+"."), p.Composite)
		assert.False(t, p.Bare || p.Grouped || p.Reassociates, p.Composite)
		assert.NotEmpty(t, p.LimitsText, p.Composite)
	}
}

func TestWhatOneDNNMayComputeInBytes(t *testing.T) {
	t.Parallel()
	// layer is a graph of one operator on a variable and a weight, which is a constant or not.
	layer := func(op string, attrs map[string]any, out, in, weight *relay.Type, constant bool) *relay.Graph {
		m := relay.NewGraph("main")
		w := m.Var(weight.Shape, f32)
		if constant {
			w = m.Const(weight.Shape, f32)
		}
		return m.Finish(m.Call(op, out, attrs, m.Var(in.Shape, in.DType), w))
	}
	conv := func(in, out, groups int64, constant bool) *relay.Graph {
		return layer("nn.conv2d", with(conv2dAttrs(), "groups", int(groups)), f(1, out, 8, 8), f(1, in, 8, 8),
			f(out, in/groups, 3, 3), constant)
	}
	dense := func(length int64, constant bool) *relay.Graph {
		return layer("nn.dense", nil, f(4, 16), f(4, length), f(16, length), constant)
	}
	for _, c := range []struct {
		composite string
		g         *relay.Graph
		refusal   string // "": taken
	}{
		{"conv2d", conv(3, 5, 1, true), ""},
		{"conv2d", conv(16, 32, 2, true), ""},
		{"conv2d", conv(32, 16, 2, true), ""},
		{"conv2d", layer("nn.conv2d", with(conv2dAttrs(), "data_layout", "NHWC", "kernel_layout", "HWIO", "groups", 2),
			f(1, 8, 8, 16), f(1, 8, 8, 32), f(3, 3, 16, 16), true), ""},
		{"conv2d", conv(14, 32, 2, true), "groups are of at least 8 channels"},
		{"conv2d", conv(32, 14, 2, true), "groups are of at least 8 channels"},
		{"conv2d", conv(16, 16, 16, true), "groups are of at least 8 channels"},
		{"conv2d", conv(16, 16, 1, false), "a weight that is a constant"},
		{"conv2d", conv(7281, 16, 1, true), ""},
		{"conv2d", conv(7282, 16, 1, true), "adds up at most 65536 products of bytes, these are 65538"},
		{"dense", dense(7, true), ""},
		{"dense", dense(65536, true), ""},
		{"dense", dense(65537, true), "adds up at most 65536 products of bytes, these are 65537"},
		{"dense", dense(7, false), "a weight and a bias that are constants"},
	} {
		verdict := "it is no match"
		for _, r := range byteRules() {
			if r.Composite != INT8Name+"."+c.composite {
				continue
			}
			for _, match := range c.g.Match(r.Shape, c.g.Root()) {
				verdict = ""
				if err := r.Limits(c.g, match); err != nil {
					verdict = err.Error()
				}
			}
		}
		if c.refusal == "" {
			assert.Empty(t, verdict, c.composite)
		} else {
			assert.Contains(t, verdict, c.refusal)
		}
	}
}
