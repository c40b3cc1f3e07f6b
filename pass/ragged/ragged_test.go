// SPDX-License-Identifier: Apache-2.0

package ragged

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/relay"
)

// network is one layer on padded sequences as front ends write it: an embedding, attention, a product, and an end.
type network struct {
	*relay.GraphMaker
	ids, mask, hidden relay.NodeID
}

const batch, length, size, parts = 3, 4, 8, 2

func f(shape ...int64) *relay.Type { return relay.Tensor("float32", shape...) }

func newNetwork() *network {
	m := &network{GraphMaker: relay.NewGraph("main")}
	m.ids = m.Var([]int64{batch, length}, "int64")
	m.mask = m.Var([]int64{batch, length}, "int64")
	x := m.Call("take", f(batch, length, size), map[string]any{"axis": int64(0), "mode": "clip"},
		m.Const([]int64{100, size}, "float32"), m.ids)
	split := func() relay.NodeID {
		apart := m.to(m.dense(x), batch, length, parts, size/parts)
		turned := m.Call("transpose", f(batch, parts, length, size/parts), map[string]any{"axes": []int64{0, 2, 1, 3}}, apart)
		return m.to(turned, batch*parts, length, size/parts)
	}
	scores := m.Call("nn.batch_matmul", f(batch*parts, length, length), map[string]any{"transpose_b": true}, split(),
		split())
	weights := m.Call("nn.softmax", f(batch*parts, length, length), map[string]any{"axis": int64(-1)}, scores)
	mixed := m.Call("nn.batch_matmul", f(batch*parts, length, size/parts), map[string]any{"transpose_b": false}, weights,
		split())
	back := m.Call("transpose", f(batch, length, parts, size/parts), map[string]any{"axes": []int64{0, 2, 1, 3}},
		m.to(mixed, batch, parts, length, size/parts))
	m.hidden = m.Call("add", f(batch, length, size), nil, m.to(back, batch, length, size), x)
	return m
}

func (m *network) to(x relay.NodeID, shape ...int64) relay.NodeID {
	return m.Call("reshape", f(shape...), map[string]any{"newshape": shape}, x)
}

func (m *network) dense(x relay.NodeID) relay.NodeID {
	rows := m.to(x, batch*length, size)
	product := m.Call("nn.dense", f(batch*length, size), nil, rows, m.Const([]int64{size, size}, "float32"))
	return m.to(product, batch, length, size)
}

// sumOf is the sum over places and features of a value of so many features that is multiplied by a mask in that shape.
func (m *network) sumOf(x relay.NodeID, features int64, mask relay.NodeID, shape ...int64) relay.NodeID {
	factor := m.Call("cast", f(shape...), map[string]any{"dtype": "float32"},
		m.Call("reshape", relay.Tensor("int64", shape...), map[string]any{"newshape": shape}, mask))
	product := m.Call("multiply", f(batch, length, features), nil, x, factor)
	return m.Call("sum", f(batch), map[string]any{"axis": []int64{1, 2}}, product)
}

// first is what classifiers take of hidden values.
func (m *network) first() relay.NodeID {
	return m.Call("take", f(batch, size), map[string]any{"axis": int64(1), "mode": "clip"}, m.hidden, m.Scalar(0, "int64"))
}

func TestPaddingIsClearedWhereItWouldLeave(t *testing.T) {
	t.Parallel()
	m := newNetwork()
	assert.Equal(t, []edge{{m.hidden, relay.NoNode}}, frontier(m.Finish(m.hidden), m.mask), "the output")

	m = newNetwork()
	taken := m.first()
	root := m.Tuple(m.hidden, m.Call("tanh", f(batch, size), nil, taken))
	assert.Equal(t, []edge{{m.hidden, taken}, {m.hidden, root}}, frontier(m.Finish(root), m.mask), "the first place, too")

	m = newNetwork()
	slice := m.Call("strided_slice", f(batch, 1, size), map[string]any{"begin": []int64{0, 0, 0},
		"end": []int64{batch, 1, size}, "strides": []int64{1, 1, 1}, "slice_mode": "end"}, m.hidden)
	assert.Equal(t, []edge{{m.hidden, slice}}, frontier(m.Finish(m.to(slice, batch, size)), m.mask), "sliced")

	m = newNetwork()
	truths := m.Call("cast", f(batch, length, 1), map[string]any{"dtype": "float32"},
		m.Call("expand_dims", relay.Tensor("int64", batch, length, 1), map[string]any{"axis": int64(2)}, m.mask))
	masked := m.Call("multiply", f(batch, length, size), nil, m.hidden, truths)
	mean := m.Call("sum", f(batch, size), map[string]any{"axis": []int64{1}}, masked)
	assert.Equal(t, []edge{{m.hidden, masked}}, frontier(m.Finish(mean), m.mask), "multiplied by the mask")
}

func TestPaddingStaysWhereItIsSeen(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(m *network) relay.NodeID{
		"a mean over all places": func(m *network) relay.NodeID {
			return m.Call("mean", f(batch, size), map[string]any{"axis": []int64{1}}, m.hidden)
		},
		"the second place": func(m *network) relay.NodeID {
			return m.Call("take", f(batch, size), map[string]any{"axis": int64(1)}, m.hidden, m.Scalar(1, "int64"))
		},
		"the first sequence": func(m *network) relay.NodeID {
			return m.Call("take", f(length, size), map[string]any{"axis": int64(0)}, m.hidden, m.Scalar(0, "int64"))
		},
		"what is padding alone": func(m *network) relay.NodeID {
			hidden := m.Call("not_equal", relay.Tensor("bool", batch, length), nil, m.mask, m.Scalar(1, "int64"))
			return m.sumOf(m.hidden, size, hidden, batch, length, 1)
		},
		"the mask along other axes": func(m *network) relay.NodeID { // [batch, length, length], and [batch, 1, length]
			square := m.to(m.Call("nn.dense", f(batch*length, length), nil, m.to(m.hidden, batch*length, size),
				m.Const([]int64{length, size}, "float32")), batch, length, length)
			return m.sumOf(square, length, m.mask, batch, 1, length)
		},
		"places from behind": func(m *network) relay.NodeID {
			return m.Call("reverse", f(batch, length, size), map[string]any{"axis": int64(1)}, m.hidden)
		},
		"a slice from behind": func(m *network) relay.NodeID {
			return m.Call("strided_slice", f(batch, length, size), map[string]any{"begin": []int64{length},
				"end": []int64{-length - 1}, "strides": []int64{-1}, "axes": []int64{1}}, m.hidden)
		},
		"places before sequences": func(m *network) relay.NodeID {
			return m.Call("transpose", f(length, batch, size), map[string]any{"axes": []int64{1, 0, 2}}, m.hidden)
		},
		"sizes that look alike": func(m *network) relay.NodeID { // [batch, length], where length is one of features
			first := m.first()
			return m.Call("nn.dense", f(batch, length), nil, first, m.Const([]int64{length, size}, "float32"))
		},
	} {
		m := newNetwork()
		edges := frontier(m.Finish(end(m)), m.mask)
		if name == "sizes that look alike" {
			assert.Len(t, edges, 1, name)
			assert.NotEqual(t, relay.NoNode, edges[0].reader, name)
			continue
		}
		assert.Empty(t, edges, name)
	}
}

func TestMasksAreChecked(t *testing.T) {
	t.Parallel()
	type input struct {
		shape []int64
		dtype string
	}
	reasons := map[string]input{
		"has not two dimensions":      {[]int64{2, 3, 4}, "int64"},
		"which is float64":            {[]int64{2, 3}, "float64"},
		"sequences of one place have": {[]int64{2, 1}, "bool"},
	}
	for reason, in := range reasons {
		m := relay.NewGraph("main")
		g := m.Finish(m.Var(in.shape, in.dtype))
		_, err := maskOf(g, g.Nodes[0].Name)
		assert.ErrorContains(t, err, reason)
		_, err = maskOf(g, "nobody")
		assert.ErrorContains(t, err, `names "nobody", and the network has no such input; it has `+g.Nodes[0].Name)
	}
	g := relay.NewGraph("main")
	good := g.Finish(g.Var([]int64{2, 3}, "uint8"))
	id, err := maskOf(good, good.Nodes[0].Name)
	assert.NoError(t, err)
	assert.Equal(t, good.Params[0], id)
}

func TestAxesOfReshapes(t *testing.T) {
	t.Parallel()
	b, l := factor{6, sequence}, factor{4, place}
	of := axes{{b}, {l}, {{10, other}}}
	joined := regrouped(of, []int64{24, 10})
	assert.Equal(t, axes{{b, l}, {{10, other}}}, joined)
	assert.Equal(t, of, regrouped(joined, []int64{6, 4, 10}))
	assert.Equal(t, axes{{b}, {l}, {{2, other}}, {{5, other}}}, regrouped(joined, []int64{6, 4, 2, 5}))
	assert.Equal(t, axes{{b}, {{1, other}}, {l, {10, other}}}, regrouped(of, []int64{6, 1, 40}))
	assert.Nil(t, regrouped(of, []int64{4, 6, 10}), "sequences cut")
	assert.Nil(t, regrouped(of, []int64{6, 5, 8}))
}
