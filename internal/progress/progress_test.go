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

func TestTimeLeft(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, false, false)
	now := time.Unix(0, 0)
	p.now = func() time.Time { return now }
	step := p.StartTimed("searching", 60)
	for i := range 70 {
		now = now.Add(time.Second)
		label := ""
		if i > 40 {
			label = "best so far 3 ms"
		}
		step.At(i, label)
	}
	step.Done("3 networks")
	assert.Equal(t, "searching\n  31 s left\n  1 s left: best so far 3 ms\n  3 networks (70.0 s)\n", out.String())

	out.Reset()
	p.terminal = true
	step = p.StartTimed("searching", 60)
	step.At(20, "best so far 3 ms; building dnnl alone")
	p.Stop()
	assert.Contains(t, out.String(), "40 s left  best so far 3 ms; building dnnl alone")
}

func TestAListenerIsToldOfAll(t *testing.T) {
	var heard []Event
	var out bytes.Buffer
	for _, p := range []*Printer{(&Printer{}).To(func(e Event) { heard = append(heard, e) }),
		New(&out, false, false).To(func(e Event) { heard = append(heard, e) })} {
		heard = nil
		step := p.Start("measuring", 3)
		step.At(1, "a")
		p.Note("  a note")
		p.Detail("a detail")
		step.Done("%d measured", 3)
		p.StartTimed("searching", 60).At(7, "best so far 5 ms")
		p.Stop()
		p.Stop()
		assert.Equal(t, []Event{
			{Step: "measuring", Total: 3},
			{Step: "measuring", Total: 3, Done: 1, Label: "a"},
			{Step: "measuring", Total: 3, Done: 1, Label: "a", Note: "a note"},
			{Step: "measuring", Total: 3, Done: 1, Label: "a", Finished: true, Result: "3 measured"},
			{Step: "searching", Total: 60, Timed: true},
			{Step: "searching", Total: 60, Timed: true, Done: 7, Label: "best so far 5 ms"},
			{Step: "searching", Total: 60, Timed: true, Done: 7, Label: "best so far 5 ms", Finished: true},
		}, heard)
	}
	assert.Equal(t, "measuring\n  a note\n  3 measured (0.0 s)\nsearching\n", out.String())
}
