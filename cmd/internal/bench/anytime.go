// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/atomicfile"
)

// closeEnough is how much slower than the best that was ever found an executable may be to count as found.
const closeEnough = 1.03

// AnytimeOptions say what to compile, with which programs, and what to hold the results against.
type AnytimeOptions struct {
	// NetworkOptions say how what was written is run in turn; of Others it makes use as RunNetworks does. Keep is a
	// folder: what was taken is kept there, and taken from there.
	NetworkOptions
	// Asked is how long each compilation may take.
	Asked time.Duration
	// At are the seconds that the table is for.
	At []float64
	// Columns are the programs.
	Columns []AnytimeColumn
	// Reference has the best latency that is known from elsewhere, by the network's name.
	Reference map[string]float64
	// Compile has one of the programs compile a network from an empty store into a file, beside which it may put others
	// of that name.
	Compile func(ctx context.Context, column *AnytimeColumn, n *Network, executable string) (*Compilation, error)
}

// AnytimeColumn is a program that compiles: this Collage, or an earlier one.
type AnytimeColumn struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Backends are those that it was given.
	Backends []string `json:"backends"`
	// Python and Env run what it wrote; "" for those of the options.
	Python string   `json:"-"`
	Env    []string `json:"-"`
}

// Compilation is one compilation as a user sees it: seconds are from the start of the program.
type Compilation struct {
	// Taken is how long it took until the program had ended, Kept what the plan says was kept, and Written says that
	// there is an executable.
	Taken   float64 `json:"taken_seconds"`
	Kept    string  `json:"kept,omitempty"`
	Written bool    `json:"written"`
	// Found are the networks that were the fastest so far, each when that was known.
	Found []Found `json:"found"`
	// Failure says why there is none, or why it was not run.
	Failure string `json:"failure,omitempty"`
}

// Found is a network that was the fastest so far.
type Found struct {
	Seconds float64 `json:"seconds"`
	// Name is what the search called it, and Ratio its time over plain TVM's in the same rounds.
	Name  string  `json:"name"`
	Ratio float64 `json:"to_tvm"`
}

// AnytimeReport is how fast the fastest executable so far was, second by second, while networks were compiled.
type AnytimeReport struct {
	Machine machine.Info `json:"machine"`
	// Load is over what was taken now, compilations and turns.
	Load    machine.Load    `json:"load"`
	Taken   time.Time       `json:"taken"`
	Threads int             `json:"threads"`
	Rounds  int             `json:"rounds"`
	TurnMS  float64         `json:"turn_ms"`
	Asked   float64         `json:"asked_seconds"`
	At      []float64       `json:"at_seconds"`
	Columns []AnytimeColumn `json:"columns"`
	Rows    []AnytimeRow    `json:"networks"`
}

// AnytimeRow is a network.
type AnytimeRow struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	// TVM is what plain TVM takes, in turn with what the programs wrote.
	TVM float64 `json:"tvm_ms"`
	// Best is the least latency of what any program wrote, or of the reference; By says whose it is.
	Best float64 `json:"best_ms,omitempty"`
	By   string  `json:"best_by,omitempty"`
	// Load is that of the turns.
	Load machine.Load `json:"load"`
	// Runs are in the order of the report's Columns.
	Runs []AnytimeRun `json:"runs"`
}

// AnytimeRun is a network compiled by one of the programs.
type AnytimeRun struct {
	Column string `json:"column"`
	Compilation
	// Load is that of the compilation.
	Load machine.Load `json:"load"`
	// Median is what was written, run in turn; Turns are its turns.
	Median float64   `json:"median_ms,omitempty"`
	Turns  []float64 `json:"turns_ms,omitempty"`
	// Latencies are those of the best executable so far after AnytimeReport.At seconds, by the search's ratios and what
	// was written takes until the program had ended; 0 where there was none.
	Latencies []float64 `json:"latencies_ms"`
	// Within is when the best executable so far was within closeEnough of Best, and stayed so; 0 for never.
	Within float64 `json:"within_seconds,omitempty"`
}

// anytimeKept is what is kept of a network, so that an interrupted benchmark goes on.
type anytimeKept struct {
	Row AnytimeRow `json:"row"`
	// Settings are what each of the runs was taken with, by its column.
	Settings map[string]string `json:"settings"`
	// InTurn says how what was written was run in turn; "" where that is still to be done.
	InTurn string `json:"in_turn"`
}

// RunAnytime has each network compiled by each program, one after another, and then runs what they wrote in turn beside
// plain TVM. Its errors are those that leave nothing to report: the context ended, TVM cannot run a network, Compile
// cannot start.
func RunAnytime(ctx context.Context, networks []Network, o *AnytimeOptions) (*AnytimeReport, error) {
	r := &AnytimeReport{Machine: machine.Here(), Taken: time.Now().UTC().Truncate(time.Second), Threads: o.Threads,
		Rounds: o.Rounds,
		TurnMS: float64(o.Turn) / float64(time.Millisecond), Asked: o.Asked.Seconds(), At: o.At, Columns: o.Columns}
	meter := machine.StartMeter()
	for i := range networks {
		row, err := o.take(ctx, &networks[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", networks[i].Name, err)
		}
		row.judge(o.At, o.Reference)
		r.Rows = append(r.Rows, *row)
	}
	r.Load = meter.Stop()
	return r, nil
}

// take compiles a network by each program and runs what they wrote, as far as that is not kept.
func (o *AnytimeOptions) take(ctx context.Context, n *Network) (*AnytimeRow, error) {
	folder := o.Keep
	if folder == "" {
		folder = o.Temporary
	}
	path := filepath.Join(folder, n.Name+".anytime.json")
	before, err := readKept[anytimeKept](path)
	if err != nil {
		return nil, err
	}
	kept := &anytimeKept{Row: AnytimeRow{Name: n.Name, Model: n.given(), TVM: before.Row.TVM, Load: before.Row.Load},
		Settings: map[string]string{}}
	save := func() error {
		return atomicfile.Write(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(kept) })
	}
	inTurn := fmt.Sprintf("%d turns of %v:", o.Rounds, o.Turn)
	var executables []string
	for i := range o.Columns {
		column := &o.Columns[i]
		setting := fmt.Sprintf("%v of %s, %d threads", o.Asked, column.Backends, o.Threads)
		inTurn += " " + column.Name
		executable := filepath.Join(folder, n.Name+"."+column.Name+".tar")
		run, there := before.run(column.Name, setting, executable)
		if there {
			o.Progress.Note("%s by %s: taken from %s", n.Name, column.Name, path)
		} else {
			before.InTurn = ""
			meter := machine.StartMeter()
			made, err := o.Compile(ctx, column, n, executable)
			if err != nil {
				return nil, err
			}
			run = &AnytimeRun{Column: column.Name, Compilation: *made, Load: meter.Stop()}
		}
		if kept.Settings[column.Name] = setting; run.Written {
			executables = append(executables, executable)
		} else {
			executables = append(executables, "")
		}
		kept.Row.Runs = append(kept.Row.Runs, *run)
		if !there {
			if err := save(); err != nil {
				return nil, err
			}
		}
	}
	if before.InTurn == inTurn {
		return &kept.Row, nil
	}
	if err := o.inTurn(ctx, n, executables, &kept.Row); err != nil {
		return nil, err
	}
	kept.InTurn = inTurn
	return &kept.Row, save()
}

// run is what a program did, where it was taken with the same setting and what it wrote is there still.
func (k *anytimeKept) run(column, setting, executable string) (*AnytimeRun, bool) {
	i := slices.IndexFunc(k.Row.Runs, func(run AnytimeRun) bool { return run.Column == column })
	if i < 0 || k.Settings[column] != setting {
		return nil, false
	}
	run := &k.Row.Runs[i]
	if !run.Written {
		return run, true // it failed
	}
	_, err := os.Stat(executable)
	return run, err == nil
}

// inTurn runs what was written in turn, plain TVM beside it.
func (o *AnytimeOptions) inTurn(ctx context.Context, n *Network, executables []string, row *AnytimeRow) error {
	c := contest{NetworkOptions: &o.NetworkOptions, network: n}
	tvm := &contestant{name: tvmEngine, engine: tvmEngine, python: o.Python, env: o.Env, needed: true}
	c.contestants = []*contestant{tvm}
	for i := range row.Runs {
		column := o.Columns[i]
		if column.Python == "" {
			column.Python, column.Env = o.Python, o.Env
		}
		c.contestants = append(c.contestants,
			&contestant{name: column.Name, engine: Ours, python: column.Python, env: column.Env,
				executable: executables[i], failure: missing(&row.Runs[i])})
	}
	load, err := c.run(ctx)
	if err != nil {
		return err
	}
	row.TVM, row.Load = tvm.cell.Median, load
	for i := range row.Runs {
		cell := &c.contestants[i+1].cell
		row.Runs[i].Median, row.Runs[i].Turns = 0, nil
		switch {
		case cell.Wrong:
			row.Runs[i].Failure = fmt.Sprintf("its outputs differ from TVM's by up to %.2g, where the greatest is %.2g",
				cell.MaxError, cell.Greatest)
		case cell.Absent != "":
			row.Runs[i].Failure = cell.Absent
		default:
			row.Runs[i].Median, row.Runs[i].Turns, row.Runs[i].Failure = cell.Median, cell.Turns, ""
		}
	}
	return nil
}

// missing says why there is no executable; "" where there is one.
func missing(run *AnytimeRun) string {
	if run.Written {
		return ""
	}
	return run.Failure
}

// judge fills in what follows from the runs: the best, and what each had when.
func (row *AnytimeRow) judge(at []float64, reference map[string]float64) {
	row.Best, row.By = 0, ""
	if best := reference[row.Name]; best > 0 {
		row.Best, row.By = best, "reference"
	}
	for _, run := range row.Runs {
		if run.Median > 0 && (row.Best == 0 || run.Median < row.Best) {
			row.Best, row.By = run.Median, run.Column
		}
	}
	for i := range row.Runs {
		run := &row.Runs[i]
		run.Latencies = make([]float64, len(at))
		for k, seconds := range at {
			run.Latencies[k] = run.latency(seconds, row.TVM)
		}
		run.Within = run.within(closeEnough * row.Best)
	}
}

// whole is the time that a search's ratios are shares of: by them the last network that was the fastest takes what was
// written takes. Networks run in turn with the fastest before them, so that these ratios hold beside one another, while
// plain TVM's own time moves by a quarter from one minute to the next. Where nothing was written it is plain TVM's.
func (run *AnytimeRun) whole(tvm float64) float64 {
	if n := len(run.Found); n > 0 && run.Median > 0 && run.Found[n-1].Ratio > 0 {
		return run.Median / run.Found[n-1].Ratio
	}
	return tvm
}

// latency is that of the best executable so far after so many seconds, in milliseconds; 0 where there is none. tvm is
// what plain TVM takes.
func (run *AnytimeRun) latency(seconds, tvm float64) float64 {
	if run.Median > 0 && seconds >= run.Taken {
		return run.Median
	}
	ms := 0.0
	for _, found := range run.Found {
		if found.Seconds <= seconds {
			ms = found.Ratio * run.whole(tvm)
		}
	}
	return ms
}

// within is the first second from which on the best executable is not above a limit; 0 for never.
func (run *AnytimeRun) within(limit float64) float64 {
	if run.Median <= 0 || run.Median > limit {
		return 0
	}
	since := run.Taken
	for _, found := range slices.Backward(run.Found) {
		if found.Seconds >= run.Taken {
			continue
		}
		if found.Ratio*run.whole(0) > limit {
			break
		}
		since = found.Seconds
	}
	return since
}
