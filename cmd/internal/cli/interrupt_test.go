// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// interruptedEnv makes the test's program one that is interrupted: its value says how.
const interruptedEnv = "COLLAGE_TEST_INTERRUPTED"

// TestInterruptedProgram is the program that TestInterrupts starts; by itself it does nothing.
func TestInterruptedProgram(t *testing.T) {
	how := os.Getenv(interruptedEnv)
	if how == "" {
		return
	}
	interrupt := func() { assert.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT)) }
	s := newSession(os.Stdout, os.Stderr)
	s.watchSignals()
	s.setInterruptNote("no executable was written")
	var ended atomic.Bool
	s.setEnd(func() bool {
		if how == "nothing" {
			return false
		}
		ended.Store(true)
		return true
	}, "half of it is written")
	interrupt()
	if how == "nothing" {
		<-s.Context.Done()
		os.Exit(7)
	}
	for !ended.Load() {
		time.Sleep(time.Millisecond)
	}
	if how == "once" {
		// Longer than a command may take that does not come back after an interrupt without a result.
		time.Sleep(interruptGrace + 500*time.Millisecond)
		if s.Context.Err() != nil {
			os.Exit(8)
		}
		s.close()
		os.Exit(9)
	}
	interrupt()
	time.Sleep(time.Minute)
}

func TestInterrupts(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]int{"nothing": 7, "once": 9, "twice": exitInterrupted} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			program, err := os.Executable()
			require.NoError(t, err)
			command := exec.Command(program, "-test.run=^TestInterruptedProgram$")
			command.Env = append(os.Environ(), interruptedEnv+"="+how)
			var stderr bytes.Buffer
			command.Stderr = &stderr
			err = command.Run()
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), "%v", err)
			assert.Equal(t, want, exit.ExitCode(), stderr.String())
			assert.Equal(t, how != "nothing", strings.Contains(stderr.String(), "ending the search; half of it is written"))
			assert.Equal(t, how == "twice", strings.Contains(stderr.String(), "interrupted; no executable was written"))
		})
	}
}

func TestWhatComesOfAPlanThatIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		action planAction
		want   string
	}{
		{planAction{}, "the plan by what is known now is shown, and not written"},
		{planAction{planOut: "p.json"}, "the plan by what is known now is shown, and written to p.json"},
		{planAction{frontier: true}, "the frontier of what was run is shown, and not written"},
		{planAction{frontier: true, planOut: "p.json", pictureFlags: pictureFlags{svg: "f.svg"}},
			"the frontier of what was run is shown, and written to p.json and f.svg"},
	} {
		assert.Equal(t, of.want, of.action.endResult())
	}
}
