// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/stderrtail"
)

// beforeColumn is the column of what an earlier checkout made.
const beforeColumn = "before"

// benchOthers are the columns of bench all that are no peers: some backends alone, and an earlier checkout of Collage.
type benchOthers struct {
	alone []string
	// before is the earlier checkout's folder; "" for none.
	before string
}

// check looks for the backends and for the checkout.
func (o *benchOthers) check() error {
	for _, name := range o.alone {
		b, err := byoc.Lookup(name)
		if err != nil {
			return fmt.Errorf("--alone: %w", err)
		}
		if probe := b.Probe(); !probe.Usable {
			return fmt.Errorf("--alone %s: it cannot be used here: %s", name, probe.Reason)
		}
	}
	if o.before == "" {
		return nil
	}
	folder, err := filepath.Abs(o.before)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, ".venv", "bin", "collage")); err != nil {
		return fmt.Errorf("--before %s: there is no .venv/bin/collage in it; it is a checkout of Collage after make setup", o.before)
	}
	o.before = folder
	return nil
}

// columns are those of a report.
func (o *benchOthers) columns() []bench.Other {
	var columns []bench.Other
	if o.before != "" {
		// The other checkout's Python finds its own collage, not this one's.
		columns = append(columns, bench.Other{Name: beforeColumn, Version: "an earlier Collage, " + revision(o.before),
			Python: filepath.Join(o.before, ".venv", "bin", "python"), Env: []string{"PYTHONPATH="}})
	}
	for _, name := range o.alone {
		columns = append(columns, bench.Other{Name: aloneColumn(name), Version: name + " with TVM for what it does not take, nothing searched"})
	}
	return columns
}

func aloneColumn(backend string) string { return backend + " alone" }

// revision is a checkout's commit, as far as git tells it.
func revision(folder string) string {
	text, err := exec.Command("git", "-C", folder, "describe", "--always", "--dirty").Output()
	if err != nil {
		return "commit unknown"
	}
	return "commit " + strings.TrimSpace(string(text))
}

// build fills in a network's Others, and keeps the executables in a folder; one that is there already is taken.
func (o *benchOthers) build(ctx context.Context, options compile.Options, n *bench.Network, folder string) error {
	n.Others = map[string]bench.Alone{}
	options = modelOf(options, n)
	for _, name := range o.alone {
		options.Output = filepath.Join(folder, n.Name+".alone-"+name+".tar")
		n.Others[aloneColumn(name)] = builtOnce(options.Output, func() error {
			_, err := compile.Alone(ctx, options, name)
			return err
		})
	}
	if o.before != "" {
		options.Output = filepath.Join(folder, n.Name+"."+beforeColumn+".tar")
		n.Others[beforeColumn] = builtOnce(options.Output, func() error { return o.compileBefore(ctx, options) })
	}
	return ctx.Err()
}

// builtOnce has an executable built where it is not there yet.
func builtOnce(path string, build func() error) bench.Alone {
	if _, err := os.Stat(path); err == nil {
		return bench.Alone{Executable: path}
	}
	if err := build(); err != nil {
		return bench.Alone{Failure: err.Error()}
	}
	return bench.Alone{Executable: path}
}

// compileBefore has the earlier checkout compile a network, with the backends that it takes where none are named.
func (o *benchOthers) compileBefore(ctx context.Context, options compile.Options) error {
	step := options.Progress.Start("compiling "+options.Model+" by "+o.before, 0)
	began := time.Now()
	arguments := []string{"compile", options.Model, "-q", "-o", options.Output, "--threads", strconv.Itoa(options.Threads),
		"--level", string(options.Level), "--search-time", options.SearchTime.String(), "--db", options.Output + ".costs.jsonl"}
	if options.Params != "" {
		arguments = append(arguments, "--params", options.Params)
	}
	if options.Format != "" {
		arguments = append(arguments, "--format", options.Format)
	}
	for name, shape := range options.InputShapes {
		arguments = append(arguments, "--input-shape", name+":"+joinShape(shape))
	}
	command := exec.CommandContext(ctx, filepath.Join(o.before, ".venv", "bin", "collage"), arguments...)
	said := &stderrtail.Tail{}
	command.Stderr = said
	command.Env = append(os.Environ(), "PYTHONPATH=")
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	if err := command.Run(); err != nil {
		if last := said.LastLine(); last != "" {
			return errors.New(last)
		}
		return err
	}
	step.Done("%.0f s", time.Since(began).Seconds())
	return nil
}

func joinShape(shape []int64) string {
	extents := make([]string, len(shape))
	for i, extent := range shape {
		extents[i] = strconv.FormatInt(extent, 10)
	}
	return strings.Join(extents, ",")
}
