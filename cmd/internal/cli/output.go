// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// exitBrokenPipe is the exit code where the reader of the standard output went away (collage backends | head -1): the
// one that a shell shows for a program that SIGPIPE ended. Nothing is said then.
const exitBrokenPipe = 128 + int(syscall.SIGPIPE)

// output is the standard output. It remembers the first error, so that tables, which are written line by line, need not
// look: a result that was not written whole is a failure.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(p)
	o.err = err
	return n, err
}

// answerBrokenPipes keeps SIGPIPE from ending the process before it has removed its temporary files; a write fails with
// EPIPE in its place. Children get the signal's usual meaning, as they would not if it were ignored.
func (s *Session) answerBrokenPipes() {
	s.pipes = make(chan os.Signal, 1)
	signal.Notify(s.pipes, syscall.SIGPIPE)
}

// readerIsGone says that it was the standard output's reader that ended the command.
func (s *Session) readerIsGone() bool { return errors.Is(s.output.err, syscall.EPIPE) }
