// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestABudget(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b := New(60*time.Second, func() time.Time { return now })
	assert.Equal(t, 60*time.Second, b.Left())
	assert.Equal(t, 9*time.Second, b.Reserve(4), "a share, while nothing is known")
	assert.Equal(t, 51*time.Second, b.Free(4))

	now = now.Add(10 * time.Second)
	b.Ran(5*time.Second, time.Second)
	assert.Equal(t, 50*time.Second, b.Left())
	assert.Equal(t, 10*time.Second, b.Spent())
	assert.Equal(t, 3*time.Second, b.Run())
	assert.Equal(t, ending+4*time.Second+3*2*time.Second, b.Reserve(4),
		"half of the first, which has the worker's start in it, and no profiles")
	b.Ran(4*time.Second, 3*time.Second)
	b.Ran(10*time.Second, 7*time.Second)
	assert.Equal(t, 7*time.Second, b.Run())
	assert.Equal(t, 2*time.Second, b.Again(), "without the profile")
	assert.Equal(t, 2*time.Second+3*time.Second, b.Loading(3))
	assert.Equal(t, ending+4*time.Second, b.Reserve(1))
	assert.Equal(t, ending+10*time.Second, b.Reserve(4))
	b.Wrote(2 * time.Second)
	b.Wrote(time.Second)
	assert.Equal(t, ending+2*time.Second, b.Writing())
	assert.Equal(t, ending+12*time.Second, b.Reserve(4))

	assert.Zero(t, b.Build())
	b.Built(6 * time.Second)
	b.Built(4 * time.Second)
	assert.Equal(t, 5*time.Second, b.Build(), "the mean")
	assert.Equal(t, 19*time.Second, b.Expect(2, 2), "built side by side, run and profiled one after another")
	assert.Equal(t, 14*time.Second, b.Expect(2, 0), "built already")

	b.Ran(40*time.Second, 0)
	assert.Equal(t, 30*time.Second, b.Reserve(4), "no more than half of the whole")
	assert.Greater(t, b.Need(4), 40*time.Second, "but that much is needed")
	now = now.Add(time.Minute)
	assert.Equal(t, -10*time.Second, b.Left())
	assert.Negative(t, b.Free(1))
	assert.Equal(t, time.Minute, b.Total())
}

func TestABudgetThatHasBegun(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	b := Begun(now.Add(-3*time.Second), 10*time.Second, func() time.Time { return now })
	assert.Equal(t, 3*time.Second, b.Spent())
	assert.Equal(t, 7*time.Second, b.Left())
}
