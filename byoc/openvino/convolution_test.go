// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// A convolution for which OpenVINO would take strides to the wrong side of a padding is written with groups, and no
// other.
func TestConvolutionsThatKeepTheirStrides(t *testing.T) {
	t.Parallel()
	larger := f(1, 4, 10, 10)
	for name, c := range map[string]struct {
		kernel, padding int
		padded          bool
		// through is an operator between the padded tensor and the convolution.
		through string
		wanted  string
	}{
		"one element":                      {1, 0, false, "", "Convolution"},
		"one element that pads":            {1, 1, false, "", "GroupConvolution"},
		"three elements that pad":          {3, 1, false, "", "Convolution"},
		"one element behind a pad":         {1, 0, true, "", "GroupConvolution"},
		"one element behind what is again": {1, 0, true, "reshape", "GroupConvolution"},
		"one element behind another layer": {1, 0, true, "nn.conv2d", "Convolution"},
		"three elements behind a pad":      {3, 0, true, "", "Convolution"},
	} {
		m := relay.NewGraph("main")
		x := m.Var(larger.Shape, f32)
		if c.padded {
			x = m.Call("nn.pad", larger, map[string]any{"pad_mode": "constant",
				"pad_width": []any{[]int{0, 0}, []int{0, 0}, []int{1, 1}, []int{1, 1}}},
				m.Var([]int64{1, 4, 8, 8}, f32), m.Const(nil, f32))
		}
		switch c.through {
		case "reshape":
			x = m.Call("reshape", f(4, 100), map[string]any{"newshape": []int{4, 100}}, x)
			x = m.Call("reshape", larger, map[string]any{"newshape": []int{1, 4, 10, 10}}, x)
		case "nn.conv2d":
			x = m.Call("nn.conv2d", larger, convAttrs(), x, m.Const([]int64{4, 4, 3, 3}, f32))
		}
		attrs := convAttrs()
		attrs["padding"] = []int{c.padding, c.padding, c.padding, c.padding}
		k := int64(c.kernel)
		size := 10 + 2*int64(c.padding) - k + 1
		conv := m.Call("nn.conv2d", f(1, 4, size, size), attrs, x, m.Const([]int64{4, 4, k, k}, f32))
		w, _, err := write(program(t, m.Finish(conv)))
		require.NoError(t, err, name)
		last := ""
		for _, l := range w.net.Layers {
			if l.Type == "Convolution" || l.Type == "GroupConvolution" {
				last = l.Type
			}
		}
		require.Equal(t, c.wanted, last, name)
	}
}
