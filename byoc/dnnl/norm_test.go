// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"regexp"
	"slices"
	"strings"
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

// instanceNorm calls a composite of the kernel norm, of images in NCHW.
func (r maker) instanceNorm(x relay.NodeID, shape ...int64) relay.NodeID {
	full, column := f(shape...), f(shape[0], shape[1], 1, 1)
	over := map[string]any{"axis": []int64{2, 3}, "keepdims": true, "exclude": false}
	return r.composite("native.instance_norm", full, func(p []relay.NodeID) relay.NodeID {
		mean := r.Call("mean", column, over, p[0])
		variance := r.Call("variance", column, map[string]any{"axis": []int64{2, 3}, "keepdims": true, "exclude": false,
			"unbiased": false}, p[0], mean)
		root := r.Call("sqrt", column, nil, r.Call("add", column, nil, variance, r.Scalar(1e-6, f32)))
		return r.Call("multiply", full, nil, r.Call("divide", full, nil, r.Call("subtract", full, nil, p[0], mean), root),
			p[1])
	}, []*relay.Type{full, f(shape[1], 1, 1)}, x, r.Const([]int64{shape[1], 1, 1}, f32))
}

// channelScale calls another one.
func (r maker) channelScale(x relay.NodeID, shape ...int64) relay.NodeID {
	full, numbers := f(shape...), []int64{shape[1], 1, 1}
	return r.composite("native.channel_scale", full, func(p []relay.NodeID) relay.NodeID {
		return r.Call("add", full, nil, r.Call("multiply", full, nil, p[0], p[1]), p[2])
	}, []*relay.Type{full, f(numbers...), f(numbers...)}, x, r.Const(numbers, f32), r.Const(numbers, f32))
}

func TestSumsForNormalisationsOfImages(t *testing.T) {
	y := f(2, 16, 5, 4)
	for name, c := range map[string]struct {
		addend []int64
		taken  bool
	}{
		"an image":                   {y.Shape, true},
		"a number for each channel":  {[]int64{2, 16, 1, 1}, true},
		"the same in all images":     {[]int64{16, 1, 1}, true},
		"a number for each image":    {[]int64{2, 1, 1, 1}, false},
		"one image, in all of them":  {[]int64{1, 16, 5, 4}, false},
		"a number for each position": {[]int64{5, 4}, false},
	} {
		for kind, norm := range map[string]func(r maker, x relay.NodeID, shape ...int64) relay.NodeID{
			"group_norm": maker.instanceNorm, "channel_scale": maker.channelScale,
		} {
			// What is added comes last.
			first := regexp.MustCompile(`"op": "` + kind + `", "kernel": "norm", "in": \[0, .*, 1\], "out"`)
			for _, kept := range []bool{false, true} {
				r := newRegion()
				x, addend := r.Var(y.Shape, f32), r.Var(c.addend, f32)
				total := r.Call("add", y, nil, x, addend)
				result := norm(r, total, y.Shape...)
				if kept {
					result = r.Tuple(result, total)
				}
				got, _ := text(t, r.Finish(result))
				require.Equal(t, c.taken, first.MatchString(got), "%s: %s", name, got)
				require.Equal(t, c.taken && kept, strings.Contains(got, `"more"`), "%s: %s", name, got)
			}
		}
	}
}

// A number for each channel behind a convolution, as diffusion models add the time, is added by who does it for least.
func TestNumbersOfChannelsBehindConvolutions(t *testing.T) {
	for name, c := range map[string]struct {
		composite string
		images    int64
		addend    int64 // images of it
		bias      bool
		taken     bool
	}{
		"our kernel":                        {"native.winograd_conv2d", 1, 1, true, true},
		"our kernel, images":                {"native.winograd_conv2d", 2, 2, true, true},
		"our kernel, instead of a bias":     {"native.winograd_conv2d", 1, 1, false, false},
		"our kernel, images without bias":   {"native.winograd_conv2d", 2, 2, false, true},
		"oneDNN's, the same in all images":  {"dnnl.conv2d", 2, 1, true, false},
		"oneDNN's, others for other images": {"dnnl.conv2d", 2, 2, true, true},
	} {
		y := f(c.images, 16, 8, 8)
		r := newRegion()
		x, addend := r.Var(y.Shape, f32), r.Var([]int64{c.addend, 16, 1, 1}, f32)
		composite, types := c.composite, []*relay.Type{y, f(16, 16, 3, 3)}
		given := []relay.NodeID{x, r.Const([]int64{16, 16, 3, 3}, f32)}
		if c.bias {
			composite += "_bias"
			types, given = append(types, f(16, 1, 1)), append(given, r.Const([]int64{16, 1, 1}, f32))
		}
		convolution := r.composite(composite, y, func(p []relay.NodeID) relay.NodeID {
			made := r.Call("nn.conv2d", y, conv2dAttrs(), p[0], p[1])
			if c.bias {
				made = r.Call("add", y, nil, made, p[2])
			}
			return made
		}, types, given...)
		got, _ := text(t, r.Finish(r.instanceNorm(r.Call("add", y, nil, convolution, addend), y.Shape...)))
		require.Regexp(t, `"op": "conv".*\n  {"op": "group_norm"`, got, "%s: and no sum between", name)
		require.Equal(t, c.taken, regexp.MustCompile(`"group_norm", "kernel": "norm", "in": \[\d+, \d+, 1\]`).
			MatchString(got), "%s: %s", name, got)
	}
}
