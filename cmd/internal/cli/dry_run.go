// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/internal/plaintable"
	"github.com/collage-tvm/collage/pass/plan"
)

// declareDryRun declares the flag that has a command say what it would do.
func declareDryRun(flags *pflag.FlagSet, dry *bool) {
	flags.BoolVar(dry, "dry-run", false, "say what would be done: what is read, which backends would be used, how much "+
		"the cost store knows, what would be written; nothing is measured or written")
}

// dryRunReport is what --dry-run prints with --json.
type dryRunReport struct {
	// DryRun is true: it tells this document from that of the command itself.
	DryRun bool              `json:"dry_run"`
	Model  string            `json:"model"`
	Info   compile.ModelInfo `json:"model_info"`
	// Placeable are the operators that are placed: those of the normalised network.
	Placeable int              `json:"operators_to_place"`
	Backends  []dryRunBackend  `json:"backends"`
	LeftOut   []leftOutBackend `json:"left_out"`
	Target    string           `json:"target"`
	Threads   int              `json:"threads"`
	// Computations are the different candidates, so many are measured at most; Known are those that the store has.
	Computations int         `json:"computations"`
	Known        int         `json:"computations_known"`
	Store        dryRunStore `json:"store"`
	// Level and Seconds are how far the search would go and how long it may take; Level is "" where a plan is built.
	Level   string  `json:"level"`
	Seconds float64 `json:"search_time_s"`
	// Plan is the plan that would be built.
	Plan string `json:"plan,omitempty"`
	// ImportCheck says that what TVM read would be held against another engine.
	ImportCheck bool     `json:"import_check"`
	Writes      []string `json:"would_write"`
	Notes       []string `json:"notes"`
}

type dryRunBackend struct {
	Name    string `json:"name"`
	Library string `json:"library"`
	// Operators are those that it could take, Candidates the ways in which it could.
	Operators    int `json:"operators"`
	Candidates   int `json:"candidates"`
	Computations int `json:"computations"`
	Known        int `json:"computations_known"`
	// Declared says by whom its costs are declared; "" where they are measured.
	Declared string `json:"declared,omitempty"`
}

type leftOutBackend struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

type dryRunStore struct {
	Path  string `json:"path"`
	Found bool   `json:"found"`
}

// dryRun is what a command would do.
type dryRun struct {
	*modelFlags
	model string
	// level is how far the search would go, and time how long it would take at most; "" and 0 with a plan.
	level  string
	time   time.Duration
	plan   string
	writes []string
}

// run reads the model and says what would be done with it. p is the plan that would be built; nil for none.
func (d *dryRun) run(s *Session, options compile.Options, p *plan.Plan) error {
	forecast, err := compile.Foresee(s.Context, options)
	if err != nil {
		return err
	}
	report := dryRunReport{DryRun: true, Model: d.model, Info: forecast.Model, Level: d.level, Seconds: d.time.Seconds(),
		Plan: d.plan, ImportCheck: forecast.Witness, Writes: []string{}, Notes: append([]string{}, forecast.Notes...),
		Backends: []dryRunBackend{}, LeftOut: []leftOutBackend{}}
	for _, file := range d.writes {
		if file != "" {
			report.Writes = append(report.Writes, file)
		}
	}
	if p != nil {
		report.ofPlan(p)
	} else {
		report.ofForecast(forecast)
	}
	if d.json {
		return s.printJSON(report)
	}
	return report.print(s.Stdout)
}

func (r *dryRunReport) ofPlan(p *plan.Plan) {
	r.Target, r.Threads = p.Environment.Target, p.Environment.Threads
	for _, f := range p.Module.Functions {
		r.Placeable += f.Operators
	}
	for _, b := range p.Backends {
		if b.Unusable == "" && b.Operators > 0 {
			r.Backends = append(r.Backends, dryRunBackend{Name: b.Name, Operators: b.Operators,
				Library: strings.TrimSpace(b.Library + " " + b.Version)})
		}
	}
}

func (r *dryRunReport) ofForecast(forecast *compile.Forecast) {
	f := forecast.Forecast
	r.Target, r.Threads, r.Placeable = f.Environment.Target, f.Environment.Threads, f.Operators
	r.Store = dryRunStore{Path: f.Store, Found: f.StoreFound}
	for _, b := range f.Backends {
		one := dryRunBackend{Name: b.Backend.Name(), Library: b.Library, Operators: b.Operators,
			Candidates: b.Candidates, Computations: b.Computations, Known: b.Known}
		if d := byoc.DeclarationOf(b.Backend); d != nil {
			one.Declared, one.Known = d.Source, b.Computations
		} else {
			r.Computations += b.Computations
			r.Known += b.Known
		}
		r.Backends = append(r.Backends, one)
	}
	for _, absent := range f.Absent {
		r.LeftOut = append(r.LeftOut, leftOutBackend{absent.Backend, absent.Text()})
	}
}

func (r *dryRunReport) print(w io.Writer) error {
	text := fmt.Sprintf("%s (%s): %d operators, %s of weights, %d operators to place once it is normalised\n", r.Model,
		r.Info.Format, r.Info.Operators, sizeText(r.Info.ParameterBytes), r.Placeable)
	for _, name := range slices.Sorted(maps.Keys(r.Info.Inputs)) {
		input := r.Info.Inputs[name]
		text += fmt.Sprintf("  input %s %s %s\n", name, input.DType, strings.ReplaceAll(fmt.Sprint(input.Shape), " ", ", "))
	}
	text += "\n" + r.table()
	for _, out := range r.LeftOut {
		text += fmt.Sprintf("%s would be left out: %s\n", out.Name, out.Reason)
	}
	for _, b := range r.Backends {
		if b.Declared != "" {
			text += fmt.Sprintf("what %s takes is declared in %s\n", b.Name, b.Declared)
		}
	}
	text += fmt.Sprintf("\ntarget %s, %d threads\n", r.Target, r.Threads)
	for _, line := range append(r.work(), r.Notes...) {
		text += line + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func (r *dryRunReport) table() string {
	if r.Plan != "" {
		t := plaintable.New(table.Row{"backend", "library", "operators"}, 3)
		for _, b := range r.Backends {
			t.AppendRow(table.Row{b.Name, b.Library, b.Operators})
		}
		return plaintable.Render(t)
	}
	t := plaintable.New(table.Row{"backend", "library", "could take", "candidates", "different", "known"}, 3, 4, 5, 6)
	for _, b := range r.Backends {
		t.AppendRow(table.Row{b.Name, b.Library, fmt.Sprintf("%d of %d", b.Operators, r.Placeable), b.Candidates,
			b.Computations, b.Known})
	}
	return plaintable.Render(t)
}

// work says what would be done, in sentences.
func (r *dryRunReport) work() (lines []string) {
	if r.Plan != "" {
		lines = append(lines, fmt.Sprintf("The plan %s would be built as it is; nothing would be measured.", r.Plan))
	} else {
		store := fmt.Sprintf("%d are known from the store %s", r.Known, r.Store.Path)
		if !r.Store.Found {
			store = "none is known: there is no store yet at " + r.Store.Path
		}
		lines = append(lines, fmt.Sprintf("Of %d different candidates %s.", r.Computations, store),
			fmt.Sprintf("It would take %v at most, up to the %s level.", time.Duration(r.Seconds*float64(time.Second)), r.Level))
	}
	if r.ImportCheck {
		lines = append(lines, "What TVM read would be held against another engine's answers.")
	}
	writes := "Nothing would be written."
	if len(r.Writes) > 0 {
		writes = fmt.Sprintf("Would write %s.", strings.Join(r.Writes, " and "))
	}
	return append(lines, writes+" This was a dry run: nothing was measured or written.")
}
