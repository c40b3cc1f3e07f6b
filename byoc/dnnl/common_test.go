// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func avgPool(pad bool) map[string]any {
	return map[string]any{"pool_size": []int64{3, 3}, "strides": []int64{1, 1}, "dilation": []int64{1, 1},
		"padding": []int64{1, 1, 1, 1}, "ceil_mode": false, "layout": "NCHW", "out_layout": "",
		"count_include_pad": pad}
}

func TestEqualComputationsAreDoneOnce(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	// Equal pools, and what follows from each: equal as well.
	first := r.Call("tanh", y, nil, r.Call("nn.avg_pool2d", y, avgPool(false), x))
	second := r.Call("tanh", y, nil, r.Call("nn.avg_pool2d", y, avgPool(false), x))
	got, _ := text(t, r.Finish(r.Call("multiply", y, nil, first, second)))
	require.Equal(t, 1, strings.Count(got, `"op": "pool"`), got)
	require.Equal(t, 1, strings.Count(got, `"op": "tanh"`), got)

	// Twice the same is a function of one argument, and hangs on the pool.
	r = newRegion()
	x = r.Var(y.Shape, f32)
	first = r.Call("nn.avg_pool2d", y, avgPool(false), x)
	second = r.Call("nn.avg_pool2d", y, avgPool(false), x)
	got, _ = text(t, r.Finish(r.Call("add", y, nil, first, second)))
	require.Equal(t, 1, strings.Count(got, `"op": "pool"`), got)
	require.Contains(t, got, `"post": [{"op": "linear", "alpha": 2}]`)
}

func TestDifferentComputationsAreNotShared(t *testing.T) {
	y := f(1, 8, 6, 6)
	pool := func(pad bool) func(r maker, x relay.NodeID) relay.NodeID {
		return func(r maker, x relay.NodeID) relay.NodeID { return r.Call("nn.avg_pool2d", y, avgPool(pad), x) }
	}
	clip := func(high float64) func(r maker, x relay.NodeID) relay.NodeID {
		return func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("clip", y, map[string]any{"a_min": 0.0, "a_max": high}, x)
		}
	}
	weighed := func(r maker, x relay.NodeID) relay.NodeID {
		return r.Call("nn.conv2d", y, conv2dAttrs(), x, r.Const([]int64{8, 8, 3, 3}, f32))
	}
	for _, c := range []struct {
		name, op string
		a, b     func(r maker, x relay.NodeID) relay.NodeID
	}{
		{"padding counted or not", `"op": "pool"`, pool(true), pool(false)},
		{"bounds", `"algorithm": "clip"`, clip(1), clip(2)},
		{"weights", `"op": "conv"`, weighed, weighed},
	} {
		r := newRegion()
		x := r.Var(y.Shape, f32)
		got, _ := text(t, r.Finish(r.Call("multiply", y, nil, c.a(r, x), c.b(r, x))))
		require.Equal(t, 2, strings.Count(got, c.op), "%s: %s", c.name, got)
	}
	// A reshape says in its result's type alone what it does.
	r := newRegion()
	x := r.Var([]int64{2, 6}, f32)
	a := r.Call("reshape", f(3, 4), map[string]any{"newshape": []int64{3, 4}}, x)
	b := r.Call("reshape", f(4, 3), map[string]any{"newshape": []int64{4, 3}}, x)
	got, _ := text(t, r.Finish(r.Tuple(r.Call("tanh", f(3, 4), nil, a), r.Call("tanh", f(4, 3), nil, b))))
	require.Equal(t, 2, strings.Count(got, `"op": "reshape"`), got)
}

func TestResultsOfTheRegionAreAllThere(t *testing.T) {
	r := newRegion()
	y := f(4, 4)
	x := r.Var(y.Shape, f32)
	got, _ := text(t, r.Finish(r.Tuple(r.Call("tanh", y, nil, x), r.Call("tanh", y, nil, x))))
	require.Contains(t, got, `"outputs": [1, 2]`)
	require.Equal(t, 2, strings.Count(got, `"algorithm": "tanh"`))
}
