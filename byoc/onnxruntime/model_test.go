// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func float(shape ...int64) *relay.Type { return relay.Tensor("float32", shape...) }

// writtenAs writes a graph and reads it again.
func writtenAs(t *testing.T, m *relay.GraphMaker, root relay.NodeID) (*written, decoded) {
	p, err := region.FromGraph(m.Finish(root), "r")
	require.NoError(t, err)
	w, err := write(p, p.ConstantBytes, false)
	require.NoError(t, err)
	require.Len(t, w.names, len(w.constants))
	again, err := write(p, p.ConstantBytes, false)
	require.NoError(t, err)
	require.Equal(t, w, again, "the same region gives the same model")
	return w, decode(t, w.model)
}

func TestConvolutionWithBias(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{1, 8, 9, 9}, "float32")
	weight, bias := m.Const([]int64{16, 4, 3, 3}, "float32"), m.Const([]int64{16, 1, 1}, "float32")
	conv := m.Call("nn.conv2d", float(1, 16, 5, 5), map[string]any{"strides": []int{2, 2}, "padding": []int{1, 1, 1, 1},
		"dilation": []int{1, 1}, "groups": 2, "data_layout": "NCHW", "kernel_layout": "OIHW", "out_dtype": ""}, x,
		weight)
	relu := m.Call("nn.relu", float(1, 16, 5, 5), nil, m.Call("add", float(1, 16, 5, 5), nil, conv, bias))
	w, d := writtenAs(t, m, relu)
	assert.Equal(t, []string{
		"Reshape(c1, k0) -> g0/t1",
		"Conv(i0, c0, g0/t1) -> g1/v4 {kernel_shape=[3 3], strides=[2 2], dilations=[1 1], pads=[1 1 1 1], group=2}",
		"Relu(g1/v4) -> g2/o0",
	}, d.nodes)
	assert.Equal(t, []string{"i0 1[1 8 9 9]"}, d.inputs)
	assert.Equal(t, []string{"g2/o0 1[1 16 5 5]"}, d.outputs)
	assert.Equal(t, []string{"k0 7[1] 16", "c0 1[16 4 3 3] external", "c1 1[16 1 1] external"}, d.tensors)
	assert.Equal(t, []string{"c0", "c1"}, w.names)
	assert.Equal(t, []string{"g2/o0"}, w.outputs)
	assert.Equal(t, []string{"g0/n0", "g0/g1/n1", "g2/n2"}, d.names, "a node says which groups it does")
}

func TestOutputs(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{2, 4}, "float32")
	half := relay.TupleOf(float(2, 2), float(2, 2))
	parts := m.Call("split", half, map[string]any{"indices_or_sections": 2, "axis": 1}, x)
	left := m.Get(parts, 0)
	sum := m.Call("add", float(2, 2), nil, left, m.Get(parts, 1))
	_, d := writtenAs(t, m, m.Tuple(sum, left, x, sum))
	assert.Equal(t, []string{
		"Split(i0, k0) -> g0/o1, g0/v2 {axis=1}",
		"Add(g0/o1, g0/v2) -> g1/o0",
		"Identity(i0) -> o2",
		"Identity(g1/o0) -> g1/o3",
	}, d.nodes)
	assert.Equal(t, []string{"g1/o0 1[2 2]", "g0/o1 1[2 2]", "o2 1[2 4]", "g1/o3 1[2 2]"}, d.outputs)
}

func TestReshapesBecomeOne(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{2, 6}, "float32")
	a := m.Call("reshape", float(3, 4), nil, x)
	b := m.Call("expand_dims", float(1, 3, 4), nil, a)
	c := m.Call("squeeze", float(12), nil, b)
	_, d := writtenAs(t, m, m.Tuple(m.Call("exp", float(12), nil, c), b))
	assert.Equal(t, []string{"Reshape(i0, k0) -> g1/o1", "Reshape(g1/o1, k1) -> g2/v3", "Exp(g2/v3) -> g3/o0"}, d.nodes,
		"the first two are one, the third is not since its input is a result")
}

func TestConstantsThatNothingReadsAreLeftOut(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{2, 4}, "float32")
	scale, shift := m.Const([]int64{4}, "float32", "scale"), m.Const([]int64{4}, "float32", "shift")
	norm := m.Call("nn.layer_norm", float(2, 4),
		map[string]any{"axis": -1, "epsilon": 1e-3, "center": true, "scale": false}, x,
		scale, shift)
	w, d := writtenAs(t, m, norm)
	assert.Equal(t, []string{"LayerNormalization(i0, k0, c1) -> g0/o0 {axis=-1, epsilon=0.001}"}, d.nodes)
	assert.Equal(t, []string{"c1"}, w.names)
	assert.Contains(t, d.tensors, "k0 1[4] 1 1 1 1")
}

func TestSlicesEndBeforeTheBeginning(t *testing.T) {
	c := &call{name: "strided_slice", attrs: relay.NewAttrs("", map[string]any{"begin": []int{4}, "end": []int{-9},
		"strides": []int{-2}, "slice_mode": "end"}), args: []*relay.Type{float(5)}, results: []*relay.Type{float(3)}}
	r, err := c.slice()
	require.NoError(t, err)
	assert.Equal(t, ranges{begins: []int64{4}, ends: []int64{-6}, axes: []int64{0}, steps: []int64{-2}}, r)
}

func TestPoolsThatReachOverTheEnd(t *testing.T) {
	c := &call{name: "nn.max_pool2d", attrs: relay.NewAttrs("",
		map[string]any{"pool_size": []int{3, 3}, "strides": []int{2, 2},
			"padding": []int{0, 0, 0, 0}, "ceil_mode": true}), args: []*relay.Type{float(1, 1, 6, 7)},
		results: []*relay.Type{float(1, 1, 3, 3)}}
	w, err := c.pool(2)
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 0, 1, 0}, w.pads)
}

func TestRefusals(t *testing.T) {
	attrs := func(list ...any) *relay.Attrs {
		fields := map[string]any{}
		for i := 0; i < len(list); i += 2 {
			fields[list[i].(string)] = list[i+1]
		}
		return relay.NewAttrs("", fields)
	}
	types := func(list ...*relay.Type) []*relay.Type { return list }
	image := float(1, 8, 9, 9)
	for want, c := range map[string]*call{
		"not among the operators": {name: "nn.nothing", args: types(image), results: types(image)},
		"at least 1":              {name: "nn.relu", args: types(float(0, 4)), results: types(float(0, 4))},
		"no type for": {name: "copy", args: types(relay.Tensor("handle", 4)),
			results: types(relay.Tensor("handle", 4))},
		"ONNX's is \"NCHW\"": {name: "nn.conv2d", attrs: attrs("data_layout", "NHWC"),
			args:    types(image, float(8, 8, 1, 1)),
			results: types(image)},
		"is float64": {name: "nn.dense", args: types(relay.Tensor("float64", 2, 4), relay.Tensor("float64", 3, 4)),
			results: types(relay.Tensor("float64", 2, 3))},
		"which overlap": {name: "nn.adaptive_avg_pool2d", args: types(image), results: types(float(1, 8, 2, 2))},
		"lie in the padding alone": {name: "nn.max_pool2d",
			attrs: attrs("pool_size", []int{2, 2}, "padding", []int{2, 2, 0, 0}),
			args:  types(image), results: types(float(1, 8, 10, 10))},
		"works along axis 1": {name: "nn.layer_norm", attrs: attrs("axis", 1), args: types(image, float(8), float(8)),
			results: types(image)},
		"depends on how numbers are rounded": {name: "image.resize2d", attrs: attrs("method", "nearest_neighbor",
			"coordinate_transformation_mode", "asymmetric", "rounding_method", "floor"), args: types(float(1, 1, 6, 6)),
			results: types(float(1, 1, 14, 14))},
		"no transposition": {name: "layout_transform", attrs: attrs("src_layout", "NCHW", "dst_layout", "NCHW4c"),
			args:    types(image),
			results: types(float(1, 2, 9, 9, 4))},
		"batch_dims=1": {name: "take", attrs: attrs("axis", 1, "batch_dims", 1),
			args:    types(image, relay.Tensor("int32", 1, 2)),
			results: types(float(1, 2, 9, 9))},
		"the indices is int8": {name: "take", attrs: attrs("axis", 0), args: types(image, relay.Tensor("int8", 2)),
			results: types(float(2, 8, 9, 9))},
		"the condition is int32": {name: "where", args: types(relay.Tensor("int32", 4), float(4), float(4)),
			results: types(float(4))},
		"reduces no axis": {name: "sum", attrs: attrs("axis", []int{0}, "exclude", true), args: types(float(4)),
			results: types(float(4))},
	} {
		_, err := supported(c)
		assert.ErrorContains(t, err, want)
	}
}
