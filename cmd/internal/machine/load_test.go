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
