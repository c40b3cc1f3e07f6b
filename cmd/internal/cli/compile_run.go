// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/collage-tvm/collage/cmd/internal/atomicfile"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/cmd/internal/install"
	"github.com/collage-tvm/collage/cmd/internal/progress"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/report"
)

// compileReport is what --json prints.
type compileReport struct {
	Model  string            `json:"model"`
	Info   compile.ModelInfo `json:"model_info"`
	Output string            `json:"output"`
	Bytes  int64             `json:"output_bytes"`
	// Chosen is the finalist that was written: a backend's name, or "collage" for the placement.
	Chosen  string          `json:"chosen"`
	Why     string          `json:"why"`
	Notes   []string        `json:"notes"`
	PlanOut string          `json:"plan_out,omitempty"`
	Report  *report.Summary `json:"report"`
}

func (a *compileAction) Run(s *Session, args []string) error {
	python, err := install.Python()
	if err != nil {
		return err
	}
	store := a.store
	if store == "" {
		if store, err = cost.DefaultPath(); err != nil {
			return err
		}
	}
	temporary, err := s.temporaryFolder()
	if err != nil {
		return err
	}
	printer := progress.New(s.Stderr, a.quiet, a.verbose)
	s.beforeError = printer.Stop
	s.setInterruptNote(fmt.Sprintf("no executable was written; what was measured is kept in %s", store))

	result, err := compile.Compile(s.Context, compile.Options{
		Model: args[0], Params: a.params, InputShapes: a.inputShapes, Format: a.format, Output: a.output,
		Backends: a.backends, Target: a.target, Threads: a.threads, OptLevel: a.optLevel, Store: a.store,
		Samples: a.samples, Rounds: a.rounds, RetryFailures: a.retry, Python: python, Temporary: temporary,
		Progress: printer,
	})
	if err != nil {
		return err
	}
	// From here on the executable is there.
	s.setInterruptNote(fmt.Sprintf("%s was written", a.output))
	if a.planOut != "" {
		text, err := result.Plan.Encode()
		if err != nil {
			return err
		}
		if err := atomicfile.Write(a.planOut, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return fmt.Errorf("%s was written, but not its plan: %w", a.output, err)
		}
	}
	if a.json {
		notes := append([]string{}, result.Notes...)
		return s.printJSON(compileReport{Model: args[0], Info: result.Model, Output: a.output, Bytes: result.Bytes,
			Chosen: result.Chosen, Why: result.Why, Notes: notes, PlanOut: a.planOut, Report: report.Summarise(result.Plan)})
	}
	return a.print(s, result)
}

func (a *compileAction) print(s *Session, result *compile.Result) error {
	if err := report.Summarise(result.Plan).WriteText(s.Stdout, report.Options{Verbose: a.verbose}); err != nil {
		return err
	}
	fmt.Fprintln(s.Stdout)
	fmt.Fprintln(s.Stdout, result.Why)
	for _, note := range result.Notes {
		fmt.Fprintln(s.Stdout, note)
	}
	fmt.Fprintf(s.Stdout, "wrote %s (%s)", a.output, sizeText(result.Bytes))
	if a.planOut != "" {
		fmt.Fprintf(s.Stdout, " and its plan %s", a.planOut)
	}
	fmt.Fprintln(s.Stdout)
	return nil
}
