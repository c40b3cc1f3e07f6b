// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/relay"
)

func TestKernelsAreMeasuredOnTheirLargestGroups(t *testing.T) {
	offer := func(backend, composite, kernel string, nodes ...relay.NodeID) candidate.Candidate {
		return candidate.Candidate{Backend: backend, Composite: composite, Kernel: kernel, Nodes: nodes,
			Root: nodes[len(nodes)-1]}
	}
	set := &candidate.Set{Candidates: []candidate.Candidate{
		offer("own", "own.a", "fast", 2),
		offer("own", "own.a_relu", "fast", 2, 3),
		offer("own", "own.other", "slow", 2),
		offer("own", "own.plain", "", 2, 3),
		offer("lib", "lib.a_relu", "", 2, 3),
		offer("lib", "lib.b_relu", "", 2, 3),
		offer("own", "own.beside", "fast", 3, 4),
	}}
	offers := placing.LargestOffers(set, "own")
	var names []string
	for _, c := range offers {
		names = append(names, c.Composite)
	}
	// What overlaps without being within stays, and so does what is within another kernel's.
	require.Equal(t, []string{"own.a_relu", "own.other", "own.beside"}, names)

	// All patterns for the same nodes; where there are none, all of them as they stand.
	covering := placing.Coverings(set, offers[0], "lib")
	require.Len(t, covering, 2)
	require.Equal(t, "lib.b_relu", covering[1].Composite)
	whole := placing.Coverings(set, offers[2], "lib")
	require.Len(t, whole, 1)
	require.True(t, whole[0].Bare)
	require.Equal(t, "lib", whole[0].Backend)
	require.Equal(t, []relay.NodeID{3, 4}, whole[0].Nodes)
	require.Equal(t, "own", offers[2].Backend)
}
