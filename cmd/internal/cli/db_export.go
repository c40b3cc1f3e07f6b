// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/internal/atomicfile"
)

var dbExportCommand = Command{
	Name:  "db export",
	Short: "write costs as CSV or JSON",
	Long: `Writes the costs of the store, or those that the flags pick, for other programs: as CSV with a line of names, or as
JSON, a list named costs. Times are in milliseconds; samples stand in one CSV field with blanks between.`,
	Examples: []string{"db export -o costs.csv", "db export --format json --backend dnnl",
		"db export --match nn.dense -o dense.json"},
	New: func(flags *pflag.FlagSet) Action {
		a := &dbExportAction{}
		a.declare(flags)
		flags.StringVarP(&a.output, "output", "o", "",
			"write to `FILE` (.csv or .json); without it, to the standard output")
		flags.StringVar(&a.format, "format", "", "`FORMAT`, csv or json; without it, what FILE's name says, else csv")
		flags.BoolVar(&a.json, "json", false, "the same as --format json")
		return a
	},
}

type dbExportAction struct {
	dbFilter
	output, format string
	json           bool
}

func (a *dbExportAction) Check(_ *Session, args []string) error {
	if err := expect(&dbExportCommand, args); err != nil {
		return err
	}
	if a.json && a.format == "" {
		a.format = "json"
	}
	if a.format == "" {
		a.format = "csv"
		if filepath.Ext(a.output) == ".json" {
			a.format = "json"
		}
	}
	if a.format != "csv" && a.format != "json" || a.json && a.format != "json" {
		return fmt.Errorf("--format %s is not known, or not with --json (formats: csv, json)", a.format)
	}
	if a.output != "" {
		if a.store != "" && sameFile(a.output, a.store) {
			return fmt.Errorf("--db and -o are the same file %s", a.output)
		}
		if err := atomicfile.CheckWritable(a.output); err != nil {
			return err
		}
	}
	_, err := a.filter()
	return err
}

func (a *dbExportAction) Run(s *Session, _ []string) error {
	_, entries, err := a.pick()
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return writeCSV(w, newDBEntries(entries)) }
	if a.format == "json" {
		write = func(w io.Writer) error { return writeJSON(w, map[string]any{"costs": newDBEntries(entries)}, " ") }
	}
	if a.output == "" {
		return write(s.Stdout)
	}
	if err := atomicfile.Write(a.output, write); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Stdout, "wrote %s to %s\n", plural(len(entries), "cost", "costs"), a.output)
	return err
}

var csvColumns = []string{"structure", "computation", "backend", "composite", "estimate_ms", "low_ms", "high_ms",
	"samples_ms",
	"max_error", "taken", "failure_phase", "failure_kind", "failure_detail", "expires", "target", "device", "library",
	"tvm",
	"threads", "options"}

func writeCSV(w io.Writer, entries []dbEntry) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvColumns); err != nil {
		return err
	}
	number := func(v float64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	for _, e := range entries {
		samples := make([]string, len(e.Samples))
		for i, v := range e.Samples {
			samples[i] = strconv.FormatFloat(v, 'g', -1, 64)
		}
		phase, kind, detail := "", "", ""
		if e.Failure != nil {
			phase, kind, detail = e.Failure.Phase, e.Failure.Kind, e.Failure.Detail
		}
		err := out.Write([]string{e.Structure, e.Computation, e.Backend, e.Composite, number(e.Estimate), number(e.Low),
			number(e.High),
			strings.Join(samples, " "), number(e.MaxError), moment(e.Taken), phase, kind, detail, moment(e.Expires),
			e.Target, e.Device,
			e.Library, e.TVM, strconv.Itoa(e.Threads), e.Options})
		if err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
