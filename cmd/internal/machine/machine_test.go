// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHere(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "3")
	info := Here()
	assert.Equal(t, "3", info.Environment["OMP_NUM_THREADS"])
	assert.Positive(t, info.Processors)
	if runtime.GOOS == "linux" {
		assert.Positive(t, info.MemoryBytes)
	}
	if runtime.GOARCH == "amd64" {
		assert.Contains(t, info.Features, "sse4.2")
	}
}

func TestParseQuota(t *testing.T) {
	for text, want := range map[string]float64{"max 100000\n": 0, "150000 100000\n": 1.5, "": 0, "1 0": 0, "x y": 0} {
		assert.Equal(t, want, parseQuota(text), text)
	}
}
