// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/tuning"
	"github.com/collage-tvm/collage/pass/workers"
)

// Tuning is a model that has been placed, for TVM's tuners. Release it.
type Tuning struct {
	// Plan is the cheapest placement by what parts take alone: that is what tuners change.
	Plan *plan.Plan
	// Tunables are worth tuning, those first that promise most.
	Tunables []tuning.Tunable

	c *compilation
}

// TuneOptions say how one computation is tuned.
type TuneOptions struct {
	// Tuner is one of python/collage/tune.py's; "" lets it choose.
	Tuner string
	// Trials are made at most, those of earlier runs included.
	Trials int
	// Log is the tuning log, TrialsLog AutoTVM's file of all trials.
	Log, TrialsLog string
	// Progress is told after each trial; milliseconds is the best time so far, 0 where there is none.
	Progress func(done, total int, milliseconds float64)
}

// TuneResult is what became of one computation.
type TuneResult struct {
	Tuner string   `json:"tuner"`
	Tasks []string `json:"tasks"`
	// Trials were made, those of earlier runs included; Failed of them did not work.
	Trials int `json:"trials"`
	Failed int `json:"failed"`
	// Default and Tuned are the milliseconds of the computation as TVM makes it by itself, and with what was found: the
	// medians of what was run in turn.
	Default float64 `json:"default_ms"`
	Tuned   float64 `json:"tuned_ms"`
	// Kept says that the log has what was found; it has not where that is no faster.
	Kept bool `json:"kept"`
}

// OpenTuning reads and places a model and says what is worth tuning. Looked at are the options of Decide.
func OpenTuning(ctx context.Context, options Options) (*Tuning, error) {
	c := begin(ctx, options)
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&ModelInfo{}); err != nil {
		return nil, err
	}
	c.Prices = true
	placed, p, err := decide.PlaceParts(ctx, c.module, c.Options.Options)
	if err != nil {
		c.module.Release()
		return nil, err
	}
	placed.Release()
	return &Tuning{Plan: p, Tunables: tuning.Tunables(p), c: c}, nil
}

// Release frees the model.
func (t *Tuning) Release() { t.c.module.Release() }

// Tune has TVM tune one of the Tunables, in a process of its own. The end of the context that the model was opened with
// ends it and all that it started.
func (t *Tuning) Tune(tunable *tuning.Tunable, options TuneOptions) (*TuneResult, error) {
	w, err := tuning.TunableWorkload(t.c.module, tunable)
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(map[string]any{
		"function": w.Function, "constants": w.Constants, "target": t.Plan.Environment.Target,
		"opt_level":       t.c.OptLevel,
		"disabled_passes": disabledPasses, "threads": t.c.Threads, "tuner": options.Tuner, "trials": options.Trials,
		"log": options.Log, "trials_log": options.TrialsLog,
	})
	if err != nil {
		return nil, err
	}
	tuner := exec.Command(t.c.Python, "-m", "collage.tune")
	// TVM's tuners start builders and servers; as one group they can be ended together.
	tuner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tuner.Env = append(append(os.Environ(), workers.WorkerEnvironment()...), "COLLAGE_TUNING_LOG=", "TOPHUB_LOCATION=NONE")
	complaints, err := os.CreateTemp(t.c.Temporary, "collage-tune-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(complaints.Name())
	defer complaints.Close()
	tuner.Stderr = complaints
	in, err := tuner.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := tuner.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := tuner.Start(); err != nil {
		return nil, fmt.Errorf("the tuner cannot be started: %w", err)
	}
	end := func() { syscall.Kill(-tuner.Process.Pid, syscall.SIGKILL) }
	stop := context.AfterFunc(t.c.ctx, end)
	result, err := converse(in, out, spec, options.Progress)
	stop()
	end()
	wait := tuner.Wait()
	switch {
	case t.c.ctx.Err() != nil:
		return nil, t.c.ctx.Err()
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the tuner ended without a word (%v)%s", wait, lastWords(complaints))
	}
	return result, err
}

// converse gives a tuner its work, follows what it says and decides whether what it found is kept. io.EOF: it said
// nothing more.
func converse(in io.WriteCloser, out io.Reader, spec []byte,
	progress func(done, total int, milliseconds float64)) (*TuneResult, error) {
	if _, err := in.Write(append(spec, '\n')); err != nil {
		return nil, io.EOF
	}
	byItself, tuned := 0.0, 0.0
	for replies := json.NewDecoder(out); ; {
		var reply struct {
			Event     string    `json:"event"`
			Done      int       `json:"done"`
			Total     int       `json:"total"`
			BestMs    float64   `json:"best_ms"`
			Detail    string    `json:"detail"`
			DefaultMs []float64 `json:"default_ms"`
			TunedMs   []float64 `json:"tuned_ms"`
			Tuner     string    `json:"tuner"`
			Tasks     []string  `json:"tasks"`
			Trials    int       `json:"trials"`
			Failed    int       `json:"failed"`
			Kept      bool      `json:"kept"`
		}
		switch err := replies.Decode(&reply); {
		case err != nil:
			return nil, io.EOF
		case reply.Event == "progress":
			progress(reply.Done, reply.Total, reply.BestMs)
		case reply.Event == "compared":
			byItself, tuned = statistics.Median(reply.DefaultMs), statistics.Median(reply.TunedMs)
			answer := fmt.Sprintf("{\"keep\": %t}\n", tuning.TuningHelps(reply.DefaultMs, reply.TunedMs))
			if _, err := io.WriteString(in, answer); err != nil {
				return nil, io.EOF
			}
		case reply.Event == "result":
			return &TuneResult{Tuner: reply.Tuner, Tasks: reply.Tasks, Trials: reply.Trials, Failed: reply.Failed,
				Default: byItself, Tuned: tuned, Kept: reply.Kept}, nil
		case reply.Event == "error":
			return nil, errors.New(reply.Detail)
		}
	}
}

// lastWords is the last line that a process wrote to its standard error.
func lastWords(file *os.File) string {
	text, err := os.ReadFile(file.Name())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}
