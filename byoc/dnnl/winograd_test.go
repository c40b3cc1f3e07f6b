// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"testing"

	"github.com/collage-tvm/collage/relay"
)

func TestWinogradIsAsked(t *testing.T) {
	for _, c := range []struct {
		composite, op string
		y, weight     *relay.Type
		attrs         map[string]any
		file          string
	}{
		{"native.winograd_conv2d_relu", "nn.conv2d", f(1, 16, 8, 8), f(16, 16, 3, 3), conv2dAttrs(), "winograd.json"},
		{"native.winograd_conv3d_relu", "nn.conv3d", f(1, 16, 2, 8, 8), f(16, 16, 3, 3, 3), conv3dAttrs(),
			"winograd_conv3d.json"},
	} {
		r := newRegion()
		call := r.composite(c.composite, c.y, func(p []relay.NodeID) relay.NodeID {
			return r.Call("nn.relu", c.y, nil, r.Call(c.op, c.y, c.attrs, p[0], p[1]))
		}, []*relay.Type{c.y, c.weight}, r.Var(c.y.Shape, f32), r.Const(c.weight.Shape, f32))
		g := r.Finish(call)
		golden(t, c.file, g)
	}
}
