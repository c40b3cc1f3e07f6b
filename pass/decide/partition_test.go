// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

func TestWhatAConfigLeavesOpen(t *testing.T) {
	options := OptionsOf(settings.Config{})
	assert.Equal(t, settings.DefaultBackends, options.Backends)
	assert.Equal(t, 3, options.OptLevel)
	assert.Equal(t, measure.DefaultSamples, options.Samples)
	assert.Equal(t, settings.DefaultRounds, options.Rounds)
	assert.Equal(t, ".so", options.Extension)

	level := 1
	options = OptionsOf(settings.Config{Backends: []string{"tvm", "mkl"}, OptLevel: &level, SearchTime: 1.5, Trials: 3,
		Rounds: 5,
		Level:  settings.GraphLevel, Samples: 6})
	assert.Equal(t, []string{"tvm", "mkl"}, options.Backends)
	// One that can be used, or not: then it is there so that the reason is told.
	assert.Contains(t, OptionsOf(settings.Config{Devices: []string{"opencl"}}).Backends, "tvm_opencl")
	assert.Equal(t, 1500*time.Millisecond, options.SearchTime)
	assert.Equal(t, []int{1, 3, 5, 6}, []int{options.OptLevel, options.Trials, options.Rounds, options.Samples})
	assert.Equal(t, settings.GraphLevel, options.Level)
}

func TestWhatWasPlacedByBounds(t *testing.T) {
	p := &plan.Plan{Regions: []plan.Region{{}, {Candidates: []plan.Candidate{{Cost: cost.Cost{Origin: cost.Measured}}}}}}
	assert.False(t, byBounds(p))
	p.Regions[1].Candidates = append(p.Regions[1].Candidates, plan.Candidate{Cost: cost.Cost{Origin: cost.Bounded}})
	assert.True(t, byBounds(p))
}
