// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn/onednntest"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

const f32 = onednntest.F32

var (
	f           = onednntest.Float
	with        = onednntest.With
	conv2dAttrs = onednntest.Conv2DAttrs
)

// conv3dAttrs are those of a 3x3x3 convolution that keeps its size.
func conv3dAttrs() map[string]any {
	return with(conv2dAttrs(), "strides", []int64{1, 1, 1}, "padding", []int64{1, 1, 1, 1, 1, 1}, "dilation",
		[]int64{1, 1, 1},
		"data_layout", "NCDHW", "kernel_layout", "OIDHW")
}

var update = flag.Bool("update", false, "rewrite the golden files")

// text is what is emitted for a region function.
func text(t *testing.T, g *relay.Graph) (string, []region.ValueID) {
	t.Helper()
	p, err := region.FromGraph(g, "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	return emitted(t, p)
}

func emitted(t *testing.T, p *region.Program) (string, []region.ValueID) {
	t.Helper()
	out, constants, err := emit(p)
	require.NoError(t, err)
	require.True(t, json.Valid(out), string(out))
	return string(out), constants
}

// golden compares the program of a region with testdata/name, or rewrites the file under -update.
func golden(t *testing.T, name string, g *relay.Graph) []region.ValueID {
	t.Helper()
	p, err := region.FromGraph(g, "tvmgen_default_collage_dnnl_main_0")
	require.NoError(t, err)
	return goldenOf(t, name, p)
}

func goldenOf(t *testing.T, name string, p *region.Program) []region.ValueID {
	t.Helper()
	got, constants := emitted(t, p)
	goldenText(t, name, got)
	return constants
}

func goldenText(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./byoc/dnnl -update and review the diff")
	require.Equal(t, string(want), got)
}

// maker makes region functions as the annotation makes them.
type maker struct{ *relay.GraphMaker }

func newRegion() maker { return maker{relay.NewGraph("tvmgen_default_collage_dnnl_main_0")} }

// composite calls a Composite function of that name; body makes its body of its parameters, which have the types.
func (r maker) composite(name string, out *relay.Type, body func(p []relay.NodeID) relay.NodeID, types []*relay.Type,
	args ...relay.NodeID) relay.NodeID {
	var params []relay.NodeID
	for _, t := range types {
		params = append(params, r.LocalVar(t.Shape, t.DType))
	}
	fn := r.Function(params, body(params), map[string]string{"Composite": name, "PartitionedFromPattern": ""})
	return r.CallFunction(fn, out, args...)
}

// as calls a Composite function of one operator, on arguments of these types.
func (r maker) as(composite, op string, attrs map[string]any, out *relay.Type, types []*relay.Type,
	args ...relay.NodeID) relay.NodeID {
	return r.composite(composite, out, func(p []relay.NodeID) relay.NodeID { return r.Call(op, out, attrs, p...) },
		types, args...)
}

// one is a graph of one operator on variables.
func one(op string, attrs map[string]any, out *relay.Type, in ...*relay.Type) *relay.Graph {
	m := relay.NewGraph("main")
	var ids []relay.NodeID
	for _, t := range in {
		ids = append(ids, m.Var(t.Shape, t.DType))
	}
	return m.Finish(m.Call(op, out, attrs, ids...))
}

// verdict is what a pattern says of a graph's root: taken or not, and if not why.
func verdict(g *relay.Graph, composite string) (taken bool, refusal string) {
	for _, p := range New().Patterns() {
		if p.Composite != composite {
			continue
		}
		for _, m := range g.Match(p.Shape, g.Scopes[0].Root) {
			err := p.Limits(g, m)
			if err == nil {
				return true, ""
			}
			refusal = err.Error()
		}
	}
	return false, refusal
}

func TestBackendIsValid(t *testing.T) {
	require.NoError(t, byoc.Validate(New()))
	seen := map[string]bool{}
	for _, p := range New().Patterns() {
		require.False(t, seen[p.Composite], "two patterns named %s", p.Composite)
		seen[p.Composite] = true
		require.NotEmpty(t, p.LimitsText, p.Composite)
	}
}
