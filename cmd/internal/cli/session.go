// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/internal/atomicfile"
)

// interruptGrace is how long an interrupted command may take to come back by itself. TVM's compiler cannot be
// stopped in the middle of a pass; after this time the process ends without it.
const interruptGrace = 3 * time.Second

// Session is one run of the command line.
type Session struct {
	Stdout, Stderr io.Writer
	// Context ends when the user interrupts.
	Context context.Context
	// began is when the command began.
	began time.Time
	// Hosted says that this is the Python host's process, with TVM loaded.
	Hosted bool
	// hostFailure is why there is no Python host for a command that can do without; nil where none was tried.
	hostFailure error
	// beforeError takes away what is being drawn on the terminal; nil for nothing.
	beforeError func()

	cancel         context.CancelCauseFunc
	signals, pipes chan os.Signal
	// output is Stdout as it was given.
	output *output

	mu sync.Mutex
	// temporary are folders that are removed at the end, however it comes.
	temporary []string
	// onInterrupt says what became of the work so far, for the user who stopped it.
	onInterrupt string
	// last is done where a signal ends the process before the command comes back.
	last func()
	// ending ends what can end early with a result; nil: nothing can.
	ending *ending
}

// ending is how a signal ends work that has a result.
type ending struct {
	// end says whether it does end it.
	end func() bool
	// says is what the user is told then.
	says string
	// always: by any signal, and not by Ctrl-C alone.
	always bool
}

// setEnd says how the first interrupt ends a search with a result, and what comes of it; nil: it does not.
func (s *Session) setEnd(end func() bool, result string) {
	if end == nil {
		s.setEnding(nil)
		return
	}
	s.setEnding(&ending{end: end, says: "ending the search; " + result})
}

// setService says how the first signal ends a server.
func (s *Session) setService(end func()) {
	s.setEnding(&ending{func() bool { end(); return true }, "answering what was asked before", true})
}

func (s *Session) setEnding(e *ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = e
}

// endEarly has the work end with a result, where a signal can do that, and says what comes of it.
func (s *Session) endEarly(received os.Signal) (says string, ending bool) {
	s.mu.Lock()
	e := s.ending
	s.mu.Unlock()
	if e == nil || !e.always && received != os.Interrupt {
		return "", false
	}
	return e.says, e.end()
}

func newSession(stdout, stderr io.Writer) *Session {
	ctx, cancel := context.WithCancelCause(context.Background())
	out := &output{to: stdout}
	return &Session{Stdout: out, Stderr: stderr, Context: ctx, cancel: cancel, output: out, began: time.Now()}
}

// watchSignals turns Ctrl-C and termination into the end of Context; the second one, or a command that does not come
// back, ends the process. Where a search has something to write, the first Ctrl-C ends the search alone, and the second
// one the process; a server's first signal has it answer what it was asked before. It takes the place of Python's
// handler in the Python host, which could run only between two of Python's own instructions.
func (s *Session) watchSignals() {
	s.signals = make(chan os.Signal, 2)
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func(signals <-chan os.Signal) {
		received, open := <-signals
		if !open {
			return
		}
		if says, ending := s.endEarly(received); ending {
			if s.beforeError != nil {
				s.beforeError()
			}
			fmt.Fprintf(s.Stderr, "collage: %s (Ctrl-C again quits)\n", says)
			if _, open = <-signals; !open {
				return
			}
			s.printError(s.interruptError())
			s.leave(exitInterrupted)
		}
		s.cancel(fmt.Errorf("interrupted (%v)", received))
		select {
		case _, open = <-signals:
			if !open {
				return
			}
		case <-time.After(interruptGrace):
		}
		s.printError(s.interruptError())
		s.leave(exitFailure)
	}(s.signals)
}

// leave ends the process where the command does not come back.
func (s *Session) leave(code int) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		last()
	}
	s.removeTemporary()
	os.Exit(code)
}

// setLast says what is to be done before a signal ends the process; nil: nothing.
func (s *Session) setLast(last func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
}

// setInterruptNote says what shall be told to a user who interrupts from now on.
func (s *Session) setInterruptNote(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onInterrupt = note
}

func (s *Session) interruptError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onInterrupt == "" {
		return errors.New("interrupted")
	}
	return fmt.Errorf("interrupted; %s", s.onInterrupt)
}

func (s *Session) removeTemporary() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, folder := range s.temporary {
		// Workers that live still make files by the name that they were told: after this they cannot.
		if gone := folder + "-gone"; os.Rename(folder, gone) == nil {
			folder = gone
		}
		os.RemoveAll(folder)
	}
	s.temporary = nil
}

func (s *Session) close() {
	s.removeTemporary() // first: once nobody watches the signals, the next one ends the process where it is
	if s.signals != nil {
		signal.Stop(s.signals)
		close(s.signals)
		s.signals = nil
	}
	if s.pipes != nil {
		signal.Stop(s.pipes)
	}
	s.cancel(nil)
}

// printError writes "collage: error: ..." with what to do about it where that is known.
func (s *Session) printError(err error) {
	if s.beforeError != nil {
		s.beforeError()
	}
	text := strings.TrimSpace(err.Error())
	fmt.Fprintf(s.Stderr, "collage: error: %s\n", text)
	if atomicfile.IsDiskFull(err) {
		fmt.Fprintln(s.Stderr, "The disk is full: make room, or write to another one (-o; TMPDIR for temporary "+
			"files). Nothing was left behind.")
	}
}

// outputSchema is the version of what --json prints, which stands in each document as "schema" (docs/schemas has a JSON
// Schema for each command). It grows where a field goes away or means something else; a new field does not change it.
const outputSchema = 1

// printJSON writes the one document of --json.
func (s *Session) printJSON(v any) error { return writeJSON(s.Stdout, v, "  ") }

// writeJSON writes a document, which is an object, with the version of its schema as the first field.
func writeJSON(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	rest, isObject := strings.CutPrefix(text.String(), "{")
	if !isObject {
		return fmt.Errorf("%T is written as JSON that is no object", v)
	}
	comma := ","
	if strings.HasPrefix(rest, "}") {
		comma = "\n"
	}
	_, err := fmt.Fprintf(w, "{\n%s\"schema\": %d%s%s", indent, outputSchema, comma, rest)
	return err
}
