// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
)

// searched is a compilation whose graph level found scores by key.
func searched(scores map[string]float64, finalists ...*finalist) *decision {
	c := &decision{finalists: finalists, budget: budget.New(time.Minute, nil),
		graph: &graph{network: &module{}, result: &graphlevel.Result{Why: "enough"}, moments: map[string]plan.Moment{}}}
	c.Backends = []string{"tvm", "dnnl"}
	for _, f := range finalists {
		f.placement = &genome.Placement{Key: f.name}
		c.graph.result.Trials = append(c.graph.result.Trials,
			graphlevel.Trial{Name: "trial " + f.name, Placement: f.placement,
				Cost: cost.Cost{Samples: []float64{scores[f.name] * 10}}, Score: scores[f.name]})
	}
	c.reference = finalists[0]
	return c
}

// Whatever is kept (plain TVM, a backend alone, the operator level's placement, one of the search), the plan is its
// own, and the others stand in it as what they are.
func TestThePlanIsThatOfWhatWasKept(t *testing.T) {
	scores := map[string]float64{"tvm": 1, "dnnl": 0.9, operatorLevelName: 0.8, graphLevelName: 0.7, graphLevelName +
		" 2": 0.75}
	names := []string{"tvm", "dnnl", operatorLevelName, graphLevelName, graphLevelName + " 2"}
	for kept, wanted := range names {
		var finalists []*finalist
		for i, name := range names {
			ms := 10.0 + float64(i)
			if i == kept {
				ms = 5 // fresh samples decide, whatever the search thought
			}
			finalists = append(finalists, made(name, ms, i))
		}
		finalists[4].origin = "placed again"
		c := searched(scores, finalists...)
		chosen, _, err := c.choose()
		require.NoError(t, err)
		require.Same(t, finalists[kept], chosen)
		c.record(chosen)
		assert.Same(t, chosen.plan, c.plan, wanted)
		assert.Equal(t, kept, c.plan.Outlined(), wanted)
		called := wanted
		if kept > 1 {
			called = plan.PlacementName
		}
		require.NotNil(t, c.plan.Kept())
		assert.Equal(t, called, c.plan.Kept().Name)
		assert.Equal(t, c.plan.Outlined(), c.plan.Kept().Regions)
		for i, f := range c.plan.Finalists {
			assert.Equal(t, i, f.Regions, f.Name)
			if i != kept {
				assert.Equal(t, names[i], f.Name)
			}
		}
		require.NotNil(t, c.plan.GraphLevel)
		assert.Len(t, c.plan.GraphLevel.Networks, 5)
		assert.Equal(t, 0.9, c.plan.GraphLevel.Networks[1].Ratio)
		note := "5 networks were measured in the search."
		if kept == 4 {
			note = "The placement is placed again; " + note
		}
		assert.Equal(t, []string{note}, c.notes)
	}
}

func TestWhereThereIsSomethingToChoose(t *testing.T) {
	for _, of := range []struct {
		backends []string
		want     bool
	}{{[]string{"tvm", "dnnl"}, true}, {[]string{"tvm"}, false}, {[]string{"dnnl", "mkl"}, false}} {
		o := Options{Backends: of.backends}
		assert.Equal(t, of.want, o.chooses(), of)
	}
}

// Where the search's samples decide, plain TVM was not run again: it is no finalist that was never run.
func TestWhatWasNotRunIsNoFinalist(t *testing.T) {
	reference := made("tvm", 10, 0)
	reference.eligible, reference.cost = false, cost.Cost{}
	c := searched(map[string]float64{"tvm": 1, graphLevelName: 0.7}, reference, made(graphLevelName, 7, 2))
	c.finalists, c.settled = c.finalists[1:], true
	c.finalists[0].settled = true
	chosen, why, err := c.choose()
	require.NoError(t, err)
	assert.Equal(t, "The placement is kept: it is the fastest that was found.", why)
	c.record(chosen)
	require.Len(t, c.plan.Finalists, 1)
	assert.Equal(t, plan.PlacementName, c.plan.Finalists[0].Name)
}

// A placement that leaves everything to TVM is TVM alone: where that takes too much memory, it does.
func TestWhatIsTheSameAsWhatIsTooLargeIsTooLarge(t *testing.T) {
	tvm, same, dnnl := made("tvm", 10, 0), made(operatorLevelName, 10, 0), made("dnnl", 12, 3)
	same.sameAs = tvm
	c := searched(map[string]float64{}, tvm, same, dnnl)
	tvm.eligible = false
	c.tooLarge(tvm)
	chosen, _, err := c.choose()
	require.NoError(t, err)
	assert.Same(t, dnnl, chosen)
}

func TestWhyASearchEnded(t *testing.T) {
	c := searched(map[string]float64{"tvm": 1, "dnnl": 0.9}, made("tvm", 10, 0), made("dnnl", 9, 3))
	assert.Equal(t, "there was no time for another network", c.whyEnded())
	c.Trials = 2
	assert.Equal(t, "2 networks were measured", c.whyEnded())
	c.Ending = &Ending{}
	c.Ending.ready(true)
	c.Ending.End()
	assert.Equal(t, "it was interrupted", c.whyEnded())
}
