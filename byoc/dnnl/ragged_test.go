// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// layer is one encoder layer on 2 sequences of 5 places, 3 heads of 16, behind which padding is cleared.
type layer struct {
	// unmasked leaves the mask out, and mixed takes the mean over places behind the layer, before it is cleared.
	unmasked, mixed bool
	// escapes has what attention makes leave the region, too.
	escapes bool
	// turned has the places before the sequences.
	turned bool
}

const (
	sequences, places, headCount, headSize = 2, 5, 3, 16
	units                                  = headCount * headSize
)

func (y layer) graph() *relay.Graph {
	r := newRegion()
	whole, rows := f(sequences, places, units), f(sequences*places, units)
	if y.turned {
		whole = f(places, sequences, units)
	}
	to := func(t *relay.Type, x relay.NodeID) relay.NodeID {
		return r.Call("reshape", t, map[string]any{"newshape": t.Shape}, x)
	}
	turn := func(t *relay.Type, x relay.NodeID, axes ...int64) relay.NodeID {
		return r.Call("transpose", t, map[string]any{"axes": axes}, x)
	}
	dense := func(x relay.NodeID) relay.NodeID {
		product := r.as("native.product_dense", "nn.dense", nil, rows, []*relay.Type{rows, f(units, units)}, x,
			r.Const([]int64{units, units}, f32))
		return r.Call("add", rows, nil, product, r.Const([]int64{units}, f32))
	}
	x := r.Var(whole.Shape, f32)
	if !y.turned {
		x = r.Call("add", whole, nil, x, r.Const([]int64{1, 5, units}, f32))
	}
	count := int64(sequences * headCount)
	split := func(x relay.NodeID) relay.NodeID {
		apart, order := f(sequences, places, headCount, headSize), []int64{0, 2, 1, 3}
		if y.turned {
			apart, order = f(places, sequences, headCount, headSize), []int64{1, 2, 0, 3}
		}
		return to(f(count, places, headSize), turn(f(sequences, headCount, places, headSize), to(apart, x), order...))
	}
	flat := to(rows, x)
	q, k, v := split(dense(flat)), split(dense(flat)), split(dense(flat))
	three, four := f(count, places, places), f(sequences, headCount, places, places)
	scores := to(four, r.Call("nn.batch_matmul", three, map[string]any{"transpose_a": false, "transpose_b": true}, q, k))
	if !y.unmasked {
		scores = r.Call("add", four, nil, scores, r.Call("subtract", f(sequences, 1, 1, places), nil,
			r.Var([]int64{sequences, 1, 1, places}, f32), r.Scalar(1, f32)))
	}
	weights := to(three, r.Call("nn.softmax", four, map[string]any{"axis": -1}, scores))
	mixed := to(f(sequences, headCount, places, headSize), r.Call("nn.batch_matmul", f(count, places, headSize),
		map[string]any{"transpose_a": false, "transpose_b": false}, weights, v))
	order := []int64{0, 2, 1, 3}
	back := f(sequences, places, headCount, headSize)
	if y.turned {
		order, back = []int64{2, 0, 1, 3}, f(places, sequences, headCount, headSize)
	}
	attended := to(rows, turn(back, mixed, order...))
	sum := r.Call("add", whole, nil, to(whole, dense(attended)), x)
	out := r.Call("nn.layer_norm", whole, map[string]any{"axis": -1, "epsilon": 1e-5, "center": true, "scale": true}, sum,
		r.Const([]int64{units}, f32), r.Const([]int64{units}, f32))
	if y.turned {
		out = turn(f(sequences, places, units), out, 1, 0, 2)
	}
	result := f(sequences, places, units)
	if y.mixed {
		out = r.Call("add", result, nil, out, r.Call("mean", f(sequences, 1, units), map[string]any{"axis": []int64{1},
			"keepdims": true}, out))
	}
	valid := relay.Tensor("bool", sequences, places, 1)
	cleared := r.composite("native.ragged", result, func(p []relay.NodeID) relay.NodeID {
		return r.Call("where", result, nil, p[0], p[1], r.Scalar(0, f32))
	}, []*relay.Type{valid, result}, r.Var(valid.Shape, "bool"), out)
	if y.escapes {
		return r.Finish(r.Tuple(cleared, attended))
	}
	return r.Finish(cleared)
}

// What leads to cleared padding alone has the rows of tokens: they are gathered behind the sum with what is the same
// for all sequences, and attention, whose mask the region makes itself, is among them.
func TestWhatLeadsToClearedPaddingIsPacked(t *testing.T) {
	goldenOf(t, "ragged.json", proposed(t, layer{}.graph(), 1))
}

// PyTorch's attention has places before sequences: its rows are turned, and its transposes move no tokens.
func TestRowsThatGoPlaceByPlaceArePacked(t *testing.T) {
	goldenOf(t, "ragged_turned.json", proposed(t, layer{turned: true}.graph(), 1))
}

func TestNothingIsPackedWherePaddingIsSeen(t *testing.T) {
	for name, y := range map[string]layer{
		"attention without a mask": {unmasked: true}, "a mean over places": {mixed: true},
	} {
		got, _ := emitted(t, proposed(t, y.graph(), 1))
		if name == "attention without a mask" {
			// What follows attention row by row still is.
			assert.Contains(t, got, `"gather_tokens"`, name)
			before, _, _ := strings.Cut(got, `"gather_tokens"`)
			assert.Contains(t, before, `"attention"`, name)
			continue
		}
		assert.NotContains(t, got, `"packed"`, name)
		assert.NotContains(t, got, `"gather_tokens"`, name)
		assert.Contains(t, got, `"clear_padding"`, name)
	}
	got, _ := emitted(t, proposed(t, layer{escapes: true}.graph(), 1))
	require.Contains(t, got, `"packed"`)
	before, _, _ := strings.Cut(got, `"gather_tokens"`)
	assert.Contains(t, before, `"attention"`, "what leaves the region has its padding")
}
