// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// What a candidate reads, its weights and what it gives must be on the device together.
func TestWhatADeviceCannotHoldIsRefused(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{1000}, "float32")
	w := m.Const([]int64{500}, "float32")
	v := m.Call("add", relay.Tensor("float32", 2000), nil, x, w)
	g := m.Finish(m.Call("exp", relay.Tensor("int8", 2000), nil, v))
	root := g.Root()
	one := candidate.Candidate{Backend: "distant", Nodes: []relay.NodeID{v}, Root: v}
	both := candidate.Candidate{Backend: "distant", Nodes: []relay.NodeID{v, root}, Root: root}
	here := candidate.Candidate{Backend: "here", Nodes: []relay.NodeID{v}, Root: v}
	for _, c := range []*candidate.Candidate{&one, &both, &here} {
		c.Border(g)
	}
	left := func(memory int64) (backends []string, refused []candidate.Refusal) {
		s := &Module{ByName: map[string]byoc.Backend{"distant": &distant{memory: memory}, "here": &probed{}}}
		set := &candidate.Set{Graph: g, Candidates: []candidate.Candidate{one, both, here}}
		s.holdable(set)
		for _, c := range set.Candidates {
			backends = append(backends, c.Label(g))
		}
		return backends, set.Refusals
	}
	all := []string{one.Label(g), both.Label(g), here.Label(g)}
	for _, memory := range []int64{0, 14000} {
		kept, refused := left(memory)
		require.Equal(t, all, kept)
		require.Empty(t, refused)
	}
	kept, refused := left(13999)
	require.Equal(t, []string{both.Label(g), here.Label(g)}, kept, "of what lies between no byte is counted")
	require.Equal(t, []candidate.Refusal{{Node: v, Backend: "distant", Composite: "add",
		Reason: "what it reads and gives and its weights take 0.0 MB, the device abacus has 0.0 MB"}}, refused)
	kept, refused = left(7999)
	require.Equal(t, []string{here.Label(g)}, kept)
	require.Len(t, refused, 2)
}
