// SPDX-License-Identifier: Apache-2.0

package propose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/growth"
	"github.com/collage-tvm/collage/relay"
)

// stack is so many blocks of seven operators, one behind the other.
func stack(blocks int) *relay.Graph {
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 8, 14, 14}, "float32")
	for range blocks {
		x = block(m, x)
	}
	return m.Finish(x)
}

// Of ten times as many operators each is asked about once, what is proposed is bounded by the limit, and so are the
// nodes in it: each cut halves what it cuts.
func TestWhatIsProposedIsBounded(t *testing.T) {
	t.Parallel()
	work := func(blocks int) (asked, proposed, nodes int) {
		g := stack(blocks)
		proposals := Regions(g, func(relay.NodeID) bool { asked++; return true }, Limit)
		for _, p := range proposals {
			nodes += len(p.Nodes)
		}
		return asked, len(proposals), nodes
	}
	asked, proposed, nodes := work(20)
	tenfold, more, tenNodes := work(200)
	require.Equal(t, 7*20, asked)
	require.Equal(t, 10*asked, tenfold)
	require.LessOrEqual(t, proposed, Limit)
	require.LessOrEqual(t, more, Limit)
	require.Greater(t, more, 1)
	require.LessOrEqual(t, tenNodes, 11*nodes, "%d, and %d", nodes, tenNodes)
}

// Of a region most nodes of its spine are passed over, since no cut there can be better than the best so far.
func TestTimeOfProposing(t *testing.T) {
	growth.Linear(t, 150, func(blocks int) func() {
		g := stack(blocks)
		g.PostDominators()
		return func() { Regions(g, all, Limit) }
	})
}
