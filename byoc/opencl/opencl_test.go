// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func TestDescription(t *testing.T) {
	t.Parallel()
	require.NoError(t, byoc.Validate(New()))
	require.Equal(t, Device, byoc.DeviceOf(New()))
	require.NotEmpty(t, New().Description())
}

func TestWhatStaysOnTheProcessor(t *testing.T) {
	t.Parallel()
	for reason, of := range map[string]struct {
		operator, dtype string
		shape           []int64
	}{
		"":                            {"exp", "float32", []int64{2}},
		"float64 is not computed":     {"exp", "float64", []int64{2}},
		"float16 is not computed":     {"exp", "float16", []int64{2}},
		"without elements":            {"exp", "float32", []int64{2, 0}},
		"under another name":          {"atan", "float32", []int64{2}},
		"random.uniform runs on":      {"random.uniform", "float32", []int64{2}},
		"vm.alloc_tensor runs on the": {"vm.alloc_tensor", "float32", []int64{2}},
	} {
		m := relay.NewGraph("main")
		call := m.Call(of.operator, relay.Tensor(of.dtype, of.shape...), nil, m.Var(of.shape, of.dtype))
		g := m.Finish(call)
		if err := refusal(g, call); reason == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, reason)
		}
		require.Equal(t, refusal(g, call), New().(byoc.Ruler).Rules().Supports(g, call))
	}
	// A result that the device takes, of what it does not; and a tuple with such a field.
	m := relay.NewGraph("main")
	x := m.Var([]int64{2}, "float64")
	cast := m.Call("cast", relay.Tensor("float32", 2), nil, x)
	both := m.Tuple(cast, x)
	joined := m.Call("concatenate", relay.Tensor("float32", 4), nil, both)
	g := m.Finish(joined)
	require.ErrorContains(t, refusal(g, cast), "float64")
	g.Nodes[both].Type = &relay.Type{Kind: relay.TypeTuple, Fields: []*relay.Type{relay.Tensor("float32", 2),
		relay.Tensor("float64", 2)}}
	require.ErrorContains(t, refusal(g, joined), "float64")
}

// Regions are proposed without operators that are known to fail by themselves.
func TestWhatFailsAloneIsInNoRegion(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	kind := relay.Tensor("float32", 8)
	a := m.Call("exp", kind, nil, m.Var([]int64{8}, "float32"))
	b := m.Call("tanh", kind, nil, a)
	c := m.Call("sqrt", kind, nil, b)
	d := m.Call("abs", kind, nil, c)
	g := m.Finish(d)
	proposer := New().(byoc.Proposer)
	greatest := func(learnt ...byoc.Learnt) []relay.NodeID { return proposer.Propose(g, learnt)[0].Nodes }
	require.Equal(t, []relay.NodeID{a, b, c, d}, greatest())
	failed := byoc.Learnt{Backend: Name, Nodes: []relay.NodeID{b}, Milliseconds: math.Inf(1)}
	require.Equal(t, []relay.NodeID{c, d}, greatest(failed))
	for name, other := range map[string]byoc.Learnt{
		"of another backend": {Backend: "tvm", Nodes: []relay.NodeID{b}, Milliseconds: math.Inf(1)},
		"of several":         {Backend: Name, Nodes: []relay.NodeID{b, c}, Milliseconds: math.Inf(1)},
		"no failure":         {Backend: Name, Nodes: []relay.NodeID{b}, Milliseconds: 1},
	} {
		require.Equal(t, []relay.NodeID{a, b, c, d}, greatest(other), name)
	}
}

// The head says who reads each input and who makes each output, for the engine's times.
func TestHead(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	kind := relay.Tensor("float32", 8)
	x, y, unread := m.Var([]int64{8}, "float32"), m.Var([]int64{8}, "float32"), m.Var([]int64{8}, "float32")
	a := m.Call("exp", kind, nil, x)
	b := m.Call("add", kind, nil, a, y)
	c := m.Call("multiply", kind, nil, b, x)
	p, err := region.FromGraph(m.Finish(m.Tuple(c, a, unread)), "r")
	require.NoError(t, err)
	require.Equal(t, "collage-opencl 1\nexp add multiply\n0,2 1 - \n2 0 - \n\n\n", head(p, nil))
	var kernels []kernel
	require.NoError(t, json.Unmarshal([]byte(`[[3, ["exp"]], [5, ["layout_transform"]], [6, ["add", "multiply"]]]`), &kernels))
	require.Equal(t, "collage-opencl 1\nexp add multiply\n0,2 1 - \n2 0 - \n0 - 1,2 \n3 5 6 \n", head(p, kernels))
	require.Nil(t, groupsOf(p, kernels[:2]), "an operator is nowhere")
	_, _, err = emit(p)
	require.ErrorContains(t, err, "from its function")
}

// Operators of one name are told apart by their order, and those that TVM writes otherwise by what is left of the name.
func TestKernelsAreKnownByTheirOperators(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("r")
	kind := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	a := m.Call("nn.conv2d", kind, nil, x)
	b := m.Call("exp", kind, nil, a)
	c := m.Call("nn.conv2d", kind, nil, b)
	p, err := region.FromGraph(m.Finish(m.Call("exp", kind, nil, c)), "r")
	require.NoError(t, err)
	require.Equal(t, [][]int{{0, 1}, {2}, {3}}, groupsOf(p, []kernel{{0, []string{"nn.conv2d", "exp"}},
		{1, []string{"nn.contrib_conv2d_winograd_without_weight_transform"}}, {2, []string{"exp"}}}))
	for name, plain := range map[string]string{"exp": "exp", "nn.conv2d": "nn.conv2d",
		"nn.contrib_conv2d_NCHWc": "nn.conv2d", "nn.contrib_dense_pack": "nn.dense",
		"nn.contrib_conv3d_winograd_without_weight_transform": "nn.conv3d"} {
		require.Equal(t, plain, plainName(name))
	}
}

func TestProbe(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	t.Setenv(byoc.PluginDirEnv, folder)
	t.Setenv("COLLAGE_OPENCL_LIBRARY", filepath.Join(folder, "libOpenCL.so.1"))
	vendors := filepath.Join(folder, "vendors")
	t.Setenv(vendorsEnv, vendors)
	unusable := func(reason string) {
		t.Helper()
		p := New().Probe()
		require.False(t, p.Usable)
		require.Contains(t, p.Reason, reason)
		require.NotEmpty(t, p.Remedy)
	}
	unusable("libcollage_opencl.so")
	write("libcollage_opencl.so", "")
	unusable("COLLAGE_OPENCL_LIBRARY is")
	write("libOpenCL.so.1", "")
	unusable("has no driver: " + vendors + " names none")
	write("vendors/empty.icd", "\n")
	write("vendors/other.txt", "libother.so\n")
	unusable("has no driver")
	write("vendors/b.icd", "/usr/lib/libgpu.so.3\n")
	write("vendors/a.icd", "libpocl.so.2.10.0")
	write("vendors/c.icd", "libgpu.so.3\n")
	p := New().Probe()
	require.True(t, p.Usable, p.Reason)
	require.Equal(t, []string{"libgpu.so.3", "libpocl.so.2.10.0"}, p.Features)
	require.Equal(t, fmt.Sprintf("libgpu.so.3+libpocl.so.2.10.0+collage.%d", writerRevision), p.Version)
	t.Setenv(vendorsEnv, filepath.Join(vendors, "a.icd"))
	require.Equal(t, []string{"libpocl.so.2.10.0"}, New().Probe().Features)
}
