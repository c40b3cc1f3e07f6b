// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// residual is two convolutions with bias and activation and a sum around them, some blocks in a row; odd takes the
// place of one of the activations.
func residual(blocks int, odd string) *relay.Graph {
	m := relay.NewGraph("main")
	shape := []int64{1, 8, 9, 9}
	attrs := map[string]any{"padding": []int{1, 1, 1, 1}, "strides": []int{1, 1}, "groups": 1}
	at := m.Var(shape, "float32")
	for i := range blocks {
		x := at
		for k := range 2 {
			w := m.Const([]int64{8, 8, 3, 3}, "float32", fmt.Sprint(i, k))
			conv := m.Call("nn.conv2d", float(shape...), attrs, x, w)
			x = m.Call("add", float(shape...), nil, conv, m.Const([]int64{8, 1, 1}, "float32", fmt.Sprint(i, k)))
			if k == 0 {
				x = m.Call("nn.relu", float(shape...), nil, x)
			}
		}
		op := "nn.relu"
		if i == 0 && odd != "" {
			op = odd
		}
		at = m.Call(op, float(shape...), nil, m.Call("add", float(shape...), nil, x, at))
	}
	return m.Finish(at)
}

func TestDescription(t *testing.T) {
	b := New()
	require.NoError(t, byoc.Validate(b))
	names := map[string]bool{}
	for _, p := range b.Patterns() {
		require.False(t, names[p.Composite], "twice: %s", p.Composite)
		names[p.Composite] = true
	}
	for _, want := range []string{"onnxruntime.conv2d_bias_relu", "onnxruntime.dense_bias_gelu",
		"onnxruntime.conv3d_bias_sum_relu",
		"onnxruntime.softmax", "onnxruntime.concatenate", "onnxruntime.resize2d"} {
		assert.True(t, names[want], want)
	}
	p := b.Probe()
	if !p.Usable {
		assert.NotEmpty(t, p.Reason)
		assert.NotEmpty(t, p.Remedy)
	}
}

func TestPatternsMatch(t *testing.T) {
	g := residual(1, "")
	found := map[string]int{}
	for _, p := range New().Patterns() {
		for v := range g.Nodes {
			for _, m := range g.Match(p.Shape, relay.NodeID(v)) {
				require.NoError(t, p.Limits(g, m))
				found[p.Composite]++
			}
		}
	}
	assert.Equal(t, map[string]int{"onnxruntime.conv2d": 2, "onnxruntime.add": 3, "onnxruntime.relu": 2,
		"onnxruntime.conv2d_bias": 2, "onnxruntime.conv2d_bias_relu": 1, "onnxruntime.conv2d_bias_sum": 1,
		"onnxruntime.conv2d_bias_sum_relu": 1, "onnxruntime.conv2d_sum": 2, "onnxruntime.conv2d_sum_relu": 1}, found)
}

func TestProposals(t *testing.T) {
	g := residual(4, "")
	proposals := New().(byoc.Proposer).Propose(g, nil)
	require.Len(t, proposals[0].Nodes, 4*7, "the whole network")
	require.Equal(t, proposals, New().(byoc.Proposer).Propose(g, nil))
	g = residual(4, "trunc")
	for _, p := range New().(byoc.Proposer).Propose(g, nil) {
		require.False(t, slices.ContainsFunc(p.Nodes, func(v relay.NodeID) bool { return g.Nodes[v].Op == "trunc" }))
	}
}

func TestEmit(t *testing.T) {
	p, err := region.FromGraph(residual(2, ""), "r")
	require.NoError(t, err)
	text, constants, err := emit(p)
	require.NoError(t, err)
	require.Len(t, constants, 8)
	parts := bytes.SplitN(text, []byte{0}, 2)
	require.Len(t, parts, 2)
	lines := strings.Split(string(parts[0]), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, formatLine, lines[0]+"\n")
	assert.Equal(t, "nn.conv2d add nn.relu nn.conv2d add add nn.relu", strings.Join(strings.Fields(lines[1])[:7], " "))
	assert.Equal(t, "g13/o0", lines[2])
	assert.Equal(t, "c0 c1 c2 c3 c4 c5 c6 c7", lines[3])
	d := decode(t, parts[1])
	assert.Len(t, d.inputs, 1)
	count := 0
	for _, n := range d.nodes {
		if n[:5] == "Conv(" {
			count++
		}
	}
	assert.Equal(t, 4, count)
	_, _, err = emit(must(region.FromGraph(residual(1, "trunc"), "r")))
	assert.ErrorContains(t, err, "trunc is not among the operators")
}

func must(p *region.Program, err error) *region.Program {
	if err != nil {
		panic(err)
	}
	return p
}

// Each operator that a proposed region may hold is a pattern by itself: so docs/operators.md says of engines.
func TestOperatorsAreTakenAlone(t *testing.T) {
	alone := map[string]bool{}
	for _, p := range New().Patterns() {
		for _, op := range relay.Alone(p.Shape) {
			alone[op] = true
		}
	}
	for _, op := range operators() {
		assert.True(t, alone[op], op)
	}
	assert.Len(t, alone, len(operators()))
}
