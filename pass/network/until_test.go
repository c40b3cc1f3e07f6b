// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

// slow is an estimator that answers so many requests; then the time is over.
type slow struct {
	rig.Costs
	left int
	over context.CancelFunc
}

func (s *slow) Machine(context.Context, cost.Environment) (*bound.Machine, error) {
	return &bound.Machine{Flops: 1e9, Reads: []bound.Read{{Size: 1 << 20, Speed: 1e9}}}, nil
}

func (s *slow) Estimate(ctx context.Context, requests []cost.Request) ([]cost.Cost, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	within := min(s.left, len(requests))
	costs, err := s.Costs.Estimate(ctx, requests[:within])
	if s.left -= within; err == nil && within < len(requests) {
		s.over()
		costs, err = append(costs, make([]cost.Cost, len(requests)-within)...), ctx.Err()
	}
	return costs, err
}

// Where the time for measuring ends, the module is placed all the same, and the plan says what of it was not measured.
func TestPlaceEndsMeasuringInTime(t *testing.T) {
	rig.WithFamily(t, nil)
	known := map[int]int{}
	for _, left := range []int{0, 3, 1000} {
		until, over := context.WithCancel(t.Context())
		e := &slow{Costs: rig.Costs{Rule: rig.FamilyCosts}, left: left, over: over}
		module, p, err := Place(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host",
			"guest"}, Target: "llvm",
			Estimator: e, Context: t.Context(), Until: until})
		over()
		require.NoError(t, err, "%d in time", left)
		assert.NotNil(t, module)
		assert.Equal(t, string(settings.OperatorLevel), p.Level)
		c := p.Candidates
		known[left] = c.Given
		assert.LessOrEqual(t, c.Given, left)
		assert.Equal(t, left < 1000, c.Bounded+c.Given == c.Distinct && !p.Estimate.Optimal, "%d in time", left)
	}
	assert.Zero(t, known[0])
	assert.Equal(t, 3, known[3])
	assert.Greater(t, known[1000], 3)

	// Nobody's interrupt is taken for the end of the time.
	ctx, interrupt := context.WithCancel(t.Context())
	until, over := context.WithCancel(ctx)
	defer over()
	_, _, err := Place(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host",
		"guest"}, Target: "llvm",
		Estimator: &slow{Costs: rig.Costs{Rule: rig.FamilyCosts}, over: interrupt}, Context: ctx, Until: until})
	require.ErrorIs(t, err, context.Canceled)
}

// What the operator level places by costs in place is explained by these, and reports say what they rest on.
func TestPlansOfTheOperatorLevelAreExplainedByCostsInPlace(t *testing.T) {
	rig.WithFamily(t, nil)
	n, err := Explore(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host", "guest"},
		Target:    "llvm",
		Estimator: &rig.Costs{Rule: rig.FamilyCosts}}, nil)
	require.NoError(t, err)
	seeds := []graphlevel.Seed{{Name: "tvm", Placement: n.Plain()}, {Name: "guest", Placement: n.Single("guest")}}
	result, err := graphlevel.Search(t.Context(), n.Space, seeds, lanes{n},
		graphlevel.Options{PlaceOnly: true, Overhead: n.Overhead()})
	require.NoError(t, err)
	require.NotNil(t, result.Placed)
	assert.Len(t, result.Trials, 2, "what was placed is not run")
	p, err := n.Plan(result.Placed, result)
	require.NoError(t, err)
	require.True(t, p.PlacedInPlace())
	rivals, err := p.Closest(100)
	require.NoError(t, err)
	require.NotEmpty(t, rivals)
	for _, r := range rivals {
		assert.True(t, r.InPlace)
		assert.GreaterOrEqual(t, *r.Regret, 0.0)
	}
	selector, err := plan.ParseSelector("tanh")
	require.NoError(t, err)
	explained, err := p.Explain(selector)
	require.NoError(t, err)
	require.Len(t, explained, 1)
	of := explained[0]
	assert.True(t, of.InPlace)
	assert.Equal(t, p.Regions[of.Region].Candidates[0].Believed, of.Estimate)
	sum := 0.0
	for _, node := range of.Nodes {
		sum += node.Price
	}
	assert.Positive(t, sum)
	by := report.Summarise(p).PlacedBy
	require.NotNil(t, by)
	assert.Positive(t, by.InPlace)
	assert.Zero(t, by.Bounded)
}
