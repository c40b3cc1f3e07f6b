// SPDX-License-Identifier: Apache-2.0

package blas

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

const f32 = "float32"

func f(shape ...int64) *relay.Type { return relay.Tensor(f32, shape...) }

// outcome is what the backend says of the largest pattern at the graph's root: its composite, or the refusals.
func outcome(g *relay.Graph) (taken string, refusals []string) {
	most := 0
	for _, p := range NewOpenBLAS().Patterns() {
		for _, m := range g.Match(p.Shape, g.Root()) {
			if err := p.Limits(g, m); err != nil {
				refusals = append(refusals, err.Error())
			} else if len(m.Nodes) > most {
				taken, most = p.Composite, len(m.Nodes)
			}
		}
	}
	return taken, refusals
}

// dense is a dense layer with something on top of it.
func dense(left, right, out *relay.Type, top func(m *relay.GraphMaker, y relay.NodeID) relay.NodeID) *relay.Graph {
	m := relay.NewGraph("main")
	y := m.Call("nn.dense", out, map[string]any{"out_dtype": ""}, m.Var(left.Shape, left.DType),
		m.Const(right.Shape, right.DType))
	if top != nil {
		y = top(m, y)
	}
	return m.Finish(y)
}

func batchMatmul(left, right, out *relay.Type, ta, tb bool) *relay.Graph {
	m := relay.NewGraph("main")
	attrs := map[string]any{"transpose_a": ta, "transpose_b": tb}
	return m.Finish(m.Call("nn.batch_matmul", out, attrs, m.Var(left.Shape, left.DType),
		m.Var(right.Shape, right.DType)))
}

func TestBackendsAreValid(t *testing.T) {
	for _, b := range []byoc.Backend{NewMKL(), NewOpenBLAS()} {
		require.NoError(t, byoc.Validate(b))
		seen := map[string]bool{}
		for _, p := range b.Patterns() {
			require.False(t, seen[p.Composite], p.Composite)
			require.True(t, strings.HasPrefix(p.Composite, b.Name()+"."), p.Composite)
			seen[p.Composite] = true
		}
	}
}

func TestLimits(t *testing.T) {
	add := func(addend *relay.Type, out *relay.Type) func(m *relay.GraphMaker, y relay.NodeID) relay.NodeID {
		return func(m *relay.GraphMaker, y relay.NodeID) relay.NodeID {
			return m.Call("add", out, nil, y, m.Const(addend.Shape, addend.DType))
		}
	}
	for _, c := range []struct {
		name  string
		graph *relay.Graph
		taken string
	}{
		{"dense", dense(f(4, 8), f(6, 8), f(4, 6), nil), "openblas.dense"},
		{"rows of several dimensions", dense(f(2, 4, 8), f(6, 8), f(2, 4, 6), nil), "openblas.dense"},
		{"bias", dense(f(4, 8), f(6, 8), f(4, 6), add(f(6), f(4, 6))), "openblas.dense_bias"},
		{"bias of two dimensions", dense(f(4, 8), f(6, 8), f(4, 6), add(f(1, 6), f(4, 6))), "openblas.dense_bias"},
		{"residual", dense(f(4, 8), f(6, 8), f(4, 6), add(f(4, 6), f(4, 6))), "openblas.dense_sum"},
		{"one for all on the right", batchMatmul(f(5, 4, 8), f(1, 6, 8), f(5, 4, 6), false, true),
			"openblas.batch_matmul"},
		{"one for all on the left", batchMatmul(f(1, 8, 4), f(5, 8, 6), f(5, 4, 6), true, false),
			"openblas.batch_matmul"},
	} {
		taken, refusals := outcome(c.graph)
		require.Equal(t, c.taken, taken, "%s: %v", c.name, refusals)
	}

	for _, c := range []struct {
		name    string
		graph   *relay.Graph
		because string
	}{
		{"half", dense(relay.Tensor("float16", 4, 8), f(6, 8), f(4, 6), nil), "is float16; only float32 and float64"},
		{"mixed", dense(relay.Tensor("float64", 4, 8), f(6, 8), f(4, 6), nil), "is float64 and the result float32"},
		{"unknown rows", dense(f(relay.AnyDim, 8), f(6, 8), f(relay.AnyDim, 6), nil),
			"has the shape [?, 6]; dimensions that are known only"},
		{"empty", dense(f(0, 8), f(6, 8), f(0, 6), nil), "each dimension must be at least 1"},
		{"vector", dense(f(8), f(6, 8), f(6), nil), "has 1 dimensions"},
		{"too long", dense(f(1<<32, 2), f(6, 2), f(1<<32, 6), nil), "a dimension of 4294967296"},
		{"batches", batchMatmul(f(5, 4, 8), f(3, 6, 8), f(5, 4, 6), false, true), "batches of 5 and 3"},
		{"sides", batchMatmul(f(5, 4, 8), f(5, 6, 8), f(5, 4, 6), false, false), "which do not fit"},
		{"wrong bias", dense(f(4, 8), f(6, 8), f(4, 6), add(f(4, 1), f(4, 6))),
			"not one value for each of the 6 columns of [4, 6]"},
		{"widening", dense(f(1, 8), f(6, 8), f(1, 6), add(f(4, 6), f(4, 6))), "turns the result [1, 6] into [4, 6]"},
	} {
		_, refusals := outcome(c.graph)
		require.Contains(t, strings.Join(refusals, "\n"), c.because, c.name)
	}
}

// composite wraps what body makes of the arguments in a composite function and calls it.
func composite(m *relay.GraphMaker, name string, out *relay.Type, args []relay.NodeID, types []*relay.Type,
	body func(params []relay.NodeID) relay.NodeID) relay.NodeID {
	params := make([]relay.NodeID, len(types))
	for i, typ := range types {
		params[i] = m.LocalVar(typ.Shape, typ.DType)
	}
	fn := m.Function(params, body(params), map[string]string{"Composite": name, "PartitionedFromPattern": ""})
	return m.CallFunction(fn, out, args...)
}

func TestEmit(t *testing.T) {
	t.Setenv("COLLAGE_OPENBLAS_LIBRARY", "/no such place/libopenblas.so")
	build := func(name string) *relay.Graph {
		m := relay.NewGraph("main")
		x, w, b := m.Var([]int64{4, 8}, f32), m.Const([]int64{6, 8}, f32), m.Const([]int64{6}, f32)
		first := composite(m, name, f(4, 6), []relay.NodeID{x, w, b}, []*relay.Type{f(4, 8), f(6, 8), f(6)},
			func(p []relay.NodeID) relay.NodeID {
				y := m.Call("nn.dense", f(4, 6), nil, p[0], p[1])
				return m.Call("nn.relu", f(4, 6), nil, m.Call("add", f(4, 6), nil, p[2], y))
			})
		return m.Finish(first)
	}
	backend := NewOpenBLAS().(*library)
	p, err := region.FromGraph(build("openblas.dense_bias_relu"), "region_0")
	require.NoError(t, err)
	text, constants, err := backend.Write(p)
	require.NoError(t, err)
	require.Len(t, constants, 2)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Equal(t, "collage-blas 1", lines[0])
	require.Equal(t, "input 0", lines[1])
	require.Regexp(t, `^product float32 \d+ 0 \d+ 4 6 8 1 0 0 0 1 1 \d+ -1 relu$`, lines[4])
	require.Regexp(t, `^output \d+$`, lines[5])

	for name, because := range map[string]string{
		"openblas.dense_bias": "openblas.dense_bias: its body is not what the name says",
		"openblas.conv":       `the backend openblas does not know the composite "openblas.conv"`,
	} {
		p, err := region.FromGraph(build(name), "region_0")
		require.NoError(t, err)
		_, _, err = backend.Write(p)
		require.EqualError(t, err, because)
	}

	m := relay.NewGraph("main")
	p, err = region.FromGraph(m.Finish(m.Call("nn.relu", f(4), nil, m.Var([]int64{4}, f32))), "region_0")
	require.NoError(t, err)
	_, _, err = backend.Write(p)
	require.EqualError(t, err, "OpenBLAS cannot run nn.relu outside of a composite function")
}

func TestProbeTellsSettings(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(byoc.PluginDirEnv, folder)
	for _, name := range []string{"libcollage_openblas.so", "libmine.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o644))
	}
	t.Setenv("COLLAGE_OPENBLAS_LIBRARY", filepath.Join(folder, "libmine.so"))
	t.Setenv("OPENBLAS_CORETYPE", "Haswell")
	p := NewOpenBLAS().Probe()
	require.True(t, p.Usable, p.Reason)
	require.Equal(t, []string{"OPENBLAS_CORETYPE=Haswell"}, p.Features)
	t.Setenv("COLLAGE_OPENBLAS_LIBRARY", filepath.Join(folder, "absent.so"))
	p = NewOpenBLAS().Probe()
	require.False(t, p.Usable)
	require.Contains(t, p.Reason, "which is no file")
	require.Contains(t, p.Remedy, "make backends BACKENDS=openblas")
}
