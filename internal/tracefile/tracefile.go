// SPDX-License-Identifier: Apache-2.0

// Package tracefile records what was done when and by whom, and writes it for a viewer of traces.
//
// What comes in: spans on tracks, each of which is a thread of this process or of another one, moments, and values that
// change. What goes out: a file in the Trace Event Format (JSON), which Perfetto (ui.perfetto.dev) and chrome://tracing
// open. Spans of a track nest, whatever was begun and ended in which order.
//
// The nil *Recorder, *Track and *Span record nothing: who is given none need not ask. All methods may be called by
// several goroutines.
package tracefile

import (
	"os"
	"slices"
	"sync"
	"time"
)

// Recorder is one recording.
type Recorder struct {
	mu     sync.Mutex
	now    func() time.Time
	began  time.Time
	tracks []*Track
	values []value
	marks  []mark
	called map[string]string
	// command is the track of Phase.
	command             *Track
	whole, phase, doing *Span
	closed              bool
}

// Track is a thread.
type Track struct {
	recorder     *Recorder
	pid, tid     int
	process      string // the process's name, of its first track
	name         string
	open, closed []*Span
}

// Span is something that is being done.
type Span struct {
	track    *Track
	name     string
	details  Details
	from, to time.Time
	cut      bool // the end of the recording was its end
}

// Details are what is known of a span, for whoever clicks on it: names, and values that JSON has.
type Details map[string]any

type value struct {
	name   string
	at     time.Time
	number float64
}

type mark struct {
	track   *Track
	name    string
	details Details
	at      time.Time
}

// New is a recording of a command ("collage compile"), which began at that time.
func New(command string, began time.Time) *Recorder {
	r := &Recorder{now: time.Now, began: began, called: map[string]string{}}
	r.command = r.track(os.Getpid(), "collage", "command")
	r.whole = r.command.begin(command, nil, began)
	return r
}

// Process is the first track of another process; role says what it is for.
func (r *Recorder) Process(pid int, role string) *Track {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.track(pid, role, "requests")
}

// Beside is another track of the same process.
func (t *Track) Beside(name string) *Track {
	if t == nil {
		return nil
	}
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return t.recorder.track(t.pid, t.process, name)
}

func (r *Recorder) track(pid int, process, name string) *Track {
	tid := 1
	for _, t := range r.tracks {
		if t.pid == pid {
			if t.name == name && t.process == process {
				return t
			}
			tid++
		}
	}
	t := &Track{recorder: r, pid: pid, tid: tid, process: process, name: name}
	r.tracks = append(r.tracks, t)
	return t
}

// Command is the track of what the command itself does, one phase after the other.
func (r *Recorder) Command() *Track {
	if r == nil {
		return nil
	}
	return r.command
}

// Phase begins the next phase of the command, and ends the one before.
func (r *Recorder) Phase(name string) *Span {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase.end(nil, r.now())
	r.phase, r.doing = r.command.begin(name, nil, r.now()), nil
	return r.phase
}

// PhaseFrom is Phase where the phase began earlier, and not before the one before it ended.
func (r *Recorder) PhaseFrom(name string, from time.Time) *Span {
	s := r.Phase(name)
	if s != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.from = from
	}
	return s
}

// Doing says what is being done in the phase that goes on; what was done before is over.
func (r *Recorder) Doing(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing.end(nil, r.now())
	if r.doing = nil; r.phase != nil && r.phase.to.IsZero() {
		r.doing = r.command.begin(name, nil, r.now())
	}
}

// Value says what a quantity is from now on ("best so far, ms").
func (r *Recorder) Value(name string, number float64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = append(r.values, value{name, r.now(), number})
}

// Call says what a thing is called of which only a key stands in names of spans.
func (r *Recorder) Call(key, name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.called[key] = name
}

// Begin begins a span within those of the track that are not ended.
func (t *Track) Begin(name string, details Details) *Span {
	if t == nil {
		return nil
	}
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return t.begin(name, details, t.recorder.now())
}

func (t *Track) begin(name string, details Details, at time.Time) *Span {
	s := &Span{track: t, name: name, details: details, from: at}
	t.open = append(t.open, s)
	return s
}

// Mark is a moment.
func (t *Track) Mark(name string, details Details) {
	if t == nil {
		return
	}
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	t.recorder.marks = append(t.recorder.marks, mark{t, name, details, t.recorder.now()})
}

// Part splits off what was done in a span so far, since it began or since the last part.
func (s *Span) Part(name string) {
	if s == nil {
		return
	}
	s.track.recorder.mu.Lock()
	defer s.track.recorder.mu.Unlock()
	if !s.to.IsZero() {
		return
	}
	// What ended last stands last.
	from, closed := s.from, s.track.closed
	if last := len(closed) - 1; last >= 0 && closed[last].to.After(from) {
		from = closed[last].to
	}
	s.track.closed = append(s.track.closed, &Span{track: s.track, name: name, from: from, to: s.track.recorder.now()})
}

// End ends a span, with what was begun within it. What has ended stays as it is.
func (s *Span) End(details Details) {
	if s == nil {
		return
	}
	s.track.recorder.mu.Lock()
	defer s.track.recorder.mu.Unlock()
	s.end(details, s.track.recorder.now())
}

func (s *Span) end(details Details, at time.Time) {
	if s == nil || !s.to.IsZero() {
		return
	}
	if s.details == nil {
		s.details = Details{}
	}
	for name, value := range details {
		s.details[name] = value
	}
	t := s.track
	for {
		last := t.open[len(t.open)-1]
		t.open, last.to = t.open[:len(t.open)-1], at
		t.closed = append(t.closed, last)
		if last == s {
			return
		}
	}
}

// Close ends the recording, with all that goes on; the time of the whole is from New to here.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	now := r.now()
	for _, t := range r.tracks {
		for _, s := range slices.Backward(t.open) {
			s.cut = s != r.whole && s != r.phase
			s.end(nil, now)
		}
	}
}
