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
	b.Ran(4 * time.Second)
	assert.Equal(t, 50*time.Second, b.Left())
	assert.Equal(t, 10*time.Second, b.Spent())
	assert.Equal(t, writing+4*time.Second+3*2*time.Second, b.Reserve(4), "half of the first, which has the worker's start in it")
	b.Ran(time.Second)
	b.Ran(3 * time.Second)
	assert.Equal(t, 2*time.Second, b.Run())
	assert.Equal(t, writing+4*time.Second, b.Reserve(1))
	assert.Equal(t, writing+10*time.Second, b.Reserve(4))

	b.Ran(40 * time.Second)
	assert.Equal(t, 30*time.Second, b.Reserve(4), "no more than half of the whole")
	now = now.Add(time.Minute)
	assert.Equal(t, -10*time.Second, b.Left())
	assert.Negative(t, b.Free(1))
	assert.Equal(t, time.Minute, b.Total())
}
