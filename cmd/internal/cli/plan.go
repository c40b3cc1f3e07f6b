// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/bench"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
)

var planCommand = Command{
	Name:      "plan",
	Arguments: "MODEL [--plan-out FILE]",
	Short:     "decide where each operator goes, without building",
	Long: `Reads a network, measures what the cost store does not know yet, decides where each operator goes, and writes the
decision with its proof. Nothing of the whole network is built or run. MODEL is what collage compile takes.

The same network, store and options give the same plan, byte for byte, once everything that is needed is in the store.
(The run that measures says "measured" where the next one says "stored".) It is what is the cheapest by what parts take alone.
collage compile runs whole networks beside it, the backends alone among them, and may keep another: its plan is of what it kept.

With --frontier whole networks are built and run, as collage compile does it, and how fast they are is told beside how far
off their outputs are: those of them that no other one beats in both. The plan is of the fastest within --max-error. Behind
them is what is believed of all placements, whether they were run or not: the corners that a price of errors leads to, each of
them the fastest that is off by no more, and by how much one between two of them may be faster.

collage explain and collage diff read a plan; collage compile --plan builds it without measuring.`,
	Examples: []string{
		"plan model.onnx --backends tvm,dnnl,native --plan-out plan.json",
		"plan model.onnx --db store.jsonl --pin nn.dense=dnnl --forbid %12=tvm",
		"plan workload:resnext50_32x4d --plan-out plan.json --json",
		"plan model.onnx --frontier --max-error 0.02 --svg frontier.svg",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &planAction{flags: flags}
		flags.StringVar(&a.planOut, "plan-out", "", "write the plan to `FILE` (JSON)")
		a.declareModel(flags)
		a.declarePlacement(flags)
		flags.BoolVar(&a.frontier, "frontier", false, "tell how fast networks are that are computed less and less exactly")
		flags.StringVar(&a.svg, "svg", "", "with --frontier, write a picture of it to `FILE` (SVG)")
		flags.DurationVar(&a.searchTime, "search-time", graphlevel.DefaultTime, "with --frontier, the whole takes `TIME`")
		a.declarePrecision(flags)
		flags.Lookup("precision").DefValue = "auto with --frontier, which these five go with"
		a.declareOutput(flags)
		return a
	},
}

type planAction struct {
	modelFlags
	flags      *pflag.FlagSet
	planOut    string
	frontier   bool
	svg        string
	searchTime time.Duration
}

// ofTheFrontier are the flags that go with --frontier.
var ofTheFrontier = []string{"svg", "search-time", "precision", "max-error", "error-measure", "calibration",
	"calibration-method"}

// planReport is what --json prints.
type planReport struct {
	Model   string            `json:"model"`
	Info    compile.ModelInfo `json:"model_info"`
	Notes   []string          `json:"notes"`
	PlanOut string            `json:"plan_out,omitempty"`
	Report  *report.Summary   `json:"report"`
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
		usedFile{"--plan-out", a.planOut}, usedFile{"--svg", a.svg})
	if err != nil {
		return err
	}
	if err := a.checkFrontier(); err != nil {
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
	return a.checkBackends(s)
}

// checkFrontier looks at what goes with --frontier.
func (a *planAction) checkFrontier() error {
	if !a.frontier {
		for _, name := range ofTheFrontier {
			if a.flags.Changed(name) {
				return fmt.Errorf("--%s goes with --frontier: without, nothing of the whole network is run", name)
			}
		}
		a.precision = pass.Precision{}
		return nil
	}
	if a.searchTime <= 0 {
		return fmt.Errorf("--search-time %v: name some time, as in 90s", a.searchTime)
	}
	if !a.flags.Changed("precision") {
		a.precision.Allowed = pass.PrecisionAuto
	}
	if a.precision.Limit() == (cost.Limit{}) {
		return errors.New("--frontier with --precision f32 needs --max-error: without, no errors are taken")
	}
	if a.svg != "" {
		return atomicfile.CheckWritable(a.svg)
	}
	return nil
}

// decide places the network; with --frontier by running whole ones.
func (a *planAction) decide(s *Session, options compile.Options) (*compile.Result, error) {
	if !a.frontier {
		return compile.Decide(s.Context, options)
	}
	var err error
	if options.Temporary, err = s.temporaryFolder(); err != nil {
		return nil, err
	}
	options.Output = filepath.Join(options.Temporary, "fastest.tar")
	options.SearchTime, options.Began, options.Rounds = a.searchTime, s.began, frontierRounds
	options.Ending, options.Corners = &decide.Ending{}, true
	s.setEnd(options.Ending.End)
	defer s.setEnd(nil)
	return compile.Compile(s.Context, options)
}

// frontierRounds is how often the finalists run in turn: what is told is what the search measured.
const frontierRounds = 5

func (a *planAction) Run(s *Session, args []string) error {
	options, err := a.begin(s, args[0], "no plan was written")
	if err != nil {
		return err
	}
	result, err := a.decide(s, options)
	if err != nil {
		return err
	}
	if a.planOut != "" {
		if err := writePlan(a.planOut, result.Plan); err != nil {
			return err
		}
	}
	if a.svg != "" {
		err := atomicfile.Write(a.svg, func(w io.Writer) error { return bench.FrontierPicture(w, result.Plan) })
		if err != nil {
			return fmt.Errorf("--svg %s: %w", a.svg, err)
		}
	}
	if a.json {
		return s.printJSON(planReport{Model: args[0], Info: result.Model, Notes: append([]string{}, result.Notes...),
			PlanOut: a.planOut, Report: report.Summarise(result.Plan)})
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
	if a.svg != "" {
		fmt.Fprintf(s.Stdout, "wrote the picture %s\n", a.svg)
	}
	if a.planOut == "" {
		_, err = fmt.Fprintln(s.Stdout, "The plan was not written (--plan-out FILE writes it).")
	} else {
		_, err = fmt.Fprintf(s.Stdout, "wrote the plan %s\n", a.planOut)
	}
	return err
}

func writePlan(path string, p *plan.Plan) error {
	text, err := p.Encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { _, err := w.Write(text); return err })
}
