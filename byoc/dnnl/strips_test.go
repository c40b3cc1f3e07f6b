// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// What follows makes operators for the kernel strips, on 8 channels unless y says otherwise.
func (r maker) pointwiseConv(x relay.NodeID, y *relay.Type) relay.NodeID {
	from, weight := f(1, 8, y.Shape[2], y.Shape[3]), f(y.Shape[1], 8, 1, 1)
	return r.as("native.strip_conv2d", "nn.conv2d", with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0}), y,
		[]*relay.Type{from, weight}, x, r.Const(weight.Shape, f32))
}

// expansion is pointwiseConv that is to run ahead of what reads it.
func (r maker) expansion(x relay.NodeID, y *relay.Type) relay.NodeID {
	weight := f(8, 8, 1, 1)
	return r.as("native.expansion_conv2d", "nn.conv2d", with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0}), y,
		[]*relay.Type{y, weight}, x, r.Const(weight.Shape, f32))
}

func (r maker) depthwiseConv(x relay.NodeID, y *relay.Type, changes ...any) relay.NodeID {
	return r.depthwise(x, y, r.Const([]int64{8, 1, 3, 3}, f32), changes...)
}

func (r maker) depthwise(x relay.NodeID, y *relay.Type, weight relay.NodeID, changes ...any) relay.NodeID {
	return r.as("native.strip_depthwise_conv2d", "nn.conv2d", with(with(conv2dAttrs(), "groups", 8), changes...), y,
		[]*relay.Type{y, f(8, 1, 3, 3)}, x, weight)
}

func (r maker) joined(y *relay.Type, args ...relay.NodeID) relay.NodeID {
	types := make([]*relay.Type, len(args))
	for i := range args {
		types[i] = f(1, y.Shape[1]/int64(len(args)), y.Shape[2], y.Shape[3])
	}
	return r.composite("native.strip_concatenate", y, func(p []relay.NodeID) relay.NodeID {
		return r.Call("concatenate", y, map[string]any{"axis": 1}, r.Tuple(p...))
	}, types, args...)
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
	joined := r.joined(f(1, 16, 6, 6), two, one)
	wide := f(1, 16, 6, 6)
	groups, kinds := groupsOf(t, r.Finish(r.as("native.strip_relu", "nn.relu", nil, wide, []*relay.Type{wide}, joined)))
	require.Equal(t, [][]string{{"conv", "conv"}, {"conv", "conv", "concat", "eltwise"}}, groups)
	require.Len(t, kinds, 6)
}

func TestAnInvertedResidual(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	block := r.pointwiseConv(r.depthwiseConv(r.expansion(x, y), y), y)
	golden(t, "expansion.json", r.Finish(r.as("native.strip_add", "add", nil, y, []*relay.Type{y, y}, block, x)))
}

func TestExpansionsAreOfTheirWindowsGroup(t *testing.T) {
	y := f(1, 8, 6, 6)
	for _, c := range []struct {
		name   string
		make   func(r maker, x relay.NodeID) relay.NodeID
		groups [][]string
		ahead  int // so many run ahead, the others as any 1x1 convolution
	}{
		{"two inverted residuals", func(r maker, x relay.NodeID) relay.NodeID {
			one := r.pointwiseConv(r.depthwiseConv(r.expansion(x, y), y), y)
			two := r.pointwiseConv(r.depthwiseConv(r.expansion(one, y), y), y)
			return r.as("native.strip_add", "add", nil, y, []*relay.Type{y, y}, two, one)
		}, [][]string{{"conv", "conv", "conv"}, {"conv", "conv", "conv"}}, 2},
		{"read by two windows of one group", func(r maker, x relay.NodeID) relay.NodeID {
			wide := r.expansion(x, y)
			return r.joined(f(1, 16, 6, 6), r.depthwiseConv(wide, y), r.depthwiseConv(wide, y))
		}, [][]string{{"conv", "conv", "conv", "concat"}}, 1},
		{"with smaller results", func(r maker, x relay.NodeID) relay.NodeID {
			small, weight := f(1, 8, 3, 3), f(8, 1, 3, 3)
			attrs := with(conv2dAttrs(), "groups", 8, "strides", []int64{2, 2})
			deep := r.as("native.strip_depthwise_conv2d", "nn.conv2d", attrs, small, []*relay.Type{y, weight},
				r.expansion(x, y), r.Const(weight.Shape, f32))
			return r.pointwiseConv(deep, f(1, 8, 3, 3))
		}, [][]string{{"conv", "conv", "conv"}}, 1},
		{"with another window", func(r maker, x relay.NodeID) relay.NodeID {
			// What the other one makes has to be finished for the third, and is added before that.
			other := r.depthwiseConv(x, y)
			sum := r.as("native.strip_add", "add", nil, y, []*relay.Type{y, y}, r.depthwiseConv(r.expansion(x, y), y), other)
			return r.joined(f(1, 16, 6, 6), r.depthwiseConv(sum, y), r.depthwiseConv(other, y))
		}, [][]string{{"conv", "conv", "conv"}, {"conv", "conv", "concat"}}, 1},
		{"one ahead of another", func(r maker, x relay.NodeID) relay.NodeID {
			return r.depthwiseConv(r.expansion(r.expansion(x, y), y), y)
		}, [][]string{{"conv"}, {"conv", "conv"}}, 1},
		{"read by somebody else", func(r maker, x relay.NodeID) relay.NodeID {
			wide := r.expansion(x, y)
			return r.joined(f(1, 16, 6, 6), r.depthwiseConv(wide, y), wide)
		}, [][]string{{"conv"}, {"conv", "concat"}}, 0},
		{"read by oneDNN's", func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("nn.conv2d", y, with(conv2dAttrs(), "groups", 8), r.expansion(x, y), r.Const([]int64{8, 1, 3, 3},
				f32))
		}, [][]string{{"conv"}}, 0},
		{"read by windows of two groups", func(r maker, x relay.NodeID) relay.NodeID {
			wide := r.expansion(x, y)
			other := r.pointwiseConv(r.depthwiseConv(r.pointwiseConv(r.depthwiseConv(wide, y), y), y), y)
			return r.joined(f(1, 16, 6, 6), r.depthwiseConv(wide, y), other) // computed with what it is joined with
		}, [][]string{{"conv"}, {"conv", "conv"}, {"conv", "conv", "conv", "concat"}}, 0},
	} {
		r := newRegion()
		g := r.Finish(c.make(r, r.Var(y.Shape, f32)))
		groups, _ := groupsOf(t, g)
		require.Equal(t, c.groups, groups, c.name)
		got, _ := text(t, g)
		require.Equal(t, c.ahead, strings.Count(got, `"kernel": "expansion"`), c.name)
	}
}

func TestWhatIsReadLaterIsComputedLater(t *testing.T) {
	// x's second branch could be computed with a, but only b's reader wants it: nothing of it is stored.
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	late := r.pointwiseConv(r.depthwiseConv(x, y), y)
	a := r.pointwiseConv(r.depthwiseConv(x, y), y)
	b := r.pointwiseConv(r.depthwiseConv(a, y), y)
	groups, _ := groupsOf(t, r.Finish(r.joined(f(1, 16, 6, 6), late, b)))
	require.Equal(t, [][]string{{"conv", "conv"}, {"conv", "conv", "conv", "conv", "concat"}}, groups)

	// What would have to be stored instead stays: a is read by both.
	r = newRegion()
	x = r.Var(y.Shape, f32)
	a = r.pointwiseConv(r.depthwiseConv(x, y), y)
	narrow := r.pointwiseConv(a, y)
	other := r.pointwiseConv(a, y)
	b = r.pointwiseConv(r.depthwiseConv(narrow, y), y)
	groups, _ = groupsOf(t, r.Finish(r.joined(f(1, 16, 6, 6), other, b)))
	require.Equal(t, [][]string{{"conv", "conv", "conv", "conv"}, {"conv", "conv", "concat"}}, groups)
}

func TestAnOperatorByItselfIsAGroup(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	before := r.pointwiseConv(r.Var(y.Shape, f32), y)
	groups, _ := groupsOf(t, r.Finish(r.pointwiseConv(r.depthwiseConv(before, y), y)))
	require.Equal(t, [][]string{{"conv"}, {"conv", "conv"}}, groups)

	r = newRegion()
	small := f(1, 8, 1, 1)
	groups, _ = groupsOf(t, r.Finish(r.pointwiseConv(r.Var(small.Shape, f32), small)))
	require.Equal(t, [][]string{{"conv"}}, groups)
}

func TestOneDNNsOperatorsAreInNoGroup(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	depthwise := r.Call("nn.conv2d", y, with(conv2dAttrs(), "groups", 8), r.Var(y.Shape, f32),
		r.Const([]int64{8, 1, 3, 3}, f32))
	got, _ := text(t, r.Finish(r.Call("nn.conv2d", y, with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0}), depthwise,
		r.Const([]int64{8, 8, 1, 1}, f32))))
	require.NotContains(t, got, "strips")

	// Between strips there may be one of oneDNN's; what does not fit is not hung on them, what fits is.
	r = newRegion()
	conv := r.pointwiseConv(r.depthwiseConv(r.Var(y.Shape, f32), y), y)
	groups, kinds := groupsOf(t, r.Finish(r.Call("tanh", y, nil, r.Call("nn.relu", y, nil, conv))))
	require.Equal(t, [][]string{{"conv", "conv"}}, groups)
	require.Equal(t, []string{"conv", "conv", "eltwise"}, kinds)
}

func TestWhatTurnsOutToBeNoStripIsOneDNNs(t *testing.T) {
	y := f(1, 8, 6, 6)
	for _, c := range []struct {
		name   string
		make   func(r maker, x relay.NodeID) relay.NodeID
		groups [][]string
	}{
		{"weights that are not constant", func(r maker, x relay.NodeID) relay.NodeID {
			return r.pointwiseConv(r.depthwise(x, y, r.Var([]int64{8, 1, 3, 3}, f32)), y)
		}, [][]string{{"conv"}}},
		{"another activation", func(r maker, x relay.NodeID) relay.NodeID {
			return r.Call("tanh", y, nil, r.pointwiseConv(r.Call("tanh", y, nil, r.depthwiseConv(x, y)), y))
		}, [][]string{{"conv"}, {"conv"}}},
		{"broadcast", func(r maker, x relay.NodeID) relay.NodeID {
			scaled := r.Call("add", y, nil, r.depthwiseConv(x, y), r.Var([]int64{6, 1}, f32))
			return r.Call("add", y, nil, r.pointwiseConv(scaled, y), r.Var([]int64{6, 1}, f32))
		}, [][]string{{"conv"}, {"conv"}}},
	} {
		r := newRegion()
		g := r.Finish(c.make(r, r.Var(y.Shape, f32)))
		groups, _ := groupsOf(t, g)
		require.Equal(t, c.groups, groups, c.name)
		got, _ := text(t, g)
		require.Equal(t, len(c.groups), strings.Count(got, `"kernel": "strips"`), c.name)
	}
}

func TestPoolsWithSumsInGroups(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 6, 6)
	x := r.Var(y.Shape, f32)
	pool := func(pad bool) relay.NodeID {
		return r.as("native.strip_avg_pool2d", "nn.avg_pool2d", avgPool(pad), y, []*relay.Type{y}, x)
	}
	plus := func(a, b relay.NodeID) relay.NodeID {
		return r.as("native.strip_add", "add", nil, y, []*relay.Type{y, y}, a, b)
	}
	sum := plus(pool(false), x)
	twice := pool(true)
	double := plus(twice, twice)
	joined := r.joined(f(1, 24, 6, 6), sum, double, r.pointwiseConv(r.depthwiseConv(x, y), y))
	golden(t, "strips.json", r.Finish(joined))
}

// A block with squeeze-and-excitation: the factors depend on all that the depthwise convolution makes; what multiplies
// by them is done in the group of what reads the products, which are never stored.
func TestExcitedChannelsAreMadeWithTheirReader(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		r := newRegion()
		y, small := f(2, 8, 6, 6), f(2, 8, 1, 1)
		x := r.depthwiseConv(r.Var(y.Shape, f32), y)
		mean := r.Call("nn.global_avg_pool2d", small, map[string]any{"layout": "NCHW", "out_layout": ""}, x)
		factors := r.as("native.strip_sigmoid", "sigmoid", nil, small, []*relay.Type{small}, mean)
		args, types := []relay.NodeID{x, factors}, []*relay.Type{y, small}
		if swapped {
			slices.Reverse(args)
			slices.Reverse(types)
		}
		scaled := r.as("native.strip_multiply", "multiply", nil, y, types, args...)
		from, weight := f(2, 8, 6, 6), f(8, 8, 1, 1)
		out := r.as("native.strip_conv2d", "nn.conv2d", with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0}), y,
			[]*relay.Type{from, weight}, scaled, r.Const(weight.Shape, f32))
		groups, kinds := groupsOf(t, r.Finish(out))
		require.Equal(t, []string{"conv"}, groups[0])
		require.Equal(t, []string{"binary", "conv"}, groups[len(groups)-1], "%v", kinds)
	}
}

// Factors that a group of another image makes are there before what multiplies by them; what is multiplied is made with
// it.
func TestFactorsAreFinishedFirst(t *testing.T) {
	r := newRegion()
	y, small := f(1, 8, 6, 6), f(1, 8, 1, 1)
	factors := r.as("native.strip_sigmoid", "sigmoid", nil, small, []*relay.Type{small}, r.Var(small.Shape, f32))
	scaled := r.as("native.strip_multiply", "multiply", nil, y, []*relay.Type{y, small},
		r.pointwiseConv(r.Var(y.Shape, f32), y), factors)
	groups, _ := groupsOf(t, r.Finish(r.pointwiseConv(scaled, y)))
	require.Equal(t, [][]string{{"eltwise"}, {"conv", "binary", "conv"}}, groups)
}
