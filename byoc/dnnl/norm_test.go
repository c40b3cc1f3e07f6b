// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// rmsNorm calls a composite of the kernel norm.
func (r maker) rmsNorm(x relay.NodeID, shape ...int64) relay.NodeID {
	full, column := f(shape...), slices.Clone(shape)
	column[len(column)-1] = 1
	return r.composite("native.rms_norm", full, func(p []relay.NodeID) relay.NodeID {
		mean := r.Call("mean", f(column...), map[string]any{"axis": []int64{-1}, "keepdims": true, "exclude": false},
			r.Call("multiply", full, nil, p[0], p[0]))
		root := r.Call("rsqrt", f(column...), nil, r.Call("add", f(column...), nil, mean, r.Scalar(1e-6, f32)))
		return r.Call("multiply", full, nil, r.Call("multiply", full, nil, p[0], root), p[1])
	}, []*relay.Type{full, f(shape[len(shape)-1])}, x, r.Const(shape[len(shape)-1:], f32))
}

func TestSumsForNormalisations(t *testing.T) {
	r := newRegion()
	y := f(2, 3, 8)
	a, b := r.Var(y.Shape, f32), r.Var(y.Shape, f32)
	bias := r.Const([]int64{8}, f32)
	// One that nobody else reads, with a row; one that is read later, and is made by an operator that is read before.
	first := r.Call("add", y, nil, r.Call("add", y, nil, bias, a), b)
	total := r.Call("add", y, nil, a, b)
	relu := r.Call("nn.relu", y, nil, total)
	both := r.Call("add", y, nil, r.Call("multiply", y, nil, r.rmsNorm(total, y.Shape...), relu), total)
	golden(t, "sums.json", r.Finish(r.Tuple(r.rmsNorm(first, y.Shape...), both)))
}

func TestSumsThatNormalisationsDoNotTake(t *testing.T) {
	y := f(2, 3, 8)
	for name, sum := range map[string]func(r maker, a, b relay.NodeID) relay.NodeID{
		"a column": func(r maker, a, _ relay.NodeID) relay.NodeID {
			return r.Call("add", y, nil, a, r.Var([]int64{3, 1}, f32))
		},
		"both broadcast": func(r maker, _, _ relay.NodeID) relay.NodeID {
			return r.Call("add", y, nil, r.Var([]int64{2, 1, 8}, f32), r.Var([]int64{3, 1}, f32))
		},
		"a product's own": func(r maker, _, b relay.NodeID) relay.NodeID {
			return r.Call("add", y, nil, r.Call("nn.batch_matmul", y,
				map[string]any{"transpose_a": false, "transpose_b": true}, r.Var([]int64{2, 3, 5}, f32),
				r.Const([]int64{2, 8, 5}, f32)), b)
		},
		"something else": func(r maker, a, b relay.NodeID) relay.NodeID { return r.Call("multiply", y, nil, a, b) },
	} {
		r := newRegion()
		a, b := r.Var(y.Shape, f32), r.Var(y.Shape, f32)
		got, _ := text(t, r.Finish(r.rmsNorm(sum(r, a, b), y.Shape...)))
		require.Regexp(t, `"op": "rms_norm", "kernel": "norm", "in": \[\d+, \d+\], "out": \d+, "unshifted"`, got, name)
	}

	// It would have to be there before something that the normalisation reads.
	r := newRegion()
	a, b := r.Var(y.Shape, f32), r.Var(y.Shape, f32)
	total := r.Call("add", y, nil, a, b)
	late := r.Call("exp", y, nil, total)
	normal := r.rmsNorm(total, y.Shape...)
	got, _ := text(t, r.Finish(r.Call("add", y, nil, normal, late)))
	require.NotContains(t, got, `"more"`, "what it adds behind is made of the sum")
}

func TestNormalisationsDoWhatFollows(t *testing.T) {
	y := f(4, 8)
	r := newRegion()
	normal := r.rmsNorm(r.Var(y.Shape, f32), y.Shape...)
	added := r.Call("add", y, nil, r.Call("sigmoid", y, nil, normal), r.Var(y.Shape, f32))
	got, _ := text(t, r.Finish(added))
	require.Contains(t, got, `"post": [{"op": "sigmoid"}, {"op": "add", "in": `)
	for _, c := range []struct {
		operator string
		other    []int64
	}{{"add", []int64{8}}, {"multiply", y.Shape}} {
		r := newRegion()
		normal := r.rmsNorm(r.Var(y.Shape, f32), y.Shape...)
		got, _ := text(t, r.Finish(r.Call(c.operator, y, nil, normal, r.Var(c.other, f32))))
		require.NotContains(t, got, "post", "what the kernel cannot do is done behind it by itself")
	}
}
