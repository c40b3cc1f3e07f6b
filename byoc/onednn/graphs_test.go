// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/onednn/onednntest"
	"github.com/collage-tvm/collage/relay"
)

const f32 = onednntest.F32

var (
	f           = onednntest.Float
	with        = onednntest.With
	conv2dAttrs = onednntest.Conv2DAttrs
)

func poolAttrs() map[string]any {
	return map[string]any{
		"pool_size": []int64{2, 2}, "strides": []int64{2, 2}, "padding": []int64{0, 0, 0, 0}, "dilation": []int64{1, 1},
		"layout": "NCHW", "out_layout": "", "ceil_mode": false,
	}
}

// matched are the composites (or operators) that the backend accepts at a node, largest first, and the refusals.
func matched(g *relay.Graph, root relay.NodeID) (accepted []string, refusals map[string]string) {
	refusals = map[string]string{}
	best := map[string]int{}
	for _, p := range ours() {
		for _, m := range g.Match(p.Shape, root) {
			if err := p.Limits(g, m); err != nil {
				if _, ok := best[p.Composite]; !ok {
					refusals[p.Composite] = err.Error()
				}
				continue
			}
			delete(refusals, p.Composite)
			if len(m.Nodes) > best[p.Composite] {
				best[p.Composite] = len(m.Nodes)
			}
		}
	}
	for n := len(g.Nodes); n > 0; n-- {
		for _, p := range ours() {
			if best[p.Composite] == n {
				accepted = append(accepted, p.Composite)
			}
		}
	}
	return accepted, refusals
}

// requireTaken checks that the largest pattern accepted at the root is that one.
func requireTaken(t *testing.T, g *relay.Graph, composite string) {
	t.Helper()
	accepted, refusals := matched(g, g.Scopes[0].Root)
	require.NotEmpty(t, accepted, "refusals: %v", refusals)
	require.Equal(t, composite, accepted[0])
}

// requireRefused checks that nothing is accepted at the root, and that the pattern says why.
func requireRefused(t *testing.T, g *relay.Graph, composite, reason string) {
	t.Helper()
	accepted, refusals := matched(g, g.Scopes[0].Root)
	require.NotContains(t, accepted, composite)
	require.Contains(t, refusals[composite], reason)
}

func TestRulesHaveNamesAndLimits(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range ours() {
		require.False(t, seen[p.Composite], "two patterns named %s", p.Composite)
		seen[p.Composite] = true
		require.NotEmpty(t, p.LimitsText, p.Composite)
	}
}

// What TVM's runtime for oneDNN has no name for is not among what both know: it would be left out, or taken for
// something else.
func TestRulesOfBothRuntimes(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Rules() {
		names[r.Composite] = true
	}
	for _, name := range []string{"dnnl.conv2d_bias_relu", "dnnl.dense_gelu", "dnnl.dense_bias_leaky", "dnnl.gelu"} {
		require.True(t, names[name], name)
	}
	for name := range names {
		require.NotContains(t, name, "hard")
		require.NotContains(t, name, "gelu_tanh")
	}
	require.Greater(t, len(ours()), len(names))
}
