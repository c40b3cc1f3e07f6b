// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// residuals is so many blocks of a convolution with its bias, a sum and a ReLU, each with a skip, one behind the other.
func residuals(blocks int) *relay.Graph {
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	for range blocks {
		biased := m.Call("add", act, nil, conv(m, x), m.Const([]int64{8, 1, 1}, "float32"))
		x = m.Call("nn.relu", act, nil, m.Call("add", act, nil, biased, x))
	}
	return m.Finish(x)
}

// Of ten times as many blocks there are ten times as many candidates and refusals, of as many nodes; the operators'
// kinds and the limits are asked for as often.
func TestCandidatesGrowWithTheGraph(t *testing.T) {
	t.Parallel()
	work := func(blocks int) map[string]int {
		found := map[string]int{}
		library := convolutions()
		for i := range library.patterns {
			library.patterns[i].Limits = func(*relay.Graph, *relay.Match) error { found["limits"]++; return nil }
		}
		kinds := func(op string) OpPattern { found["kinds"]++; return patterns(op) }
		set, err := Propose(residuals(blocks), []byoc.Backend{tvm, library}, Options{OpPattern: kinds})
		require.NoError(t, err)
		found["candidates"] = len(set.Candidates)
		for i := range set.Candidates {
			found["nodes"] += len(set.Candidates[i].Nodes)
		}
		return found
	}
	small, large := work(50), work(500)
	for what, n := range small {
		require.Positive(t, n, what)
		require.LessOrEqual(t, large[what], 10*n+20, "%s: %d of 50 blocks", what, n)
	}
	require.Len(t, large, len(small))
}
