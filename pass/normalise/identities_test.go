// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/relay"
)

func TestIdentitiesAreFound(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	open := func(dtype string) *relay.Type { return relay.Tensor(dtype, relay.AnyDim, 4) }
	x := m.Var([]int64{relay.AnyDim, 4}, "float32")
	y := m.Var([]int64{2, 3}, "float32")
	one := m.Scalar(1, "float32")
	relu := m.Call("nn.relu", open("float32"), nil, x)
	fixed := m.Call("nn.relu", relay.Tensor("float32", 2, 3), nil, y)
	var ids []relay.NodeID
	var want []relay.NodeID
	add := func(same relay.NodeID, op string, t *relay.Type, inputs ...relay.NodeID) {
		ids, want = append(ids, m.Call(op, t, nil, inputs...)), append(want, same)
	}
	none := relay.NoNode
	add(relu, "cast", open("float32"), relu)
	add(none, "cast", open("int32"), relu)
	add(none, "cast", open("float32"), x) // an input: a result that is one is made of it
	add(relu, "multiply", open("float32"), relu, one)
	add(relu, "multiply", open("float32"), one, relu)
	add(relu, "divide", open("float32"), relu, one)
	add(none, "divide", open("float32"), one, relu)
	add(none, "add", open("float32"), relu, one)
	add(none, "multiply", open("float32"), relu, m.Scalar(2, "float32"))
	add(none, "multiply", open("float32"), relu, m.Const([]int64{1, 4}, "float32"))
	add(none, "multiply", open("float32"), relu, x)
	add(fixed, "reshape", relay.Tensor("float32", 2, 3), fixed)
	add(none, "reshape", relay.Tensor("float32", 3, 2), fixed)
	add(none, "reshape", open("float32"), relu) // the open size may be another one
	g := m.Finish(m.Tuple(ids...))
	for i, id := range ids {
		assert.Equal(t, want[i], identityOf(g, id), g.Line(id))
	}
}
