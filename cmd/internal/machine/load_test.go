// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMeter(t *testing.T) {
	m := StartMeter()
	sum := 0
	for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
		sum++
	}
	l := m.Stop()
	assert.Positive(t, sum)
	assert.GreaterOrEqual(t, l.Seconds, 0.05)
	assert.True(t, l.Known)
	assert.Positive(t, l.Processors)
	assert.Positive(t, l.Own)
	assert.GreaterOrEqual(t, l.Other, 0.0)
	assert.Contains(t, l.String(), "other processes took")
}

func TestDisturbed(t *testing.T) {
	assert.False(t, Load{Known: true, Other: 0.01}.Disturbed())
	assert.True(t, Load{Known: true, Other: 0.2}.Disturbed())
	assert.True(t, Load{Known: true, Steal: 0.2}.Disturbed())
	assert.Contains(t, Load{Known: true, Steal: 0.2}.String(), "BUSY")
	assert.Contains(t, Load{Seconds: 3}.String(), "does not say")
}

func TestLoadOverSeveralTimes(t *testing.T) {
	t.Parallel()
	whole := Together([]Load{
		{Seconds: 1, Processors: 2, Own: 0.5, Other: 0.2, Steal: 0.1, Average: 1, Known: true},
		{Seconds: 3, Processors: 2, Own: 0.9, Other: 0, Steal: 0, Average: 2, Known: true},
	})
	assert.InDelta(t, 4, whole.Seconds, 1e-9)
	assert.InDelta(t, 0.8, whole.Own, 1e-9)
	assert.InDelta(t, 0.05, whole.Other, 1e-9)
	assert.InDelta(t, 0.025, whole.Steal, 1e-9)
	assert.Equal(t, 2, whole.Processors)
	assert.InDelta(t, 2, whole.Average, 1e-9)
	assert.True(t, whole.Known)

	assert.Equal(t, Load{Seconds: 5}, Together([]Load{whole, {Seconds: 1}}), "one of which nothing is known")
	assert.False(t, Together(nil).Known)
}
