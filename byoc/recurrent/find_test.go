// SPDX-License-Identifier: Apache-2.0

package recurrent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

const steps, batch, input, hidden = 4, 2, 3, 5

// written is an LSTM as TVM's front ends write it, and ways to write something else.
type written struct {
	*relay.GraphMaker
	// gate is what a gate's activation is, cell that of the cell's state; weights are what those of each
	// step hold.
	gate, cell string
	weights    [steps]string
	// readCell is the step whose cell's state is read outside; -1 for none.
	readCell int
	// feeds says that a step reads what is computed of the state before.
	feeds bool
	// turned says that the steps go from the last to the first.
	turned bool
	// swapped says that two states stand in each other's place behind the layer.
	swapped bool
	// last says that the last state is read beside all of them.
	last bool
}

func newWritten() *written {
	w := &written{GraphMaker: relay.NewGraph("main"), gate: "sigmoid", cell: "tanh", readCell: -1}
	return w
}

func floatsOf(shape ...int64) *relay.Type { return relay.Tensor("float32", shape...) }

func (w *written) graph() *relay.Graph {
	x := w.Var([]int64{steps, batch, input}, "float32")
	h, c := w.Var([]int64{batch, hidden}, "float32"), w.Var([]int64{batch, hidden}, "float32")
	bias := w.Const([]int64{4 * hidden}, "float32", "bias")
	state := floatsOf(batch, hidden)
	var fields []*relay.Type
	for range steps {
		fields = append(fields, floatsOf(1, batch, input))
	}
	parts := w.Call("split", &relay.Type{Kind: relay.TypeTuple, Fields: fields}, map[string]any{"axis": int64(0)}, x)
	var states, others []relay.NodeID
	for s := range steps {
		t := s
		if w.turned {
			t = steps - 1 - s
		}
		step := w.Call("squeeze", floatsOf(batch, input), map[string]any{"axis": []int64{0}}, w.Get(parts, t))
		if w.feeds && s == 2 {
			few := w.Call("strided_slice", floatsOf(batch, input), nil, h)
			step = w.Call("add", floatsOf(batch, input), nil, step, few)
		}
		both := w.Call("concatenate", floatsOf(batch, input+hidden), map[string]any{"axis": int64(1)}, w.Tuple(step, h))
		gates := w.Call("nn.dense", floatsOf(batch, 4*hidden), nil, both,
			w.Const([]int64{4 * hidden, input + hidden}, "float32", w.weights[t]))
		gates = w.Call("add", floatsOf(batch, 4*hidden), nil, gates, bias)
		four := &relay.Type{Kind: relay.TypeTuple, Fields: []*relay.Type{state, state, state, state}}
		split := w.Call("split", four, map[string]any{"axis": int64(-1)}, gates)
		in := w.Call(w.gate, state, nil, w.Get(split, 0))
		forget := w.Call("sigmoid", state, nil, w.Get(split, 1))
		fresh := w.Call("tanh", state, nil, w.Get(split, 2))
		out := w.Call("sigmoid", state, nil, w.Get(split, 3))
		c = w.Call("add", state, nil, w.Call("multiply", state, nil, forget, c),
			w.Call("multiply", state, nil, in, fresh))
		if w.readCell == s {
			others = append(others, w.Call("exp", state, nil, c))
		}
		h = w.Call("multiply", state, nil, out, w.Call(w.cell, state, nil, c))
		if w.turned {
			states = append([]relay.NodeID{h}, states...)
		} else {
			states = append(states, h)
		}
	}
	if w.swapped {
		states[1], states[2] = states[2], states[1]
	}
	all := w.Call("stack", floatsOf(steps, batch, hidden), map[string]any{"axis": int64(0)}, w.Tuple(states...))
	root := w.Call("exp", floatsOf(steps, batch, hidden), nil, all)
	if w.last {
		others = append(others, w.Call("exp", state, nil, h))
	}
	if len(others) > 0 {
		root = w.Tuple(append(others, root)...)
	}
	return w.Finish(root)
}

func found(t *testing.T, g *relay.Graph) ([]Layer, *region.Program) {
	t.Helper()
	p, err := region.FromGraph(g, "r")
	require.NoError(t, err)
	return Find(p), p
}

func TestALayerIsFound(t *testing.T) {
	for _, turned := range []bool{false, true} {
		w := newWritten()
		w.turned, w.last, w.readCell = turned, true, steps-1
		layers, p := found(t, w.graph())
		require.Len(t, layers, 1)
		l := layers[0]
		require.Len(t, l.Chains, 1)
		c := l.Chains[0]
		assert.Equal(t, LSTM, c.Kind)
		assert.Equal(t, turned, c.Backward)
		assert.Equal(t, [3]int64{batch, input, hidden}, [3]int64{c.Batch, c.Input, c.Hidden})
		assert.Equal(t, []region.ValueID{p.Inputs[0], p.Inputs[1], p.Inputs[2]}, []region.ValueID{l.X, c.H0, c.C0})
		assert.Equal(t, Part{c.W[0].Value, [2]int64{hidden, 2 * hidden}, [2]int64{0, input}}, c.W[LSTMForget])
		assert.Equal(t, Part{c.W[0].Value, [2]int64{3 * hidden, 4 * hidden}, [2]int64{input, input + hidden}},
			c.R[LSTMOutput])
		what := map[What]int{}
		for _, o := range l.Outputs {
			what[o.What]++
			if o.What == Hidden {
				assert.Equal(t, c.Last(), o.Time)
			}
		}
		assert.Equal(t, map[What]int{Sequence: 1, Hidden: 1, Cell: 1}, what)
		// What is left of the region is what reads it.
		var left []string
		for _, item := range Schedule(p) {
			if item.Layer == nil {
				left = append(left, p.Ops[item.Op].Name)
			} else {
				left = append(left, "layer")
			}
		}
		assert.Equal(t, []string{"layer", "exp", "exp", "exp"}, left)
	}
}

func TestStatesInAnotherOrderAreGivenOneByOne(t *testing.T) {
	w := newWritten()
	w.swapped = true
	layers, _ := found(t, w.graph())
	require.Len(t, layers, 1)
	for _, o := range layers[0].Outputs {
		assert.Equal(t, Hidden, o.What)
	}
	assert.Len(t, layers[0].Outputs, steps)
}

func TestALayerIsACandidate(t *testing.T) {
	g := newWritten().graph()
	proposals := Propose(g, "engine")
	require.Len(t, proposals, 1)
	assert.Equal(t, "engine.lstm", proposals[0].Composite)
	assert.Equal(t, "lstm", proposals[0].Kernel)
	assert.False(t, proposals[0].Bare)
	exits := g.Exits(proposals[0].Nodes)
	require.Len(t, exits, 1)
	assert.Equal(t, "stack", g.Nodes[exits[0]].Op)

	several := newWritten()
	several.last, several.readCell = true, steps-1
	g = several.graph()
	proposals = Propose(g, "engine")
	require.Len(t, proposals, 1)
	assert.True(t, proposals[0].Bare)
	assert.Empty(t, proposals[0].Composite)
	assert.Len(t, g.Exits(proposals[0].Nodes), 3)
}

func TestWhatIsNoLayerIsLeft(t *testing.T) {
	for name, change := range map[string]func(*written){
		"another gate":                 func(w *written) { w.gate = "tanh" },
		"another activation":           func(w *written) { w.cell = "sigmoid" },
		"a cell's state in the middle": func(w *written) { w.readCell = 1 },
		"a step that reads what was":   func(w *written) { w.feeds = true },
		"weights that change":          func(w *written) { w.weights = [steps]string{"a", "b", "a", "b"} },
	} {
		w := newWritten()
		change(w)
		layers, _ := found(t, w.graph())
		assert.Empty(t, layers, name)
	}
}
