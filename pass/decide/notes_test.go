// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/settings"
)

// What a search could not learn is told once, however often it is begun, to those too who do not see its progress: it
// is a warning, and stands in the plan with all other notes.
func TestWhatWasNotLearntIsInTheNotes(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second, learn: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
		w.whole = []feedback.Whole{{Backend: "one", Symbol: "one_0", Why: "its library is too old\nfor that"}}
		require.NoError(t, c.searchOpened())
		require.Greater(t, len(c.graph.result.Trials), 3, "it went on after the seeds")
		decided, err := c.conclude()
		require.NoError(t, err)
		warning := "What the operators on one take inside a region is not known, a region counts as one: one_0: its " +
			"library is too old ..."
		assert.Equal(t, []string{warning}, decided.Warnings)
		count := 0
		for _, note := range decided.Notes {
			if note == warning {
				count++
			}
		}
		assert.Equal(t, 1, count, decided.Notes)
		assert.Greater(t, len(decided.Notes), 1, "how many networks there were is no warning")
		assert.Equal(t, decided.Notes, decided.Plan.Notes)
		assert.Equal(t, "graph", decided.Plan.Level)
	})
}

// With Strict the first warning is the error, whatever comes after it.
func TestTheFirstWarningIsTheErrorWithStrict(t *testing.T) {
	p := &pace{build: time.Second, run: 300 * time.Millisecond, start: time.Second, learn: 3 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		c, w := prepare(t, p, time.Minute, filepath.Join(t.TempDir(), "costs.jsonl"))
		c.Strict = true
		w.whole = []feedback.Whole{{Backend: "one", Symbol: "one_0", Why: "its library is too old"}}
		decided, err := c.under(t.Context(), func() (*Decision, error) {
			if err := c.searchOpened(); err != nil {
				return nil, err
			}
			return c.conclude()
		})
		assert.Nil(t, decided)
		var strict *settings.StrictError
		require.ErrorAs(t, err, &strict)
		assert.Contains(t, strict.Warning, "one_0: its library is too old")
		assert.Less(t, time.Duration(len(c.graph.result.Trials))*p.build, 30*time.Second, "it was searched on")
	})
}

func TestAWarningBeforeTheWorkEndsItWithStrict(t *testing.T) {
	c := &decision{Options: Options{Strict: true}}
	c.warn("it is %s", "another machine")
	c.warn("it is late")
	decided, err := c.under(t.Context(), func() (*Decision, error) { panic("it was begun") })
	assert.Nil(t, decided)
	assert.EqualError(t, err, "strict: it is another machine")
}
