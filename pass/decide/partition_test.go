// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
)

func TestWhatAConfigLeavesOpen(t *testing.T) {
	options := OptionsOf(pass.Config{})
	assert.Equal(t, pass.DefaultBackends, options.Backends)
	assert.Equal(t, 3, options.OptLevel)
	assert.Equal(t, measure.DefaultSamples, options.Samples)
	assert.Equal(t, DefaultRounds, options.Rounds)
	assert.Equal(t, ".so", options.Extension)

	level := 1
	options = OptionsOf(pass.Config{Backends: []string{"tvm", "mkl"}, OptLevel: &level, SearchTime: 1.5, Trials: 3,
		Seed: 4, Rounds: 5,
		Level: pass.GraphLevel, Samples: 6})
	assert.Equal(t, []string{"tvm", "mkl"}, options.Backends)
	assert.Equal(t, 1500*time.Millisecond, options.SearchTime)
	assert.Equal(t, []int{1, 3, 5, 6}, []int{options.OptLevel, options.Trials, options.Rounds, options.Samples})
	assert.Equal(t, uint64(4), options.Seed)
	assert.Equal(t, pass.GraphLevel, options.Level)
}

func TestOptionsThatDoNotGoWithTheGraphLevel(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	for want, config := range map[string]pass.Config{
		"the option only leaves the graph level nothing": {Level: pass.GraphLevel, Only: "dnnl"},
		"the option level is \"both\"":                   {Level: "both"},
		"trials or rounds is below 0":                    {Trials: -1},
		"costs that are given go with level": {Level: pass.GraphLevel,
			Estimator: cost.Estimator(nothing{})},
	} {
		err := config.Validate()
		if err == nil {
			_, _, err = pass.Partition(nil, config)
		}
		var option *pass.OptionError
		require.ErrorAs(t, err, &option, want)
		assert.ErrorContains(t, err, want)
	}
}

// nothing is an estimator that is never asked.
type nothing struct{ cost.Estimator }

func TestWhatWasPlacedByBounds(t *testing.T) {
	p := &plan.Plan{Regions: []plan.Region{{}, {Candidates: []plan.Candidate{{Cost: cost.Cost{Origin: cost.Measured}}}}}}
	assert.False(t, byBounds(p))
	p.Regions[1].Candidates = append(p.Regions[1].Candidates, plan.Candidate{Cost: cost.Cost{Origin: cost.Bounded}})
	assert.True(t, byBounds(p))
}
