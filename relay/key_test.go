// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoldenKeyText(t *testing.T) {
	t.Parallel()
	g := residual()
	golden(t, "key_residual.txt", g.KeyText([]NodeID{8, 9, 10, 11}, 11, KeyOptions{}))
	b := branches()
	var all []NodeID
	for _, id := range b.ScopeNodes(0) {
		if b.Placeable(id) {
			all = append(all, id)
		}
	}
	golden(t, "key_branches.txt", b.KeyText(all, b.Root(), KeyOptions{ConstantContent: true}))
	// The hash itself is stored in files that live for years: it must not change by accident.
	assert.Equal(t, "f6db8be9fb970d2a176d6024e6634104d47fda0a91b8bf086a30ed6c7dd54f6a",
		g.Key([]NodeID{8, 9, 10, 11}, 11, KeyOptions{}))
}

func TestKeyEqualForEqualBlocks(t *testing.T) {
	t.Parallel()
	g := residual()
	first := g.Key([]NodeID{3, 4}, 4, KeyOptions{})
	assert.Equal(t, first, g.Key([]NodeID{9, 8}, 9, KeyOptions{}), "same block, other weights, other node numbers")
	assert.NotEqual(t, first, g.Key([]NodeID{3}, 3, KeyOptions{}))
	content := KeyOptions{ConstantContent: true}
	assert.NotEqual(t, g.Key([]NodeID{3, 4}, 4, content), g.Key([]NodeID{8, 9}, 9, content), "other weights by content")
	assert.Equal(t, g.Key([]NodeID{8, 9}, 9, content), residual().Key([]NodeID{8, 9}, 9, content))
}

// variant builds tanh(a) op b with knobs, and returns the key of the whole.
func variant(knob string) string {
	m := NewGraph("main")
	shape, dtype, op, attrs := []int64{4, 4}, "float32", "add", map[string]any{"axis": 1, "pads": []int{1, 2}}
	eps, weight := 1e-5, []int64{4, 4}
	switch knob {
	case "shape":
		shape = []int64{4, 5}
	case "dtype":
		dtype = "float16"
	case "op":
		op = "multiply"
	case "attr":
		attrs["axis"] = 2
	case "attr list":
		attrs["pads"] = []int{12}
	case "no attr":
		delete(attrs, "axis")
	case "scalar":
		eps = 1e-6
	case "weight shape":
		weight = []int64{4, 40}
	}
	a := m.Var(shape, dtype)
	b := a
	if knob == "unshared" {
		b = m.Var(shape, dtype)
	}
	x := m.Call("tanh", Tensor(dtype, shape...), attrs, a)
	y := m.Call(op, Tensor(dtype, shape...), nil, x, b)
	if knob == "order" {
		m.g.Nodes[y].Inputs = []NodeID{b, x}
	}
	y = m.Call("add", nil, nil, y, m.Scalar(eps, "float32"))
	content := "" // 16 bytes of integers: a parameter of the computation
	if knob == "indices" {
		content = knob
	}
	y = m.Call("take", nil, nil, y, m.Const(weight, "int8", content))
	if knob == "get" {
		y = m.Get(m.Tuple(y, y), 1)
	} else {
		y = m.Get(m.Tuple(y, y), 0)
	}
	g := m.Finish(y)
	var nodes []NodeID
	for i := range g.Nodes {
		if g.Placeable(NodeID(i)) {
			nodes = append(nodes, NodeID(i))
		}
	}
	return g.Key(nodes, y, KeyOptions{})
}

func TestKeyDiffers(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, knob := range []string{"", "shape", "dtype", "op", "attr", "attr list", "no attr", "scalar", "weight shape",
		"unshared", "order", "get", "indices"} {
		k := variant(knob)
		require.Empty(t, seen[k], "%q has the key of %q", knob, seen[k])
		seen[k] = "«" + knob + "»"
	}
	assert.Equal(t, variant(""), variant("no knob"))
}

func TestConstantsByContentOrShape(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		constant Constant
		weight   bool
	}{
		{Constant{DType: "float32", Shape: nil, Bytes: 4}, false},
		{Constant{DType: "float32", Shape: []int64{16}, Bytes: 64}, false},
		{Constant{DType: "float32", Shape: []int64{64, 1, 1}, Bytes: 256}, true},
		{Constant{DType: "bfloat16", Shape: []int64{64}, Bytes: 128}, true},
		{Constant{DType: "int64", Shape: []int64{512}, Bytes: 4096}, false},
		{Constant{DType: "int64", Shape: []int64{513}, Bytes: 4104}, true},
	} {
		assert.Equal(t, c.weight, c.constant.IsWeight(), "%v", c.constant)
	}
}

// renumbered builds the same graph with its nodes in another legal order, dead weight in front and other names.
func renumbered(r *rand.Rand, g *Graph) (h *Graph, place []NodeID) {
	m := NewGraph("other")
	for range r.IntN(5) {
		m.Var([]int64{7}, "int8")
	}
	place = make([]NodeID, len(g.Nodes))
	done := make([]bool, len(g.Nodes))
	for left := len(g.Nodes); left > 0; {
		i := r.IntN(len(g.Nodes))
		ready := !done[i]
		for _, in := range g.Nodes[i].Inputs {
			ready = ready && done[in]
		}
		if !ready {
			continue
		}
		n := g.Nodes[i]
		n.Inputs = nil
		for _, in := range g.Nodes[i].Inputs {
			n.Inputs = append(n.Inputs, place[in])
		}
		n.Name = fmt.Sprint("renamed", i)
		n.Span = Span{Source: "elsewhere", Line: i}
		place[i] = m.add(n)
		if n.Kind == KindVar {
			m.g.Params = append(m.g.Params, place[i])
		}
		done[i] = true
		left--
	}
	return m.Finish(place[g.Root()]), place
}

func TestKeyDoesNotDependOnNumbers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		g := randomGraph(r, 2+r.IntN(30))
		h, place := renumbered(r, g)
		var nodes, moved []NodeID
		for i := range g.Nodes {
			if g.Placeable(NodeID(i)) && r.IntN(4) > 0 || NodeID(i) == g.Root() {
				nodes = append(nodes, NodeID(i))
				moved = append(moved, place[i])
			}
		}
		r.Shuffle(len(moved), func(i, j int) { moved[i], moved[j] = moved[j], moved[i] })
		require.Equal(t, g.KeyText(nodes, g.Root(), KeyOptions{}), h.KeyText(moved, place[g.Root()], KeyOptions{}))
	}
}

func TestKeyReadsNestedScopes(t *testing.T) {
	t.Parallel()
	build := func(op string) (*Graph, []NodeID) {
		m := NewGraph("main")
		x, c := m.Var([]int64{4}, "float32"), m.Var(nil, "bool")
		iff := m.If(c, m.Call("exp", nil, nil, x), m.Call(op, nil, nil, x), nil)
		p := m.LocalVar([]int64{4}, "float32")
		f := m.Function([]NodeID{p}, m.Call("tanh", nil, nil, p), nil)
		call := m.CallFunction(f, nil, iff)
		return m.Finish(call), []NodeID{iff, call}
	}
	g, n := build("exp")
	h, _ := build("sqrt")
	assert.Equal(t, g.Key(n, n[1], KeyOptions{}), g.Key(n, n[1], KeyOptions{}))
	assert.NotEqual(t, g.Key(n, n[1], KeyOptions{}), h.Key(n, n[1], KeyOptions{}))
	assert.Equal(t, g.Key(n[1:], n[1], KeyOptions{}), h.Key(n[1:], n[1], KeyOptions{}), "the If is outside here")
}

func BenchmarkKey(b *testing.B) {
	g := residual()
	nodes := []NodeID{8, 9, 10, 11}
	for b.Loop() {
		g.Key(nodes, 11, KeyOptions{})
	}
}
