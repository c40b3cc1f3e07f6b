// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// taker is a backend of which no more is asked.
type taker struct {
	byoc.Backend
	anything bool
}

func (t taker) TakesAnything() bool { return t.anything }

// What is planned at fixed sizes may have a node more than with open ones, where somebody else reads that.
func TestLikeAPlanWhoseCandidateHasANodeMore(t *testing.T) {
	m := relay.NewGraph("main")
	shape := relay.Tensor("float32", 2, 3)
	turned := m.Call("transpose", shape, nil, m.Var([]int64{2, 3}, "float32"))
	exp := m.Call("exp", shape, nil, turned)
	product := m.Call("multiply", shape, nil, exp, exp)
	g := m.Finish(product)
	f := &Function{Set: &candidate.Set{Graph: g}}
	add := func(backend, composite string, nodes ...relay.NodeID) {
		f.Set.Candidates = append(f.Set.Candidates, candidate.Candidate{Backend: backend, Composite: composite,
			Nodes: nodes, Root: nodes[len(nodes)-1]})
	}
	for _, v := range []relay.NodeID{turned, exp, product} {
		add("tvm", "", v)
	}
	add("lib", "lib.square", exp, product)
	add("lib", "lib.exp", exp)
	s := &Module{ByName: map[string]byoc.Backend{"tvm": taker{anything: true}, "lib": taker{}}}
	same := []relay.NodeID{0, 1, 2, 3}
	placed := func(composite string, nodes ...relay.NodeID) (chosen []string) {
		c := plan.Candidate{Composite: composite}
		for _, v := range nodes {
			c.Nodes = append(c.Nodes, plan.Node{Index: int(v)})
		}
		p := &plan.Plan{Regions: []plan.Region{{Function: "main", Backend: "lib", Candidates: []plan.Candidate{c}}}}
		solution, err := s.like(f, p, same, "")
		require.NoError(t, err)
		for _, k := range solution.Chosen {
			chosen = append(chosen, f.Set.Candidates[k].Composite)
		}
		return chosen
	}
	assert.Equal(t, []string{"", "lib.square"}, placed("lib.square", exp, product))
	assert.Equal(t, []string{"", "lib.square"}, placed("lib.square", turned, exp, product), "one more")
	assert.Equal(t, []string{"", "", ""}, placed("lib.cube", turned, exp, product), "another one")
	assert.Equal(t, []string{"", "lib.exp", ""}, placed("lib.exp", exp))
}
