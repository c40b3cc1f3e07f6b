// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// lastAttrs are those of a convolution in NHWC.
func lastAttrs(kernel string, changes ...any) map[string]any {
	return with(with(conv2dAttrs(), "data_layout", "NHWC", "kernel_layout", kernel), changes...)
}

// What follows makes operators in NHWC on 8 channels for the kernel strips.
func (r maker) pointwiseLast(x relay.NodeID, y *relay.Type) relay.NodeID {
	from := f(y.Shape[0], y.Shape[1], y.Shape[2], 8)
	return r.as("native.strip_conv2d", "nn.conv2d", lastAttrs("HWIO", "padding", []int64{0, 0, 0, 0}), y,
		[]*relay.Type{from, f(1, 1, 8, y.Shape[3])}, x, r.Const([]int64{1, 1, 8, y.Shape[3]}, f32))
}

func (r maker) depthwiseLast(x relay.NodeID, y *relay.Type) relay.NodeID {
	return r.as("native.strip_depthwise_conv2d", "nn.conv2d", lastAttrs("HWOI", "groups", 8), y,
		[]*relay.Type{y, f(3, 3, 8, 1)}, x, r.Const([]int64{3, 3, 8, 1}, f32))
}

// permsOf are the perms of operations by their kinds.
func permsOf(t *testing.T, g *relay.Graph) map[string][][]int64 {
	t.Helper()
	got, _ := text(t, g)
	requireRunnable(t, []byte(got))
	var program struct {
		Ops []struct {
			Op   string
			Perm []int64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got), &program))
	perms := map[string][][]int64{}
	for _, o := range program.Ops {
		if o.Perm != nil {
			perms[o.Op] = append(perms[o.Op], o.Perm)
		}
	}
	return perms
}

func TestStripsInNHWC(t *testing.T) {
	r := newRegion()
	y, small := f(2, 6, 5, 8), f(2, 1, 1, 8)
	x := r.Var(y.Shape, f32)
	one := r.depthwiseLast(r.pointwiseLast(x, y), y)
	mean := r.Call("mean", small, map[string]any{"axis": []int64{1, 2}, "keepdims": true, "exclude": false}, one)
	factors := r.as("native.strip_sigmoid", "sigmoid", nil, small, []*relay.Type{small}, r.pointwiseLast(mean, small))
	scaled := r.as("native.strip_multiply", "multiply", nil, y, []*relay.Type{y, small}, one, factors)
	sum := r.as("native.strip_add", "add", nil, y, []*relay.Type{y, y}, r.pointwiseLast(scaled, y), x)
	wide := f(2, 6, 5, 16)
	joined := r.composite("native.strip_concatenate", wide, func(p []relay.NodeID) relay.NodeID {
		return r.Call("concatenate", wide, map[string]any{"axis": 3}, r.Tuple(p...))
	}, []*relay.Type{y, y}, sum, x)
	g := r.Finish(r.Call("nn.relu", wide, nil, joined))
	groups, kinds := groupsOf(t, g)
	// As in NCHW: the expansion, the depthwise convolution, the factors, and what they scale with its readers.
	require.Equal(t, [][]string{{"conv"}, {"conv"}, {"conv"}, {"binary", "conv", "concat"}}, groups, "%v", kinds)
	// What comes in, what the mean reads and makes, and the result; nothing else is turned.
	into, back := []int64{0, 3, 1, 2}, []int64{0, 2, 3, 1}
	require.Equal(t, map[string][][]int64{"transpose": {into, back, into, back}}, permsOf(t, g))
}

// Behind a convolution of oneDNN's, what is done on the way out stays on the way out.
func TestOneDNNsNeighboursAreTurned(t *testing.T) {
	r := newRegion()
	y := f(1, 6, 6, 8)
	conv := r.Call("nn.conv2d", y, lastAttrs("HWIO"), r.Var(y.Shape, f32), r.Const([]int64{3, 3, 8, 8}, f32))
	relu := r.Call("nn.relu", y, nil, r.Call("add", y, nil, conv, r.Const([]int64{8}, f32)))
	g := r.Finish(r.pointwiseLast(relu, y))
	groups, kinds := groupsOf(t, g)
	require.Equal(t, [][]string{{"conv"}}, groups)
	require.Equal(t, []string{"transpose", "reshape", "transpose", "conv", "conv", "transpose"}, kinds)
}

func TestWithoutStripsNothingIsTurned(t *testing.T) {
	r := newRegion()
	y := f(1, 6, 6, 8)
	conv := r.Call("nn.conv2d", y, lastAttrs("HWIO"), r.Var(y.Shape, f32), r.Const([]int64{3, 3, 8, 8}, f32))
	require.Equal(t, map[string][][]int64{"conv": {{0, 3, 1, 2}}},
		permsOf(t, r.Finish(r.Call("nn.relu", y, nil, conv))))

	// Nor where strips are in NCHW and NHWC is elsewhere.
	r = newRegion()
	first := f(1, 8, 6, 6)
	strips := r.pointwiseConv(r.Var(first.Shape, f32), first)
	conv = r.Call("nn.conv2d", y, lastAttrs("HWIO"), r.Var(y.Shape, f32), r.Const([]int64{3, 3, 8, 8}, f32))
	require.Equal(t, map[string][][]int64{"conv": {{0, 3, 1, 2}}}, permsOf(t, r.Finish(r.Tuple(strips, conv))))
}
