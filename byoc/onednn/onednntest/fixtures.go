// SPDX-License-Identifier: Apache-2.0

// Package onednntest has what the tests of the packages around oneDNN build graphs with: types and attributes.
package onednntest

import (
	"maps"

	"github.com/collage-tvm/collage/relay"
)

// F32 is the dtype of nearly all tensors.
const F32 = "float32"

// Float is a tensor of float32.
func Float(shape ...int64) *relay.Type { return relay.Tensor(F32, shape...) }

// With gives attributes with some of them changed: names and values in turn.
func With(attrs map[string]any, changes ...any) map[string]any {
	out := maps.Clone(attrs)
	for i := 0; i < len(changes); i += 2 {
		out[changes[i].(string)] = changes[i+1]
	}
	return out
}

// Conv2DAttrs are those of a 3x3 convolution that keeps its size.
func Conv2DAttrs() map[string]any {
	return map[string]any{
		"strides": []int64{1, 1}, "padding": []int64{1, 1, 1, 1}, "dilation": []int64{1, 1}, "groups": 1,
		"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": "",
	}
}
