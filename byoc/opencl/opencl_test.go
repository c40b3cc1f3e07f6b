// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

func TestDescription(t *testing.T) {
	t.Parallel()
	require.NoError(t, byoc.Validate(New()))
	require.Equal(t, kindName, byoc.DeviceOf(New()))
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
		if err := limits.Refusal(g, call); reason == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, reason)
		}
		require.Equal(t, limits.Refusal(g, call), New().(byoc.Ruler).Rules().Supports(g, call))
	}
	// A result that the device takes, of what it does not; and a tuple with such a field.
	m := relay.NewGraph("main")
	x := m.Var([]int64{2}, "float64")
	cast := m.Call("cast", relay.Tensor("float32", 2), nil, x)
	both := m.Tuple(cast, x)
	joined := m.Call("concatenate", relay.Tensor("float32", 4), nil, both)
	g := m.Finish(joined)
	require.ErrorContains(t, limits.Refusal(g, cast), "float64")
	g.Nodes[both].Type = &relay.Type{Kind: relay.TypeTuple, Fields: []*relay.Type{relay.Tensor("float32", 2),
		relay.Tensor("float64", 2)}}
	require.ErrorContains(t, limits.Refusal(g, joined), "float64")
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
