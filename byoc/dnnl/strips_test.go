// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// pointwiseConv and depthwiseConv are layers of a region on 8 channels.
func (r maker) pointwiseConv(x relay.NodeID, y *relay.Type) relay.NodeID {
	return r.Call("nn.conv2d", y, with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0}), x, r.Const([]int64{y.Shape[1], 8, 1, 1}, f32))
}

func (r maker) depthwiseConv(x relay.NodeID, y *relay.Type, changes ...any) relay.NodeID {
	return r.Call("nn.conv2d", y, with(with(conv2dAttrs(), "groups", 8), changes...), x, r.Const([]int64{8, 1, 3, 3}, f32))
}

// groupsOf are the kinds of the operations in each group that is run strip by strip, and of all.
func groupsOf(t *testing.T, g *relay.Graph) (groups [][]string, kinds []string) {
	t.Helper()
	got, _ := text(t, g)
	var program struct {
		Strips []int
		Ops    []struct {
			Op   string
			In   []int
			Out  int
			Post []struct{ In *int }
		}
		Inputs, Constants []int
	}
	require.NoError(t, json.Unmarshal([]byte(got), &program))
	made := map[int]bool{}
	for _, v := range append(program.Inputs, program.Constants...) {
		made[v] = true
	}
	for _, o := range program.Ops {
		for _, v := range o.In {
			require.True(t, made[v], "operations out of order: %s", got)
		}
		for _, p := range o.Post {
			require.True(t, p.In == nil || made[*p.In], "operations out of order: %s", got)
		}
		made[o.Out] = true
		kinds = append(kinds, o.Op)
	}
	for i := 0; i < len(program.Strips); i += 2 {
		groups = append(groups, kinds[program.Strips[i]:program.Strips[i]+program.Strips[i+1]])
	}
	return groups, kinds
}

func TestSeparableConvolutionsAreAGroup(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	one := r.pointwiseConv(r.depthwiseConv(x, y), y)
	// The second one reads pixels around those of the first: it has to wait for all of it.
	two := r.pointwiseConv(r.depthwiseConv(one, y), y)
	joined := r.Call("concatenate", f(1, 16, 6, 6), map[string]any{"axis": 1}, r.Tuple(two, one))
	groups, kinds := groupsOf(t, r.Finish(r.Call("nn.relu", f(1, 16, 6, 6), nil, joined)))
	require.Equal(t, [][]string{{"conv", "conv"}, {"conv", "conv", "concat", "eltwise"}}, groups)
	require.Len(t, kinds, 6)
}

func TestWhatIsReadLaterIsComputedLater(t *testing.T) {
	// x's second branch could be computed with a, but only b's reader wants it: nothing of it is stored.
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	late := r.pointwiseConv(r.depthwiseConv(x, y), y)
	a := r.pointwiseConv(r.depthwiseConv(x, y), y)
	b := r.pointwiseConv(r.depthwiseConv(a, y), y)
	groups, _ := groupsOf(t, r.Finish(r.Call("concatenate", f(1, 16, 6, 6), map[string]any{"axis": 1}, r.Tuple(late, b))))
	require.Equal(t, [][]string{{"conv", "conv"}, {"conv", "conv", "conv", "conv", "concat"}}, groups)

	// What would have to be stored instead stays: a is read by both.
	r = newRegion()
	x = r.Var(y.Shape, f32)
	a = r.pointwiseConv(r.depthwiseConv(x, y), y)
	narrow := r.pointwiseConv(a, y)
	other := r.pointwiseConv(a, y)
	b = r.pointwiseConv(r.depthwiseConv(narrow, y), y)
	groups, _ = groupsOf(t, r.Finish(r.Call("concatenate", f(1, 16, 6, 6), map[string]any{"axis": 1}, r.Tuple(other, b))))
	require.Equal(t, [][]string{{"conv", "conv", "conv", "conv"}, {"conv", "conv", "concat"}}, groups)
}

func TestNeighboursJoinGroups(t *testing.T) {
	// A 1x1 convolution of the region's input whose result only a group reads is laid out as that group wants it.
	r := newRegion()
	y := f(1, 8, 6, 6)
	before := r.pointwiseConv(r.Var(y.Shape, f32), y)
	groups, _ := groupsOf(t, r.Finish(r.pointwiseConv(r.depthwiseConv(before, y), y)))
	require.Equal(t, [][]string{{"conv"}, {"conv", "conv"}}, groups)

	// Not so where something else reads it, too.
	r = newRegion()
	before = r.pointwiseConv(r.Var(y.Shape, f32), y)
	after := r.pointwiseConv(r.depthwiseConv(before, y), y)
	groups, _ = groupsOf(t, r.Finish(r.Tuple(after, r.Call("tanh", y, nil, r.Call("exp", y, nil, before)))))
	require.Equal(t, [][]string{{"conv", "conv"}}, groups)
}

func TestWhatIsNoGroup(t *testing.T) {
	y := f(1, 8, 6, 6)
	for _, c := range []struct {
		name string
		make func(r maker, x relay.NodeID) relay.NodeID
	}{
		{"no depthwise convolution", func(r maker, x relay.NodeID) relay.NodeID { return r.pointwiseConv(r.pointwiseConv(x, y), y) }},
		{"no 1x1 convolution", func(r maker, x relay.NodeID) relay.NodeID { return r.depthwiseConv(r.depthwiseConv(x, y), y) }},
		{"dilated", func(r maker, x relay.NodeID) relay.NodeID {
			return r.pointwiseConv(r.depthwiseConv(x, y, "dilation", []int64{2, 2}, "padding", []int64{2, 2, 2, 2}), y)
		}},
		{"weights that are not constant", func(r maker, x relay.NodeID) relay.NodeID {
			conv := r.Call("nn.conv2d", y, with(conv2dAttrs(), "groups", 8), x, r.Var([]int64{8, 1, 3, 3}, f32))
			return r.pointwiseConv(conv, y)
		}},
		{"another activation", func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("tanh", y, nil, r.pointwiseConv(r.Call("tanh", y, nil, r.depthwiseConv(x, y)), y))
		}},
		{"broadcast", func(r maker, x relay.NodeID) relay.NodeID {
			scaled := r.Call("add", y, nil, r.depthwiseConv(x, y), r.Var([]int64{6, 1}, f32))
			return r.Call("add", y, nil, r.pointwiseConv(scaled, y), r.Var([]int64{6, 1}, f32))
		}},
	} {
		r := newRegion()
		groups, _ := groupsOf(t, r.Finish(c.make(r, r.Var(y.Shape, f32))))
		require.Empty(t, groups, c.name)
	}

	// Images of few pixels.
	r := newRegion()
	small := f(1, 8, 5, 5)
	groups, _ := groupsOf(t, r.Finish(r.pointwiseConv(r.depthwiseConv(r.Var(small.Shape, f32), small), small)))
	require.Empty(t, groups)
}

func TestPoolsWithSumsInGroups(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	pooled := r.Call("nn.avg_pool2d", y, avgPool(false), x)
	sum := r.Call("add", y, nil, pooled, x)
	twice := r.Call("nn.avg_pool2d", y, avgPool(true), x)
	double := r.Call("add", y, nil, twice, twice)
	joined := r.Call("concatenate", f(1, 24, 6, 6), map[string]any{"axis": 1}, r.Tuple(sum, double, r.pointwiseConv(r.depthwiseConv(x, y), y)))
	golden(t, "strips.json", r.Finish(joined))
}
