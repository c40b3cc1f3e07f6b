// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func TestDenseLayersOfOneTensorAreMerged(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{2, 3, 8}, f32)
	layer := func(units int64) relay.NodeID {
		// Each reshapes for itself, as front ends write it.
		flat := r.Call("reshape", f(6, 8), map[string]any{"newshape": []int64{6, 8}}, x)
		return r.composite("native.product_dense_bias_relu", f(6, units), func(p []relay.NodeID) relay.NodeID {
			y := r.Call("nn.dense", f(6, units), nil, p[0], p[1])
			return r.Call("nn.relu", f(6, units), nil, r.Call("add", f(6, units), nil, y, p[2]))
		}, []*relay.Type{f(6, 8), f(units, 8), f(units)}, flat, r.Const([]int64{units, 8}, f32),
			r.Const([]int64{units}, f32))
	}
	golden(t, "merged.json", r.Finish(r.Tuple(layer(16), layer(16), layer(4))))
}

// product is a dense layer of 4 units for the kernel of that name.
func (r maker) product(left, right *relay.Type, x, weight relay.NodeID) relay.NodeID {
	return r.as("native.product_dense", "nn.dense", nil, f(left.Shape[0], right.Shape[0]), []*relay.Type{left, right},
		x, weight)
}

func TestDenseLayersThatDifferAreNotMerged(t *testing.T) {
	for name, second := range map[string]func(r maker, x relay.NodeID) relay.NodeID{
		"another tensor": func(r maker, _ relay.NodeID) relay.NodeID {
			return r.product(f(6, 8), f(4, 8), r.Var([]int64{6, 8}, f32), r.Const([]int64{4, 8}, f32))
		},
		"a function behind it": func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("tanh", f(6, 4), nil, r.product(f(6, 8), f(4, 8), x, r.Const([]int64{4, 8}, f32)))
		},
		"a bias": func(r maker, x relay.NodeID) relay.NodeID {
			y := r.product(f(6, 8), f(4, 8), x, r.Const([]int64{4, 8}, f32))
			return r.Call("add", f(6, 4), nil, y, r.Const([]int64{4}, f32))
		},
		"oneDNN's": func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("nn.dense", f(6, 4), nil, x, r.Const([]int64{4, 8}, f32))
		},
		"weights that are made": func(r maker, x relay.NodeID) relay.NodeID {
			return r.product(f(6, 8), f(4, 8), x, r.Var([]int64{4, 8}, f32))
		},
		"the same tensor in another shape": func(r maker, x relay.NodeID) relay.NodeID {
			other := r.Call("reshape", f(3, 16), map[string]any{"newshape": []int64{3, 16}}, x)
			return r.product(f(3, 16), f(4, 16), other, r.Const([]int64{4, 16}, f32))
		},
	} {
		r := newRegion()
		x := r.Var([]int64{6, 8}, f32)
		first := r.product(f(6, 8), f(4, 8), x, r.Const([]int64{4, 8}, f32))
		got, _ := text(t, r.Finish(r.Tuple(first, second(r, x))))
		require.NotContains(t, got, "more", name)
		require.Equal(t, 2, strings.Count(got, `"op": "matmul"`), name)
	}
}
