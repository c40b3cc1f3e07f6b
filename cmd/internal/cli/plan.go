// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/atomicfile"
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

collage explain and collage diff read a plan; collage compile --plan builds it without measuring.`,
	Examples: []string{
		"plan model.onnx --backends tvm,dnnl,native --plan-out plan.json",
		"plan model.onnx --db store.jsonl --pin nn.dense=dnnl --forbid %12=tvm",
		"plan workload:resnext50_32x4d --plan-out plan.json --json",
	},
	Host: hostOnly,
	New: func(flags *pflag.FlagSet) Action {
		a := &planAction{}
		flags.StringVar(&a.planOut, "plan-out", "", "write the plan to `FILE` (JSON)")
		a.declareModel(flags)
		a.declarePlacement(flags)
		a.declareOutput(flags)
		return a
	},
}

type planAction struct {
	modelFlags
	planOut string
}

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
		usedFile{"--plan-out", a.planOut})
	if err != nil {
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

func (a *planAction) Run(s *Session, args []string) error {
	options, err := a.begin(s, args[0], "no plan was written")
	if err != nil {
		return err
	}
	result, err := compile.Decide(s.Context, options)
	if err != nil {
		return err
	}
	if a.planOut != "" {
		if err := writePlan(a.planOut, result.Plan); err != nil {
			return err
		}
	}
	if a.json {
		return s.printJSON(planReport{Model: args[0], Info: result.Model, Notes: append([]string{}, result.Notes...),
			PlanOut: a.planOut, Report: report.Summarise(result.Plan)})
	}
	if err := report.Summarise(result.Plan).WriteText(s.Stdout, report.Options{Verbose: a.verbose}); err != nil {
		return err
	}
	fmt.Fprintln(s.Stdout)
	for _, note := range result.Notes {
		fmt.Fprintln(s.Stdout, note)
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
