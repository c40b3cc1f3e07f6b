// SPDX-License-Identifier: Apache-2.0

package loops

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// add is a graph of relu(a + b), and its last node.
func add(a, b []int64, dtype string) (*relay.Graph, relay.NodeID) {
	m := relay.NewGraph("main")
	sum := m.Call("add", relay.Tensor(dtype, a...), nil, m.Var(a, dtype), m.Var(b, dtype))
	y := m.Call("nn.relu", relay.Tensor(dtype, a...), nil, sum)
	return m.Finish(y), y
}

func TestLimits(t *testing.T) {
	pattern := New().Patterns()[0]
	limits := func(a, b []int64, dtype string) error {
		g, y := add(a, b, dtype)
		matches := g.Match(pattern.Shape, y)
		require.Len(t, matches, 1)
		return pattern.Limits(g, matches[0])
	}
	require.NoError(t, limits([]int64{2, 3}, []int64{2, 3}, "float32"))
	require.ErrorContains(t, limits([]int64{2, 3}, []int64{3}, "float32"), "broadcast")
	require.ErrorContains(t, limits([]int64{2, 3}, []int64{2, 3}, "float64"), "float32 only")
}

func TestDefinition(t *testing.T) {
	require.NoError(t, byoc.Validate(New()))
}
