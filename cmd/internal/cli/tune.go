// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/settings"
)

var tuneCommand = Command{
	Name:      "tune",
	Arguments: "MODEL -o LOG [--trials N] [--top K]",
	Short:     "have TVM's tuners look for faster code where it would matter",
	Long: `Places a network as collage plan does, and has TVM's own tuners work on the operators that matter: those that TVM
has, or would get if it took half of the time that it takes now, the one that promises most first. The prices of the plan
tell. collage compile, collage plan and collage tune itself use what was found with --tuning-log LOG.

LOG is a file of AutoTVM's records, the best for each operator; all trials stand beside it in LOG.trials. With
--tuner metaschedule it is the folder of a MetaSchedule database. A search that was ended goes on where it was.
What is no faster than what TVM does by itself is left out of LOG.

With --strict a backend that is left out, and an operator that cannot be tuned, end the command with exit code 3; trials
so far are kept.`,
	Examples: []string{
		"tune model.onnx --backends tvm,dnnl,native -o tuned.json",
		"tune model.onnx --trials 1000 --top 3 -o tuned.json",
		"tune model.onnx --tuner metaschedule -o database",
		"compile model.onnx --tuning-log tuned.json -o model.tar",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &tuneAction{flags: flags}
		flags.StringVarP(&a.output, "output", "o", "",
			"write what was found to `LOG`; what is there already is used and kept")
		flags.IntVar(&a.trials, "trials", 300, "try `N` programs for each operator, those of earlier runs included")
		flags.IntVar(&a.top, "top", 5, "tune the `K` operators that promise most")
		flags.StringVar(&a.tuner, "tuner", "auto",
			"`TUNER`: xgboost, genetic, random, metaschedule; auto is xgboost where that is installed")
		a.declareModel(flags)
		a.declarePlacement(flags)
		a.declareStrict(flags)
		a.declareTrace(flags)
		a.declareOutput(flags)
		return a
	},
}

type tuneAction struct {
	modelFlags
	flags         *pflag.FlagSet
	output, tuner string
	trials, top   int
}

// tuners are those of python/collage/tune.py.
var tuners = []string{"auto", "xgboost", "genetic", "random", "metaschedule"}

// tuneReport is what --json prints.
type tuneReport struct {
	Model string `json:"model"`
	Log   string `json:"log"`
	// EstimateMs is what the parts of the network took before, together.
	EstimateMs float64         `json:"estimate_ms"`
	Operators  []tunedOperator `json:"operators"`
	// Left is how many more are worth tuning (--top).
	Left int `json:"left"`
}

// tunedOperator is one computation that was tuned.
type tunedOperator struct {
	Operator  string   `json:"operator"`
	Operators []string `json:"operators"`
	Type      string   `json:"type"`
	Count     int      `json:"count"`
	// TVMMs and PriceMs are what TVM took and what it must take less than; GainMs is what the network would gain if
	// tuning halved the time.
	TVMMs   float64 `json:"tvm_ms"`
	PriceMs float64 `json:"price_ms"`
	Placed  bool    `json:"placed_on_tvm"`
	GainMs  float64 `json:"hoped_gain_ms"`
	// Result is nil where it failed, and Failure says why.
	Result  *compile.TuneResult `json:"result,omitempty"`
	Failure string              `json:"failure,omitempty"`
}

func (a *tuneAction) Check(s *Session, args []string) error {
	if err := expect(&tuneCommand, args, "MODEL"); err != nil {
		return err
	}
	switch {
	case a.output == "":
		return errors.New("where to write what is found is missing: -o LOG")
	case a.trials < 1:
		return fmt.Errorf("--trials %d: at least one program must be tried", a.trials)
	case a.top < 1:
		return fmt.Errorf("--top %d: at least one operator must be tuned", a.top)
	case a.tuningLog != "":
		return fmt.Errorf("--tuning-log %s: collage tune works with the log that it writes, %s", a.tuningLog, a.output)
	case !slices.Contains(tuners, a.tuner):
		return fmt.Errorf("--tuner %s is not known (tuners: %s)", quoteIfNeeded(a.tuner), strings.Join(tuners, ", "))
	}
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if err := a.checkModel(args[0]); err != nil {
		return err
	}
	if err := checkDifferent(usedFile{"MODEL", args[0]}, usedFile{"--params", a.params}, usedFile{"--db", a.store},
		usedFile{"-o", a.output}, usedFile{"--trace", a.trace}); err != nil {
		return err
	}
	if err := a.checkTrace(); err != nil {
		return err
	}
	if err := a.checkLog(); err != nil {
		return err
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	return a.checkBackends(s)
}

// checkLog looks whether what is to be written fits what is there, and takes up what is.
func (a *tuneAction) checkLog() error {
	wantsFolder := a.tuner == "metaschedule"
	info, err := os.Stat(a.output)
	switch {
	case errors.Is(err, fs.ErrNotExist) && wantsFolder:
		if _, err := os.Stat(filepath.Dir(a.output)); err != nil {
			return fmt.Errorf("cannot write %s: the folder %s does not exist", a.output, filepath.Dir(a.output))
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return atomicfile.CheckWritable(a.output)
	case err != nil:
		return fmt.Errorf("-o: %w", err)
	case wantsFolder && !info.IsDir():
		return fmt.Errorf("-o %s is a file; MetaSchedule's database is a folder", a.output)
	case !wantsFolder && info.IsDir():
		return fmt.Errorf("-o %s is a folder; AutoTVM's log is a file (a folder goes with --tuner metaschedule)",
			a.output)
	}
	if wantsFolder {
		if entries, err := os.ReadDir(a.output); err == nil && len(entries) == 0 {
			return nil
		}
	}
	if _, err := settings.TuningDigest(a.output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	// What is tuned already counts when it is decided what is worth tuning.
	a.tuningLog = a.output
	return nil
}

func (a *tuneAction) Run(s *Session, args []string) (err error) {
	a.record(s, "tune", commandLine(&tuneCommand, a.flags, args))
	defer a.endTrace(s, &err)
	options, err := a.begin(s, args[0], "tuning was ended; trials so far are kept beside "+a.output)
	if err != nil {
		return err
	}
	model, err := compile.OpenTuning(s.Context, options)
	if err != nil {
		return err
	}
	defer model.Release()
	report := tuneReport{Model: args[0], Log: a.output, EstimateMs: model.Plan.Estimate.Milliseconds,
		Operators: []tunedOperator{}}
	chosen := model.Tunables
	if len(chosen) > a.top {
		report.Left = len(chosen) - a.top
		chosen = chosen[:a.top]
	}
	for i := range chosen {
		t := &chosen[i]
		entry := tunedOperator{Operator: t.Operator, Operators: t.Operators, Type: t.Type, Count: t.Count,
			TVMMs:   t.Milliseconds,
			PriceMs: t.Price, Placed: t.Placed, GainMs: t.Gain}
		step := options.Progress.Start(fmt.Sprintf("tuning %d of %d: %s %s", i+1, len(chosen), t.Operator, t.Type),
			a.trials)
		entry.Result, err = model.Tune(t, compile.TuneOptions{Tuner: a.tuner, Trials: a.trials, Log: a.output,
			TrialsLog: a.output + ".trials", Progress: func(done, _ int, ms float64) {
				step.At(done, bestText(ms))
			}})
		if s.Context.Err() != nil {
			return s.Context.Err()
		}
		if err != nil && a.strict {
			return &settings.StrictError{Warning: fmt.Sprintf("%s %s could not be tuned: %v", t.Operator, t.Type, err)}
		}
		if err != nil {
			entry.Failure = err.Error()
			step.Done("not tuned: %s", err)
		} else {
			step.Done("%d trials, %d of them failed; %s", entry.Result.Trials, entry.Result.Failed,
				outcomeText(entry.Result))
		}
		report.Operators = append(report.Operators, entry)
	}
	if a.json {
		return s.printJSON(report)
	}
	a.print(s, &report)
	return nil
}

func bestText(ms float64) string {
	if ms == 0 {
		return "nothing works yet"
	}
	return fmt.Sprintf("best %.4g ms", ms)
}

func outcomeText(r *compile.TuneResult) string {
	speed := r.Default / math.Max(r.Tuned, 1e-9)
	if !r.Kept {
		return fmt.Sprintf("what was found is no faster than what TVM does by itself (%.4g ms)", r.Default)
	}
	return fmt.Sprintf("%.4g ms, %.3g times as fast as before (%.4g ms)", r.Tuned, speed, r.Default)
}

func (a *tuneAction) print(s *Session, report *tuneReport) {
	if len(report.Operators) == 0 {
		fmt.Fprintln(s.Stdout, "There is nothing to tune: no operator would make the network faster if TVM took half "+
			"of the time for it.")
		return
	}
	w := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "operator\tresult\tplaces\tTVM\tto beat\ttuned\t")
	for i := range report.Operators {
		o := &report.Operators[i]
		toBeat, tuned := fmt.Sprintf("%.4g ms", o.PriceMs), "failed: "+o.Failure
		if o.Placed {
			toBeat = "itself"
		}
		if o.Result != nil {
			tuned = outcomeText(o.Result)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%.4g ms\t%s\t%s\t\n", o.Operator, o.Type, o.Count, o.TVMMs, toBeat, tuned)
	}
	w.Flush()
	if report.Left > 0 {
		fmt.Fprintf(s.Stdout, "\n%d more are worth tuning (--top %d tunes all).\n", report.Left, report.Left+a.top)
	}
	if slices.ContainsFunc(report.Operators, func(o tunedOperator) bool { return o.Result != nil && o.Result.Kept }) {
		fmt.Fprintf(s.Stdout, "\nTo use it: collage compile %s --tuning-log %s -o model.tar\n", report.Model, a.output)
	}
}
