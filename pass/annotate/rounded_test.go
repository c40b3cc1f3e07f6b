// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// named gives the nodes of an operator, in order.
func named(g *relay.Graph, op string) (nodes []relay.NodeID) {
	for id := range g.Nodes {
		if g.Nodes[id].Op == op {
			nodes = append(nodes, relay.NodeID(id))
		}
	}
	return nodes
}

// An input, what a composite gives, and what an operator gives: those who compute in bytes read them rounded, others in
// the region, and outside of it, as they are. The function says in what each group is computed.
func TestRoundedValuesOfARegion(t *testing.T) {
	t.Parallel()
	m := parse(t, `def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(4, 4, 3, 3), float32],
    %b: Tensor[(4, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %1 = nn.relu(add(%0, %b));
  %2 = nn.conv2d(%1, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %3 = tanh(%2);
  %4 = nn.conv2d(%3, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %5 = tanh(%3);
  (multiply(%4, 0.5f), nn.softmax(%3), %5)
}`)
	g := m.Function("main")
	set, chosen := place(g)
	regions := Regions(set, chosen, libraries)
	require.Len(t, regions, 1)
	r := &regions[0]
	relu, tanh := named(g, "nn.relu")[0], named(g, "tanh")[0]
	r.Steps = map[relay.NodeID]rounding.Steps{g.Params[0]: {Scale: 0.5, Zero: 128}, relu: {Scale: 0.25},
		tanh: rounding.Usual}
	r.Precisions = make([]byoc.Precision, len(r.Candidates))
	for i, k := range r.Candidates {
		r.Precisions[i] = byoc.F32
		if nodes := set.Candidates[k].Nodes; g.Nodes[nodes[0]].Op == "nn.conv2d" && nodes[0] != named(g, "nn.conv2d")[1] {
			r.Precisions[i] = byoc.INT8
		}
	}

	out, err := Module(m, []Function{{Set: set, Regions: regions}})
	require.NoError(t, err)
	typed, err := relay.InferType(out)
	require.NoError(t, err)
	path := filepath.Join("testdata", "rounded.txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(typed.Text()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./pass/annotate -update and review the diff")
	assert.Equal(t, string(want), typed.Text())

	known := spokenOf(t, typed, set, r)
	assert.Equal(t, 4, rounds(known))
}

// What is given rounded is read so by all, in the region and outside, whatever they are computed in.
func TestGivenValuesOfARegion(t *testing.T) {
	t.Parallel()
	m := parse(t, `def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(4, 4, 3, 3), float32]) {
  %0 = tanh(%x);
  %1 = nn.conv2d(%0, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  (%1, tanh(%0), nn.softmax(%0))
}`)
	g := m.Function("main")
	set, chosen := place(g)
	regions := Regions(set, chosen, libraries)
	require.Len(t, regions, 1)
	r := &regions[0]
	given := named(g, "tanh")[0]
	r.Steps, r.Given = map[relay.NodeID]rounding.Steps{given: {Scale: 0.5, Zero: 7}}, []relay.NodeID{given}
	for _, k := range r.Candidates {
		precision := byoc.F32
		if nodes := set.Candidates[k].Nodes; nodes[0] == given || g.Nodes[nodes[0]].Op == "nn.conv2d" {
			precision = byoc.INT8
		}
		r.Precisions = append(r.Precisions, precision)
	}
	out, err := Module(m, []Function{{Set: set, Regions: regions}})
	require.NoError(t, err)
	typed, err := relay.InferType(out)
	require.NoError(t, err)
	groups := spokenOf(t, typed, set, r)
	assert.Equal(t, 2, rounds(groups), "once")
	for i, group := range groups {
		if group.Given {
			assert.Contains(t, []string{"tanh", "qnn.quantize"}, groups[i-1].Name)
		}
	}
	read, err := relay.Read(typed)
	require.NoError(t, err)
	inside := read.Function(r.Symbol)
	for _, v := range named(inside, "tanh") {
		for _, user := range inside.Consumers(v) {
			if inside.Nodes[v].Inputs[0] == inside.Params[0] {
				assert.Equal(t, "qnn.quantize", inside.Nodes[user].Op)
			}
		}
	}
	bytes := named(inside, "qnn.dequantize")
	require.Len(t, bytes, 1)
	assert.Len(t, inside.Consumers(bytes[0]), 3, "the convolution, the other tanh, and the region's results")
}

// rounds counts the groups that round.
func rounds(groups []Group) (count int) {
	for _, group := range groups {
		if len(group.Nodes) == 0 {
			count++
		}
	}
	return count
}

// spokenOf are a region's groups, of which what engines tell is understood.
func spokenOf(t *testing.T, typed *bridge.Object, set *candidate.Set, r *Region) []Group {
	t.Helper()
	read, err := relay.Read(typed)
	require.NoError(t, err)
	p, err := region.FromGraph(read.Function(r.Symbol), r.Symbol)
	require.NoError(t, err)
	names, of := p.Groups()
	precisions, err := p.Precisions()
	require.NoError(t, err)
	said := make([]byoc.Precision, len(names))
	for i, group := range of {
		said[group] = precisions[i]
	}
	var known []string
	var by []byoc.Precision
	for _, group := range Groups(set, r) {
		known, by = append(known, group.Name), append(by, group.Precision)
		assert.Equal(t, group.Name == "qnn.quantize" || group.Name == "qnn.dequantize", len(group.Nodes) == 0)
	}
	assert.Equal(t, names, known)
	assert.Equal(t, said, by)
	assert.Contains(t, names, "qnn.quantize")
	return Groups(set, r)
}

// What is watched comes out behind the results, with the noise that may be added to it: an input, what is made in a
// region or outside of all.
func TestWatchedValues(t *testing.T) {
	t.Parallel()
	for text, results := range map[string]int{
		`def @main(%x: Tensor[(1, 4), float32]) { let %u = nn.softmax(%x); (tanh(tanh(tanh(%u))), %u) }`: 2,
		`def @main(%x: Tensor[(1, 4), float32]) { tanh(tanh(tanh(nn.softmax(%x)))) }`:                    1,
	} {
		m := parse(t, text)
		g := m.Function("main")
		set, chosen := place(g)
		regions := Regions(set, chosen, libraries)
		watched := append([]relay.NodeID{g.Params[0]}, named(g, "nn.softmax")...)
		watched = append(watched, named(g, "tanh")...)
		out, err := Module(m, []Function{{Set: set, Regions: regions, Watched: watched}})
		require.NoError(t, err)
		typed, err := relay.InferType(out)
		require.NoError(t, err, out.Text())
		read, err := relay.Read(typed)
		require.NoError(t, err)
		now := read.Function("main")
		require.Equal(t, results+len(watched), relay.TupleFields(now, now.Root()))
		require.Len(t, now.Params, 1+len(watched))
		for i, p := range now.Params[1:] {
			assert.Equal(t, fmt.Sprintf("%s%d", NoisePrefix, i), now.Nodes[p].Name)
			require.Len(t, now.Consumers(p), 1)
			assert.Equal(t, "add", now.Nodes[now.Consumers(p)[0]].Op)
		}
		kinds := 0
		for _, f := range read.Functions {
			if f.Attrs["Compiler"] != "" {
				kinds++
			}
		}
		assert.Positive(t, kinds, "the regions are there")
	}
}
