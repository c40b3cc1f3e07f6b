// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/relay"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const f32 = "float32"

func f(shape ...int64) *relay.Type { return relay.Tensor(f32, shape...) }

func convAttrs() map[string]any {
	return map[string]any{"strides": []int{1, 1}, "padding": []int{1, 1, 1, 1}, "dilation": []int{1, 1}, "groups": 1,
		"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": ""}
}

// block is a convolution with bias and ReLU, whose output is split and put together the other way round.
func block() *relay.Graph {
	m := relay.NewGraph("tvmgen_default_collage_openvino_main_0")
	x := m.Var([]int64{1, 3, 8, 8}, f32)
	conv := m.Call("nn.conv2d", f(1, 4, 8, 8), convAttrs(), x, m.Const([]int64{4, 3, 3, 3}, f32))
	relu := m.Call("nn.relu", f(1, 4, 8, 8), nil,
		m.Call("add", f(1, 4, 8, 8), nil, conv, m.Const([]int64{4, 1, 1}, f32)))
	split := m.Call("split", relay.TupleOf(f(1, 2, 8, 8), f(1, 2, 8, 8)),
		map[string]any{"indices_or_sections": 2, "axis": 1}, relu)
	joined := m.Call("concatenate", f(1, 4, 8, 8), map[string]any{"axis": 1}, m.Tuple(m.Get(split, 1), m.Get(split, 0)))
	flat := m.Call("reshape", f(1, 256), map[string]any{"newshape": []int{1, -1}}, joined)
	return m.Finish(m.Tuple(flat, m.Call("clip", f(1, 4, 8, 8), map[string]any{"a_min": 0.0, "a_max": 6.0}, relu)))
}

func program(t *testing.T, g *relay.Graph) *region.Program {
	t.Helper()
	p, err := region.FromGraph(g, g.Name)
	require.NoError(t, err)
	return p
}

// in has all of a program computed in a precision.
func in(p *region.Program, precision byoc.Precision) *region.Program {
	names, _ := p.Groups()
	if p.Graph.Attrs == nil {
		p.Graph.Attrs = map[string]string{}
	}
	p.Graph.Attrs[region.PrecisionsAttr] = strings.TrimSpace(strings.Repeat(string(precision)+" ", len(names)))
	return p
}

// In a model that is compiled for bfloat16, what is to be computed in float32 is marked, and nothing else.
func TestPrecisionsOfOperators(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	image := f(1, 4, 8, 8)
	x := m.Var(image.Shape, f32)
	for i, name := range []string{"first", "second", "third"} {
		if i == 2 {
			x = steps(m, x, image, "uint8", 0.25, 0)
		}
		x = m.Call("nn.conv2d", image, convAttrs(), x, m.Const([]int64{4, 4, 3, 3}, f32, name))
	}
	g := m.Finish(m.Call("tanh", image, nil, x))
	for said, wanted := range map[string]struct {
		hint    byoc.Precision
		precise []string
		int8s   int
	}{
		"":                              {byoc.F32, nil, 0},
		"f32 f32 f32 f32 f32 f32":       {byoc.F32, nil, 0},
		"f32 f32 f32 f32 int8 f32":      {byoc.F32, nil, 1},
		"bf16 f32 int8 int8 int8 f32":   {byoc.BF16, []string{"Convolution", "Tanh"}, 1},
		"bf16 bf16 int8 int8 f32 bf16":  {byoc.BF16, []string{"Convolution"}, 0},
		"bf16 bf16 bf16 bf16 bf16 bf16": {byoc.BF16, nil, 0},
	} {
		p := program(t, g)
		p.Graph.Attrs = map[string]string{region.PrecisionsAttr: said}
		w, constants, err := writeWith(p, ones(p, -1))
		require.NoError(t, err)
		require.Equal(t, wanted.hint, w.hint, said)
		var marked []string
		for _, l := range w.net.Layers {
			if l.Info != nil {
				marked = append(marked, l.Type)
			}
		}
		require.Equal(t, wanted.precise, marked, said)
		int8s := 0
		for _, v := range constants {
			if p.Values[v].Type.DType == "int8" {
				int8s++
			}
		}
		require.Equal(t, wanted.int8s, int8s, said)
	}
	for said, because := range map[string]string{
		"f32":                       "Precisions says 1 precisions of 6 groups",
		"f32 f32 f32 f32 f32 float": `Precisions has "float", which is no precision`,
	} {
		p := program(t, g)
		p.Graph.Attrs = map[string]string{region.PrecisionsAttr: said}
		_, _, err := emit(p)
		require.ErrorContains(t, err, because)
	}
}

func TestGoldenIR(t *testing.T) {
	t.Parallel()
	w, constants, err := write(program(t, block()))
	require.NoError(t, err)
	require.Len(t, constants, 2)
	text, err := w.net.text()
	require.NoError(t, err)
	path := filepath.Join("testdata", "block.xml")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, text, 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./byoc/openvino -update and review the diff")
	require.Equal(t, string(want), string(text))
}

func TestWeightsDoNotOverlap(t *testing.T) {
	t.Parallel()
	w, _, err := write(program(t, block()))
	require.NoError(t, err)
	end := int64(0)
	for _, l := range w.net.Layers {
		if l.Type != "Const" {
			continue
		}
		var offset, size int64
		for _, a := range l.Data.Attrs {
			switch a.Name.Local {
			case "offset":
				_, err = fmt.Sscan(a.Value, &offset)
			case "size":
				_, err = fmt.Sscan(a.Value, &size)
			}
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, offset, end, l.Name)
		end = offset + size
	}
	require.Equal(t, w.base+int64(len(w.own)), end)
}

func TestProgramText(t *testing.T) {
	t.Setenv(library.Env, "/no such file")
	p := program(t, block())
	text, constants, err := emit(in(p, byoc.BF16))
	require.NoError(t, err)
	require.Equal(t, "uint8", p.Values[constants[len(constants)-1]].Type.DType, "what the writer added comes last")
	rest, ok := strings.CutPrefix(string(text), formatLine+"bf16\n")
	require.True(t, ok)
	var net netXML
	require.NoError(t, xml.Unmarshal([]byte(rest), &net))
	require.Equal(t, 11, net.Version)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	nhwc := convAttrs()
	nhwc["data_layout"] = "NHWC"
	for _, c := range []struct {
		because string
		op      string
		out     *relay.Type
		attrs   map[string]any
		in      []*relay.Type
	}{
		{"nn.conv2d has data_layout NHWC; only NCHW is supported", "nn.conv2d", f(1, 4, 8, 8), nhwc,
			[]*relay.Type{f(1, 3, 8, 8), f(4, 3, 3, 3)}},
		{"nn.conv2d has weights of the shape [4, 2, 3, 3]", "nn.conv2d", f(1, 4, 8, 8), convAttrs(),
			[]*relay.Type{f(1, 3, 8, 8), f(4, 2, 3, 3)}},
		{"add has as argument 1 a tensor of float16; only float32, int32 is supported", "add",
			relay.Tensor("float16", 2), nil,
			[]*relay.Type{relay.Tensor("float16", 2), relay.Tensor("float16", 2)}},
		{"exp has the shape [0, 3]; empty tensors are not supported", "exp", f(0, 3), nil, []*relay.Type{f(0, 3)}},
		{"nn.l2_normalize is written with the sizes of its tensors, and those of [?, 3] are known only when it runs",
			"nn.l2_normalize", f(relay.AnyDim, 3), map[string]any{"axis": []any{int64(1)}, "eps": 1e-5},
			[]*relay.Type{f(relay.AnyDim, 3)}},
		{"exp has as argument 1 a tensor of 7 dimensions; at most 6", "exp", f(1, 1, 1, 1, 1, 1, 1), nil,
			[]*relay.Type{f(1, 1, 1, 1, 1, 1, 1)}},
		{"image.odd has no counterpart in OpenVINO", "image.odd", f(3), nil, []*relay.Type{f(3)}},
		{"cast narrows float32 to int8", "cast", relay.Tensor("int8", 3), map[string]any{"dtype": "int8"},
			[]*relay.Type{f(3)}},
	} {
		m := relay.NewGraph("r")
		var args []relay.NodeID
		for _, t := range c.in {
			args = append(args, m.Var(t.Shape, t.DType))
		}
		call := m.Call(c.op, c.out, c.attrs, args...)
		g := m.Finish(call)
		require.ErrorContains(t, check(callOf(g, call)), c.because)
	}
}

// Checks meet calls of any form: types that are missing, attributes of another version of TVM.
func TestChecksSurviveAnything(t *testing.T) {
	t.Parallel()
	types := []*relay.Type{nil, f(), f(2, 3), relay.TupleOf(f(3), f(3)), f(1, 3, 8, 8), relay.Tensor("int64", 2),
		relay.Tensor("bool", 2, 3)}
	attrs := []*relay.Attrs{nil, relay.NewAttrs("",
		map[string]any{"axis": 9, "axes": "x", "padding": []int{1}, "strides": []int{0},
			"pool_size": 2, "dilation": []int{1}, "groups": 0, "pad_width": []int{1}, "begin": []int{1}, "end": []int{},
			"reps": []int{}, "newshape": nil})}
	every := uint64(len(names())) / rounds.Seeds(uint64(len(names())))
	for i, name := range append(names(), "image.odd") {
		if uint64(i)%every != 0 {
			continue
		}
		for _, a := range attrs {
			for _, out := range types[:4] {
				for _, x := range types {
					for _, y := range types {
						for n := range 4 {
							c := &call{op: name, attrs: a, out: tensors(out)}
							for i := range n {
								c.in = append(c.in, tensors([]*relay.Type{x, y, x}[i])...)
							}
							c.constants = make([]*relay.Constant, len(c.in))
							c.nodes = slices.Repeat([]relay.NodeID{relay.NoNode}, len(c.in))
							c.used = make([]bool, len(c.out))
							_ = check(c)
							for i := range c.used {
								c.used[i] = true
							}
							_ = check(c)
						}
					}
				}
			}
		}
	}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	b := New()
	require.NoError(t, byoc.Validate(b))
	seen := map[string]bool{}
	for _, p := range b.Patterns() {
		require.False(t, seen[p.Composite], "twice: %s", p.Composite)
		seen[p.Composite] = true
	}
	g := block()
	proposals := b.(byoc.Proposer).Propose(g, nil)
	require.Len(t, proposals, 2, "split to reshape, and all of it; convolution, bias and ReLU are a pattern")
	require.Greater(t, len(g.Exits(proposals[1].Nodes)), 1, "the block gives several values")
	require.Equal(t, "reshape", g.Nodes[proposals[0].Nodes[len(proposals[0].Nodes)-1]].Op)
}

func TestProposesTheWholeNetwork(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	at := m.Var([]int64{1, 3, 8, 8}, f32)
	for i := range 4 {
		conv := m.Call("nn.conv2d", f(1, 3, 8, 8), convAttrs(), at, m.Const([]int64{3, 3, 3, 3}, f32, fmt.Sprint(i)))
		at = m.Call("nn.relu", f(1, 3, 8, 8), nil, conv)
	}
	g := m.Finish(at)
	proposals := New().(byoc.Proposer).Propose(g, nil)
	require.NotEmpty(t, proposals)
	require.Len(t, proposals[0].Nodes, 8)
}

func TestVersion(t *testing.T) {
	site := t.TempDir()
	file := filepath.Join(site, "openvino", "libs", "libopenvino_c.so.2641")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.Equal(t, "2641", version(file))
	info := filepath.Join(site, "openvino-2026.4.1.dist-info")
	require.NoError(t, os.MkdirAll(info, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(info, "METADATA"),
		[]byte("Metadata-Version: 2.4\nName: openvino\nVersion: 2026.4.1\n"), 0o644))
	require.Equal(t, "2026.4.1", version(file))
	t.Setenv(library.Env, file)
	path, err := library.Find()
	require.NoError(t, err)
	require.Equal(t, file, path)
}

// Each operator that a proposed region may hold is a pattern by itself: so docs/operators.md says of engines.
func TestOperatorsAreTakenAlone(t *testing.T) {
	alone := map[string]bool{}
	for _, p := range New().Patterns() {
		for _, op := range relay.Alone(p.Shape) {
			alone[op] = true
		}
	}
	for _, op := range names() {
		require.True(t, alone[op], op)
	}
	require.Len(t, alone, len(names()))
}

func TestWhatMayBeOpenIsAnOperator(t *testing.T) {
	for name := range openChecks {
		require.Contains(t, operators(), name)
	}
}
