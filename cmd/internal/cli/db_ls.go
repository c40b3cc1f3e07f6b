// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/pass/cost"
)

var dbListCommand = Command{
	Name:  "db ls",
	Short: "list what was measured",
	Long: `Lists the costs in the store: what was computed on which backend, the estimate (the lower quartile of the
samples), its 90 % interval, the number of samples and the day they were taken, and for what failed the reason. Costs
for different processors, targets or versions stand apart.`,
	Examples: []string{"db ls", "db ls --backend dnnl --match nn.conv2d", "db ls --failures --db store.jsonl"},
	New: func(flags *pflag.FlagSet) Action {
		a := &dbListAction{}
		a.declare(flags)
		flags.BoolVar(&a.json, "json", false, "print JSON")
		flags.BoolVarP(&a.verbose, "verbose", "v", false, "print whole keys and whole reasons")
		return a
	},
}

type dbListAction struct {
	dbFilter
	json, verbose bool
}

func (a *dbListAction) Check(_ *Session, args []string) error {
	if err := expect(&dbListCommand, args); err != nil {
		return err
	}
	_, err := a.filter()
	return err
}

func (a *dbListAction) Run(s *Session, _ []string) error {
	file, entries, err := a.pick()
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(map[string]any{"store": file.Path, "costs": newDBEntries(entries), "records": file.Records,
			"superseded": file.Superseded, "unreadable": len(file.Problems), "newer": file.Newer})
	}
	slices.SortStableFunc(entries, func(x, y cost.Entry) int {
		return cmp.Or(cmp.Compare(heading(x.Key), heading(y.Key)), cmp.Compare(x.Cost.Computation, y.Cost.Computation),
			cmp.Compare(x.Key.Structure, y.Key.Structure), cmp.Compare(x.Key.Backend, y.Key.Backend))
	})
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && heading(entries[n].Key) == heading(entries[0].Key) {
			n++
		}
		a.printGroup(s, entries[:n])
		entries = entries[n:]
	}
	return a.printSum(s, file)
}

// heading is what stands above costs that are valid for the same.
func heading(k cost.Key) string { return environmentText(k.Environment) }

func (a *dbListAction) printGroup(s *Session, entries []cost.Entry) {
	fmt.Fprintf(s.Stdout, "%s\n", heading(entries[0].Key))
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  key\tbackend\tms\tinterval\tsamples\ttaken\tcomputation")
	for _, e := range entries {
		key, backend := e.Key.Structure, e.Key.Backend
		if !a.verbose && len(key) > 10 {
			key = key[:10]
		}
		if e.Key.Library != "" && a.verbose {
			backend += " (" + e.Key.Library + ")"
		}
		taken := "-"
		if !e.Cost.Taken.IsZero() {
			taken = e.Cost.Taken.UTC().Format("2006-01-02")
		}
		estimate, interval, samples := "failed", "", ""
		if !e.Cost.Failed() {
			low, high := e.Cost.Interval()
			estimate, interval = fmt.Sprintf("%.4f", e.Cost.Estimate()), fmt.Sprintf("%.4f - %.4f", low, high)
			samples = strconv.Itoa(len(e.Cost.Samples))
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", key, backend, estimate, interval, samples, taken,
			a.computation(e))
	}
	w.Flush()
	fmt.Fprintln(s.Stdout, text.String())
}

// computation says what an entry's cost is the cost of, and why it failed.
func (a *dbListAction) computation(e cost.Entry) string {
	text := e.Cost.Computation
	switch {
	case e.Key.Composite != "" && text != "":
		text = e.Key.Composite + ": " + text
	case e.Key.Composite != "":
		text = e.Key.Composite
	case text == "":
		text = "-"
	}
	if !e.Cost.Failed() {
		return text
	}
	reason := e.Cost.Failure.String()
	if line, _, more := strings.Cut(reason, "\n"); more && !a.verbose {
		reason = line + " ..."
	}
	if e.Expired() {
		reason += " (no longer believed)"
	}
	return text + "; " + strings.ReplaceAll(reason, "\n", "\n      ")
}

func (a *dbListAction) printSum(s *Session, file *cost.File) error {
	all := file.Entries()
	failed := 0
	for _, e := range all {
		if e.Cost.Failed() {
			failed++
		}
	}
	line := fmt.Sprintf("%s: %s, %d of them failures; %s", file.Path, plural(len(all), "cost", "costs"), failed,
		sizeText(file.Bytes))
	if file.Superseded > 0 {
		line += fmt.Sprintf("; %s by later ones (collage db prune removes them)",
			plural(file.Superseded, "record was replaced", "records were replaced"))
	}
	if file.Newer > 0 {
		line += fmt.Sprintf("; %s of later versions of collage", plural(file.Newer, "record", "records"))
	}
	if len(file.Problems) > 0 {
		line += fmt.Sprintf("; %s cannot be read (collage db verify says which)",
			plural(len(file.Problems), "part", "parts"))
	}
	_, err := fmt.Fprintln(s.Stdout, line)
	return err
}
