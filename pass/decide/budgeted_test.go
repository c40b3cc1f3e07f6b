// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/calibration"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// offBy has the search have found how far a finalist's outputs are off, on its own inputs and on those held out.
func offBy(c *decision, name string, searched, heldOut float64) {
	i := slices.IndexFunc(c.finalists, func(f *finalist) bool { return f.name == name })
	t := c.trialOf(c.finalists[i].placement)
	t.Cost.Network = &cost.Network{Errors: &cost.Errors{L2: searched}, HeldOut: &cost.Errors{L2: heldOut}}
	t.Exceeds = c.Precision.Limit().Exceeded(t.Cost.Network.Errors)
}

func TestWhatIsTooFarOffIsNotKept(t *testing.T) {
	c := late(time.Minute, five()...)
	c.Precision = settings.Precision{Allowed: settings.PrecisionBF16}
	c.taken = &calibration.Taken{Inputs: &measure.Inputs{Searched: measure.RandomInputs(1, 2),
		HeldOut: measure.RandomInputs(3, 6)}}
	offBy(c, graphLevelName, 0.5, 0.5)
	offBy(c, graphLevelName+" 2", 0.001, 0.011)
	offBy(c, operatorLevelName, 0.001, 0.009)
	best := c.bestFound(false)
	require.NotNil(t, best)
	assert.Equal(t, operatorLevelName, best.name, "the fastest of those that may be kept")

	for _, f := range c.finalists {
		c.holdToBudget(f)
	}
	chosen, _, err := c.choose()
	require.NoError(t, err)
	assert.Same(t, best, chosen)
	c.record(chosen)
	assert.Equal(t, &plan.Precision{Allowed: "bf16", MaxError: 0.01, Measure: "l2", Searched: 2, HeldOut: 6},
		c.plan.Precision)
	errors, failures := map[string]float64{}, map[string]string{}
	for _, f := range c.plan.Finalists {
		errors[f.Name] = f.Error
		if f.Failure != nil {
			assert.Equal(t, cost.KindOverBudget, f.Failure.Kind)
			failures[f.Name] = f.Failure.Detail
		}
	}
	assert.Equal(t, map[string]float64{"tvm": 0, "dnnl": 0, plan.PlacementName: 0.009, graphLevelName: 0.5,
		graphLevelName + " 2": 0.011}, errors)
	assert.Equal(t, map[string]string{graphLevelName: "its outputs are off by 0.5 (l2) where 0.01 is allowed",
		graphLevelName + " 2": "its outputs are off by 0.011 (l2) where 0.01 is allowed (on inputs that the search has " +
			"not seen)"}, failures)
}

func TestARunThatEndsBeforePlacingKeepsThePriceOfErrors(t *testing.T) {
	c := late(time.Minute, five()...)
	c.Precision = settings.Precision{Allowed: settings.PrecisionBF16}
	first, second := &plan.Lagrangian{Price: 1}, &plan.Lagrangian{Price: 2}
	c.graph.keep(&graphlevel.Result{Lagrangian: first})
	ended := &graphlevel.Result{Why: "6 networks were measured"}
	c.graph.keep(ended)
	assert.Same(t, ended, c.graph.result)
	assert.Same(t, first, c.precisionRecord().Lagrangian)
	c.graph.keep(&graphlevel.Result{Lagrangian: second})
	assert.Same(t, second, c.precisionRecord().Lagrangian)
}

func TestWhatWasNotMeasuredIsNotKeptWhereItIsNarrow(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	c := late(time.Minute, five()...)
	c.Precision = settings.Precision{Allowed: settings.PrecisionAuto}
	c.graph.result.Trials = nil
	f := c.finalists[3]
	c.holdToBudget(f)
	assert.Nil(t, f.failure, "all of it is computed in float32")
	f.plan.Regions[0].Backend = "openvino"
	f.plan.Regions[0].Candidates = []plan.Candidate{{}}
	require.False(t, c.narrow(f))
	c.quantised = true
	require.True(t, c.narrow(f), "what is rounded otherwise is a step off")
	c.quantised = false
	f.plan.Regions[0].Backend = "openvino_bf16"
	require.True(t, c.narrow(f))
	c.holdToBudget(f)
	require.NotNil(t, f.failure)
	assert.Equal(t, "how far its outputs are off was not measured", f.failure.Detail)
}

func TestAPrecisionNeedsTVMToBeHeldAgainst(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	c := &decision{}
	c.Precision, c.Backends = settings.Precision{Allowed: settings.PrecisionAuto}, []string{"openvino_bf16"}
	var wrong *settings.OptionError
	require.ErrorAs(t, c.offer(), &wrong)
	assert.Contains(t, wrong.Reason, "tvm is not among the backends")

	c.Backends, c.machine = []string{"tvm", "openvino_bf16"}, &placing.NotWholeError{}
	require.NoError(t, c.offer())
	assert.Equal(t, []string{"tvm"}, c.Backends)
	config := c.config()
	again, err := config.Offered(config.Backends)
	require.NoError(t, err)
	assert.Equal(t, []string{"tvm"}, again, "and network.Place does not offer it again")
	assert.Equal(t, []string{"All of it is computed in float32, without openvino_bf16: on TVM's virtual machine it is " +
		"not measured how far a network is off."}, c.notes)

	c.Precision, c.notes = settings.Precision{MaxError: 1e-6}, nil
	require.NoError(t, c.offer())
	assert.Equal(t, []string{"How far the network is off is not measured on TVM's virtual machine: only the tolerance of " +
		"candidates held."}, c.notes)
}

// Where time is short, what is too far off takes the place of nothing that may be kept.
func TestWhatIsTooFarOffTakesNobodysPlace(t *testing.T) {
	c := late(3*time.Second, five()...)
	c.Precision = settings.Precision{Allowed: settings.PrecisionBF16}
	offBy(c, graphLevelName, 0.5, 0.5)
	for _, f := range c.finalists {
		c.holdToBudget(f)
	}
	assert.True(t, c.afford())
	assert.Equal(t, []string{"tvm", graphLevelName, graphLevelName + " 2"}, namesOf(c), "it is told of, the next is run")
}

// Where nobody gave real inputs, what is kept in a narrow type comes with a word of what its error is worth, and one of
// its scales above all.
func TestRandomInputsAreSaid(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	narrow := func() *decision {
		c := late(time.Minute, five()...)
		c.taken = &calibration.Taken{Inputs: &measure.Inputs{Searched: measure.RandomInputs(1, 2)}}
		c.plan = &plan.Plan{Regions: []plan.Region{{Backend: "tvm"}, {Backend: "openvino+openvino_int8",
			Candidates: []plan.Candidate{{Backend: "openvino"}, {Backend: "openvino_int8"}}}}}
		return c
	}
	c := narrow()
	assert.Contains(t, c.randomNote(), "off was found on random inputs")
	c.plan.Regions[1].Rounded = []plan.Rounded{{Value: 3, Scale: 0.5}}
	assert.Contains(t, c.randomNote(), "scales of bytes were found on random inputs")
	c.sayRandom()
	assert.Equal(t, []string{c.randomNote()}, c.warnings, "Python's users see no notes")
	assert.Equal(t, c.warnings, c.notes)
	c = narrow()
	c.sayRandom()
	assert.Equal(t, []string{c.randomNote()}, c.notes)
	assert.Empty(t, c.warnings)
	for name, change := range map[string]func(c *decision){
		"real inputs":  func(c *decision) { c.taken.Digest = "0123456789ab" },
		"float32":      func(c *decision) { c.plan.Regions[1].Candidates[1].Backend = "openvino" },
		"no errors":    func(c *decision) { c.taken = nil },
		"not searched": func(c *decision) { c.graph = nil },
	} {
		c := narrow()
		change(c)
		assert.Empty(t, c.randomNote(), name)
	}
}
