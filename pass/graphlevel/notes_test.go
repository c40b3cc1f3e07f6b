// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
)

// What a profile does not tell is said once for each backend, also where it comes from the store.
func TestWhatIsNotLearntIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := &search{noted: map[string]bool{}}
	profile := func(rest float64, whole ...feedback.Whole) cost.Cost {
		c := cost.Cost{Network: &cost.Network{}}
		RecordProfile(&feedback.Profile{Parts: []feedback.Part{{Milliseconds: 10}}, Rest: rest, Whole: whole},
			c.Network)
		return c
	}
	old := feedback.Whole{Backend: "engine", Symbol: "engine_0", Why: "it is too old"}
	assert.Empty(t, s.notes(cost.Cost{}))
	assert.Empty(t, s.notes(profile(0.1)), "as much as measurements differ")
	assert.Equal(t, []string{"what the operators on engine take inside a region is not known, a region counts as " +
		"one: engine_0: it is too old"},
		s.notes(profile(0, old, feedback.Whole{Backend: "engine", Symbol: "engine_1", Why: "it is too old"})))
	assert.Empty(t, s.notes(profile(0, old)))
	assert.Equal(t, []string{"what the operators on other take inside a region is not known, a region counts as one: " +
		"x: y",
		"17% of the time is in kernels that belong to no operator of the network"},
		s.notes(profile(2, old, feedback.Whole{Backend: "other", Symbol: "x", Why: "y"})))
	assert.Empty(t, s.notes(profile(3)))
	unknown := cost.Cost{Network: &cost.Network{Whole: []cost.NetworkWhole{{Why: "there are 3 of 4"}}}}
	assert.Equal(t, []string{"what the network's kernels take each is not known: there are 3 of 4"}, s.notes(unknown))
	assert.Empty(t, s.notes(unknown))
}
