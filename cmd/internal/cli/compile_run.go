// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/pass/report/page"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
)

// compileReport is what --json prints.
type compileReport struct {
	Model  string            `json:"model"`
	Info   compile.ModelInfo `json:"model_info"`
	Output string            `json:"output"`
	Bytes  int64             `json:"output_bytes"`
	// Chosen is the finalist that was written: a backend's name, or "collage" for the placement.
	Chosen string `json:"chosen"`
	Why    string `json:"why"`
	// Import is what came of holding what TVM read against another engine; null where none was asked.
	Import  *witness.Agreement `json:"import_check"`
	Notes   []string           `json:"notes"`
	PlanOut string             `json:"plan_out,omitempty"`
	// Page is the file that --report wrote.
	Page   string          `json:"page,omitempty"`
	Report *report.Summary `json:"report"`
}

func (a *compileAction) Run(s *Session, args []string) (err error) {
	if !a.dry {
		a.record(s, "compile", commandLine(&compileCommand, a.flags, args))
		defer a.endTrace(s, &err)
	}
	options, err := a.begin(s, args[0], "no executable was written")
	if err != nil {
		return err
	}
	options.Output, options.Rounds, options.Replay, options.NoVerify = a.output, a.rounds, a.replayed, a.noVerify
	options.Level, options.SearchTime, options.Trials = settings.Level(a.level), a.searchTime, a.trials
	options.ExecutableMemory, options.Began, options.NoCheckImport = a.memoryLimit, s.began, a.noCheckImport
	if a.dry {
		dry := dryRun{modelFlags: &a.modelFlags, model: args[0], plan: a.planIn,
			writes: []string{a.output, a.planOut, a.path(), a.svg, a.png}}
		if a.replayed == nil {
			dry.level, dry.time = a.level, a.searchTime
		}
		return dry.run(s, options, a.replayed)
	}
	if a.replayed != nil {
		s.setInterruptNote("no executable was written")
	}
	if options.Temporary, err = s.temporaryFolder(); err != nil {
		return err
	}
	options.Ending = &decide.Ending{}
	s.setEnd(options.Ending.End, "the best so far is written")
	result, err := compile.Compile(s.Context, options)
	s.setEnd(nil, "")
	if err != nil {
		return err
	}
	// From here on the executable is there.
	s.setInterruptNote(fmt.Sprintf("%s was written", a.output))
	a.recorder.Phase("writing the plan and the report")
	if a.planOut != "" {
		if err := writePlan(a.planOut, result.Plan); err != nil {
			return fmt.Errorf("%s was written, but not its plan: %w", a.output, err)
		}
	}
	err = a.writePage(page.Content{Plan: result.Plan, Command: commandLine(&compileCommand, a.flags, args),
		CommandSays: "This makes it again:", Why: result.Why,
		Notes: result.Notes})
	if err != nil {
		return fmt.Errorf("%s was written, but not its report: %w", a.output, err)
	}
	if err := a.writePictures(result.Plan); err != nil {
		return fmt.Errorf("%s was written, but not its picture: %w", a.output, err)
	}
	if a.json {
		notes := append([]string{}, result.Notes...)
		return s.printJSON(compileReport{Model: args[0], Info: result.Model, Output: a.output, Bytes: result.Bytes,
			Chosen: result.Chosen, Why: result.Why, Notes: notes, PlanOut: a.planOut, Page: a.path(), Import: result.Agreement,
			Report: report.Summarise(result.Plan)})
	}
	return a.print(s, result)
}

// importText says in a sentence whether TVM read the model right.
func importText(agreement *witness.Agreement) string {
	if agreement.Unchecked != "" {
		return "Whether TVM read the model right was not checked: " + agreement.Unchecked + "."
	}
	text := fmt.Sprintf("TVM read the model right: %s answers the same, within %.1e of the greatest value",
		agreement.Engine, agreement.Share)
	if agreement.Otherwise != "" {
		text += " (" + agreement.Otherwise + ")"
	}
	return text + "."
}

// print says in three lines what was gained, what runs where, and where the file is, and tells of warnings on the standard
// error; with --verbose it prints the tables, and all notes.
func (a *compileAction) print(s *Session, result *compile.Result) error {
	if !a.verbose {
		return a.printBrief(s, result)
	}
	if err := report.Summarise(result.Plan).WriteText(s.Stdout, report.Options{Verbose: a.verbose}); err != nil {
		return err
	}
	fmt.Fprintln(s.Stdout)
	fmt.Fprintln(s.Stdout, result.Why)
	for _, note := range result.Notes {
		fmt.Fprintln(s.Stdout, note)
	}
	if result.Agreement != nil {
		fmt.Fprintln(s.Stdout, importText(result.Agreement))
	}
	_, err := fmt.Fprintln(s.Stdout, a.wroteText(result))
	return err
}

func (a *compileAction) printBrief(s *Session, result *compile.Result) error {
	warnings := append([]string{}, result.Warnings...)
	if result.Agreement != nil && result.Agreement.Unchecked != "" {
		warnings = append(warnings, importText(result.Agreement))
	}
	for _, warning := range warnings {
		fmt.Fprintln(s.Stderr, "collage: warning:", warning)
	}
	summary := report.Summarise(result.Plan)
	gain := result.Why
	if text := summary.Gain(); text != "" && a.replayed == nil { // a plan's times are those of another day
		gain += " " + text
	}
	_, err := fmt.Fprintf(s.Stdout, "%s\n%s\n%s\n", gain, summary.Where(), a.wroteText(result))
	return err
}

// wroteText says which files were written.
func (a *compileAction) wroteText(result *compile.Result) string {
	text := fmt.Sprintf("wrote %s (%s)", a.output, sizeText(result.Bytes))
	if a.planOut != "" {
		text += " and its plan " + a.planOut
	}
	if a.folder != "" {
		text += " and the report " + a.path()
	}
	for _, file := range a.pictures() {
		text += " and the picture " + file.path
	}
	return text
}
