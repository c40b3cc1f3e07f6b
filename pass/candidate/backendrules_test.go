// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// ruled is a backend with rules, and with patterns that it matches by itself.
type ruled struct {
	library
	rules    *byoc.Rules
	matches  []byoc.Proposal
	proposes []byoc.Proposal
	err      error
}

func (r ruled) TakesAnything() bool                           { return false }
func (r ruled) Compiler() string                              { return r.name }
func (r ruled) Rules() *byoc.Rules                            { return r.rules }
func (r ruled) Matches(*relay.Graph) ([]byoc.Proposal, error) { return r.matches, r.err }
func (r ruled) Propose(*relay.Graph, []byoc.Learnt) []byoc.Proposal {
	panic("ProposeOrFail goes before")
}

func (r ruled) ProposeOrFail(*relay.Graph, []byoc.Learnt) ([]byoc.Proposal, error) {
	return r.proposes, r.err
}

// chain is relu, exp, relu of a variable, nodes 1 to 3.
func chain() *relay.Graph {
	m := relay.NewGraph("main")
	x := m.Var([]int64{4, 4}, "float32")
	t := &relay.Type{Kind: relay.TypeTensor, DType: "float32", Shape: []int64{4, 4}}
	return m.Finish(m.Call("nn.relu", t, nil, m.Call("exp", t, nil, m.Call("nn.relu", t, nil, x))))
}

func supports(names ...string) func(g *relay.Graph, v relay.NodeID) error {
	return func(g *relay.Graph, v relay.NodeID) error {
		for _, name := range names {
			if g.Nodes[v].Op == name {
				return nil
			}
		}
		return errors.New("not supported")
	}
}

func proposed(t *testing.T, b byoc.Backend) (nodes [][]relay.NodeID, set *Set) {
	set, err := Propose(chain(), []byoc.Backend{library{name: "tvm"}, b}, Options{OpPattern: patterns})
	require.NoError(t, err)
	for _, c := range set.Candidates {
		if c.Backend == "lib" {
			require.NoError(t, Check(set.Graph, c.Nodes))
			nodes = append(nodes, c.Nodes)
		}
	}
	return nodes, set
}

func TestRulesOfABackendMakeCandidates(t *testing.T) {
	t.Parallel()
	lib := ruled{library: library{name: "lib"}}
	lib.rules = &byoc.Rules{Supports: supports("nn.relu", "exp"), Style: byoc.ArbitraryFusion}
	nodes, set := proposed(t, lib)
	require.Equal(t, [][]relay.NodeID{{1}, {1, 2}, {2}, {1, 2, 3}, {2, 3}, {3}}, nodes)
	for _, c := range set.Candidates {
		require.Equal(t, c.Backend == "lib", c.Bare)
	}
	lib.rules.MaxDepth = 2
	nodes, _ = proposed(t, lib)
	require.Equal(t, [][]relay.NodeID{{1}, {1, 2}, {2}, {2, 3}, {3}}, nodes)
	lib.rules.Style = byoc.NoFusion
	nodes, _ = proposed(t, lib)
	require.Equal(t, [][]relay.NodeID{{1}, {2}, {3}}, nodes)
	lib.rules.Supports = supports("nn.relu")
	lib.rules.Style = byoc.ArbitraryFusion
	nodes, set = proposed(t, lib)
	require.Equal(t, [][]relay.NodeID{{1}, {3}}, nodes)
	require.Equal(t, []Refusal{{Node: 2, Backend: "lib", Composite: "exp", Reason: "not supported"}}, set.Refusals)
}

func TestABackendMatchesAndProposesByItself(t *testing.T) {
	t.Parallel()
	lib := ruled{library: library{name: "lib"}, matches: []byoc.Proposal{
		{Composite: "lib.two", Nodes: []relay.NodeID{1, 2}},
		{Composite: "lib.bad", Nodes: []relay.NodeID{1, 3}}, // %1 escapes to %2
	}, proposes: []byoc.Proposal{{Bare: true, Nodes: []relay.NodeID{2, 3}}}}
	nodes, set := proposed(t, lib)
	require.Equal(t, [][]relay.NodeID{{1, 2}, {2, 3}}, nodes)
	require.Len(t, set.Refusals, 1)
	require.Contains(t, set.Refusals[0].Reason, "escapes")

	lib.err = errors.New("no luck")
	_, err := Propose(chain(), []byoc.Backend{library{name: "tvm"}, lib}, Options{})
	require.ErrorContains(t, err, "the patterns of the backend lib: no luck")
	lib.err = nil
	set, err = Propose(chain(), []byoc.Backend{library{name: "tvm"}, lib}, Options{})
	require.NoError(t, err)
	lib.err = errors.New("no luck")
	_, _, err = Extend(set, []byoc.Backend{library{name: "tvm"}, lib}, Options{}, nil)
	require.ErrorContains(t, err, "what the backend lib proposes: no luck")
}
