// SPDX-License-Identifier: Apache-2.0

package dnnltvm

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares the graph JSON of a region with testdata/name, or rewrites the file under -update.
func golden(t *testing.T, name string, g *relay.Graph) *program {
	t.Helper()
	p, err := translate(g, "tvmgen_default_dnnl_main_0")
	require.NoError(t, err)
	text := p.graphJSON()
	require.True(t, json.Valid([]byte(text)), text)
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return p
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./byoc/dnnl -update and review the diff")
	require.Equal(t, string(want), text)
	return p
}

// programOf makes region functions as the annotation makes them.
type regionMaker struct{ *relay.GraphMaker }

func newRegion() regionMaker { return regionMaker{relay.NewGraph("tvmgen_default_dnnl_main_0")} }

// composite calls a Composite function of that name; body makes its body of its parameters.
func (r regionMaker) composite(name string, out *relay.Type, body func(p []relay.NodeID) relay.NodeID,
	types []*relay.Type, args ...relay.NodeID) relay.NodeID {
	var params []relay.NodeID
	for _, t := range types {
		params = append(params, r.LocalVar(t.Shape, t.DType))
	}
	fn := r.Function(params, body(params), map[string]string{"Composite": name, "PartitionedFromPattern": ""})
	return r.CallFunction(fn, out, args...)
}

func TestConvolutionWithClip(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{1, 8, 4, 4}, f32)
	// The constants stand outside of the Composite function, and the bias comes before the data in the addition.
	w, b := r.Const([]int64{8, 8, 3, 3}, f32), r.Const([]int64{8, 1, 1}, f32)
	y := f(1, 8, 4, 4)
	call := r.composite("dnnl.conv2d_bias_clip", y, func(p []relay.NodeID) relay.NodeID {
		conv := r.Call("nn.conv2d", y, with(conv2dAttrs(), "padding", []int64{1}), p[1], p[2])
		return r.Call("clip", y, map[string]any{"a_min": 0.0, "a_max": 6.0}, r.Call("add", y, nil, p[0], conv))
	}, []*relay.Type{f(8, 1, 1), y, f(8, 8, 3, 3)}, b, x, w)
	p := golden(t, "conv2d_bias_clip.json", r.Finish(call))
	require.Equal(t, []string{"dnnl_tvmgen_default_dnnl_main_0_const_0", "dnnl_tvmgen_default_dnnl_main_0_const_1"},
		p.constantNames())
	require.Equal(t, []relay.NodeID{w, b}, []relay.NodeID{p.constants[0].value, p.constants[1].value})
}

func TestDenseWithLeakyReLU(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{2, 4}, f32)
	call := r.composite("dnnl.dense_bias_leaky", f(2, 3), func(p []relay.NodeID) relay.NodeID {
		dense := r.Call("nn.dense", f(2, 3), nil, p[0], r.Const([]int64{3, 4}, f32))
		biased := r.Call("add", f(2, 3), nil, dense, r.Const([]int64{3}, f32))
		return r.Call("nn.leaky_relu", f(2, 3), map[string]any{"alpha": 0.1}, biased)
	}, []*relay.Type{f(2, 4)}, x)
	p := golden(t, "dense_bias_leaky.json", r.Finish(call))
	require.Len(t, p.constants, 5)
	require.Equal(t, []float32{1, 0.1, 0}, []float32{p.constants[2].number, p.constants[3].number,
		p.constants[4].number})
}

func TestBareOperatorsAndSeveralResults(t *testing.T) {
	r := newRegion()
	x, y := r.Var([]int64{2, 3}, f32), r.Var([]int64{2, 3}, f32)
	sum := r.Call("add", f(2, 3), nil, x, y)
	relu := r.Call("nn.relu", f(2, 3), nil, sum)
	soft := r.Call("nn.softmax", f(2, 3), map[string]any{"axis": -1}, relu)
	p := golden(t, "several_results.json", r.Finish(r.Tuple(relu, soft, relu)))
	require.Equal(t, []int{3, 4, 5}, p.heads, "the one that is returned twice is copied")
	require.Equal(t, "nn.leaky_relu", p.nodes[5].name)
}

func TestGroupedTransposedConvolution(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{1, 6, 4, 4}, f32)
	w := r.Const([]int64{6, 4, 3, 3}, f32)
	y := r.Call("nn.conv2d_transpose", f(1, 8, 4, 4),
		with(conv2dAttrs(), "kernel_layout", "IOHW", "groups", 2, "output_padding", []int64{0, 0}), x, w)
	golden(t, "grouped_transposed.json", r.Finish(y))
}

// residual is a chain in which the value of relu is added to the result of a convolution.
func residual(r regionMaker, x, w relay.NodeID) relay.NodeID {
	y := f(1, 8, 4, 4)
	return r.composite("dnnl.conv2d_sum", y, func(p []relay.NodeID) relay.NodeID {
		return r.Call("add", y, nil, r.Call("nn.conv2d", y, conv2dAttrs(), p[0], p[1]), p[0])
	}, []*relay.Type{y, f(8, 8, 3, 3)}, x, w)
}

func TestResidualThatTheKernelItselfReads(t *testing.T) {
	r := newRegion()
	y := f(1, 8, 4, 4)
	x := r.Var([]int64{1, 8, 4, 4}, f32)
	w := r.Const([]int64{8, 8, 3, 3}, f32)
	sum := residual(r, r.Call("nn.relu", y, nil, x), w)
	p := golden(t, "residual_copied.json", r.Finish(r.Call("nn.relu", y, nil, sum)))
	require.Equal(t, "nn.leaky_relu", p.nodes[3].name,
		"the runtime would write the sum over what the convolution reads")
}

func TestResidualThatIsReturned(t *testing.T) {
	r := newRegion()
	x := r.Var([]int64{1, 8, 4, 4}, f32)
	w := r.Const([]int64{8, 8, 3, 3}, f32)
	relu := r.Call("nn.relu", f(1, 8, 4, 4), nil, x)
	p, err := translate(r.Finish(r.Tuple(relu, residual(r, relu, w))), "s")
	require.NoError(t, err)
	require.Len(t, p.nodes, 4, "the runtime copies what it returns by itself")
}

func TestCodegenRefusals(t *testing.T) {
	for _, c := range []struct {
		because string
		make    func(r regionMaker, x relay.NodeID) relay.NodeID
	}{
		{"region s: TVM's oneDNN runtime has no kernel for the operator round",
			func(r regionMaker, x relay.NodeID) relay.NodeID {
				return r.Call("round", f(4, 4), nil, x)
			}},
		{`does not know the composite "dnnl.qnn.conv2d"`, func(r regionMaker, x relay.NodeID) relay.NodeID {
			return r.composite("dnnl.qnn.conv2d", f(4, 4),
				func(p []relay.NodeID) relay.NodeID { return r.Call("exp", f(4, 4), nil, p[0]) },
				[]*relay.Type{f(4, 4)}, x)
		}},
		{"dnnl.dense_bias: its body is not what the name says", func(r regionMaker, x relay.NodeID) relay.NodeID {
			return r.composite("dnnl.dense_bias", f(4, 4),
				func(p []relay.NodeID) relay.NodeID { return r.Call("exp", f(4, 4), nil, p[0]) },
				[]*relay.Type{f(4, 4)}, x)
		}},
		{"dnnl.dense_relu: its body is not what the name says", func(r regionMaker, x relay.NodeID) relay.NodeID {
			return r.composite("dnnl.dense_relu", f(4, 4), func(p []relay.NodeID) relay.NodeID {
				return r.Call("nn.relu", f(4, 4), nil,
					r.Call("nn.dense", f(4, 4), nil, p[0], r.Call("exp", f(4, 4), nil, p[0])))
			}, []*relay.Type{f(4, 4)}, x)
		}},
		{"add: the right side of add is int32; only float32", func(r regionMaker, x relay.NodeID) relay.NodeID {
			return r.Call("add", f(4, 4), nil, x, r.Const([]int64{4}, "int32"))
		}},
		{"calls a function that is not a Composite function", func(r regionMaker, x relay.NodeID) relay.NodeID {
			v := r.LocalVar([]int64{4, 4}, f32)
			return r.CallFunction(r.Function([]relay.NodeID{v}, r.Call("exp", f(4, 4), nil, v), nil), f(4, 4), x)
		}},
	} {
		t.Run(c.because, func(t *testing.T) {
			r := newRegion()
			x := r.Var([]int64{4, 4}, f32)
			_, err := translate(r.Finish(c.make(r, x)), "s")
			require.ErrorContains(t, err, c.because)
		})
	}
}
