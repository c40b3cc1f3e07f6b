// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
)

func TestGoldenRead(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		t.Run(name, func(t *testing.T) {
			m := read(t, tvmtest.Parse(t, programs[name]))
			var b strings.Builder
			for _, g := range m.Functions {
				b.WriteString(g.String())
			}
			golden(t, "read_"+name+".txt", b.String())
			for _, g := range m.Functions {
				checkPostDominators(t, g)
				checkOrder(t, g)
			}
		})
	}
}

// checkOrder says that every node stands behind what it reads and that handles are where they belong.
func checkOrder(t *testing.T, g *Graph) {
	for i := range g.Nodes {
		id := NodeID(i)
		for _, v := range g.Reads(id) {
			require.Less(t, v, id)
		}
		require.NotNil(t, g.Handle(id))
	}
	require.NotNil(t, g.Function())
}

func TestReadDetails(t *testing.T) {
	m := read(t, tvmtest.Parse(t, programs["conv"]))
	g := m.Function("main")
	require.NotNil(t, g)
	assert.Nil(t, m.Function("other"))
	assert.NotNil(t, m.GlobalVar("main"))
	conv := g.Nodes[find(g, "nn.conv2d")]
	pads, ok := conv.Attrs.Ints("padding")
	assert.True(t, ok)
	assert.Equal(t, []int64{1, 1, 1, 1}, pads)
	layout, ok := conv.Attrs.String("data_layout")
	assert.True(t, ok)
	assert.Equal(t, "NCHW", layout)
	dtype, ok := conv.Attrs.String("out_dtype")
	assert.True(t, ok)
	assert.Equal(t, "", dtype)
	groups, ok := conv.Attrs.Int("groups")
	assert.True(t, ok)
	assert.EqualValues(t, 1, groups)
	assert.Equal(t, "relay.attrs.Conv2DAttrs", conv.Attrs.TypeKey)
	assert.Equal(t, "test.relay", conv.Span.Source)
	assert.Positive(t, conv.Span.Line)
	eps, ok := g.Nodes[find(g, "nn.batch_norm")].Attrs.Float("epsilon")
	assert.True(t, ok)
	assert.InDelta(t, 1e-5, eps, 1e-9)
	assert.Same(t, conv.Type, g.Nodes[find(g, "nn.relu")].Type, "equal types are one")
}

func TestReadConstants(t *testing.T) {
	g := read(t, tvmtest.Parse(t, programs["functions"])).Function("helper")
	assert.Equal(t, map[string]string{"Inline": "1"}, g.Attrs)
	for i := range g.Nodes {
		if c := g.Nodes[i].Constant; c != nil {
			assert.Equal(t, 2.5, c.Scalar)
			assert.Equal(t, "float32", c.DType)
			d, err := g.Digest(NodeID(i))
			require.NoError(t, err)
			assert.Len(t, d, 64)
			return
		}
	}
	t.Fatal("no constant")
}

func TestReadRefusesOtherThings(t *testing.T) {
	mod := tvmtest.Parse(t, programs["conv"])
	functions, err := mod.AttrObject("functions")
	require.NoError(t, err)
	_, err = Read(functions)
	assert.ErrorContains(t, err, "TypeError: relay.Read wants an IRModule, not a Map")
}

func TestKeyOfReadEqualsAfterReparse(t *testing.T) {
	whole := func(mod *Module) string {
		g := mod.Function("main")
		var nodes []NodeID
		for i := range g.Nodes {
			if g.Placeable(NodeID(i)) && g.Nodes[i].Scope == 0 {
				nodes = append(nodes, NodeID(i))
			}
		}
		return g.Key(nodes, g.Root(), KeyOptions{ConstantContent: true})
	}
	for name, text := range programs {
		assert.Equal(t, whole(read(t, tvmtest.Parse(t, text))), whole(read(t, tvmtest.Parse(t, text))), name)
		renamed := strings.ReplaceAll(strings.ReplaceAll(text, "%x", "%input"), "%0", "%7")
		assert.Equal(t, whole(read(t, tvmtest.Parse(t, text))), whole(read(t, tvmtest.Parse(t, renamed))), name)
	}
}

// resnetText is a ResNet-50 in Relay text, with its weights as parameters: 53 convolutions, batch
// normalisations folded to scale and shift as front ends leave them.
func resnetText() string {
	var b, params strings.Builder
	n, w := 0, 0
	emit := func(format string, a ...any) string {
		fmt.Fprintf(&b, "  %%%d = %s;\n", n, fmt.Sprintf(format, a...))
		n++
		return fmt.Sprintf("%%%d", n-1)
	}
	conv := func(x string, in, out, k, stride int, relu bool) string {
		fmt.Fprintf(&params, ", %%w%d: Tensor[(%d, %d, %d, %d), float32], %%s%d: Tensor[(%d, 1, 1), float32], %%b%d: "+
			"Tensor[(%d, 1, 1), float32]",
			w, out, in, k, k, w, out, w, out)
		x = emit("nn.conv2d(%s, %%w%d, strides=[%d, %d], padding=[%d, %d, %d, %d], channels=%d, kernel_size=[%d, %d])",
			x, w, stride, stride, k/2, k/2, k/2, k/2, out, k, k)
		x = emit("multiply(%s, %%s%d)", x, w)
		x = emit("add(%s, %%b%d)", x, w)
		w++
		if relu {
			x = emit("nn.relu(%s)", x)
		}
		return x
	}
	x := conv("%x", 3, 64, 7, 2, true)
	x = emit("nn.max_pool2d(%s, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])", x)
	in := 64
	for stage, blocks := range []int{3, 4, 6, 3} {
		mid := 64 << stage
		for i := range blocks {
			stride := 1
			if i == 0 && stage > 0 {
				stride = 2
			}
			y := conv(conv(conv(x, in, mid, 1, 1, true), mid, mid, 3, stride, true), mid, 4*mid, 1, 1, false)
			if i == 0 {
				x = conv(x, in, 4*mid, 1, stride, false)
			}
			in = 4 * mid
			x = emit("nn.relu(%s)", emit("add(%s, %s)", y, x))
		}
	}
	x = emit("nn.batch_flatten(%s)", emit("nn.global_avg_pool2d(%s)", x))
	x = emit("nn.dense(%s, %%fc, units=1000)", x)
	return fmt.Sprintf("def @main(%%x: Tensor[(1, 3, 224, 224), float32], %%fc: Tensor[(1000, 2048), float32]%s) "+
		"{\n%s  nn.softmax(%s)\n}",
		params.String(), b.String(), x)
}

func TestReadResNet(t *testing.T) {
	mod := tvmtest.Parse(t, resnetText())
	g := read(t, mod).Function("main")
	convs := 0
	for i := range g.Nodes {
		if g.Nodes[i].Op == "nn.conv2d" {
			convs++
		}
	}
	assert.Equal(t, 53, convs)
}

func BenchmarkReadResNet50(b *testing.B) {
	mod := tvmtest.Parse(b, resnetText())
	for b.Loop() {
		read(b, mod)
	}
}

// A chain that is deeper than a recursive visitor's stack.
func TestReadDeep(t *testing.T) {
	t.Parallel()
	g := read(t, deepModule(t, 50000)).Function("main")
	assert.Len(t, g.Nodes, 50001)
	assert.Equal(t, NodeID(2), g.PostDominators().Parent(1))
}
