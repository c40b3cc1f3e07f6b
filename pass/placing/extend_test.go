// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

// A group that is too large to be cut in all ways beforehand is cut where it was learnt to pay.
func TestBackendsProposeFromWhatWasLearnt(t *testing.T) {
	rig.WithLibraries(t)
	mod := tvmtest.Parse(t, rig.LongChain())

	e := &rig.Costs{Rule: rig.DearTogether}
	_, p, err := network.Place(mod, settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Estimator: e})
	require.NoError(t, err)
	assert.InDelta(t, 2.1, p.Estimate.Milliseconds, 1e-9)
	assert.True(t, p.Estimate.Optimal)
	assert.Equal(t, 41, p.Backend("tvm").Operators)
	assert.Equal(t, 1, p.Backend("lib").Operators)
	asked := map[cost.Key]bool{}
	for _, r := range e.Requests {
		assert.False(t, asked[r.Key], "%s is estimated twice", r.Label)
		asked[r.Key] = true
	}

	// A rule that forbids the library forbids what is proposed for its sake only as far as it says so.
	_, p, err = network.Place(mod, settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Forbid:    []string{"tanh=lib"},
		Estimator: &rig.Costs{Rule: e.Rule}})
	require.NoError(t, err)
	assert.Equal(t, 0, p.Backend("lib").Operators)
	assert.InDelta(t, 22, p.Estimate.Milliseconds, 1e-9)
}
