// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Outcome is what became of a mutant.
type Outcome string

// The outcomes. Killed and TimedOut ones were noticed; Survived ones were not, nor Uncovered ones, which no test runs.
// Equivalent ones are listed as such and Broken ones do not compile: neither counts.
const (
	Killed     Outcome = "killed"
	TimedOut   Outcome = "timed out"
	Survived   Outcome = "survived"
	Uncovered  Outcome = "uncovered"
	Equivalent Outcome = "equivalent"
	Broken     Outcome = "broken"
)

// noticed says that the tests say no to the mutant.
func (o Outcome) noticed() bool { return o == Killed || o == TimedOut }

// counts says that the outcome tells something about the tests.
func (o Outcome) counts() bool { return o != Equivalent && o != Broken }

// sandbox builds and runs the tests of one package with one file replaced (go test -overlay): the tree is only read.
type sandbox struct {
	// directory is the package's, scratch a folder for what is built.
	directory, scratch string
	flags              []string // of the test binary
	timeout            time.Duration
}

// addressSpace is how much a test process may map, in KiB: a mutant whose loop never ends must not take the machine
// along.
const addressSpace = 8 << 20

// unchanged runs the tests as they are and gives how long that took, and a line coverage profile.
func (s *sandbox) unchanged(ctx context.Context) (took time.Duration, profile string, err error) {
	binary := filepath.Join(s.scratch, "unchanged.test")
	out, err := s.command(ctx, "go", "test", "-vet=off", "-cover", "-c", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return 0, "", fmt.Errorf("building the tests: %w\n%s", err, out)
	}
	profile = filepath.Join(s.scratch, "cover.out")
	start := time.Now()
	command := s.command(ctx, binary, append(s.flags, "-test.count=1", "-test.coverprofile="+profile)...)
	if out, err := command.CombinedOutput(); err != nil {
		return 0, "", fmt.Errorf("the tests fail without any change: %w\n%s", err, out)
	}
	return time.Since(start), profile, nil
}

// try says what the tests make of a mutant.
func (s *sandbox) try(ctx context.Context, number int, m *Mutant) error {
	name := filepath.Join(s.scratch, strconv.Itoa(number))
	changed, overlay, binary := name+".go", name+".json", name+".test"
	defer func() {
		for _, path := range []string{changed, overlay, binary} {
			os.Remove(path)
		}
	}()
	if err := m.write(changed); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {m.path: changed}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, text, 0o644); err != nil {
		return err
	}
	out, err := s.command(ctx, "go", "test", "-vet=off", "-overlay", overlay, "-c", "-o", binary, ".").CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		m.Outcome, m.Reason = Broken, lastLine(out)
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	// The shell sets the limit and becomes the test.
	arguments := append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, addressSpace), binary}, s.flags...)
	command := s.command(limited, "sh", append(arguments, "-test.count=1", "-test.failfast")...)
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		m.Outcome = TimedOut
	case err == nil:
		m.Outcome = Survived
	case errors.As(err, &exit):
		m.Outcome = Killed
	default:
		return err
	}
	return nil
}

// command is killed with all that it has started.
func (s *sandbox) command(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = s.directory
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = 5 * time.Second
	return command
}

func lastLine(text []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(text)), "\n")
	return lines[len(lines)-1]
}
