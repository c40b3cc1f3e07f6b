// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

func TestGroupsStandInTheOrderInWhichCodeGeneratorsMeetThem(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 1, 8, 8, 8)
	x := m.Var([]int64{1, 8, 8, 8}, "float32")
	w := m.Const([]int64{8, 8, 1, 1}, "float32")
	left := m.Call("nn.max_pool2d", vector, nil, x)
	right := m.Call("tanh", vector, nil, x)
	conv := m.Call("nn.conv2d", vector, nil, right, w)
	sum := m.Call("add", vector, nil, left, conv) // the composite's second node brings the pool in, after the convolution's data
	pair := m.Tuple(sum, left)
	joined := m.Call("concatenate", vector, nil, pair)
	apart := m.Call("exp", vector, nil, x)
	g := m.Finish(m.Tuple(apart, joined))
	set := &candidate.Set{Graph: g}
	add := func(composite string, bare bool, nodes ...relay.NodeID) {
		set.Candidates = append(set.Candidates,
			candidate.Candidate{Backend: "lib", Composite: composite, Bare: bare, Nodes: nodes,
				Root: nodes[len(nodes)-1]})
	}
	add("", false, left)
	add("", false, right)
	add("lib.conv2d_sum", false, conv, sum)
	add("lib.concatenate", true, pair, joined)
	r := Region{Candidates: []int{0, 1, 2, 3}, Nodes: []relay.NodeID{left, right, conv, sum, pair, joined},
		Outputs: []relay.NodeID{joined}}
	group := func(name string, nodes ...relay.NodeID) Group {
		return Group{Name: name, Precision: byoc.F32, Nodes: nodes}
	}
	assert.Equal(t, []Group{group("tanh", right), group("nn.max_pool2d", left), group("lib.conv2d_sum", conv, sum),
		group("concatenate", pair, joined)}, Groups(set, &r))
}
