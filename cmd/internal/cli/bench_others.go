// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/stderrtail"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/workers"
)

// beforeColumn is the column of what an earlier checkout made.
const beforeColumn = "before"

// benchOthers are the columns of bench all that are no peers: some backends alone, and an earlier checkout of Collage.
type benchOthers struct {
	alone []string
	// ablation adds what parts of the search find: each compilation, that of Collage's own column too, begins with an
	// empty store.
	ablation bool
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
		return fmt.Errorf("--before %s: there is no .venv/bin/collage in it; it is a checkout of Collage after make "+
			"setup", o.before)
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
	if o.ablation {
		for _, reach := range decide.Reaches {
			columns = append(columns, bench.Other{Name: reach.String(), Version: reachVersions[reach]})
		}
	}
	for _, name := range o.alone {
		columns = append(columns, bench.Other{Name: aloneColumn(name), Version: name +
			" with TVM for what it does not take, nothing searched"})
	}
	return columns
}

// reachVersions say what the columns of --ablation are.
var reachVersions = map[decide.Reach]string{
	decide.ReachParts: "candidates measured by themselves for as long as there is time, their placement beside " +
		"plain TVM",
	decide.ReachSeeds:    "every backend alone first, candidates where they might gain, the placements of that",
	decide.ReachFeedback: "the same and placed again by what was seen in place, without what is next to the best",
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
	if o.ablation {
		for _, reach := range decide.Reaches {
			made, err := o.buildReach(ctx, options, n, folder, reach)
			if err != nil {
				return err
			}
			n.Others[reach.String()] = made
		}
	}
	for _, name := range o.alone {
		options.Output = filepath.Join(folder, n.Name+".alone-"+name+".tar")
		n.Others[aloneColumn(name)] = builtOnce(options.Output, func() error {
			_, err := compile.Alone(ctx, options, name)
			return err
		})
	}
	if o.before != "" {
		options.Output = filepath.Join(folder, n.Name+"."+beforeColumn+".tar")
		n.Others[beforeColumn] = builtOnce(options.Output, func() error { return o.compileBefore(ctx, options, n) })
	}
	return ctx.Err()
}

// buildReach compiles a network by some parts of the search, or takes what is there already.
func (o *benchOthers) buildReach(ctx context.Context, options compile.Options, n *bench.Network, folder string,
	reach decide.Reach) (bench.Alone,
	error) {
	at := filepath.Join(folder, n.Name+"."+strings.ReplaceAll(reach.String(), " ", "-"))
	options.Output, options.Reach = at+".tar", reach
	if err := emptyStore(&options); err != nil {
		return bench.Alone{}, err
	}
	made := builtOnce(options.Output, func() error { return compileKept(ctx, options, at+".plan.json") })
	if p, err := plan.ReadFile(at + ".plan.json"); err == nil && made.Failure == "" {
		made.Found(p)
	}
	return made, ctx.Err()
}

// compileKept compiles a network, and keeps its plan in a file; what was built on the way is removed.
func compileKept(ctx context.Context, options compile.Options, planFile string) error {
	folder, err := os.MkdirTemp(options.Temporary, "compile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	options.Temporary = folder
	result, err := compile.Compile(ctx, options)
	if err != nil {
		return err
	}
	return writePlan(planFile, result.Plan)
}

// emptyStore gives a compilation a store of its own beside what it writes, empty where that is not there yet.
func emptyStore(options *compile.Options) error {
	options.Store = strings.TrimSuffix(options.Output, filepath.Ext(options.Output)) + ".costs.jsonl"
	if _, err := os.Stat(options.Output); err == nil {
		return nil
	}
	if err := os.Remove(options.Store); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
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

// program is the earlier checkout's command line.
func (o *benchOthers) program() *program {
	return &program{command: []string{filepath.Join(o.before, ".venv", "bin", "collage")}, foreign: true}
}

// compileBefore has the earlier checkout compile a network, with the backends that it takes where none are named. A
// workload that it does not have is given to it as the ONNX model that engines without Relay are given.
func (o *benchOthers) compileBefore(ctx context.Context, options compile.Options, n *bench.Network) error {
	step := options.Progress.Start("compiling "+options.Model+" by "+o.before, 0)
	began := time.Now()
	err := o.runBefore(ctx, options, modelArguments(n))
	if err != nil && ctx.Err() == nil && strings.HasPrefix(n.Model, workloadPrefix) {
		written := options.Output + ".onnx"
		defer os.Remove(written)
		if bench.WriteONNX(ctx, options.Python, workers.WorkerEnvironment(), n, written) != nil {
			return err // what the checkout says of its own is the better reason
		}
		err = o.runBefore(ctx, options, []string{written})
	}
	if err != nil {
		return err
	}
	step.Done("%.0f s", time.Since(began).Seconds())
	return nil
}

// runBefore has the earlier checkout compile what the arguments name.
func (o *benchOthers) runBefore(ctx context.Context, options compile.Options, model []string) error {
	command := o.program().start(ctx, slices.Concat([]string{"compile"}, model,
		[]string{"-q", "-o", options.Output,
			"--threads", strconv.Itoa(options.Threads), "--level", string(options.Level), "--search-time",
			options.SearchTime.String(),
			"--db", options.Output + ".costs.jsonl"})...)
	said := &stderrtail.Tail{}
	command.Stderr = said
	if err := command.Run(); err != nil {
		if last := said.LastLine(); last != "" {
			return errors.New(last)
		}
		return err
	}
	return nil
}
