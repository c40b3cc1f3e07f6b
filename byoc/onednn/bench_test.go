// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"testing"

	"github.com/collage-tvm/collage/relay"
)

// BenchmarkPatterns looks for every pattern at every node of a network like ResNet-50: 52 convolutions in
// residual blocks.
func BenchmarkPatterns(b *testing.B) {
	m := relay.NewGraph("main")
	y := f(1, 64, 8, 8)
	x := m.Var(y.Shape, f32)
	layer := func(x relay.NodeID) relay.NodeID {
		conv := m.Call("nn.conv2d", y, conv2dAttrs(), x, m.Const([]int64{64, 64, 3, 3}, f32))
		return m.Call("add", y, nil, conv, m.Const([]int64{64, 1, 1}, f32))
	}
	for range 17 {
		inner := m.Call("nn.relu", y, nil, layer(m.Call("nn.relu", y, nil, layer(x))))
		x = m.Call("nn.relu", y, nil, m.Call("add", y, nil, layer(inner), x))
	}
	g := m.Finish(x)
	patterns := Rules()
	b.ReportAllocs()
	for b.Loop() {
		taken := 0
		for id := range g.Nodes {
			for _, p := range patterns {
				for _, match := range g.Match(p.Shape, relay.NodeID(id)) {
					if p.Limits(g, match) == nil {
						taken++
					}
				}
			}
		}
		if taken < 17*3 {
			b.Fatalf("%d matches", taken)
		}
	}
}
