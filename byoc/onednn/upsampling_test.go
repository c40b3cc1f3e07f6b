// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// upsampled is a graph of an upsampling and a convolution behind it.
func upsampled(up string, upAttrs map[string]any, in, large *relay.Type, changes ...any) *relay.Graph {
	m := relay.NewGraph("main")
	x := m.Call(up, large, upAttrs, m.Var(in.Shape, in.DType))
	attrs := with(conv2dAttrs(), changes...)
	out, weight := f(1, 32, 16, 16), f(32, 8, 3, 3)
	if attrs["data_layout"] == "NHWC" {
		out, weight = f(1, 16, 16, 32), f(3, 3, 8, 32)
	}
	return m.Finish(m.Call("nn.conv2d", out, attrs, x, m.Const(weight.Shape, weight.DType)))
}

// upsampledVerdict says whether the rule takes a graph, with which scale, and if not why.
func upsampledVerdict(t *testing.T, g *relay.Graph) (scale []int64, refusal string) {
	t.Helper()
	for _, r := range upsampledRules() {
		for _, m := range g.Match(r.Shape, g.Scopes[0].Root) {
			if err := r.Limits(g, m); err != nil {
				refusal = err.Error()
				continue
			}
			layer, err := r.Read(g, m)
			require.NoError(t, err)
			return layer.(*Convolution).Scale, ""
		}
	}
	return nil, refusal
}

func TestUpsampledConvolutionLimits(t *testing.T) {
	small, large := f(1, 8, 8, 8), f(1, 8, 16, 16)
	nearest := map[string]any{"layout": "NCHW", "method": "nearest_neighbor"}
	resize := with(nearest, "coordinate_transformation_mode", "asymmetric", "rounding_method", "floor")
	last := []any{"data_layout", "NHWC", "kernel_layout", "HWIO"}
	for _, c := range []struct {
		name  string
		g     *relay.Graph
		scale []int64
	}{
		{"both", upsampled("nn.upsampling", nearest, small, large), []int64{2, 2}},
		{"one axis", upsampled("nn.upsampling", nearest, f(1, 8, 16, 4), large), []int64{1, 4}},
		{"padding", upsampled("nn.upsampling", nearest, small, large, "padding", []int64{0, 2, 5, 1}), []int64{2, 2}},
		{"last", upsampled("nn.upsampling", with(nearest, "layout", "NHWC"), f(1, 4, 8, 8), f(1, 16, 16, 8), last...),
			[]int64{4, 2}},
		{"ONNX", upsampled("image.resize2d", resize, small, large), []int64{2, 2}},
		{"centres", upsampled("image.resize2d",
			with(resize, "coordinate_transformation_mode", "half_pixel", "rounding_method", "round_prefer_floor"),
			small, large), []int64{2, 2}},
	} {
		scale, refusal := upsampledVerdict(t, c.g)
		require.Equal(t, c.scale, scale, "%s: %s", c.name, refusal)
	}
	for because, g := range map[string]*relay.Graph{
		"only with strides of 1":  upsampled("nn.upsampling", nearest, small, large, "strides", []int64{2, 1}),
		"only with dilation of 1": upsampled("nn.upsampling", nearest, small, large, "dilation", []int64{2, 2}),
		"do not fit":              upsampled("nn.upsampling", nearest, small, large, "groups", 2),
		"does not enlarge":        upsampled("nn.upsampling", nearest, large, large),
		"at most 16 is supported": upsampled("nn.upsampling", nearest, f(1, 8, 1, 1), f(1, 8, 17, 1)),
		`the method "bilinear"`: upsampled("nn.upsampling", with(nearest, "method", "bilinear"), small,
			large),
		"not whole": upsampled("image.resize2d", resize, f(1, 8, 12, 8), large),
		"takes pixels otherwise": upsampled("image.resize2d", with(resize, "rounding_method", "ceil"), small,
			large),
		"(align_corners, round)": upsampled("image.resize2d",
			with(resize, "coordinate_transformation_mode", "align_corners", "rounding_method", "round"), small, large),
		`data in "NHWC", the convolution`: upsampled("nn.upsampling", with(nearest, "layout", "NHWC"), small, large),
		"negative padding": upsampled("nn.upsampling", nearest, small, large, "padding",
			[]int64{-1, 0, 0, 0}),
		"is float16; only float32": upsampled("nn.upsampling", nearest, relay.Tensor("float16", 1, 8, 8, 8),
			large),
		"has data in NCHW16c": upsampled("nn.upsampling", with(nearest, "layout", "NCHW16c"), small, large,
			"data_layout", "NCHW16c"),
		"known only at run time": upsampled("nn.upsampling", nearest, f(relay.AnyDim, 8, 8, 8), large),
	} {
		scale, refusal := upsampledVerdict(t, g)
		require.Nil(t, scale, because)
		require.Contains(t, refusal, because)
	}
}

// upsampledRules are those of the form in which the backend native takes them.
func upsampledRules() []*Rule {
	return Form{Composite: "x.upsampled"}.Convolutions("nn.conv2d", 2, true, [2]string{"NCHW", "OIHW"},
		[2]string{"NHWC", "HWIO"})
}
