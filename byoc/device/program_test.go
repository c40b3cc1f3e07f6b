// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// The head says who reads each input and who makes each output, for the engine's times.
func TestHead(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	kind := relay.Tensor("float32", 8)
	x, y, unread := m.Var([]int64{8}, "float32"), m.Var([]int64{8}, "float32"), m.Var([]int64{8}, "float32")
	a := m.Call("exp", kind, nil, x)
	b := m.Call("add", kind, nil, a, y)
	c := m.Call("multiply", kind, nil, b, x)
	p, err := region.FromGraph(m.Finish(m.Tuple(c, a, unread)), "r")
	require.NoError(t, err)
	require.Equal(t, "exp add multiply\n0,2 1 - \n2 0 - \n\n\n", head(p, nil))
	var kernels []kernel
	require.NoError(t, json.Unmarshal([]byte(`[[3, ["exp"]], [5, ["layout_transform"]], [6, ["add", "multiply"]]]`), &kernels))
	require.Equal(t, "exp add multiply\n0,2 1 - \n2 0 - \n0 - 1,2 \n3 5 6 \n", head(p, kernels))
	require.Nil(t, groupsOf(p, kernels[:2]), "an operator is nowhere")
	_, _, err = (&Kind{Name: "abacus"}).emit(p)
	require.ErrorContains(t, err, "from its function")
}

// Operators of one name are told apart by their order, and those that TVM writes otherwise by what is left of the name.
func TestKernelsAreKnownByTheirOperators(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	kind := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	a := m.Call("nn.conv2d", kind, nil, x)
	b := m.Call("exp", kind, nil, a)
	c := m.Call("nn.conv2d", kind, nil, b)
	p, err := region.FromGraph(m.Finish(m.Call("exp", kind, nil, c)), "r")
	require.NoError(t, err)
	require.Equal(t, [][]int{{0, 1}, {2}, {3}}, groupsOf(p, []kernel{{0, []string{"nn.conv2d", "exp"}},
		{1, []string{"nn.contrib_conv2d_winograd_without_weight_transform"}}, {2, []string{"exp"}}}))
	for name, plain := range map[string]string{"exp": "exp", "nn.conv2d": "nn.conv2d",
		"nn.contrib_conv2d_NCHWc": "nn.conv2d", "nn.contrib_dense_pack": "nn.dense",
		"nn.contrib_conv3d_winograd_without_weight_transform": "nn.conv3d"} {
		require.Equal(t, plain, plainName(name))
	}
}
