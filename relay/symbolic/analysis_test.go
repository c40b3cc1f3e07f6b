// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// graph makes a function of one input "x" of float32, and analyses it.
type graph struct {
	*relay.GraphMaker
	t *testing.T
	x relay.NodeID
}

func newGraph(t *testing.T, shape ...int64) *graph {
	m := relay.NewGraph("main")
	return &graph{m, t, m.Var(shape, "float32")}
}

func float(shape ...int64) *relay.Type { return relay.Tensor("float32", shape...) }
func whole(shape ...int64) *relay.Type { return relay.Tensor("int64", shape...) }

func (g *graph) of(root relay.NodeID, inputs Inputs) Value {
	g.t.Helper()
	a, err := Analyse(g.Finish(root), inputs)
	require.NoError(g.t, err)
	return a.Of(root)
}

const open = relay.AnyDim

func axes(list ...int64) []any {
	all := make([]any, len(list))
	for i, a := range list {
		all[i] = a
	}
	return all
}

// TestShapes has, for each kind of operator, what becomes of the dimensions of an input [1, len, 8], or another.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape []int64
		make  func(g *graph) relay.NodeID
		want  string
	}{
		{"itself", []int64{1, open, 8}, func(g *graph) relay.NodeID { return g.x }, "[1 %v0.1 8]"},
		{"elementwise", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("nn.relu", float(open, open, open), nil, g.x)
		}, "[1 %v0.1 8]"},
		{"broadcast", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("add", float(open, open, open), nil, g.x, g.Const([]int64{4, 1, 1}, "float32"))
		}, "[4 %v0.1 8]"},
		{"with itself", []int64{open, open}, func(g *graph) relay.NodeID {
			turned := g.Call("transpose", float(open, open), map[string]any{"axes": axes(1, 0)}, g.x)
			return g.Call("add", float(open, open), nil, turned, turned)
		}, "[%v0.1 %v0.0]"},
		{"flat", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("reshape", float(open, 8), map[string]any{"newshape": axes(-1, 8)}, g.x)
		}, "[%v0.1 8]"},
		{"flattened", []int64{open, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("reshape", float(open), map[string]any{"newshape": axes(-1)}, g.x)
		}, "[8*%v0.0*%v0.1]"},
		{"heads", []int64{open, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("reshape", float(open, open, 2, 4), map[string]any{"newshape": axes(0, -1, 2, 4)}, g.x)
		}, "[%v0.0 %v0.1 2 4]"},
		{"halves", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("reshape", float(1, open, 16), map[string]any{"newshape": axes(1, -1, 16)}, g.x)
		}, "[1 floor_div(8*%v0.1, 16) 16]"},
		{"dense", []int64{open, 8}, func(g *graph) relay.NodeID {
			return g.Call("nn.dense", float(open, 32), nil, g.x, g.Const([]int64{32, 8}, "float32"))
		}, "[%v0.0 32]"},
		{"product", []int64{4, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("nn.batch_matmul", float(4, open, open), map[string]any{"transpose_a": false, "transpose_b": true},
				g.x, g.x)
		}, "[4 %v0.1 %v0.1]"},
		{"mean", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("mean", float(1, open, 1), map[string]any{"axis": axes(-1), "keepdims": true, "exclude": false},
				g.x)
		}, "[1 %v0.1 1]"},
		{"as many as there are", []int64{open, open, 8}, func(g *graph) relay.NodeID {
			shape := g.Call("shape_of", whole(3), nil, g.x)
			cut := map[string]any{"begin": axes(0), "end": axes(2), "strides": axes(1), "axes": axes(0), "slice_mode": "end"}
			none := map[string]any{"begin": axes(3), "end": axes(3), "strides": axes(1), "axes": axes(0), "slice_mode": "end"}
			all := map[string]any{"axis": axes(0), "keepdims": true, "exclude": false}
			rows := g.Call("prod", whole(1), all, g.Call("strided_slice", whole(2), cut, shape))
			columns := g.Call("prod", whole(1), all, g.Call("strided_slice", whole(0), none, shape))
			to := g.Call("concatenate", whole(3), map[string]any{"axis": int64(0)},
				g.Tuple(rows, columns, g.Call("max", whole(1), all, shape)))
			return g.Call("dyn.full", float(open, open, open), nil, g.x, to)
		}, "[%v0.0*%v0.1 1 max(8, max(%v0.0, %v0.1))]"},
		{"max of all others", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("max", float(open), map[string]any{"axis": axes(1), "keepdims": false, "exclude": true}, g.x)
		}, "[%v0.1]"},
		{"joined", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			one := g.Const([]int64{1, 1, 8}, "float32")
			return g.Call("concatenate", float(1, open, 8), map[string]any{"axis": int64(1)}, g.Tuple(g.x, one, g.x))
		}, "[1 2*%v0.1 + 1 8]"},
		{"cut", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("strided_slice", float(1, open, 8), map[string]any{"begin": axes(2), "end": axes(10),
				"strides": axes(1), "axes": axes(1), "slice_mode": "end"}, g.x)
		}, "[1 max(-1*min(%v0.1, 2) + min(%v0.1, 10), 0) 8]"},
		{"the last", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("strided_slice", float(1, open, 8), map[string]any{"begin": axes(-1), "end": axes(1 << 40),
				"strides": axes(1), "axes": axes(1), "slice_mode": "end"}, g.x)
		}, "[1 max(0, min(%v0.1, 1099511627776) - %v0.1 + 1) 8]"},
		{"convolution", []int64{open, 3, open, 32}, func(g *graph) relay.NodeID {
			return g.Call("nn.conv2d", float(open, 16, open, 16), map[string]any{"data_layout": "NCHW",
				"kernel_size": axes(3, 3), "strides": axes(2, 2), "padding": axes(1, 1, 1, 1), "dilation": axes(1, 1)}, g.x,
				g.Const([]int64{16, 3, 3, 3}, "float32"))
		}, "[%v0.0 16 floor_div(%v0.2 - 1, 2) + 1 16]"},
		{"enlarged", []int64{open, 3, open, open}, func(g *graph) relay.NodeID {
			return g.Call("nn.upsampling", float(open, 3, open, open), map[string]any{"layout": "NCHW", "scale_h": 2.0,
				"scale_w": 3.0}, g.x)
		}, "[%v0.0 3 2*%v0.2 3*%v0.3]"},
		{"enlarged by halves", []int64{open, 3, open, open}, func(g *graph) relay.NodeID {
			return g.Call("nn.upsampling", float(open, 3, open, open), map[string]any{"layout": "NCHW", "scale_h": 1.5,
				"scale_w": 2.0}, g.x)
		}, "[%1.0 3 %1.2 %1.3]"},
		{"resized", []int64{open, 8, 9, 3}, func(g *graph) relay.NodeID {
			return g.Call("image.resize2d", float(open, 16, 18, 3), map[string]any{"layout": "NHWC"}, g.x)
		}, "[%v0.0 16 18 3]"},
		{"transposed convolution", []int64{open, 3, open, 16}, func(g *graph) relay.NodeID {
			return g.Call("nn.conv2d_transpose", float(open, 8, open, 31), map[string]any{"data_layout": "NCHW",
				"strides": axes(2, 2), "padding": axes(1, 1, 1, 1), "dilation": axes(1, 1), "output_padding": axes(1, 0)}, g.x,
				g.Const([]int64{3, 8, 3, 3}, "float32"))
		}, "[%v0.0 8 2*%v0.2 31]"},
		{"depth to space", []int64{open, open, open, open}, func(g *graph) relay.NodeID {
			return g.Call("nn.depth_to_space", float(open, open, open, open), map[string]any{"layout": "NCHW",
				"block_size": int64(2)}, g.x)
		}, "[%v0.0 floor_div(%v0.1, 4) 2*%v0.2 2*%v0.3]"},
		{"space to depth", []int64{open, open, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("nn.space_to_depth", float(open, open, open, 32), map[string]any{"layout": "NHWC",
				"block_size": int64(2)}, g.x)
		}, "[%v0.0 floor_div(%v0.1, 2) floor_div(%v0.2, 2) 32]"},
		{"repeated", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("repeat", float(1, open, 8), map[string]any{"repeats": int64(3), "axis": int64(-2)}, g.x)
		}, "[1 3*%v0.1 8]"},
		{"tiled", []int64{open, 8}, func(g *graph) relay.NodeID {
			return g.Call("tile", float(2, open, 24), map[string]any{"reps": axes(2, 1, 3)}, g.x)
		}, "[2 %v0.0 24]"},
		{"padded by what is computed", []int64{open, 3, open}, func(g *graph) relay.NodeID {
			sizes := g.Call("shape_of", whole(3), nil, g.x)
			widths := g.Call("concatenate", whole(6), map[string]any{"axis": int64(0)}, g.Tuple(sizes, sizes))
			pairs := g.Call("reshape", whole(3, 2), map[string]any{"newshape": axes(3, 2)}, widths)
			return g.Call("dyn.nn.pad", float(open, open, open), nil, g.x, pairs, g.Const(nil, "float32"))
		}, "[2*%v0.0 + 3 %v0.2 + %v0.0 + 3 2*%v0.2 + 3]"},
		{"windows that fit where it runs", []int64{open, 16, open, open}, func(g *graph) relay.NodeID {
			return g.Call("nn.max_pool2d", float(open, 16, open, open), map[string]any{"layout": "NCHW",
				"pool_size": axes(2, 3), "strides": axes(2, 1), "padding": axes(0, 0, 0, 0), "dilation": axes(1, 1)}, g.x)
		}, "[%v0.0 16 floor_div(%v0.2, 2) %v0.3 - 2]"},
		{"unknown operators", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("nn.mystery", float(1, open, 8), nil, g.x)
		}, "[1 %1.1 8]"},
		{"a shape", []int64{1, open, 8}, func(g *graph) relay.NodeID {
			return g.Call("shape_of", whole(3), nil, g.x)
		}, "[3] of [1 %v0.1 8]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGraph(t, c.shape...)
			v := g.of(c.make(g), nil)
			got := v.Shape.String()
			if v.Items != nil {
				got += fmt.Sprint(" of ", v.Items)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// TestNamesAreOneSize has two inputs of one name, whose sum is of that size, and of two whose sum is of either.
func TestNamesAreOneSize(t *testing.T) {
	sum := func(inputs Inputs) string {
		m := relay.NewGraph("main")
		a, b := m.Var([]int64{1, open}, "float32"), m.Var([]int64{1, open}, "float32")
		root := m.Call("add", float(1, open), nil, a, b)
		g := m.Finish(root)
		g.Nodes[a].Name, g.Nodes[b].Name = "a", "b"
		analysis, err := Analyse(g, inputs)
		require.NoError(t, err)
		return analysis.Of(root).Shape.String()
	}
	assert.Equal(t, "[1 len]", sum(Inputs{"a": {{}, {Name: "len"}}, "b": {{}, {Name: "len"}}}))
	assert.Equal(t, "[1 max(%a.1, %b.1)]", sum(nil))
	assert.Equal(t, "[1 %b.1]", sum(Inputs{"a": {{}, {Most: 4}}, "b": {{}, {Least: 4}}}))
}

// TestSymbolsOfOurOwnAreNobodysNames has a model call a dimension what an unnamed one is called here.
func TestSymbolsOfOurOwnAreNobodysNames(t *testing.T) {
	sizes := func(named ...Dimension) string {
		g := newGraph(t, open, open)
		return g.of(g.x, Inputs{"v0": named}).Shape.String()
	}
	assert.Equal(t, "[%%v0.1 %v0.1]", sizes(Dimension{Name: "%v0.1"}, Dimension{}))
	// What the function around has no name for is of the same size, too, where it is told so.
	assert.Equal(t, "[%%3.0 %%3.0]", sizes(Dimension{Name: "%3.0"}, Dimension{Name: "%3.0"}))
	four := Dimension{Name: "4*%3.0", Of: []Product{{By: 4, Sizes: []string{"%3.0"}}}}
	assert.Equal(t, "[%%3.0 4*%%3.0]", sizes(Dimension{Name: "%3.0"}, four))
}

func TestInputsMustFit(t *testing.T) {
	g := newGraph(t, 1, open)
	_, err := Analyse(g.Finish(g.x), Inputs{"v0": {{Name: "len"}}})
	assert.ErrorContains(t, err, "has 2 dimensions; 1 are named")
}

// TestNewShapes is what a reshape is told.
func TestNewShapes(t *testing.T) {
	batch, length := Symbol("batch", 1, Unbounded), Symbol("len", 1, Unbounded)
	eight := Constant(8)
	for _, c := range []struct {
		from, to Extents
		want     []any
	}{
		{Extents{batch, length, eight}, Extents{batch.Times(length), eight}, []any{int64(-1), int64(8)}},
		{Extents{batch, length, eight}, Extents{batch, length, Constant(2), Constant(4)},
			[]any{int64(0), int64(0), int64(2), int64(4)}},
		{Extents{batch, length}, Extents{length, batch}, nil},
		{Extents{length, eight}, Extents{Constant(1), length, eight}, []any{int64(1), int64(-1), int64(8)}},
		{Extents{batch.Times(length), eight}, Extents{batch, length, eight}, nil},
		{Extents{length, eight}, Extents{Constant(0), length}, nil},
	} {
		got, ok := newShape(c.from, c.to)
		assert.Equal(t, c.want != nil, ok, "%s to %s", c.from, c.to)
		if ok {
			assert.Equal(t, c.want, got, "%s to %s", c.from, c.to)
		}
	}
}
