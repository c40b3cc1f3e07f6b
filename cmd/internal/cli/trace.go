// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/internal/tracefile"
)

// traceFlag is --trace: a recording of what a command does, for a viewer of traces.
type traceFlag struct {
	trace    string
	recorder *tracefile.Recorder
	about    tracefile.Details
}

func (f *traceFlag) declareTrace(flags *pflag.FlagSet) { declareOption(flags, "trace", &f.trace) }

// checkTrace says why no recording can be written, before work is done.
func (f *traceFlag) checkTrace() error {
	if f.trace == "" {
		return nil
	}
	if err := atomicfile.CheckWritable(f.trace); err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	return nil
}

// record begins the recording, where one is wanted. It is written when the command ends, however it ends: endTrace where
// it comes back, the session where a signal ends the process.
func (f *traceFlag) record(s *Session, command, line string) {
	if f.trace == "" {
		return
	}
	f.recorder = tracefile.New("collage "+command, s.began)
	f.about = tracefile.Details{"command": line, "version": Version, "began": s.began.UTC().Format(time.RFC3339)}
	f.recorder.PhaseFrom("starting", s.began).End(nil)
	s.setLast(func() { _ = f.recorder.WriteFile(f.trace, f.about) })
}

// endTrace is deferred: it writes the recording. err is what the command gives.
func (f *traceFlag) endTrace(s *Session, err *error) {
	if f.recorder == nil {
		return
	}
	s.setLast(nil)
	failure := f.recorder.WriteFile(f.trace, f.about)
	switch {
	case failure == nil && *err != nil:
		fmt.Fprintf(s.Stderr, "collage: what was done until then is in %s\n", f.trace)
	case failure != nil && *err == nil:
		*err = fmt.Errorf("--trace: %w", failure)
	}
}
