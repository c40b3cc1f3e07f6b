// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/declared"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/pass/report/page"
	"github.com/collage-tvm/collage/pass/settings"
)

var planCommand = Command{
	Name:      "plan",
	Arguments: "MODEL [--plan-out FILE]",
	Short:     "decide where each operator goes, without an executable",
	Long: `Reads a network, decides where each operator goes, and writes the decision with its proof. MODEL is what collage
compile takes.

It is what the operator level places (collage compile --level operator): plain TVM and every backend alone are built
and run, as far as the cost store does not know them, for what each operator takes in place; what could still gain
something is measured alone; and all is placed once by these costs and by what borders take. What is placed is not
built or run: collage compile does that, beside every backend alone, and its plan is of what it kept. --search-time is
the whole of it. A network that cannot be run as a whole (branches, open dimensions) is placed by what its parts take
alone.

The same network, store and options give the same plan, byte for byte, once everything that is needed is in the store.
(The run that measures says "measured" where the next one says "stored".)

With --frontier whole networks are built and run, as collage compile does it, and how fast they are is told beside how
far off their outputs are: those of them that no other one beats in both. The plan is of the fastest within --max-error.
Behind them is what is believed of all placements, whether they were run or not: the corners that a price of errors
leads to, each of them the fastest that is off by no more, and by how much one between two of them may be faster.

With --costs backends and devices are what a file declares (docs/devices.md), those too that are not there: nothing is run
as a whole then, what the file says counts, and the other backends' parts are measured alone. Name its devices with
--device, and its backends that run on the processor with --backends.

With --svg or --png what runs where is drawn: a box for each operator, in the colour of its backend; with --frontier, time
against error.

collage explain and collage diff read a plan; collage compile --plan builds it without measuring.`,
	Examples: []string{
		"plan model.onnx --backends tvm,dnnl,native --plan-out plan.json",
		"plan model.onnx --db store.jsonl --pin nn.dense=dnnl --forbid %12=tvm",
		"plan workload:resnext50_32x4d --plan-out plan.json --json",
		"plan model.onnx --backends tvm,dnnl,mkl --skip-unusable --dry-run",
		"plan model.onnx --costs npu.json --device npu --plan-out plan.json",
		"plan model.onnx --frontier --max-error 0.02 --svg frontier.svg",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &planAction{flags: flags}
		flags.StringVar(&a.planOut, "plan-out", "", "write the plan to `FILE` (JSON)")
		a.declarePage(flags)
		a.declareTrace(flags)
		flags.StringVar(&a.costs, "costs", "", "take what `FILE` (JSON) says backends and devices take, and measure the rest")
		a.declarePictures(flags)
		a.declareModel(flags)
		a.declarePlacement(flags)
		a.declareStrict(flags)
		flags.BoolVar(&a.frontier, "frontier", false, "tell how fast networks are that are computed less and less exactly")
		declareOption(flags, "search_time", &a.searchTime)
		a.declarePrecision(flags)
		flags.Lookup("precision").DefValue = "auto with --frontier, which these five go with"
		declareDryRun(flags, &a.dry)
		a.declareOutput(flags)
		return a
	},
}

type planAction struct {
	modelFlags
	pageFlag
	pictureFlags
	flags      *pflag.FlagSet
	planOut    string
	costs      string
	frontier   bool
	dry        bool
	searchTime time.Duration
}

// ofTheFrontier are the flags that go with --frontier.
var ofTheFrontier = []string{"precision", "max-error", "error-measure", "calibration", "calibration-method",
	"bias-correction"}

// planReport is what --json prints.
type planReport struct {
	Model   string            `json:"model"`
	Info    compile.ModelInfo `json:"model_info"`
	Notes   []string          `json:"notes"`
	PlanOut string            `json:"plan_out,omitempty"`
	// Page is the file that --report wrote.
	Page   string          `json:"page,omitempty"`
	Report *report.Summary `json:"report"`
}

func (a *planAction) Check(s *Session, args []string) error {
	if err := expect(&planCommand, args, "MODEL"); err != nil {
		return err
	}
	if err := a.checkNumbers(); err != nil {
		return err
	}
	if err := a.checkModel(args[0]); err != nil {
		return err
	}
	err := checkDifferent(usedFile{"MODEL", args[0]}, usedFile{"--params", a.params}, usedFile{"--db", a.store},
		usedFile{"--plan-out", a.planOut}, usedFile{"--costs", a.costs}, usedFile{"--report", a.path()}, usedFile{"--trace", a.trace},
		usedFile{"--svg", a.svg}, usedFile{"--png", a.png})
	if err != nil {
		return err
	}
	if err := a.checkFrontier(); err != nil {
		return err
	}
	if err := a.checkPage(); err != nil {
		return err
	}
	if err := a.checkPictures(); err != nil {
		return err
	}
	if err := a.checkTrace(); err != nil {
		return err
	}
	if a.planOut != "" {
		if err := atomicfile.CheckWritable(a.planOut); err != nil {
			return err
		}
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	if err := a.declare(); err != nil {
		return err
	}
	if err := a.checkBackends(s); err != nil {
		return err
	}
	asked := settings.Config{Strict: a.strict, Precision: a.precision}
	return asked.CheckStrict()
}

// declare has what the file of costs says hold until the command ends.
func (a *planAction) declare() error {
	if a.costs == "" {
		return nil
	}
	if a.frontier {
		return errors.New("--costs does not go with --frontier, which runs networks")
	}
	file, err := declared.Read(a.costs)
	if err != nil {
		return fmt.Errorf("--costs: %w", err)
	}
	if _, err = file.Declare(); err != nil {
		return fmt.Errorf("--costs: %w", err)
	}
	return nil
}

// checkFrontier looks at the time, and at what goes with --frontier.
func (a *planAction) checkFrontier() error {
	if a.searchTime <= 0 {
		return fmt.Errorf("--search-time %v: name some time, as in 90s", a.searchTime)
	}
	if !a.frontier {
		for _, name := range ofTheFrontier {
			if typed(a.flags, name) {
				return fmt.Errorf("--%s goes with --frontier: without, what is placed is not run", name)
			}
		}
		a.precision = settings.Precision{}
		return nil
	}
	if !a.flags.Changed("precision") {
		a.precision.Allowed = settings.PrecisionAuto
	}
	if a.precision.Limit() == (cost.Limit{}) {
		return errors.New("--frontier with --precision f32 needs --max-error: without, no errors are taken")
	}
	return nil
}

// decide places the network; with --frontier by running what is placed, too.
func (a *planAction) decide(s *Session, options compile.Options) (*compile.Result, error) {
	var err error
	if options.Temporary, err = s.temporaryFolder(); err != nil {
		return nil, err
	}
	options.SearchTime, options.Began = a.searchTime, s.began
	options.Ending = &decide.Ending{}
	s.setEnd(options.Ending.End, a.endResult())
	defer s.setEnd(nil, "")
	if !a.frontier {
		return compile.Decide(s.Context, options)
	}
	options.Output, options.Rounds = filepath.Join(options.Temporary, "fastest.tar"), frontierRounds
	options.Corners = true
	return compile.Compile(s.Context, options)
}

// endResult is what comes of a search that is ended early.
func (a *planAction) endResult() string {
	made, files := "the plan by what is known now", []string{}
	if a.frontier {
		made = "the frontier of what was run"
	}
	for _, file := range []string{a.planOut, a.svg, a.png, a.path()} {
		if file != "" {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return made + " is shown, and not written"
	}
	return made + " is shown, and written to " + strings.Join(files, " and ")
}

// frontierRounds is how often the finalists run in turn: what is told is what the search measured.
const frontierRounds = 5

func (a *planAction) Run(s *Session, args []string) (err error) {
	if !a.dry {
		a.record(s, "plan", commandLine(&planCommand, a.flags, args))
		defer a.endTrace(s, &err)
	}
	options, err := a.begin(s, args[0], "no plan was written")
	if err != nil {
		return err
	}
	if a.dry {
		dry := dryRun{modelFlags: &a.modelFlags, model: args[0], level: string(settings.OperatorLevel), time: a.searchTime,
			writes: []string{a.planOut, a.svg, a.png, a.path()}}
		if a.frontier {
			dry.level = string(settings.GraphLevel)
		}
		return dry.run(s, options, nil)
	}
	result, err := a.decide(s, options)
	if err != nil {
		return err
	}
	a.recorder.Phase("writing the plan and the report")
	if a.planOut != "" {
		if err := writePlan(a.planOut, result.Plan); err != nil {
			return err
		}
	}
	if err := a.draw(result.Plan); err != nil {
		return err
	}
	err = a.writePage(page.Content{Plan: result.Plan, Command: commandLine(&planCommand, a.flags, args),
		CommandSays: "This makes it again:",
		Notes:       result.Notes})
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(planReport{Model: args[0], Info: result.Model, Notes: append([]string{}, result.Notes...),
			PlanOut: a.planOut, Page: a.path(), Report: report.Summarise(result.Plan)})
	}
	summary := report.Summarise(result.Plan)
	write := func() error { return summary.WriteText(s.Stdout, report.Options{Verbose: a.verbose}) }
	if a.frontier {
		write = func() error { return summary.WriteFrontier(s.Stdout) }
	}
	if err := write(); err != nil {
		return err
	}
	fmt.Fprintln(s.Stdout)
	for _, note := range result.Notes {
		fmt.Fprintln(s.Stdout, note)
	}
	a.tellPictures(s.Stdout)
	if a.folder != "" {
		fmt.Fprintf(s.Stdout, "wrote the report %s\n", a.path())
	}
	if a.planOut == "" {
		_, err = fmt.Fprintln(s.Stdout, "The plan was not written (--plan-out FILE writes it).")
	} else {
		_, err = fmt.Fprintf(s.Stdout, "wrote the plan %s\n", a.planOut)
	}
	return err
}

// draw draws the placement, with --frontier the frontier.
func (a *planAction) draw(p *plan.Plan) error {
	if !a.frontier {
		return a.writePictures(p)
	}
	return a.write(func(w io.Writer) error { return bench.FrontierPicture(w, p, chart.SVG) },
		func(w io.Writer) error { return bench.FrontierPicture(w, p, chart.PNG) })
}

func writePlan(path string, p *plan.Plan) error {
	text, err := p.Encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { _, err := w.Write(text); return err })
}
