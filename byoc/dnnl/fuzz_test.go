// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// written is a program as its reader sees it (byoc/runtime/dnnl_program.h).
type written struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	Inputs    []int  `json:"inputs"`
	Outputs   []int  `json:"outputs"`
	Constants []int  `json:"constants"`
	Values    [][2]json.RawMessage
	Ops       []struct {
		Op, Algorithm string
		In, More      []int
		Out           *int
		Post          []struct {
			Op string
			In *int
		}
	}
	Strips []int
	Groups []string
	Of     [][]int
}

// requireRunnable says that a program can be run in its order: what is read is an input, a constant or made before, and
// each value is made once.
func requireRunnable(t *testing.T, text []byte) {
	var p written
	require.NoError(t, json.Unmarshal(text, &p), string(text))
	require.Equal(t, "collage-dnnl", p.Format)
	known := make([]bool, len(p.Values))
	for _, v := range append(append([]int{}, p.Inputs...), p.Constants...) {
		require.True(t, v >= 0 && v < len(known) && !known[v], "value %d of\n%s", v, text)
		known[v] = true
	}
	for _, v := range p.Values {
		var shape []int64
		require.NoError(t, json.Unmarshal(v[1], &shape))
	}
	for i, o := range p.Ops {
		reads := o.In
		for _, post := range o.Post {
			if post.In != nil {
				reads = append(reads, *post.In)
			}
		}
		for _, v := range reads {
			require.True(t, v >= 0 && v < len(known) && known[v], "operation %d reads %d in\n%s", i, v, text)
		}
		require.NotNil(t, o.Out)
		for _, v := range append([]int{*o.Out}, o.More...) {
			require.True(t, v >= 0 && v < len(known) && !known[v], "operation %d makes %d in\n%s", i, v, text)
			known[v] = true
		}
	}
	for _, v := range p.Outputs {
		require.True(t, v >= 0 && v < len(known) && known[v], "the result %d in\n%s", v, text)
	}
	require.Len(t, p.Of, len(p.Ops))
	for _, groups := range p.Of {
		for _, group := range groups {
			require.True(t, group >= 0 && group < len(p.Groups), string(text))
		}
	}
	require.Zero(t, len(p.Strips)%2)
	next := 0
	for i := 0; i < len(p.Strips); i += 2 { // where each begins, and of how many operations it is
		require.True(t, p.Strips[i] >= next && p.Strips[i+1] > 0, string(text))
		next = p.Strips[i] + p.Strips[i+1]
	}
	require.LessOrEqual(t, next, len(p.Ops))
}

// fuzzScalars are the numbers that stand in regions, and those that should not.
var fuzzScalars = []float64{0, 1, 0.5, 2, -1, 6, 1e-12, 1e39, math.Inf(1), math.Inf(-1), math.NaN(),
	math.Copysign(0, -1)}

// regionOf makes a region of what the bytes say, three for an operator: which one, and what it reads. All values have
// one shape, as in a block of a network.
func regionOf(bytes []byte) *relay.Graph {
	r := newRegion()
	y := f(1, 8, 6, 6)
	values := []relay.NodeID{r.Var(y.Shape, f32)}
	used := map[relay.NodeID]bool{}
	for bytes = bytes[:min(len(bytes), 60)]; len(bytes) >= 3; bytes = bytes[3:] {
		a := values[int(bytes[1])%len(values)]
		other := func() relay.NodeID {
			b := values[int(bytes[2])%len(values)]
			used[b] = true
			return b
		}
		number := fuzzScalars[int(bytes[2])%len(fuzzScalars)]
		used[a] = true
		var id relay.NodeID
		switch bytes[0] % 15 {
		case 0:
			id = r.Call("nn.conv2d", y, conv2dAttrs(), a, r.Const([]int64{8, 8, 3, 3}, f32))
		case 1:
			id = r.Call("nn.conv2d", y, with(conv2dAttrs(), "groups", 8), a, r.Const([]int64{8, 1, 3, 3}, f32))
		case 2:
			id = r.Call("nn.conv2d", y, with(conv2dAttrs(), "padding", []int64{0, 0, 0, 0}), a,
				r.Const([]int64{8, 8, 1, 1}, f32))
		case 3:
			id = r.Call([]string{"add", "subtract", "multiply", "maximum", "minimum"}[bytes[2]%5], y, nil, a, other())
		case 4:
			id = r.Call("add", y, nil, a, r.Const([]int64{8, 1, 1}, f32))
		case 5:
			id = r.Call([]string{"nn.relu", "tanh", "sigmoid", "exp", "sqrt", "abs"}[bytes[2]%6], y, nil, a)
		case 6:
			id = r.Call("clip", y, map[string]any{"a_min": fuzzScalars[int(bytes[2]/16)%len(fuzzScalars)],
				"a_max": number}, a)
		case 7:
			id = r.Call([]string{"add", "subtract", "multiply", "divide"}[bytes[2]/16%4], y, nil, a,
				r.Scalar(number, f32))
		case 8:
			id = r.Call([]string{"subtract", "divide"}[bytes[2]/16%2], y, nil, r.Scalar(number, f32), a)
		case 9:
			id = r.Call("nn.leaky_relu", y, map[string]any{"alpha": number}, a)
		case 10:
			id = r.Call("nn.softmax", y, map[string]any{"axis": int(bytes[2]%4) - 1}, a)
		case 11:
			id = r.Call("nn.max_pool2d", y, map[string]any{"pool_size": []int64{3, 3}, "strides": []int64{1, 1},
				"dilation": []int64{1, 1},
				"padding":  []int64{1, 1, 1, 1}, "layout": "NCHW", "out_layout": "", "ceil_mode": false}, a)
		case 12: // strips, in NCHW and in NHWC
			id = r.pointwiseConv(a, y)
		case 13:
			id = r.as("native.strip_conv2d", "nn.conv2d", lastAttrs("HWIO", "padding", []int64{0, 0, 0, 0}), y,
				[]*relay.Type{y, f(1, 1, 6, 6)}, a, r.Const([]int64{1, 1, 6, 6}, f32))
		case 14:
			id = r.as("native.strip_add", "add", nil, y, []*relay.Type{y, y}, a, other())
		}
		values = append(values, id)
	}
	var ends []relay.NodeID
	for _, v := range values {
		if !used[v] {
			ends = append(ends, v)
		}
	}
	if len(ends) == 1 {
		return r.Finish(ends[0])
	}
	return r.Finish(r.Tuple(ends...))
}

// FuzzProgram writes the programs of regions.
func FuzzProgram(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 4, 1, 0, 3, 0, 2, 5, 3, 0})
	f.Add([]byte{1, 0, 0, 2, 1, 0, 2, 2, 0, 3, 2, 3, 6, 4, 5})
	f.Add([]byte{0, 0, 0, 7, 1, 35, 8, 2, 19, 9, 3, 3, 10, 0, 1, 11, 0, 0})
	f.Add([]byte{13, 0, 0, 12, 1, 0, 14, 1, 2, 10, 3, 0, 13, 4, 0, 3, 5, 0, 9, 6, 4})
	f.Add([]byte{6, 0, 10, 6, 1, 0x9a, 7, 2, 10, 9, 3, 9, 9, 4, 10})
	f.Fuzz(func(t *testing.T, bytes []byte) {
		p, err := region.FromGraph(regionOf(bytes), "tvmgen_default_collage_dnnl_main_0")
		require.NoError(t, err)
		text, constants, err := emit(p)
		if err != nil {
			return
		}
		for _, c := range constants {
			require.True(t, p.IsConstant(c))
		}
		requireRunnable(t, text)
		again, _, err := emit(p)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again))
	})
}
