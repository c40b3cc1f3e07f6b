// SPDX-License-Identifier: Apache-2.0

package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func tensor(shape ...int64) *relay.Type {
	return &relay.Type{Kind: relay.TypeTensor, DType: "float32", Shape: shape}
}

func TestCompositesAreInlined(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{4, 8}, "float32")
	w := m.Const([]int64{16, 8}, "float32")
	a, b := m.LocalVar([]int64{4, 8}, "float32"), m.LocalVar([]int64{16, 8}, "float32")
	dense := m.Call("nn.dense", tensor(4, 16), nil, a, b)
	relu := m.Call("nn.relu", tensor(4, 16), nil, dense)
	composite := m.Function([]relay.NodeID{a, b}, relu, map[string]string{"Composite": "x.dense_relu"})
	first := m.CallFunction(composite, tensor(4, 16), x, w)
	second := m.Call("exp", tensor(4, 16), nil, first)
	p, err := FromGraph(m.Finish(second), "r")
	require.NoError(t, err)
	require.Equal(t, []string{"x.dense_relu"}, p.Composites)
	var names []string
	for _, op := range p.Ops {
		names = append(names, op.Name)
	}
	require.Equal(t, []string{"nn.dense", "nn.relu", "exp"}, names)
	require.Equal(t, []int{0, 0, -1}, []int{p.Ops[0].CompositeIndex, p.Ops[1].CompositeIndex, p.Ops[2].CompositeIndex})
	groups, of := p.Groups()
	require.Equal(t, []string{"x.dense_relu", "exp"}, groups)
	require.Equal(t, []int{0, 0, 1}, of)
	require.Equal(t, p.Inputs[0], p.Ops[0].Args[0])
	require.True(t, p.IsConstant(p.Ops[0].Args[1]))
	require.Equal(t, p.Ops[2].Results, p.Outputs)
	require.Equal(t, 1, p.Values[p.Ops[1].Results[0]].Producer)
	_, err = p.ConstantBytes(p.Inputs[0])
	require.ErrorContains(t, err, "no constant")
}

// Two calls of one composite function are two groups, also where they stand one behind the other.
func TestEachCallIsAGroup(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{4, 8}, "float32")
	a := m.LocalVar([]int64{4, 8}, "float32")
	composite := m.Function([]relay.NodeID{a}, m.Call("tanh", tensor(4, 8), nil, m.Call("exp", tensor(4, 8), nil, a)),
		map[string]string{"Composite": "x.exp_tanh"})
	twice := m.CallFunction(composite, tensor(4, 8), m.CallFunction(composite, tensor(4, 8), x))
	p, err := FromGraph(m.Finish(m.Call("add", tensor(4, 8), nil, twice, m.Call("exp", tensor(4, 8), nil, x))), "r")
	require.NoError(t, err)
	groups, of := p.Groups()
	require.Equal(t, []string{"x.exp_tanh", "x.exp_tanh", "exp", "add"}, groups)
	require.Equal(t, []int{0, 0, 1, 1, 2, 3}, of)
	require.Equal(t, "x.exp_tanh x.exp_tanh exp add\n", GroupsLine(groups))
}

func TestTuplesAreResolved(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{4, 8}, "float32")
	half := &relay.Type{Kind: relay.TypeTuple, Fields: []*relay.Type{tensor(4, 4), tensor(4, 4)}}
	split := m.Call("split", half, map[string]any{"indices_or_sections": 2, "axis": 1}, x)
	left, right := m.Get(split, 0), m.Get(split, 1)
	swapped := m.Tuple(right, left)
	joined := m.Call("concatenate", tensor(4, 8), map[string]any{"axis": 1}, swapped)
	p, err := FromGraph(m.Finish(m.Tuple(joined, right, x, joined)), "r")
	require.NoError(t, err)
	require.Len(t, p.Ops, 2)
	parts := p.Ops[0].Results
	require.Len(t, parts, 2)
	require.Equal(t, []ValueID{parts[1], parts[0]}, p.Ops[1].Args)
	whole := p.Ops[1].Results[0]
	require.Equal(t, []ValueID{whole, parts[1], p.Inputs[0], whole}, p.Outputs)
	readers := p.Readers()
	require.Equal(t, 2, readers[parts[1]])
	require.Equal(t, 2, readers[p.Inputs[0]])
	require.Equal(t, 2, readers[whole])
}

func TestRegionsThatNoEngineTakes(t *testing.T) {
	m := relay.NewGraph("r")
	x := m.Var([]int64{relay.AnyDim, 8}, "float32")
	_, err := FromGraph(m.Finish(m.Call("nn.relu", tensor(relay.AnyDim, 8), nil, x)), "r")
	require.ErrorContains(t, err, "parameter 1")
	require.ErrorContains(t, err, "known only at run time")

	m = relay.NewGraph("r")
	x = m.Var([]int64{8}, "float32")
	called := m.CallFunction(m.Global("other"), tensor(8), x)
	_, err = FromGraph(m.Finish(called), "r")
	require.ErrorContains(t, err, "neither an operator nor a composite function")
}
