// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

func TestBiasesBehindProducts(t *testing.T) {
	t.Parallel()
	image, one := relay.Tensor("float32", 1, 4, 8, 8), relay.Tensor("float32", 1, 1, 8, 8)
	layer := relay.Tensor("float32", 2, 4)
	for name, c := range map[string]struct {
		t     *relay.Type
		op    string
		attrs map[string]any
		bias  []int64
		first bool
		found bool
	}{
		"add":                 {image, "add", nil, []int64{4, 1, 1}, false, true},
		"of all dimensions":   {image, "add", nil, []int64{1, 4, 1, 1}, true, true},
		"bias_add":            {image, "nn.bias_add", map[string]any{"axis": 1}, []int64{4}, false, true},
		"of another axis":     {image, "nn.bias_add", map[string]any{"axis": 3}, []int64{8}, false, false},
		"of each element":     {image, "add", nil, []int64{4, 8, 8}, false, false},
		"of columns":          {image, "add", nil, []int64{8}, false, false},
		"the same for all":    {image, "add", nil, []int64{1, 1, 1}, false, false},
		"of one channel":      {one, "add", nil, []int64{1, 1, 1}, false, false},
		"of a dense layer":    {layer, "add", nil, []int64{4}, false, true},
		"counted from behind": {layer, "nn.bias_add", map[string]any{"axis": -1}, []int64{4}, false, true},
		"of rows":             {layer, "nn.bias_add", map[string]any{"axis": 0}, []int64{2}, false, false},
		"no sum":              {image, "multiply", nil, []int64{4, 1, 1}, false, false},
	} {
		m := relay.NewGraph("main")
		op, attrs := "nn.dense", map[string]any(nil)
		if len(c.t.Shape) == 4 {
			op, attrs = "nn.conv2d", map[string]any{"data_layout": "NCHW", "kernel_layout": "OIHW"}
		}
		x := m.Var(c.t.Shape, "float32")
		product := m.Call(op, c.t, attrs, x, m.Const([]int64{4, 4}, "float32", "weight"))
		bias := m.Const(c.bias, "float32", "bias")
		args := []relay.NodeID{product, bias}
		if c.first {
			args = []relay.NodeID{bias, product}
		}
		add := m.Call(c.op, c.t, c.attrs, args...)
		g := m.Finish(m.Call("nn.relu", c.t, nil, add))
		gotAdd, gotBias, ok := Bias(g, product, Channels(g, product))
		require.Equal(t, c.found, ok, name)
		if ok {
			assert.Equal(t, []relay.NodeID{add, bias}, []relay.NodeID{gotAdd, gotBias}, name)
		}
	}
	for layout, want := range map[string]int{"NCHW": 1, "NHWC": -1, "NCHW8c": 1} {
		m := relay.NewGraph("main")
		conv := m.Call("nn.conv2d", image, map[string]any{"data_layout": layout, "kernel_layout": "OIHW"},
			m.Var(image.Shape, "float32"), m.Const([]int64{4, 4, 3, 3}, "float32"))
		assert.Equal(t, want, Channels(m.Finish(conv), conv), layout)
	}
}

// A bias that a composite is called with, and one of an operator that stands bare, are less by the shift, in that region
// alone.
func TestCorrectedBiases(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{false, true} {
		m := parse(t, `def @main(%x: Tensor[(1, 2, 8, 8), float32], %w: Tensor[(2, 2, 1, 1), float32]) {
  nn.relu(add(nn.conv2d(%x, %w, channels=2, kernel_size=[1, 1]), meta[relay.Constant][0]))
}`+constants(t, []int64{2, 1, 1}))
		g := m.Function("main")
		set, chosen := place(g)
		for i := range set.Candidates {
			if bare {
				set.Candidates[i].Composite, set.Candidates[i].Bare = "lib.bare", true
			}
		}
		regions := Regions(set, chosen, libraries)
		require.Len(t, regions, 1)
		r := &regions[0]
		r.Precisions = []byoc.Precision{byoc.INT8}
		r.Shifts = map[relay.NodeID][]float32{named(g, "nn.conv2d")[0]: {0.25, -3}}
		out, err := Module(m, []Function{{Set: set, Regions: regions}})
		require.NoError(t, err)
		read, err := relay.Read(out)
		require.NoError(t, err)
		inside := read.Function(r.Symbol)
		var seen []float32
		for v := range inside.Nodes {
			if inside.Nodes[v].Kind != relay.KindConstant {
				continue
			}
			data, err := inside.Tensor(relay.NodeID(v))
			require.NoError(t, err)
			bytes, err := data.Bytes()
			require.NoError(t, err)
			for ; len(bytes) > 0; bytes = bytes[4:] {
				seen = append(seen, math.Float32frombits(binary.LittleEndian.Uint32(bytes)))
			}
		}
		assert.Equal(t, []float32{0.75, 5}, seen, "bare: %v", bare)
	}
}
