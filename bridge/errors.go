// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"regexp"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// ErrInterrupted is what CheckSignals gives after Ctrl-C. The error that wraps it carries Python's own
// KeyboardInterrupt back where the interpreter is the host.
var ErrInterrupted = errors.New("interrupted")

// ErrForked is what the bridge gives in a process that was made by fork after it was loaded.
var ErrForked = errors.New("RuntimeError: Collage cannot be used in a process made by fork after it was loaded; " +
	"use multiprocessing's 'spawn' or a subprocess")

// Error is an error that came over the border from TVM or from Python.
type Error struct {
	// Class is the name of the exception: Python's class, or what TVM's message begins with ("ValueError",
	// "InternalError", "TVMError").
	Class string
	// Message is the text without class, source position and stack trace.
	Message string
	// Full is the whole text as TVM gave it; the same as Message for a Python exception.
	Full string

	exception *pyException // nil unless it was a Python exception
}

// Error is the class and the message on one line or more.
func (e *Error) Error() string {
	switch {
	case e.Class == "":
		return e.Message
	case e.Message == "":
		return e.Class
	}
	return e.Class + ": " + e.Message
}

// Python says whether the error is a Python exception, which goes back to Python as the object it is.
func (e *Error) Python() bool { return e.exception != nil }

// Is makes errors.Is(err, ErrInterrupted) true for Python's KeyboardInterrupt.
func (e *Error) Is(target error) bool {
	return target == ErrInterrupted && e.Class == "KeyboardInterrupt"
}

// Exception is what Python is told of an error of ours beside its text; a field is "" where it is not known.
type Exception struct {
	// Class is a class of collage.errors (python/collage/errors.py); "" for the one that goes with the kind of error.
	Class string
	// The fields of CollageError.
	Option, Operator, Span, Backend, File string
}

// Reporter is an error that has more to say to Python than a text.
type Reporter interface {
	error
	Exception() Exception
}

// With gives err, and has Python told said of it.
func With(err error, said Exception) error { return &reported{err, said} }

type reported struct {
	error
	said Exception
}

func (r *reported) Unwrap() error        { return r.error }
func (r *reported) Exception() Exception { return r.said }

// Reported says of err what the Reporters that it wraps do; where several know something, the outermost holds.
func Reported(err error) Exception {
	var said Exception
	if one, ok := err.(Reporter); ok { // each of the chain by itself: errors.As gives the first only
		said = one.Exception()
	}
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		said.complete(Reported(wrapper.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, part := range wrapper.Unwrap() {
			said.complete(Reported(part))
		}
	}
	return said
}

// complete takes over what the other knows and e does not.
func (e *Exception) complete(other Exception) {
	for _, field := range []struct{ to, from *string }{
		{&e.Class, &other.Class}, {&e.Option, &other.Option}, {&e.Operator, &other.Operator}, {&e.Span, &other.Span},
		{&e.Backend, &other.Backend}, {&e.File, &other.File},
	} {
		if *field.to == "" {
			*field.to = *field.from
		}
	}
}

// pyException owns a reference to a Python exception.
type pyException struct{ handle }

func newPyException(p unsafe.Pointer) *pyException {
	x := &pyException{}
	x.own(livePyError, p, freePyError)
	return x
}

// err makes an error of what a failed call left in the frame.
func (f *frame) err() error {
	text := f.text()
	if p := f.c.py_error; p != nil {
		f.c.py_error = nil
		return &Error{Class: C.GoString(&f.c.py_class[0]), Message: text, Full: text, exception: newPyException(p)}
	}
	class, message := splitMessage(text)
	return &Error{Class: class, Message: message, Full: text}
}

var (
	// "[12:00:00] /src/x.cc:12: " before a message that TVM logged as fatal.
	position = regexp.MustCompile(`^(?:\[\d\d:\d\d:\d\d\] )?[^\s:]+:\d+: `)
	// "ValueError: " or "tvm.error.OpError: ".
	className = regexp.MustCompile(`^(tvm\.error\.\w+|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): ?`)
	// Lines of TVM's banner about internal errors.
	banner = regexp.MustCompile(`(?m)^-{5,}\n(?:An error occurred during the execution of TVM\.\nFor more information, ` +
		`please see: [^\n]*\n)?-{5,}\n`)
	sourceLine = regexp.MustCompile(`\n\s+File "[^"\n]*", line \d+(?:, in [^\n]*)?`)
)

// splitMessage finds class and message in the text of a TVM error, which carries a stack trace, source
// positions and a banner.
func splitMessage(full string) (class, message string) {
	text := full
	// A trace that stands in front ("Traceback (most recent call last):\n  3: ...\nValueError: ...").
	if rest, ok := strings.CutPrefix(text, "Traceback (most recent call last):\n"); ok {
		for {
			line, after, more := strings.Cut(rest, "\n")
			if !more || !(strings.HasPrefix(line, " ") || line == "") {
				break
			}
			rest = after
		}
		text = rest
	}
	if i := strings.Index(text, "\nStack trace:"); i >= 0 {
		text = text[:i]
	}
	text = banner.ReplaceAllString(text, "")
	text = sourceLine.ReplaceAllString("\n"+text, "")
	text = strings.TrimSpace(text)
	for {
		if loc := position.FindString(text); loc != "" {
			text = strings.TrimSpace(text[len(loc):])
			continue
		}
		if m := className.FindStringSubmatch(text); m != nil && (class == "" || class == "TVMError" ||
			class == "InternalError") {
			class = strings.TrimPrefix(m[1], "tvm.error.")
			text = strings.TrimSpace(text[len(m[0]):])
			continue
		}
		break
	}
	if class == "" {
		class = "TVMError"
	}
	return class, text
}

// SplitException takes a text apart that begins with the kind of an exception ("ValueError: why"), "" where it begins with none.
func SplitException(text string) (kind, said string) {
	if m := className.FindStringSubmatch(text); m != nil {
		return strings.TrimPrefix(m[1], "tvm.error."), text[len(m[0]):]
	}
	return "", text
}

// setError makes err this thread's last TVM error. The callback returns -1 next, on the same thread.
func setError(err error) {
	var e *Error
	if errors.As(err, &e) && e.exception != nil {
		C.collage_set_error(e.exception.ptr)
		runtime.KeepAlive(e)
		return
	}
	full := err.Error()
	class, message := "TVMError", full
	if e != nil && error(e) == err {
		class, full = "", e.Full // TVM's own error: its text has the C++ stack, which Python shows as a traceback
	} else if kind, said := SplitException(full); kind != "" {
		class, message = kind, said
	} else {
		full = "TVMError: " + full
	}
	said := Reported(err)
	texts := [...]string{class, said.Class, message, said.Option, said.Operator, said.Span, said.Backend, said.File}
	var told [len(texts)]*C.char
	for i := range texts {
		told[i] = cText(texts[i])
	}
	plain := cText(full)
	C.collage_raise(&told[0], plain)
	for _, p := range append(told[:], plain) {
		C.free(unsafe.Pointer(p))
	}
}

// cText is C.CString for a text that may hold NULs.
func cText(s string) *C.char { return C.CString(strings.ReplaceAll(s, "\x00", "\\0")) }

// SignalInterval is how often long work calls CheckSignals: often enough for a hand on Ctrl-C, and too seldom to
// cost anything.
const SignalInterval = 20 * time.Millisecond

// CheckSignals asks Python to run the signal handlers that are due, and gives the exception that one of them
// raised: after Ctrl-C an error that is ErrInterrupted. While Go runs, Python cannot do this by itself, so
// long work calls it every SignalInterval, on the thread that came in from Python's main thread; elsewhere, and
// where there is no Python in the process, it does nothing.
func CheckSignals() error {
	f := getFrame()
	defer f.put()
	f.c.py_error = nil
	if C.collage_check_signals(f.c) == C.COLLAGE_OK {
		return nil
	}
	if f.c.py_error == nil {
		return ErrInterrupted
	}
	return f.err()
}
