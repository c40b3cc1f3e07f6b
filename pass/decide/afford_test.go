// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/lane"
)

// late is a decision that has so much time left, of a minute, for finalists that each take a second to be run.
func late(left time.Duration, finalists ...*finalist) *decision {
	c := searched(map[string]float64{"tvm": 1, "dnnl": 0.9, operatorLevelName: 0.8, graphLevelName: 0.7,
		graphLevelName + " 2": 0.75}, finalists...)
	now := time.Unix(0, 0)
	c.budget = budget.New(time.Minute, func() time.Time { return now })
	for range 3 {
		c.budget.Ran(3*time.Second, 2*time.Second) // of which two for the profile
	}
	now = now.Add(time.Minute - left)
	return c
}

func namesOf(c *decision) []string {
	var names []string
	for _, f := range c.finalists {
		names = append(names, f.name)
	}
	return names
}

func five() []*finalist {
	return []*finalist{made("tvm", 10, 0), made("dnnl", 9, 3), made(operatorLevelName, 8, 4),
		made(graphLevelName, 7, 5),
		made(graphLevelName+" 2", 7.5, 6)}
}

// The finalists that there is no time for are the slowest of the search; plain TVM and the best are never among them, and
// the best single backend only where there is time for no third.
func TestFinalistsThatThereIsTimeFor(t *testing.T) {
	for seconds, want := range map[int][]string{
		30: {"tvm", "dnnl", operatorLevelName, graphLevelName, graphLevelName + " 2"},
		5:  {"tvm", "dnnl", graphLevelName, graphLevelName + " 2"},
		4:  {"tvm", "dnnl", graphLevelName},
		3:  {"tvm", graphLevelName},
		0:  {"tvm", graphLevelName},
	} {
		c := late(time.Duration(seconds)*time.Second, five()...)
		isTime := c.afford()
		assert.Equal(t, want, namesOf(c), seconds)
		assert.Equal(t, seconds > 0, isTime, "with no second there is no time to run even these")
		if seconds == 5 {
			assert.Equal(t, []string{"There was no time to run the operator level's placement again: in the search that " +
				"was no better."}, c.notes)
		}
	}

	// Where only plain TVM can be run, no time is missing.
	failed := made("dnnl", 9, 3)
	failed.failure = &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no"}
	assert.True(t, late(0, made("tvm", 10, 0), failed).afford())

	// What the search never came to is not called slow.
	unknown := made("mkl", 1, 1)
	c := late(0, append(five(), unknown)...)
	c.graph.result.Trials = c.graph.result.Trials[:5]
	c.afford()
	assert.Contains(t, c.notes, "There was no time to build mkl alone.")
	assert.NotContains(t, namesOf(c), "mkl")
}

func TestRoundsThatThereIsTimeFor(t *testing.T) {
	c := late(time.Minute, five()...)
	c.Rounds = 20
	assert.Equal(t, 20, c.affordableRounds())
	for i := range c.graph.result.Trials {
		c.graph.result.Trials[i].Cost.Samples = []float64{600}
	}
	assert.Equal(t, 19, c.affordableRounds(), "three seconds a round, and half a second of loading for each")
	c.Rounds = 7
	assert.Equal(t, 7, c.affordableRounds())
	c = late(time.Second, five()...)
	c.Rounds = 20
	for i := range c.graph.result.Trials {
		c.graph.result.Trials[i].Cost.Samples = []float64{600}
	}
	assert.Equal(t, leastRounds, c.affordableRounds())
	c = late(100*time.Second, five()...)
	c.Rounds = 100
	for i := range c.graph.result.Trials {
		c.graph.result.Trials[i].Cost.Samples = []float64{1000, 1000, 1000}
	}
	few := c.affordableRounds()
	c.graph.result.Trials[0].Cost.Samples = []float64{2000, 2000, 2000}
	assert.Less(t, few, c.affordableRounds(), "what is hopeless runs in few of the rounds, however long it takes")
	c.graph = nil
	assert.Equal(t, 100, c.affordableRounds(), "the operator level has no limit")
}

func TestTheBestThatWasFoundNeedNotBeBuilt(t *testing.T) {
	c := late(0, five()...)
	best := c.bestFound(false)
	require.NotNil(t, best, "the store told of them all")
	for _, f := range c.finalists {
		assert.GreaterOrEqual(t, c.scoreOf(f), c.scoreOf(best), f.name)
	}
	assert.NotEqual(t, "tvm", best.name)
	assert.Nil(t, c.bestFound(true), "nothing was built in this run")
}

// brittle is a lane that has built nothing and cannot build the placements with these keys.
type brittle struct {
	someLane
	broken map[string]bool
}

func (b brittle) Built(*genome.Placement) bool { return false }

func (b brittle) Executable(_ context.Context, p *genome.Placement) (*lane.Executable, error) {
	if b.broken[p.Key] {
		return &lane.Executable{Failure: &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no memory"}}, nil
	}
	return &lane.Executable{Path: p.Key + ".tar"}, nil
}

func TestWhatCannotBeBuiltAtTheEndIsToldOf(t *testing.T) {
	c := late(0, five()...)
	best := c.bestFound(false)
	c.graph.lane = brittle{broken: map[string]bool{best.placement.Key: true}}
	require.True(t, c.keepBest())
	require.Len(t, c.finalists, 1)
	assert.NotEqual(t, best.name, c.finalists[0].name)
	assert.Contains(t, c.notes, best.name+" was the fastest of the search, but could not be built at the end: no memory.")

	assert.Contains(t, c.notes,
		"It was chosen by the search's own samples: there was no time to run the best networks again.")
	assert.NotContains(t, strings.Join(c.lasting(), " "), "no time", "its plan is the same from a warm store")
	assert.NotEmpty(t, c.lasting())

	c = late(0, five()...)
	all := map[string]bool{}
	for _, f := range c.finalists {
		all[f.placement.Key] = true
	}
	c.graph.lane = brittle{broken: all}
	assert.False(t, c.keepBest(), "there is none")
}
