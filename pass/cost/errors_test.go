// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatExceedsALimit(t *testing.T) {
	t.Parallel()
	e := &Errors{L2: 0.01, Max: 0.02, Cosine: 0.03, Top1: 0.04}
	for i, measure := range Measures() {
		is := 0.01 * float64(i+1)
		assert.InDelta(t, is, e.In(measure), 1e-12, measure)
		assert.Empty(t, Limit{Most: is, Measure: measure}.Exceeded(e), measure)
		assert.NotEmpty(t, Limit{Most: is - 1e-6, Measure: measure}.Exceeded(e), measure)
	}
	assert.Equal(t, "its outputs are off by 0.02 (max) where 0.001 is allowed",
		Limit{Most: 0.001, Measure: Max}.Exceeded(e))
	assert.Empty(t, Limit{}.Exceeded(e), "there is no limit")
	own := "/data/scores.py:lost"
	assert.NotEmpty(t, Limit{Most: 0.9, Measure: own}.Exceeded(e), "it was not taken in this one")
	e.Own = &OwnError{Measure: own, Error: 0.5}
	assert.Empty(t, Limit{Most: 0.5, Measure: own}.Exceeded(e))
	assert.Equal(t, "its outputs are off by 0.5 (scores.py:lost) where 0.4 is allowed",
		Limit{Most: 0.4, Measure: own}.Exceeded(e))
	assert.NotEmpty(t, Limit{Most: 0.9, Measure: "/elsewhere/scores.py:lost"}.Exceeded(e))
	assert.Empty(t, Limit{Most: 0.001, Measure: L2}.Exceeded(nil), "nothing was taken")
}
