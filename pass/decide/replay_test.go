// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/calibration"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
)

// What a plan was built without is left out again, none of the defaults where it left out nothing.
func TestAPlanSaysWhichPassesAreLeftOut(t *testing.T) {
	for options, want := range map[string][]string{"O2 -AlterOpLayout -SimplifyExpr": {"AlterOpLayout", "SimplifyExpr"},
		"O3": {}} {
		c := &decision{Options: Options{DisabledPasses: []string{"FoldConstant"}}}
		require.NoError(t, c.Adopt(&plan.Plan{Environment: cost.Environment{Options: options}}))
		assert.Equal(t, want, c.disabledPasses(), options)
	}
}

// Without the plan's calibration data its outputs may be compared on random inputs, which is warned of; other data, and
// an executable that is written, are held to the plan.
func TestWithoutThePlansData(t *testing.T) {
	p := &plan.Plan{Precision: &plan.Precision{Calibration: "0123456789ab"}}
	c := &decision{Options: Options{otherData: true}, taken: &calibration.Taken{Inputs: &measure.Inputs{}}}
	require.NoError(t, c.sameData(p))
	require.Len(t, c.warnings, 1)
	assert.Contains(t, c.warnings[0], "random inputs, and the plan's errors were taken on calibration data (SHA-256 "+
		"0123456789ab...)")
	c.otherData = false
	assert.ErrorContains(t, c.sameData(p), "(verify=False, --no-verify)")
	c.otherData, c.Precision.Calibration, c.taken.Digest = true, "other.npz", "ba9876543210"
	assert.ErrorContains(t, c.sameData(p), "0123456789ab")
}
