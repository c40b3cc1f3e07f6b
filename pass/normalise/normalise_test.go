// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/relay"
)

// There is no Python here, without which TVM cannot evaluate anything: all of it is folded in Go.
func TestNormaliseFoldsConstantsByItself(t *testing.T) {
	g := normalisedMain(t, `def @main(%x: Tensor[(1, 8, 4, 4), float32], %w: Tensor[(8, 8, 1, 1), float32])
    -> Tensor[(1, 8, 4, 4), float32] {
  %0 = broadcast_to(2f, shape=[8]);
  %1 = nn.conv2d(%x, %w, padding=[0, 0, 0, 0], channels=8, kernel_size=[1, 1]);
  %2 = nn.batch_norm(%1, %0, %0, %0, %0, epsilon=0f);
  nn.relu(%2.0)
}`)
	for id := range g.Nodes {
		n := &g.Nodes[id]
		constants := n.Kind == relay.KindCall && len(n.Inputs) > 0
		for _, in := range n.Inputs {
			constants = constants && g.Nodes[in].Kind == relay.KindConstant
		}
		assert.False(t, constants, "%s is still to be evaluated", g.Line(relay.NodeID(id)))
	}
	weight := &g.Nodes[callOf(t, g, "nn.conv2d").Inputs[1]]
	assert.Equal(t, "multiply", weight.Op, "the scale is in the weight")
	assert.Equal(t, relay.KindConstant, g.Nodes[weight.Inputs[1]].Kind)
}
