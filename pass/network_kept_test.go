// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

// Candidates that come in while others are measured change what is where, and a placement that was made before is the
// same network.
func TestAPlacementIsKeptOverLearning(t *testing.T) {
	withLibraries(t)
	n, err := Open(tvmtest.Parse(t, longChain()), Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &estimator{rule: dearTogether}})
	require.NoError(t, err)
	plain, err := n.Reference()
	require.NoError(t, err)
	alone := n.Alone("lib")
	require.NotNil(t, alone)
	before, first := len(n.s.functions[0].set.Candidates), *n.Kept(alone)()
	assert.Equal(t, alone.Chosen, first.Chosen, "nothing has changed yet")

	again, plainAgain := n.Kept(alone), n.Kept(plain)
	require.NoError(t, n.Learn(context.Background(), nil))
	require.Greater(t, len(n.s.functions[0].set.Candidates), before, "candidates came in")
	for _, kept := range []struct{ was, is *genome.Placement }{{alone, again()}, {plain, plainAgain()}} {
		require.NotNil(t, kept.is)
		assert.Equal(t, kept.was.Key, kept.is.Key)
		require.NoError(t, n.Space.Check(kept.is))
	}
	assert.NotEqual(t, alone.Chosen, again().Chosen, "its candidates stand elsewhere")

	n.s.functions[0].set.Candidates[again().Chosen[0][0]].Composite = "gone"
	assert.Nil(t, again(), "a candidate is there no more")
}
