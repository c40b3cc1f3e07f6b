// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// library is a backend of the tests.
type testLibrary struct {
	name     string
	patterns []byoc.Pattern
	probe    byoc.Probe
	install  error
}

func (l *testLibrary) Name() string             { return l.name }
func (l *testLibrary) Description() string      { return "a library of the tests" }
func (l *testLibrary) Level() byoc.Level        { return byoc.OperatorLevel }
func (l *testLibrary) Compiler() string         { return l.name }
func (l *testLibrary) Patterns() []byoc.Pattern { return l.patterns }
func (l *testLibrary) TakesAnything() bool      { return false }
func (l *testLibrary) MergesRegions() bool      { return false }
func (l *testLibrary) Probe() byoc.Probe        { return l.probe }
func (l *testLibrary) Install() error           { return l.install }

// withLibraries puts the backends of these tests beside the built-in ones.
func withLibraries(t *testing.T) {
	t.Helper()
	require.NoError(t, builtin.RegisterAll())
	saved := byoc.All()
	t.Cleanup(byoc.Reset())
	for _, b := range saved {
		require.NoError(t, byoc.Register(b))
	}
	w := relay.Wildcard
	usable := byoc.Probe{Usable: true, Library: "testlib", Version: "1.0"}
	require.NoError(t, byoc.Register(&testLibrary{name: "lib", probe: usable, patterns: []byoc.Pattern{
		{Composite: "lib.dense_relu", Shape: relay.Op("nn.relu", relay.Op("nn.dense", w(), w()))},
		{Composite: "lib.dense", Shape: relay.Op("nn.dense", w(), w()),
			Limits: func(g *relay.Graph, m *relay.Match) error {
				if g.Nodes[m.Root].Type.Shape[1] > 100 {
					return errors.New("more than 100 outputs")
				}
				return nil
			}, LimitsText: "at most 100 outputs"},
		{Composite: "tanh", Bare: true, Shape: relay.Op("tanh", w())},
	}}))
	require.NoError(t, byoc.Register(&testLibrary{name: "absent",
		patterns: []byoc.Pattern{{Composite: "tanh", Bare: true,
			Shape: relay.Op("tanh", w())}}, probe: byoc.Probe{Reason: "libabsent.so is not there",
			Remedy: "pip install absent"}}))
}

const layers = `def @main(%x: Tensor[(4, 32), float32], %w: Tensor[(32, 32), float32]) {
  %0 = nn.relu(nn.dense(%x, %w, units=None));
  %1 = nn.relu(nn.dense(%0, %w, units=None));
  %2 = tanh(%1);
  nn.softmax(%2)
}`

// estimator gives costs by a rule and counts what it is asked.
type estimator struct {
	requests []cost.Request
	built    int
	err      error
	rule     func(r cost.Request) cost.Cost
}

func (e *estimator) Estimate(_ context.Context, requests []cost.Request) ([]cost.Cost, error) {
	if e.err != nil {
		return nil, e.err
	}
	e.requests = append(e.requests, requests...)
	costs := make([]cost.Cost, len(requests))
	for i, r := range requests {
		w, err := r.Build()
		if err != nil {
			return nil, err
		}
		if len(w.Function) > 0 {
			e.built++
		}
		costs[i] = e.rule(r)
	}
	return costs, nil
}

// byBackend costs each operator ms on its backend.
func byBackend(ms map[string]float64) func(r cost.Request) cost.Cost {
	return func(r cost.Request) cost.Cost {
		return cost.FromMilliseconds(ms[r.Key.Backend] * float64(len(r.Candidate.Nodes)))
	}
}

// placement says which function of the module has which operators.
func placement(t *testing.T, mod *bridge.Object) map[string]string {
	t.Helper()
	m, err := relay.Read(mod)
	require.NoError(t, err)
	found := map[string]string{}
	for _, g := range m.Functions {
		var operators []string
		for _, n := range g.Nodes {
			if n.Op != "" {
				operators = append(operators, n.Op)
			}
		}
		found[g.Name] = strings.Join(operators, " ")
	}
	return found
}

func TestTheCheapestPlacementIsTaken(t *testing.T) {
	withLibraries(t)
	mod := tvmtest.Parse(t, layers)
	e := &estimator{rule: byBackend(map[string]float64{"tvm": 2, "lib": 1})}
	var stages []Stage
	out, p, err := Partition(mod, Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Threads: 2, Estimator: e,
		ModuleName: "layers", Progress: func(e Event) {
			if len(stages) == 0 || stages[len(stages)-1] != e.Stage {
				stages = append(stages, e.Stage)
			}
		}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"main": "nn.softmax", "tvmgen_default_lib_main_0": "nn.dense nn.relu",
		"tvmgen_default_lib_main_1": "nn.dense nn.relu", "tvmgen_default_lib_main_2": "tanh"}, placement(t, out))
	assert.Equal(t, []Stage{StageRead, StageCandidates, StageMeasure, StagePlace, StageAnnotate}, stages)
	assert.Equal(t, "layers", p.Module.Name)
	assert.Len(t, p.Module.Hash, 16)
	assert.Equal(t, 5, p.Backend("lib").Operators)
	assert.Equal(t, 1, p.Backend("tvm").Operators)
	assert.InDelta(t, 7, p.Estimate.Milliseconds, 1e-9)
	assert.True(t, p.Estimate.Optimal)
	assert.Equal(t, len(e.requests), e.built)
	for _, r := range e.requests {
		assert.Equal(t, 2, r.Key.Threads)
		assert.Equal(t, "0.19.0", r.Key.TVM)
		assert.Contains(t, r.Key.Target, "llvm -keys=cpu")
		if r.Key.Backend == "lib" {
			assert.Equal(t, "testlib 1.0", r.Key.Library)
		}
	}

	// The same again, byte for byte; and the module that went in is as it was.
	_, again, err := Partition(mod, Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Threads: 2,
		ModuleName: "layers",
		Estimator:  &estimator{rule: e.rule}})
	require.NoError(t, err)
	first, err := p.Encode()
	require.NoError(t, err)
	second, err := again.Encode()
	require.NoError(t, err)
	assert.Equal(t, string(first), string(second))
	assert.Equal(t, "nn.dense nn.relu nn.dense nn.relu tanh nn.softmax", placement(t, mod)["main"])
	assert.NotNil(t, LastTimings())

	out, _, err = Partition(mod, Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &estimator{rule: byBackend(map[string]float64{"tvm": 1, "lib": 2})}})
	require.NoError(t, err)
	assert.Len(t, placement(t, out), 1, "all on TVM, inline")
}

func TestOnlyTakesAllThatABackendCan(t *testing.T) {
	withLibraries(t)
	out, p, err := Partition(tvmtest.Parse(t, layers), Config{Only: "lib", Target: "llvm"})
	require.NoError(t, err)
	assert.Equal(t, "nn.softmax", placement(t, out)["main"])
	assert.Equal(t, 5, p.Backend("lib").Operators)
	assert.False(t, p.Estimate.Optimal, "nothing was estimated")
	out, _, err = Partition(tvmtest.Parse(t, layers), Config{Only: "tvm", Target: "llvm"})
	require.NoError(t, err)
	assert.Len(t, placement(t, out), 1)
}

func TestFailedCandidatesAreNotPlaced(t *testing.T) {
	withLibraries(t)
	failing := func(r cost.Request) cost.Cost {
		if r.Key.Composite == "lib.dense_relu" {
			return cost.Cost{Failure: &cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: "by 1 %"}}
		}
		return byBackend(map[string]float64{"tvm": 2, "lib": 1})(r)
	}
	out, p, err := Partition(tvmtest.Parse(t, layers), Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &estimator{rule: failing}})
	require.NoError(t, err)
	assert.Equal(t, "nn.relu nn.relu nn.softmax", placement(t, out)["main"])
	require.Len(t, p.Candidates.Failures, 1, "both are the same computation")
	assert.Equal(t, "by 1 %", p.Candidates.Failures[0].Failure.Detail)

	// What TVM builds but cannot run in time by itself stays on TVM if nobody else takes it.
	slow := func(r cost.Request) cost.Cost {
		if r.Key.Backend == "tvm" {
			return cost.Cost{Failure: &cost.Failure{Phase: "run", Kind: cost.KindTimeout}}
		}
		return cost.FromMilliseconds(1)
	}
	out, _, err = Partition(tvmtest.Parse(t, layers), Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &estimator{rule: slow}})
	require.NoError(t, err)
	assert.Equal(t, "nn.softmax", placement(t, out)["main"])
}

func TestUncoveredOperatorsAreNamed(t *testing.T) {
	withLibraries(t)
	mod := tvmtest.Parse(t, `def @main(%x: Tensor[(4, 32), float32], %w: Tensor[(200, 32), float32]) {
  %0 = nn.dense(%x, %w, units=None);
  nn.softmax(tanh(nn.softmax(%0)))
}`)
	_, _, err := Partition(mod, Config{Backends: []string{"lib"}, Target: "llvm",
		Estimator: &estimator{rule: byBackend(map[string]float64{"lib": 1})}})
	var uncovered *UncoveredError
	require.ErrorAs(t, err, &uncovered)
	assert.Len(t, uncovered.Operators, 3)
	text := err.Error()
	for _, want := range []string{"the backends lib cannot run", "3 of its operators", "nn.softmax (", "test.relay:4:",
		"nn.dense (",
		"test.relay:3:", "lib: more than 100 outputs", "Add tvm"} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, "tanh")
	assert.ErrorContains(t, asPythonError(err), "ValueError: the backends lib")
}

func TestBackendsThatCannotBeUsed(t *testing.T) {
	withLibraries(t)
	mod := tvmtest.Parse(t, layers)
	_, _, err := Place(mod, Config{Backends: []string{"tvm", "absent"}})
	var unusable *UnusableError
	require.ErrorAs(t, err, &unusable)
	assert.ErrorContains(t, err, "libabsent.so is not there: pip install absent")
	_, _, err = Place(mod, Config{Backends: []string{"tvm", "libb"}})
	var unknown *byoc.UnknownBackendError
	require.ErrorAs(t, err, &unknown)
	assert.ErrorContains(t, err, `did you mean "lib"?`)
}

func TestErrorsOfTheEstimatorEndTheSearch(t *testing.T) {
	withLibraries(t)
	_, _, err := Partition(tvmtest.Parse(t, layers), Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &estimator{err: context.Canceled}})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestNothingIsKnown(t *testing.T) {
	withLibraries(t)
	_, _, err := Partition(tvmtest.Parse(t, layers), Config{Backends: []string{"tvm", "lib"}, Target: "llvm",
		Estimator: &estimator{rule: func(cost.Request) cost.Cost { return cost.Cost{} }}})
	var uncovered *UncoveredError
	require.ErrorAs(t, err, &uncovered)
}

func TestIdenticalPartsHaveOneKey(t *testing.T) {
	withLibraries(t)
	e := &estimator{rule: byBackend(map[string]float64{"tvm": 2, "lib": 1})}
	_, _, err := Partition(tvmtest.Parse(t, layers),
		Config{Backends: []string{"tvm", "lib"}, Target: "llvm", Estimator: e})
	require.NoError(t, err)
	times := map[cost.Key]int{}
	for _, r := range e.requests {
		times[r.Key]++
		assert.False(t, math.IsNaN(e.rule(r).Estimate()))
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
	out, err := Normalise(mod, NormaliseOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"main": ""}, placement(t, out))
	kept, err := Normalise(mod, NormaliseOptions{DisabledPasses: []string{"SimplifyInference"}})
	require.NoError(t, err)
	assert.Equal(t, "nn.dropout", placement(t, kept)["main"])
	assert.Equal(t, "nn.dropout", placement(t, mod)["main"])
}

func TestConfigIsChecked(t *testing.T) {
	cfg, err := ParseConfig(`{"backends": ["tvm"], "threads": 2, "opt_level": 2}`)
	require.NoError(t, err)
	assert.Equal(t, []string{"tvm"}, cfg.Backends)
	assert.Equal(t, 2, *cfg.OptLevel)
	require.NoError(t, cfg.Validate())
	_, err = ParseConfig("")
	require.NoError(t, err)
	var option *OptionError
	_, err = ParseConfig(`{"thread": 2}`)
	require.ErrorAs(t, err, &option)
	assert.ErrorContains(t, err, "thread")
	require.ErrorAs(t, (&Config{Threads: -1}).Validate(), &option)
	require.ErrorAs(t, (&Config{Samples: -1}).Validate(), &option)
	require.ErrorAs(t, (&Config{Backends: []string{"tvm", ""}}).Validate(), &option)
	require.NoError(t, (&Config{Backends: []string{}}).Validate(), "the default ones")
}
