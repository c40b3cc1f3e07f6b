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
