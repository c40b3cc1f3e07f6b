// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// inPlace are what operators take where they stand: the costs by which candidates are known alone say that all of it is
// best on "two".
var inPlace = map[string]map[string]float64{"exp": {"tvm": 2, "one": 0.1, "two": 1},
	"tanh": {"tvm": 2, "one": 1, "two": 0.1}, "sqrt": {"tvm": 2, "one": 1, "two": 0.1}}

// atOperators prepares a compilation of the simulation at the operator level.
func atOperators(t *testing.T, p *pace, total time.Duration, store string) (*decision, *works) {
	t.Helper()
	c, w := prepare(t, p, total, store)
	c.Level, w.parts = settings.OperatorLevel, inPlace
	return c, w
}

func names(trials []graphlevel.Trial) (list []string) {
	for i := range trials {
		list = append(list, trials[i].Name)
	}
	return list
}

// The operator level places once, by what parts take in every backend alone, with what was measured alone between.
func TestTheOperatorLevelPlacesOnceByCostsInPlace(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second, learn: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := atOperators(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
		c.Trials = 1 // which is the graph level's
		require.NoError(t, c.searchOpened())
		assert.Equal(t, []string{"tvm", "two", "one", "feedback 1"}, names(c.graph.result.Trials))
		placed := c.graph.result.Trials[3]
		assert.InDelta(t, 6, placed.Cost.Estimate(), 1e-9, "each operator where it is the fastest in place")
		require.Len(t, w.net.log, 5)
		assert.Equal(t, []string{"candidates alone", placed.Placement.Key}, w.net.log[3:])
		assert.Equal(t, []bool{false}, w.net.likelyOnly, "its proof rests on all that might gain something")
		assert.Equal(t, "the operator level places once", c.graph.result.Why)
		var finalists []string
		for _, f := range c.finalists {
			finalists = append(finalists, f.name)
		}
		assert.Equal(t, []string{"tvm", "one", "two", plan.PlacementName}, finalists)
		assert.Equal(t, placed.Placement.Key, c.finalists[3].placement.Key)
	})
}

// A network on several backends that was run on the way is the placement where it proved to be faster than what was
// placed, or where there was no time to run that; a backend alone stands for itself.
func TestTheFasterPlacementIsTheOperatorLevels(t *testing.T) {
	for _, of := range []struct {
		placed       float64 // its score; 0: there was no time
		want, origin string
	}{{0.6, "placed", ""}, {0.8, "together", "trial together"}, {0, "together", "trial together"}} {
		scores := map[string]float64{"tvm": 1, "dnnl": 0.5, "together": 0.7, "placed": of.placed}
		c := searched(scores, made("tvm", 10, 0), made("dnnl", 5, 1), made("together", 7, 1), made("placed", 8, 2))
		r := c.graph.result
		r.Placed = r.Trials[3].Placement
		if of.placed == 0 {
			r.Trials = r.Trials[:3]
		}
		c.finalists = c.finalists[:2]
		p, origin := c.placedInContext()
		assert.Equal(t, of.want, p.Key, of)
		assert.Equal(t, of.origin, origin, of)
	}
}

// Where what was asked for leaves one network, that one is run, or nothing would tell whether it answers right.
func TestTheOneNetworkIsRunAtTheOperatorLevel(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := prepareWith(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"), library("tvm"),
			library("one"), library("two"))
		c.Level, w.parts, c.Settle = settings.OperatorLevel, inPlace, true
		c.Backends, c.Pin = []string{"tvm", "two"}, []string{"exp=two"}
		w.net.only = "two"
		require.NoError(t, c.searchOpened())
		assert.Contains(t, w.net.log, w.net.Alone("two").Key)
		assert.NotEmpty(t, c.graph.result.Trials)
	})
}

// A plan is of the same placement, which is then not run.
func TestAPlanIsOfTheOperatorLevelsPlacement(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second, learn: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "costs.jsonl")
		c, w := atOperators(t, p, time.Minute, store)
		c.placeOnly, c.Settle = true, true
		decided, err := c.planOpened()
		require.NoError(t, err)
		assert.Len(t, w.builds, 3, "plain TVM and two backends alone")
		assert.Equal(t, []string{"tvm", "two", "one"}, names(c.graph.result.Trials))
		assert.Len(t, decided.Plan.GraphLevel.Networks, 3)
		run, _ := atOperators(t, p, time.Minute, store)
		require.NoError(t, run.searchOpened())
		assert.Equal(t, run.graph.result.Trials[3].Placement.Key, c.graph.result.Placed.Key)
	})
}

// What the store knows takes no time: however short that is, the same is placed, and nothing is built.
func TestAWarmStoreNeedsNoMeasuringAtTheOperatorLevel(t *testing.T) {
	p := &pace{build: 5 * time.Second, run: time.Second, start: time.Second}
	synctest.Test(t, func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "costs.jsonl")
		first, _ := atOperators(t, p, 2*time.Minute, store)
		first.Settle = true
		require.NoError(t, first.searchOpened())
		second, w := atOperators(t, p, 2*time.Second, store)
		second.Settle = true
		require.NoError(t, second.searchOpened())
		assert.Empty(t, w.builds)
		assert.Equal(t, names(first.graph.result.Trials), names(second.graph.result.Trials))
		key := func(c *decision) string { return c.finalists[len(c.finalists)-1].placement.Key }
		assert.Equal(t, key(first), key(second))
	})
}

// The operator level keeps to the time as the graph level does, and what was placed has no finalist where there was no
// time to run it.
func TestTheOperatorLevelEndsInTime(t *testing.T) {
	late, inTime, unrun := 0, 0, 0
	for _, p := range []*pace{
		{build: 2 * time.Second, run: 400 * time.Millisecond, start: time.Second, learn: time.Minute},
		{build: 6 * time.Second, run: time.Second, start: 2 * time.Second, learn: 3 * time.Second, straggler: 3},
		{build: 12 * time.Second, run: 5 * time.Second, start: 3 * time.Second, learn: time.Hour, straggler: 2},
	} {
		for _, seconds := range []int{5, 10, 15, 20, 25, 30, 45, 60, 90, 120, 300} {
			synctest.Test(t, func(t *testing.T) {
				began, total := time.Now(), time.Duration(seconds)*time.Second
				c, w := atOperators(t, p, total, filepath.Join(t.TempDir(), "costs.jsonl"))
				require.NoError(t, c.searchOpened())
				decided, err := c.conclude()
				require.NoError(t, err)
				time.Sleep(250 * time.Millisecond)
				took := time.Since(began)
				what := fmt.Sprintf("%+v, %d s: took %v; %s; %v", *p, seconds, took, decided.Why, decided.Notes)
				assert.Contains(t, w.built, decided.Path, what)
				fits := c.graph.firstDone+c.budget.Writing() <= total
				if fits {
					assert.LessOrEqual(t, took, total, what)
					inTime++
				} else {
					late++
				}
				assert.Equal(t, !fits, slices.ContainsFunc(decided.Notes, isOverrun), what)
				if !slices.Contains(names(c.graph.result.Trials), "feedback 1") {
					unrun++
				}
			})
		}
	}
	assert.Greater(t, late, 4)
	assert.Greater(t, inTime, 15)
	assert.Greater(t, unrun, 4)
	assert.Less(t, unrun, 25)
}
