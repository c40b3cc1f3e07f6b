// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/internal/plaintable"
)

// WriteText writes the report as tables: each shape, then each kernel over all shapes.
func (r *KernelReport) WriteText(w io.Writer) error {
	header, numbers := table.Row{"", "kernel", "works on", "operators", "ms", "of the limit"}, []int{1, 4, 5, 6}
	for i, b := range r.Others {
		header, numbers = append(header, b.Name), append(numbers, 7+i)
	}
	t := plaintable.New(append(header, "fastest"), numbers...)
	notes := newNotes()
	for i := range r.Rows {
		row := &r.Rows[i]
		cells := table.Row{row.Number, row.Kernel, row.Summary, len(row.Operators)}
		if row.Failure != "" {
			cells = append(cells, "-"+notes.mark(r.Backend+": "+row.Failure), "-")
		} else {
			cells = append(cells, milliseconds(row.Milliseconds), row.share())
		}
		for _, c := range row.Others {
			switch {
			case c.Absent != "":
				cells = append(cells, "-"+notes.mark(c.Backend+": "+c.Absent))
			case c.Relative == 0:
				cells = append(cells, milliseconds(c.Milliseconds)+" ms")
			default:
				cells = append(cells, ratio(c.Relative))
			}
		}
		fastest := row.Fastest
		if fastest != "" && fastest != r.Backend {
			fastest += " (loses)"
		}
		t.AppendRow(append(cells, fastest))
	}
	sums := plaintable.New(table.Row{"kernel", "shapes", "fastest on", "best other to it"}, 2, 3, 4)
	for _, k := range r.Kernels {
		gain := "-"
		if k.Gain > 0 {
			gain = ratio(k.Gain)
		}
		sums.AppendRow(table.Row{k.Kernel, k.Shapes, k.Fastest, gain})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The kernels of %s on the shapes of %s, %d threads: times of the others are to the kernel's "+
		"(above 1 it is faster).\n",
		r.Backend, r.Model, r.Threads)
	b.WriteString("\"of the limit\" is the share of what the machine was measured to compute and read, by the " +
		"algorithm that the operators spell out.\n\n")
	b.WriteString(plaintable.Render(t))
	b.WriteString("\nOver all shapes (geometric mean)\n\n" + plaintable.Render(sums) + "\n" + notes.String())
	fmt.Fprintf(&b, "%s is %s\n", r.Backend, r.Library)
	for _, o := range r.Others {
		fmt.Fprintf(&b, "%s is %s\n", o.Name, o.Library)
	}
	for _, a := range r.Absent {
		fmt.Fprintf(&b, "%s is not there: %s\n  to get it: %s\n", a.Name, a.Reason, a.Remedy)
	}
	fmt.Fprintf(&b, "%d measured now, %d from the cost store; TVM %s for %s\n", r.Measured, r.Stored, r.TVM, r.Target)
	b.WriteString(machineText(r.Machine, r.Load))
	_, err := io.WriteString(w, b.String())
	return err
}

// share is how much of the machine's limit a kernel reaches.
func (row *KernelRow) share() string {
	if row.Limit == 0 || row.Milliseconds == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*row.Limit/row.Milliseconds, 'f', 0, 64) + " %"
}

// WritePicture writes it as SVG.
func (r *KernelReport) WritePicture(w io.Writer) error {
	plot := &dotPlot{Title: fmt.Sprintf("The kernels of %s, %d threads", r.Backend, r.Threads),
		X: "shape (its number in the table)", Y: "time to the kernel's (above 1 it is faster)"}
	for i := range r.Rows {
		plot.Labels = append(plot.Labels, strconv.Itoa(r.Rows[i].Number))
	}
	for i, o := range r.Others {
		series := dots{Name: o.Name}
		for k := range r.Rows {
			series.Ratios = append(series.Ratios, r.Rows[k].Others[i].Relative)
		}
		plot.Series = append(plot.Series, series)
	}
	return plot.render(w, chart.SVG)
}
