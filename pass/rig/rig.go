// SPDX-License-Identifier: Apache-2.0

// Package rig is for tests: backends, modules and costs that several packages' tests place.
package rig

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// Library is a backend of the tests.
type Library struct {
	Called  string
	Kinds   []byoc.Pattern
	State   byoc.Probe
	install error
}

func (l *Library) Name() string             { return l.Called }
func (l *Library) Description() string      { return "a library of the tests" }
func (l *Library) Level() byoc.Level        { return byoc.OperatorLevel }
func (l *Library) Compiler() string         { return l.Called }
func (l *Library) Patterns() []byoc.Pattern { return l.Kinds }
func (l *Library) TakesAnything() bool      { return false }
func (l *Library) MergesRegions() bool      { return false }
func (l *Library) Probe() byoc.Probe        { return l.State }
func (l *Library) Install() error           { return l.install }

// WithLibraries puts the backends of these tests beside the built-in ones.
func WithLibraries(t *testing.T) {
	t.Helper()
	require.NoError(t, builtin.RegisterAll())
	saved := byoc.All()
	t.Cleanup(byoc.Reset())
	for _, b := range saved {
		require.NoError(t, byoc.Register(b))
	}
	w := relay.Wildcard
	usable := byoc.Probe{Usable: true, Library: "testlib", Version: "1.0"}
	require.NoError(t, byoc.Register(&Library{Called: "lib", State: usable, Kinds: []byoc.Pattern{
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
	require.NoError(t, byoc.Register(&Library{Called: "absent",
		Kinds: []byoc.Pattern{{Composite: "tanh", Bare: true,
			Shape: relay.Op("tanh", w())}}, State: byoc.Probe{Reason: "libabsent.so is not there",
			Remedy: "pip install absent"}}))
}

const Layers = `def @main(%x: Tensor[(4, 32), float32], %w: Tensor[(32, 32), float32]) {
  %0 = nn.relu(nn.dense(%x, %w, units=None));
  %1 = nn.relu(nn.dense(%0, %w, units=None));
  %2 = tanh(%1);
  nn.softmax(%2)
}`

// Costs gives costs by a rule and counts what it is asked.
type Costs struct {
	Requests []cost.Request
	Built    int
	Err      error
	Rule     func(r cost.Request) cost.Cost
}

func (e *Costs) Estimate(_ context.Context, requests []cost.Request) ([]cost.Cost, error) {
	if e.Err != nil {
		return nil, e.Err
	}
	e.Requests = append(e.Requests, requests...)
	costs := make([]cost.Cost, len(requests))
	for i, r := range requests {
		w, err := r.Build()
		if err != nil {
			return nil, err
		}
		if len(w.Function) > 0 {
			e.Built++
		}
		costs[i] = e.Rule(r)
	}
	return costs, nil
}

// ByBackend costs each operator ms on its backend.
func ByBackend(ms map[string]float64) func(r cost.Request) cost.Cost {
	return func(r cost.Request) cost.Cost {
		return cost.FromMilliseconds(ms[r.Key.Backend] * float64(len(r.Candidate.Nodes)))
	}
}

// OperatorsOf says which function of the module has which operators.
func OperatorsOf(t *testing.T, mod *bridge.Object) map[string]string {
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
