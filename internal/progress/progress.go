// SPDX-License-Identifier: Apache-2.0

// Package progress tells a user how far long work has come.
//
// What comes in: steps, each with a title, perhaps a number of pieces, and a result. What goes out: on a
// terminal a bar that gives way to one line when the step is done; anywhere else plain lines, few enough for a
// log file. It never writes to the standard output. A program that wants to show it itself is told of all of it (To).
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/term"

	"github.com/collage-tvm/collage/internal/tracefile"
)

// plainInterval is how often a step with many pieces says how far it is where there is no terminal.
const plainInterval = 30 * time.Second

// minimalWidth is how wide a terminal must be for bars.
const minimalWidth = 40

// The bars, as cheggaaa/pb's templates.
const (
	countedBar = `{{string . "title"}}  {{counters .}} {{bar . "[" "=" ">" " " "]"}} {{rtime . "%s left"}}  {{string . "label"}}`
	timedBar   = `{{string . "title"}}  {{bar . "[" "=" ">" " " "]"}} {{string . "left"}}  {{string . "label"}}`
	spinner    = `{{string . "title"}}  {{cycle . "|" "/" "-" "\\"}} {{etime .}}`
)

// Event is what a listener is told.
type Event struct {
	// Step is the title of the step, "" for a note that is of none. Done of Total pieces are finished, or seconds gone
	// where Timed; Total is 0 where they cannot be counted. Label says what the last piece was.
	Step  string `json:"step"`
	Done  int    `json:"done"`
	Total int    `json:"total"`
	Timed bool   `json:"timed"`
	Label string `json:"label"`
	// Finished says that the step is over, with its result ("" where it was broken off).
	Finished bool   `json:"finished"`
	Result   string `json:"result"`
	// Note is a line beside the steps; the rest says which step is going on then.
	Note string `json:"note"`
}

// Printer writes the progress of one command. The zero Printer is silent. Its methods and those of its Steps may be
// called by several goroutines.
type Printer struct {
	listener func(Event)
	w        io.Writer
	terminal bool
	verbose  bool
	now      func() time.Time
	trace    *tracefile.Recorder

	mu      sync.Mutex
	current *Step
}

// Record has each step as a phase of the recording, whether anything is written or not. It is called before the first
// step.
func (p *Printer) Record(r *tracefile.Recorder) { p.trace = r }

// New makes a Printer; it is silent if quiet. Bars are drawn if w is a terminal. verbose lets Detail through.
func New(w io.Writer, quiet, verbose bool) *Printer {
	if quiet {
		return &Printer{}
	}
	p := &Printer{w: w, verbose: verbose, now: time.Now}
	if file, ok := w.(*os.File); ok {
		// A terminal without a width (a pseudo-terminal that nobody looks at) has no room for a bar.
		width, _, err := term.GetSize(int(file.Fd()))
		p.terminal = err == nil && width >= minimalWidth && os.Getenv("TERM") != "dumb"
	}
	return p
}

// To has everything told to the listener, too, by one goroutine at a time. The listener must not call the Printer.
func (p *Printer) To(listener func(Event)) *Printer {
	p.listener = listener
	if p.now == nil {
		p.now = time.Now
	}
	return p
}

// Step is a piece of work that is going on. Its methods may be called on a nil Step.
type Step struct {
	printer *Printer
	title   string
	total   int
	timed   bool // the pieces are seconds
	started time.Time
	said    time.Time
	bar     *pb.ProgressBar
	phase   *tracefile.Span
	done    int
	label   string
}

// Start begins a step of total pieces; 0 for one that cannot be counted. The step before is ended.
func (p *Printer) Start(title string, total int) *Step { return p.start(title, total, false) }

// StartTimed begins a step that may take so many seconds, which At tells of: it says how many are left.
func (p *Printer) StartTimed(title string, seconds int) *Step { return p.start(title, seconds, true) }

func (p *Printer) start(title string, total int, timed bool) *Step {
	phase := p.trace.Phase(title)
	if p.w == nil && p.listener == nil {
		if phase == nil {
			return nil
		}
		return &Step{phase: phase}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop("")
	s := &Step{printer: p, title: title, total: total, timed: timed, started: p.now(), said: p.now(), phase: phase}
	p.current = s
	p.tell(Event{})
	if p.w == nil {
		return s
	}
	if !p.terminal {
		fmt.Fprintf(p.w, "%s\n", title)
		return s
	}
	template := countedBar
	switch {
	case timed:
		template = timedBar
	case total == 0:
		template = spinner
	}
	s.bar = pb.ProgressBarTemplate(template).New(total).SetWriter(p.w).SetRefreshRate(100*time.Millisecond).
		Set(pb.Terminal, true).Set(pb.CleanOnFinish, true).Set("title", title)
	s.bar.Start()
	return s
}

// At says that done of the pieces are finished, and what the last one was.
func (s *Step) At(done int, label string) {
	if s == nil || s.printer == nil {
		return
	}
	s.printer.mu.Lock()
	defer s.printer.mu.Unlock()
	if s.printer.current != s {
		return
	}
	s.done, s.label = done, label
	s.printer.tell(Event{})
	if s.printer.w == nil {
		return
	}
	left := fmt.Sprintf("%d s left", max(s.total-done, 0))
	if s.bar != nil {
		s.bar.Set("label", label).Set("left", left).SetCurrent(int64(min(done, s.total)))
		return
	}
	now := s.printer.now()
	if now.Sub(s.said) < plainInterval || done >= s.total {
		return
	}
	s.said = now
	if !s.timed {
		fmt.Fprintf(s.printer.w, "  %d of %d\n", done, s.total)
		return
	}
	if label != "" {
		left += ": " + label
	}
	fmt.Fprintf(s.printer.w, "  %s\n", left)
}

// Done ends the step with its result ("116 operators").
func (s *Step) Done(format string, args ...any) {
	if s == nil {
		return
	}
	s.phase.End(tracefile.Details{"result": fmt.Sprintf(format, args...)})
	if s.printer == nil {
		return
	}
	s.printer.mu.Lock()
	defer s.printer.mu.Unlock()
	if s.printer.current != s {
		return
	}
	result, seconds := fmt.Sprintf(format, args...), s.printer.now().Sub(s.started).Seconds()
	s.printer.stop(result)
	if s.printer.w == nil {
		return
	}
	if s.printer.terminal {
		fmt.Fprintf(s.printer.w, "%s: %s (%.1f s)\n", s.title, result, seconds)
	} else {
		fmt.Fprintf(s.printer.w, "  %s (%.1f s)\n", result, seconds)
	}
}

// Stop takes the bar of the current step away, if there is one. It is called before anything else is written
// to the terminal.
func (p *Printer) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop("")
}

// stop ends the current step with its result; "" where it has none.
func (p *Printer) stop(result string) {
	if p.current != nil {
		p.tell(Event{Finished: true, Result: result})
	}
	if p.current != nil && p.current.bar != nil {
		p.current.bar.Finish()
	}
	p.current = nil
}

// tell completes what is said by the current step and gives it to the listener.
func (p *Printer) tell(e Event) {
	if p.listener == nil {
		return
	}
	if s := p.current; s != nil {
		e.Step, e.Done, e.Total, e.Timed, e.Label = s.title, s.done, s.total, s.timed, s.label
	}
	p.listener(e)
}

// Detail writes a line for those who asked for all of them.
func (p *Printer) Detail(format string, args ...any) {
	if p.w == nil || !p.verbose {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("  "+format, args...)
}

// Note writes a line that is no step.
func (p *Printer) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(Event{Note: strings.TrimSpace(fmt.Sprintf(format, args...))})
	if p.w != nil {
		p.line(format, args...)
	}
}

// line writes above a bar that is being drawn.
func (p *Printer) line(format string, args ...any) {
	if p.terminal && p.current != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}
