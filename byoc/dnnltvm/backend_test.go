// SPDX-License-Identifier: Apache-2.0

package dnnltvm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn/onednntest"
	"github.com/collage-tvm/collage/relay"
)

const f32 = onednntest.F32

var (
	f           = onednntest.Float
	with        = onednntest.With
	conv2dAttrs = onednntest.Conv2DAttrs
)

func TestBackendIsValid(t *testing.T) {
	require.NoError(t, byoc.Validate(New()))
}

func TestForeignCodeGenerator(t *testing.T) {
	foreign.Store(true)
	defer foreign.Store(false)
	refusal := func(op string) error {
		for _, p := range New().Patterns() {
			if p.Composite == op {
				m := relay.NewGraph("main")
				x := m.Var([]int64{1, 1, 1}, f32)
				in := []relay.NodeID{x}
				if op != "nn.relu" {
					in = append(in, m.Const([]int64{1, 1, 1}, f32))
				}
				g := m.Finish(m.Call(op, f(1, 1, 1), nil, in...))
				found := g.Match(p.Shape, g.Scopes[0].Root)
				require.NotEmpty(t, found)
				return p.Limits(g, found[0])
			}
		}
		t.Fatalf("no pattern %s", op)
		return nil
	}
	require.ErrorContains(t, refusal("nn.conv1d_transpose"), "that this TVM was built with does not know")
	require.NoError(t, refusal("nn.relu"))
}

func TestFloatText(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 6: "6", 0.1: "0.1", -1e300: "-inf",
		3.4028234663852886e38: "3.4028235e+38"} {
		require.Equal(t, want, floatText(v))
	}
}
