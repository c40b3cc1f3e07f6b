// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/internal/stderrtail"
)

// program is a command line of Collage, this one's or an earlier one's, as benchmarks run it: in a process of its own.
type program struct {
	command []string
	// foreign says that it belongs to another checkout: nothing that this one's environment says of Collage holds for
	// it.
	foreign bool
}

// endGrace is how long a program that was told to end may take: TVM's compiler cannot be stopped in the middle of a
// pass.
const endGrace = 30 * time.Second

// start prepares a run. It ends with the context, and with this process; Ctrl-C at a terminal does not reach it by
// itself.
func (p *program) start(ctx context.Context, arguments ...string) *exec.Cmd {
	arguments = append(slices.Clone(p.command[1:]), arguments...)
	command := exec.CommandContext(ctx, p.command[0], arguments...)
	command.Env = os.Environ()
	if p.foreign {
		command.Env = slices.DeleteFunc(command.Env, func(set string) bool {
			return strings.HasPrefix(set, "COLLAGE_") || strings.HasPrefix(set, "PYTHONPATH=")
		})
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	// An interrupt would have it write the best so far.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = endGrace
	return command
}

// usable are those of some backends that it knows and can use.
func (p *program) usable(ctx context.Context, names []string) ([]string, error) {
	said := &stderrtail.Tail{}
	command := p.start(ctx, "backends", "--json")
	command.Stderr = said
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s backends --json: %w: %s", strings.Join(p.command, " "), err, said.LastLine())
	}
	var listed struct {
		Backends []struct {
			Name  string `json:"name"`
			Probe struct {
				Usable bool `json:"usable"`
			} `json:"probe"`
		} `json:"backends"`
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("%s backends --json: %w", strings.Join(p.command, " "), err)
	}
	var some []string
	for _, name := range names {
		for _, b := range listed.Backends {
			if b.Name == name && b.Probe.Usable {
				some = append(some, name)
			}
		}
	}
	return some, nil
}

// modelArguments are those that say what the model of a network is.
func modelArguments(n *bench.Network) []string {
	arguments := []string{n.Model}
	if n.Params != "" {
		arguments = append(arguments, "--params", n.Params)
	}
	if n.Format != "" {
		arguments = append(arguments, "--format", n.Format)
	}
	for name, shape := range n.InputShapes {
		arguments = append(arguments, "--input-shape", name+":"+joinShape(shape))
	}
	return arguments
}

func joinShape(shape []int64) string {
	extents := make([]string, len(shape))
	for i, extent := range shape {
		extents[i] = strconv.FormatInt(extent, 10)
	}
	return strings.Join(extents, ",")
}

// anytimeCompiler has programs compile networks, each as somebody would at a prompt.
type anytimeCompiler struct {
	programs map[string]*program // by the column's name
	threads  int
	asked    time.Duration
	progress *progress.Printer
}

// compile is bench.AnytimeOptions.Compile.
func (a *anytimeCompiler) compile(ctx context.Context, column *bench.AnytimeColumn, n *bench.Network,
	executable string) (*bench.Compilation,
	error) {
	step := a.progress.Start(fmt.Sprintf("compiling %s by %s", n.Name, column.Name), 0)
	made := &bench.Compilation{Found: []bench.Found{}}
	at := strings.TrimSuffix(executable, ".tar")
	for _, path := range []string{executable, at + ".plan.json", at + ".costs.jsonl"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err // an old store would not be empty
		}
	}
	arguments := slices.Concat([]string{"compile"}, modelArguments(n),
		[]string{"-o", executable, "--plan-out", at + ".plan.json",
			"--db", at + ".costs.jsonl", "--backends", strings.Join(column.Backends, ","), "--search-time",
			a.asked.String(), "--threads",
			strconv.Itoa(a.threads)})
	command := a.programs[column.Name].start(ctx, arguments...)
	told, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Path, err)
	}
	said, last := hear(told, began)
	err = command.Wait()
	made.Taken = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		made.Failure = err.Error()
		if last != "" {
			made.Failure = last
		}
		step.Done("%s", made.Failure)
		return made, nil
	}
	text, err := os.ReadFile(at + ".plan.json")
	if err == nil {
		err = made.History(text, said)
	}
	if err != nil {
		return nil, fmt.Errorf("compiled by %s: %w", column.Name, err)
	}
	made.Written = true
	step.Done("%.0f s, %s", made.Taken, made.Kept)
	return made, nil
}

// hear reads what a program writes until it ends: the lines with their times, and the last one.
func hear(from io.Reader, began time.Time) (said []bench.Spoken, last string) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		said = append(said, bench.Spoken{Seconds: time.Since(began).Seconds(), Line: lines.Text()})
		if text := strings.TrimSpace(lines.Text()); text != "" {
			last = text
		}
	}
	_, _ = io.Copy(io.Discard, from) // after a line that is too long, so that the program does not wait
	return said, last
}
