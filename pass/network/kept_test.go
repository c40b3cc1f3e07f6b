// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

// Candidates that come in while others are measured change what is where, and a placement that was made before is the
// same network.
func TestAPlacementIsKeptOverLearning(t *testing.T) {
	rig.WithLibraries(t)
	n, err := Open(tvmtest.Parse(t, rig.LongChain()), settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.DearTogether}})
	require.NoError(t, err)
	plain, err := n.Reference()
	require.NoError(t, err)
	alone := n.Alone("lib")
	require.NotNil(t, alone)
	before, first := len(n.Placing.Functions[0].Set.Candidates), *n.Kept(alone)()
	assert.Equal(t, alone.Chosen, first.Chosen, "nothing has changed yet")

	again, plainAgain := n.Kept(alone), n.Kept(plain)
	require.NoError(t, n.Learn(context.Background(), nil, false))
	require.Greater(t, len(n.Placing.Functions[0].Set.Candidates), before, "candidates came in")
	for _, kept := range []struct{ was, is *genome.Placement }{{alone, again()}, {plain, plainAgain()}} {
		require.NotNil(t, kept.is)
		assert.Equal(t, kept.was.Key, kept.is.Key)
		require.NoError(t, n.Space.Check(kept.is))
	}
	assert.NotEqual(t, alone.Chosen, again().Chosen, "its candidates stand elsewhere")

	n.Placing.Functions[0].Set.Candidates[again().Chosen[0][0]].Composite = "gone"
	assert.Nil(t, again(), "a candidate is there no more")
}
