// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPlainLines(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, false, true)
	now := time.Unix(0, 0)
	p.now = func() time.Time { return now }
	step := p.Start("measuring", 100)
	for i := range 101 {
		now = now.Add(time.Second)
		step.At(i, "a")
	}
	p.Detail("found %d", 1)
	step.Done("%d measured", 100)
	step.Done("twice")
	step.At(3, "")
	p.Note("a note")
	assert.Equal(t, "measuring\n  29 of 100\n  59 of 100\n  89 of 100\n  found 1\n  100 measured (101.0 s)\na note\n",
		out.String())
}

func TestQuietAndBrief(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, true, true)
	step := p.Start("x", 1)
	step.At(1, "")
	step.Done("y")
	p.Note("n")
	p.Detail("d")
	p.Stop()
	assert.Empty(t, out.String())

	p = New(&out, false, false)
	p.Detail("d")
	assert.Empty(t, out.String())
}

func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, false, false)
	p.terminal = true
	step := p.Start("measuring", 2)
	step.At(1, "dnnl.conv2d")
	p.Stop()
	assert.Contains(t, out.String(), "measuring  ")
	out.Reset()
	step = p.Start("building", 0)
	step.Done("3 MB")
	assert.Contains(t, out.String(), "building: 3 MB (0.0 s)\n")
}
