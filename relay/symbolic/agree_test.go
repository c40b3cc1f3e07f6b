// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// TestAgree has two inputs of open sizes that are, or are not, called the same.
func TestAgree(t *testing.T) {
	type maker func(m *relay.GraphMaker, x, y relay.NodeID) relay.NodeID
	opens := func(rank int) []int64 { return slices.Repeat([]int64{open}, rank) }
	call := func(op string, rank int, attrs map[string]any) maker {
		return func(m *relay.GraphMaker, x, y relay.NodeID) relay.NodeID {
			return m.Call(op, float(opens(rank)...), attrs, x, y)
		}
	}
	parts := func(op string, axis int64, rank int) maker {
		return func(m *relay.GraphMaker, x, y relay.NodeID) relay.NodeID {
			return m.Call(op, float(opens(rank)...), map[string]any{"axis": axis}, m.Tuple(x, y))
		}
	}
	for _, c := range []struct {
		name string
		rank int
		make maker
		// agree are the pairs of dimensions that have to be the same.
		agree [][2]int
	}{
		{"add", 2, call("add", 2, nil), nil},
		{"concatenate", 3, parts("concatenate", 1, 3), [][2]int{{0, 0}, {2, 2}}},
		{"concatenate from behind", 3, parts("concatenate", -1, 3), [][2]int{{0, 0}, {1, 1}}},
		{"stack", 2, parts("stack", 1, 3), [][2]int{{0, 0}, {1, 1}}},
		{"dense", 2, call("nn.dense", 2, nil), [][2]int{{1, 1}}},
		{"matmul", 2, call("nn.matmul", 2, nil), [][2]int{{1, 0}}},
		{"turned", 2, call("nn.matmul", 2, map[string]any{"transpose_a": true, "transpose_b": true}), [][2]int{{0, 1}}},
		{"batch_matmul", 3, call("nn.batch_matmul", 3, map[string]any{"transpose_b": true}), [][2]int{{2, 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			agree := func(pairs [][2]int) bool {
				m := relay.NewGraph("main")
				x, y := m.Var(opens(c.rank), "float32"), m.Var(opens(c.rank), "float32")
				root := c.make(m, x, y)
				g := m.Finish(root)
				named := Inputs{}
				for _, v := range []relay.NodeID{x, y} {
					named[g.Nodes[v].Name] = make([]Dimension, c.rank)
				}
				for i, pair := range pairs {
					name := string(rune('a' + i))
					named[g.Nodes[x].Name][pair[0]].Name, named[g.Nodes[y].Name][pair[1]].Name = name, name
				}
				a, err := Analyse(g, named)
				require.NoError(t, err)
				return a.Agree(root)
			}
			assert.True(t, agree(c.agree))
			for i := range c.agree {
				assert.False(t, agree(slices.Delete(slices.Clone(c.agree), i, i+1)), "without %v", c.agree[i])
			}
		})
	}
}
