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

	"github.com/collage-tvm/collage/internal/plaintable"
)

// WriteText writes the report as a table: a row for each network and program.
func (r *AnytimeReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The fastest executable so far, second by second, from an empty store: float32, %d threads, %g s "+
		"asked for\n\n",
		r.Threads, r.Asked)
	b.WriteString("ms after so many seconds of wall time, by the search's ratios and what was written takes; kept: what was\n")
	fmt.Fprintf(&b, "written, run in turn (median of %d turns of at least %.0f ms). Within: when it was within %.0f "+
		"%% of the best of all\n",
		r.Rounds, r.TurnMS, 100*(closeEnough-1))
	b.WriteString("that were written, and stayed so.\n\n")
	notes := newNotes()
	b.WriteString(r.table(notes))
	b.WriteString("\n" + notes.String() + r.summary())
	for _, c := range r.Columns {
		line := c.Name + ": " + strings.Join(c.Backends, ",")
		if c.Version != "" {
			line += " (" + c.Version + ")"
		}
		b.WriteString(line + "\n")
	}
	b.WriteString(machineText(r.Machine, r.Load))
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Load.Disturbed() {
			fmt.Fprintf(&b, "while %s ran in turn: %s\n", row.Name, row.Load)
		}
		for k := range row.Runs {
			if run := &row.Runs[k]; run.Load.Disturbed() {
				fmt.Fprintf(&b, "while %s compiled %s: %s\n", run.Column, row.Name, run.Load)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *AnytimeReport) table(notes *notes) string {
	header, numbers := table.Row{"network", "compiled by", "first after"}, []int{3}
	for _, seconds := range r.At {
		header = append(header, strconv.FormatFloat(seconds, 'g', -1, 64)+" s")
	}
	header = append(header, "kept", "best", "within", "took")
	for i := 3; i < len(header); i++ {
		numbers = append(numbers, i+1)
	}
	t := plaintable.New(append(header, "what was kept"), numbers...)
	for i := range r.Rows {
		row := &r.Rows[i]
		for k := range row.Runs {
			run := &row.Runs[k]
			cells := table.Row{row.Name, run.Column, "-"}
			if len(run.Found) > 0 {
				cells[2] = secondsText(run.Found[0].Seconds)
			}
			for _, ms := range run.Latencies {
				cells = append(cells, orDash(ms > 0, milliseconds(ms)))
			}
			kept := orDash(run.Median > 0, milliseconds(run.Median))
			if run.Failure != "" {
				kept += notes.mark(run.Column + " on " + row.Name + ": " + run.Failure)
			}
			t.AppendRow(append(cells, kept, orDash(row.Best > 0, milliseconds(row.Best)),
				orDash(run.Within > 0, secondsText(run.Within)),
				secondsText(run.Taken), orDash(run.Kept != "", run.Kept)))
		}
	}
	return plaintable.Render(t)
}

func secondsText(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 1, 64) + " s" }

func orDash(there bool, text string) string {
	if !there {
		return "-"
	}
	return text
}

// summary says of each program on how many networks it was close to the best after how many seconds, and how it kept to
// the time.
func (r *AnytimeReport) summary() string {
	var b strings.Builder
	for i, column := range r.Columns {
		var within []string
		for _, seconds := range r.At {
			count := 0
			for k := range r.Rows {
				if at := r.Rows[k].Runs[i].Within; at > 0 && at <= seconds {
					count++
				}
			}
			within = append(within, fmt.Sprintf("%d after %g s", count, seconds))
		}
		var took []float64
		for k := range r.Rows {
			if run := &r.Rows[k].Runs[i]; run.Written {
				took = append(took, run.Taken/r.Asked)
			}
		}
		fmt.Fprintf(&b, "%s was within %.0f %% of the best on %s, of %d", column.Name, 100*(closeEnough-1),
			strings.Join(within, ", "), len(r.Rows))
		if len(took) > 0 {
			fmt.Fprintf(&b, "; it took %.2f to %.2f of the time asked for", slices.Min(took), slices.Max(took))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// WritePicture writes it as SVG: a line for each network and program, the time of the fastest executable so far over
// the best.
func (r *AnytimeReport) WritePicture(w io.Writer) error {
	plot := &linePlot{Title: fmt.Sprintf("The fastest executable so far, float32, %d threads", r.Threads),
		X: "seconds of wall time",
		Y: "time to that of the best (log scale)", End: r.end()}
	for i := range r.Rows {
		row := &r.Rows[i]
		for k := range row.Runs {
			run := &row.Runs[k]
			if row.Best <= 0 || row.TVM <= 0 {
				continue
			}
			line := curve{Name: row.Name, Colour: i, Dashed: k > 0}
			if len(row.Runs) > 1 {
				line.Name += ", " + run.Column
			}
			for _, found := range run.Found {
				line.step(found.Seconds, found.Ratio*row.TVM/row.Best)
			}
			if run.Median > 0 {
				line.step(run.Taken, run.Median/row.Best)
			}
			line.until(plot.End)
			plot.Curves = append(plot.Curves, line)
		}
	}
	return plot.render(w, chart.SVG)
}

// end is where the picture ends: at the last figure of the table, the time that was asked for, or what was taken.
func (r *AnytimeReport) end() float64 {
	end := r.Asked
	for _, seconds := range r.At {
		end = max(end, seconds)
	}
	for i := range r.Rows {
		for _, run := range r.Rows[i].Runs {
			end = max(end, run.Taken)
		}
	}
	return end
}
