// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// unrolled is an LSTM of three steps, 2 sequences of 3 numbers and 5 units, as TVM's front ends write it, and what is
// read of it: the states of all steps, or the last one, or the last state with that of the cells.
type unrolled struct{ all, cells bool }

func (u unrolled) graph() *relay.Graph {
	const steps, rows, length, hidden = 3, 2, 3, 5
	r := newRegion()
	state, step := f(rows, hidden), f(rows, length)
	parts := func(count int, part *relay.Type) *relay.Type {
		fields := make([]*relay.Type, count)
		for i := range fields {
			fields[i] = part
		}
		return &relay.Type{Kind: relay.TypeTuple, Fields: fields}
	}
	axis := func(axis int64) map[string]any { return map[string]any{"axis": axis} }
	call := func(name string, args ...relay.NodeID) relay.NodeID { return r.Call(name, state, nil, args...) }
	weights, bias := r.Const([]int64{4 * hidden, length + hidden}, f32), r.Const([]int64{4 * hidden}, f32)
	x := r.Var([]int64{steps, rows, length}, f32)
	h, c := r.Var([]int64{rows, hidden}, f32), r.Var([]int64{rows, hidden}, f32)
	each := r.Call("split", parts(steps, f(1, rows, length)), axis(0), x)
	var states []relay.NodeID
	for t := range steps {
		read := r.Call("squeeze", step, map[string]any{"axis": []int64{0}}, r.Get(each, t))
		both := r.Call("concatenate", f(rows, length+hidden), axis(1), r.Tuple(read, h))
		product := r.Call("add", f(rows, 4*hidden), nil, r.Call("nn.dense", f(rows, 4*hidden), nil, both, weights), bias)
		gates := r.Call("split", parts(4, state), axis(-1), product)
		kept := call("multiply", call("sigmoid", r.Get(gates, 1)), c)
		fresh := call("multiply", call("sigmoid", r.Get(gates, 0)), call("tanh", r.Get(gates, 2)))
		c = call("add", kept, fresh)
		h = call("multiply", call("sigmoid", r.Get(gates, 3)), call("tanh", c))
		states = append(states, h)
	}
	switch {
	case u.all:
		return r.Finish(r.Call("stack", f(steps, rows, hidden), axis(0), r.Tuple(states...)))
	case u.cells:
		return r.Finish(r.Tuple(h, c))
	}
	return r.Finish(call("nn.relu", h))
}

func TestStepsOfALayerAreOneOperation(t *testing.T) {
	golden(t, "recurrent.json", unrolled{all: true}.graph())
	for read, times := range map[unrolled]string{{}: "[2]", {cells: true}: "[-1, 2]"} {
		got, constants := text(t, read.graph())
		require.Equal(t, 1, strings.Count(got, `"op": "recurrent"`), got)
		require.Contains(t, got, `"times": `+times)
		require.NotContains(t, got, "matmul")
		require.Len(t, constants, 2)
		require.Contains(t, got, `"of": [[0, 1, 2, 3, 4`) // of all operators that it stands for
	}
}

func TestLayersAreProposed(t *testing.T) {
	backend := native.New(nil).(byoc.Proposer)
	found := backend.Propose(unrolled{all: true}.graph(), nil)
	require.Len(t, found, 1)
	require.Equal(t, "native.lstm", found[0].Composite)
	require.Equal(t, "lstm", found[0].Kernel)
	found = backend.Propose(unrolled{cells: true}.graph(), nil)
	require.Len(t, found, 1)
	require.True(t, found[0].Bare)
}

// What runs before a layer and behind it is lowered in an order in which it can run.
func TestOperatorsAroundALayer(t *testing.T) {
	p, err := region.FromGraph(unrolled{}.graph(), "r")
	require.NoError(t, err)
	l, err := lower(p)
	require.NoError(t, err)
	var kinds []string
	for _, o := range l.ops {
		kinds = append(kinds, o.kind)
	}
	require.Equal(t, []string{"recurrent", "eltwise"}, kinds)
	require.Equal(t, "nn.relu", l.groups[l.ops[1].of[0]])
}
