// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

func TestTheCheapestPlacementIsTaken(t *testing.T) {
	rig.WithLibraries(t)
	mod := tvmtest.Parse(t, rig.Layers)
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	var stages []settings.Stage
	out, p, err := Partition(mod, settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Threads: 2,
		Estimator:  e,
		ModuleName: "layers", Progress: func(e settings.Event) {
			if len(stages) == 0 || stages[len(stages)-1] != e.Stage {
				stages = append(stages, e.Stage)
			}
		}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"main": "nn.softmax", "tvmgen_default_lib_main_0": "nn.dense nn.relu",
		"tvmgen_default_lib_main_1": "nn.dense nn.relu", "tvmgen_default_lib_main_2": "tanh"}, rig.OperatorsOf(t, out))
	assert.Equal(t, []settings.Stage{settings.StageRead, settings.StageCandidates, settings.StageMeasure,
		settings.StagePlace, settings.StageAnnotate}, stages)
	assert.Equal(t, "layers", p.Module.Name)
	assert.Len(t, p.Module.Hash, 16)
	assert.Equal(t, 5, p.Backend("lib").Operators)
	assert.Equal(t, 1, p.Backend("tvm").Operators)
	assert.InDelta(t, 7, p.Estimate.Milliseconds, 1e-9)
	assert.True(t, p.Estimate.Optimal)
	assert.Equal(t, len(e.Requests), e.Built)
	for _, r := range e.Requests {
		assert.Equal(t, 2, r.Key.Threads)
		assert.Equal(t, "0.19.0", r.Key.TVM)
		assert.Contains(t, r.Key.Target, "llvm -keys=cpu")
		if r.Key.Backend == "lib" {
			assert.Equal(t, "testlib 1.0", r.Key.Library)
		}
	}

	// The same again, byte for byte; and the module that went in is as it was.
	_, again, err := Partition(mod, settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Threads: 2,
		ModuleName: "layers",
		Estimator:  &rig.Costs{Rule: e.Rule}})
	require.NoError(t, err)
	first, err := p.Encode()
	require.NoError(t, err)
	second, err := again.Encode()
	require.NoError(t, err)
	assert.Equal(t, string(first), string(second))
	assert.Equal(t, "nn.dense nn.relu nn.dense nn.relu tanh nn.softmax", rig.OperatorsOf(t, mod)["main"])
	assert.NotNil(t, placing.LastTimings())

	out, _, err = Partition(mod, settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 1, "lib": 2})}})
	require.NoError(t, err)
	assert.Len(t, rig.OperatorsOf(t, out), 1, "all on TVM, inline")
}

func TestOnlyTakesAllThatABackendCan(t *testing.T) {
	rig.WithLibraries(t)
	out, p, err := Partition(tvmtest.Parse(t, rig.Layers), settings.Config{Only: "lib", Target: "llvm"})
	require.NoError(t, err)
	assert.Equal(t, "nn.softmax", rig.OperatorsOf(t, out)["main"])
	assert.Equal(t, 5, p.Backend("lib").Operators)
	assert.False(t, p.Estimate.Optimal, "nothing was estimated")
	out, _, err = Partition(tvmtest.Parse(t, rig.Layers), settings.Config{Only: "tvm", Target: "llvm"})
	require.NoError(t, err)
	assert.Len(t, rig.OperatorsOf(t, out), 1)
}

func TestFailedCandidatesAreNotPlaced(t *testing.T) {
	rig.WithLibraries(t)
	failing := func(r cost.Request) cost.Cost {
		if r.Key.Composite == "lib.dense_relu" {
			return cost.Cost{Failure: &cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: "by 1 %"}}
		}
		return rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})(r)
	}
	out, p, err := Partition(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "lib"},
		Target:    "llvm",
		Estimator: &rig.Costs{Rule: failing}})
	require.NoError(t, err)
	assert.Equal(t, "nn.relu nn.relu nn.softmax", rig.OperatorsOf(t, out)["main"])
	require.Len(t, p.Candidates.Failures, 1, "both are the same computation")
	assert.Equal(t, "by 1 %", p.Candidates.Failures[0].Failure.Detail)

	// What TVM builds but cannot run in time by itself stays on TVM if nobody else takes it.
	slow := func(r cost.Request) cost.Cost {
		if r.Key.Backend == "tvm" {
			return cost.Cost{Failure: &cost.Failure{Phase: "run", Kind: cost.KindTimeout}}
		}
		return cost.FromMilliseconds(1)
	}
	out, _, err = Partition(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: slow}})
	require.NoError(t, err)
	assert.Equal(t, "nn.softmax", rig.OperatorsOf(t, out)["main"])
}

func TestUncoveredOperatorsAreNamed(t *testing.T) {
	rig.WithLibraries(t)
	mod := tvmtest.Parse(t, `def @main(%x: Tensor[(4, 32), float32], %w: Tensor[(200, 32), float32]) {
  %0 = nn.dense(%x, %w, units=None);
  nn.softmax(tanh(nn.softmax(%0)))
}`)
	_, _, err := Partition(mod, settings.Config{Backends: []string{"lib"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.ByBackend(map[string]float64{"lib": 1})}})
	var uncovered *placing.UncoveredError
	require.ErrorAs(t, err, &uncovered)
	assert.Len(t, uncovered.Operators, 3)
	text := err.Error()
	for _, want := range []string{"the backends lib cannot run", "3 of its operators", "nn.softmax (", "test.relay:4:",
		"nn.dense (",
		"test.relay:3:", "lib: more than 100 outputs", "Add tvm"} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "tanh")
	assert.ErrorContains(t, AsPythonError(err), "ValueError: the backends lib")
}

func TestBackendsThatCannotBeUsed(t *testing.T) {
	rig.WithLibraries(t)
	mod := tvmtest.Parse(t, rig.Layers)
	_, _, err := network.Place(mod, settings.Config{Backends: []string{"tvm", "absent"}})
	var unusable *settings.UnusableError
	require.ErrorAs(t, err, &unusable)
	assert.ErrorContains(t, err, "libabsent.so is not there: pip install absent")
	_, _, err = network.Place(mod, settings.Config{Backends: []string{"tvm", "libb"}})
	var unknown *byoc.UnknownBackendError
	require.ErrorAs(t, err, &unknown)
	assert.ErrorContains(t, err, `did you mean "lib"?`)
}

func TestErrorsOfTheEstimatorEndTheSearch(t *testing.T) {
	rig.WithLibraries(t)
	_, _, err := Partition(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &rig.Costs{Err: context.Canceled}})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNothingIsKnown(t *testing.T) {
	rig.WithLibraries(t)
	_, _, err := Partition(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: func(cost.Request) cost.Cost { return cost.Cost{} }}})
	var uncovered *placing.UncoveredError
	require.ErrorAs(t, err, &uncovered)
}

func TestIdenticalPartsHaveOneKey(t *testing.T) {
	rig.WithLibraries(t)
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	_, _, err := Partition(tvmtest.Parse(t, rig.Layers),
		settings.Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Estimator: e})
	require.NoError(t, err)
	times := map[cost.Key]int{}
	for _, r := range e.Requests {
		times[r.Key]++
		assert.False(t, math.IsNaN(e.Rule(r).Estimate()))
	}
	repeated := 0
	for key, n := range times {
		if key.Composite == "lib.dense_relu" {
			assert.Equal(t, 1, n, "asked for once")
			repeated++
		}
	}
	assert.Equal(t, 1, repeated)
}

func TestNormalise(t *testing.T) {
	mod := tvmtest.Parse(t, `def @main(%x: Tensor[(4, 32), float32]) -> Tensor[(4, 32), float32] {
  %0 = nn.dropout(%x);
  %0.0
}
def @unused(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { tanh(%x) }`)
	out, err := normalise.Normalise(mod, normalise.Options{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"main": ""}, rig.OperatorsOf(t, out))
	kept, err := normalise.Normalise(mod, normalise.Options{DisabledPasses: []string{"SimplifyInference"}})
	require.NoError(t, err)
	assert.Equal(t, "nn.dropout", rig.OperatorsOf(t, kept)["main"])
	assert.Equal(t, "nn.dropout", rig.OperatorsOf(t, mod)["main"])
}

func TestConfigIsChecked(t *testing.T) {
	cfg, err := settings.ParseConfig(`{"backends": ["tvm"], "threads": 2, "opt_level": 2}`)
	require.NoError(t, err)
	assert.Equal(t, []string{"tvm"}, cfg.Backends)
	assert.Equal(t, 2, *cfg.OptLevel)
	require.NoError(t, cfg.Validate())
	_, err = settings.ParseConfig("")
	require.NoError(t, err)
	var option *settings.OptionError
	_, err = settings.ParseConfig(`{"thread": 2}`)
	require.ErrorAs(t, err, &option)
	assert.ErrorContains(t, err, "thread")
	require.ErrorAs(t, (&settings.Config{Threads: -1}).Validate(), &option)
	require.ErrorAs(t, (&settings.Config{Samples: -1}).Validate(), &option)
	require.ErrorAs(t, (&settings.Config{Backends: []string{"tvm", ""}}).Validate(), &option)
	require.NoError(t, (&settings.Config{Backends: []string{}}).Validate(), "the default ones")
}

func TestOptionsThatDoNotGoWithTheGraphLevel(t *testing.T) {
	require.NoError(t, builtin.RegisterAll())
	for want, config := range map[string]settings.Config{
		"the option only leaves the graph level nothing": {Level: settings.GraphLevel, Only: "dnnl"},
		"the option level is \"both\"":                   {Level: "both"},
		"trials or rounds is below 0":                    {Trials: -1},
		"costs that are given go with level": {Level: settings.GraphLevel,
			Estimator: cost.Estimator(nothing{})},
	} {
		err := config.Validate()
		if err == nil {
			_, _, err = Partition(nil, config)
		}
		var option *settings.OptionError
		require.ErrorAs(t, err, &option, want)
		assert.ErrorContains(t, err, want)
	}
}

// nothing is an estimator that is never asked.
type nothing struct{ cost.Estimator }
