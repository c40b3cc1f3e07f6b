// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
)

// searched is a compilation whose graph level found scores by key.
func searched(scores map[string]float64, finalists ...*finalist) *compilation {
	c := &compilation{finalists: finalists, graph: &graph{result: &graphlevel.Result{Why: "enough"}}}
	c.Backends = []string{"tvm", "dnnl"}
	for _, f := range finalists {
		f.placement = &genome.Placement{Key: f.name}
		c.graph.result.Trials = append(c.graph.result.Trials, graphlevel.Trial{Name: "trial " + f.name, Placement: f.placement,
			Cost: cost.Cost{Samples: []float64{scores[f.name] * 10}}, Score: scores[f.name]})
	}
	c.reference = finalists[0]
	return c
}

func TestThePlacementIsTheOneThatWasChosen(t *testing.T) {
	scores := map[string]float64{"tvm": 1, "dnnl": 0.9, operatorLevelName: 0.8, graphLevelName: 0.7, graphLevelName + " 2": 0.75}
	c := searched(scores, made("tvm", 10, 0), made("dnnl", 9, 3), made(operatorLevelName, 8, 4), made(graphLevelName, 7, 5),
		made(graphLevelName+" 2", 6, 6))
	c.finalists[4].origin = "evolved 7 (merge)"
	chosen, why, err := c.choose()
	require.NoError(t, err)
	assert.Equal(t, plan.PlacementName, chosen.name, "whatever the search thought, fresh samples decide")
	assert.Same(t, c.finalists[4], chosen)
	assert.Same(t, chosen.plan, c.plan)
	assert.Equal(t, "The placement is kept: it is the fastest; the next, the graph level's placement, takes 1.17 times as long.", why)
	assert.Equal(t, []string{"The placement is evolved 7 (merge); 5 networks were measured in the search."}, c.notes)
	require.NotNil(t, c.plan.GraphLevel)
	assert.Len(t, c.plan.GraphLevel.Networks, 5)
	assert.Equal(t, 0.9, c.plan.GraphLevel.Networks[1].Ratio)
}

func TestWhereABackendAloneWinsTheStoreSaysWhatThePlanIs(t *testing.T) {
	scores := map[string]float64{"tvm": 1, "dnnl": 0.5, operatorLevelName: 0.8, graphLevelName: 0.7}
	for _, times := range [][2]float64{{8, 7}, {7, 8}} {
		c := searched(scores, made("tvm", 10, 0), made("dnnl", 5, 3), made(operatorLevelName, times[0], 4), made(graphLevelName, times[1], 5))
		chosen, _, err := c.choose()
		require.NoError(t, err)
		assert.Equal(t, "dnnl", chosen.name)
		assert.Same(t, c.finalists[3].plan, c.plan)
		assert.Equal(t, plan.PlacementName, c.finalists[3].name)
	}
}

func TestWhatTheGraphLevelNeeds(t *testing.T) {
	for _, of := range []struct {
		level    Level
		backends []string
		want     bool
	}{{"", []string{"tvm", "dnnl"}, true}, {OperatorLevel, []string{"tvm", "dnnl"}, false}, {GraphLevel, []string{"tvm"}, false},
		{GraphLevel, []string{"dnnl", "mkl"}, false}} {
		c := &compilation{Options: Options{Level: of.level, Backends: of.backends}}
		assert.Equal(t, of.want, c.searchesGraph(), of)
	}
}
