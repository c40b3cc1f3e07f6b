// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/cmd/internal/machine"
	"github.com/collage-tvm/collage/internal/plaintable"
)

// WriteText writes the report as a table: TVM's milliseconds, and the other backends' times to TVM's.
func (r *OperatorReport) WriteText(w io.Writer) error {
	header := table.Row{"", "operator", "works on", "count", baseline + " ms"}
	numbers := []int{1, 4, 5}
	for i, b := range r.Backends[1:] {
		header = append(header, b.Name)
		numbers = append(numbers, 6+i)
	}
	t := plaintable.New(append(header, "fastest"), numbers...)
	notes := newNotes()
	for _, row := range r.Operators {
		cells := table.Row{row.Number, row.Operator, row.Summary, row.Count}
		for i, c := range row.Cells {
			switch {
			case c.Absent != "":
				cells = append(cells, "-"+notes.mark(c.Backend+": "+c.Absent))
			case i == 0:
				cells = append(cells, milliseconds(c.Milliseconds))
			default:
				cells = append(cells, ratio(c.Relative))
			}
		}
		t.AppendRow(append(cells, row.Fastest))
	}
	means, best := table.Row{"", "geometric mean", "", "", ""}, table.Row{"", "fastest on", "", "", r.Backends[0].Best}
	for _, b := range r.Backends[1:] {
		mean := "-"
		if b.Mean > 0 {
			mean = ratio(b.Mean)
			if b.Runs < len(r.Operators) {
				mean += notes.mark(fmt.Sprintf("%s: over the %d operators that it runs", b.Name, b.Runs))
			}
		}
		means, best = append(means, mean), append(best, b.Best)
	}
	t.AppendSeparator()
	t.AppendRow(means)
	t.AppendRow(best)
	var b strings.Builder
	fmt.Fprintf(&b, "%s: each different operator by itself on %d threads; times of the others are to %s's (below 1 "+
		"is faster)\n\n",
		r.Model, r.Threads, baseline)
	b.WriteString(plaintable.Render(t))
	b.WriteString("\n" + notes.String())
	for _, backend := range r.Backends {
		fmt.Fprintf(&b, "%s is %s\n", backend.Name, backend.Library)
	}
	for _, a := range r.Absent {
		fmt.Fprintf(&b, "%s is not there: %s\n  to get it: %s\n", a.Name, a.Reason, a.Remedy)
	}
	fmt.Fprintf(&b, "%d kernels measured now, %d from the cost store; TVM %s for %s\n", r.Measured, r.Stored, r.TVM,
		r.Target)
	b.WriteString(machineText(r.Machine, r.Load))
	_, err := io.WriteString(w, b.String())
	return err
}

// WritePicture writes it as SVG.
func (r *OperatorReport) WritePicture(w io.Writer) error {
	plot := &dotPlot{Title: r.Model + ": operators by themselves, " + strconv.Itoa(r.Threads) + " threads",
		X: "operator (its number in the table)", Y: "time to TVM's"}
	for _, row := range r.Operators {
		plot.Labels = append(plot.Labels, strconv.Itoa(row.Number))
	}
	for i, b := range r.Backends {
		series := dots{Name: b.Name}
		for _, row := range r.Operators {
			series.Ratios = append(series.Ratios, row.Cells[i].Relative)
		}
		plot.Series = append(plot.Series, series)
	}
	return plot.render(w, chart.SVG)
}

// notes are the footnotes of a table: equal ones have one mark.
type notes struct{ texts []string }

func newNotes() *notes { return &notes{} }

// mark gives the mark of a note: " a".
func (n *notes) mark(text string) string {
	i := slices.Index(n.texts, text)
	if i < 0 {
		i = len(n.texts)
		n.texts = append(n.texts, text)
	}
	return " " + letter(i)
}

func letter(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return letter(i/26-1) + letter(i%26)
}

// String is the notes, a line each.
func (n *notes) String() string {
	var b strings.Builder
	for i, text := range n.texts {
		line, _, _ := strings.Cut(text, "\n")
		if most := 300; len(line) > most {
			line = strings.ToValidUTF8(line[:most], "") + "..."
		}
		fmt.Fprintf(&b, "%s  %s\n", letter(i), line)
	}
	return b.String()
}

func milliseconds(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// machineText is what a reader must know about where the figures come from.
func machineText(m machine.Info, load machine.Load) string {
	text := fmt.Sprintf("machine: %s, %d processors, %s/%s", orUnknown(m.Processor), m.Processors, m.OS, m.Arch)
	if m.MemoryBytes > 0 {
		text += fmt.Sprintf(", %.0f GiB", float64(m.MemoryBytes)/(1<<30))
	}
	if len(m.Features) > 0 {
		text += " (" + strings.Join(m.Features, " ") + ")"
	}
	return text + "\nload: " + load.String() + "\n"
}

func orUnknown(s string) string {
	if s == "" {
		return "a processor without a name"
	}
	return s
}
