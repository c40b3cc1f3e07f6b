// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/internal/plaintable"
)

// WriteText writes the report as tables: milliseconds, what each backend was given, what stands around the libraries.
func (r *BackendReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Whole networks on each backend alone, %s, %d threads: median ms of %d turns of at least %.0f "+
		"ms, in turn\n\n", r.Precision,
		r.Threads, r.Rounds, r.TurnMS)
	notes := newNotes()
	b.WriteString(r.times(notes))
	b.WriteString("\nOperators that each backend was given, and in how many regions; the rest is TVM's\n\n")
	b.WriteString(r.operators())
	if len(r.Overheads) > 0 {
		b.WriteString("\nTime of a backend alone to that of its library run directly on the same network, turn by " +
			"turn, with its interval (sign test)\n\n")
		b.WriteString(r.toDirect(notes))
	}
	b.WriteString("\n" + notes.String())
	for _, o := range r.Overheads {
		fmt.Fprintf(&b, "%s: geometric mean %.3f [%.3f, %.3f] (bootstrap over turns); at most %.2f on %d of %d networks", o.Backend, o.Mean.Mean, o.Mean.Low,
			o.Mean.High, OverheadAimed, len(o.Within), o.Mean.Networks)
		if len(o.Above) > 0 {
			fmt.Fprintf(&b, ", above on %s", strings.Join(o.Above, ", "))
		}
		b.WriteByte('\n')
	}
	for _, c := range r.Backends {
		switch {
		case c.Absent != "":
			fmt.Fprintf(&b, "%s is not there: %s\n  to get it: %s\n", c.Name, c.Absent, c.Remedy)
			continue
		case c.Direct != "":
			fmt.Fprintf(&b, "%s is %s, run directly %s\n", c.Name, c.Library, c.Direct)
		default:
			fmt.Fprintf(&b, "%s is %s\n", c.Name, c.Library)
		}
		if c.DirectAbsent != "" {
			fmt.Fprintf(&b, "%s was not run directly: %s\n  to get it: %s\n", c.Name, c.DirectAbsent, c.DirectRemedy)
		}
	}
	b.WriteString(machineText(r.Machine, r.Load))
	for _, n := range r.Networks {
		if n.Load.Disturbed() {
			fmt.Fprintf(&b, "while %s ran: %s\n", n.Name, n.Load)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columns are the names of the backends that were run.
func (r *BackendReport) columns() []string {
	var names []string
	for i := range r.Backends {
		if r.Backends[i].Absent == "" {
			names = append(names, r.Backends[i].Name)
		}
	}
	return names
}

func (r *BackendReport) times(notes *notes) string {
	header, numbers := table.Row{"network"}, []int{}
	for i, name := range r.columns() {
		header, numbers = append(header, name), append(numbers, i+2)
	}
	header = append(header, "fastest")
	ours := false
	for i := range r.Networks {
		ours = ours || r.Networks[i].Ours != nil
	}
	if ours {
		header, numbers = append(header, "all together", "fastest to it", "what Collage kept"),
			append(numbers, len(header)+1)
	}
	t := plaintable.New(header, numbers...)
	for i := range r.Networks {
		n := &r.Networks[i]
		row := table.Row{n.Name}
		for k := range n.Cells {
			row = append(row, n.Cells[k].text(n.Name, notes))
		}
		row = append(row, n.Fastest)
		switch {
		case n.Ours != nil:
			kept := NetworkRow{Chosen: n.Chosen, Shares: n.Shares}
			row = append(row, n.Ours.text(n.Name, notes), ratioText(n.ToOurs, notes), kept.kept())
		case ours:
			row = append(row, "-", "-", "-")
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t)
}

func (r *BackendReport) operators() string {
	header, numbers := table.Row{"network"}, []int{}
	for i, name := range r.columns() {
		header, numbers = append(header, name), append(numbers, i+2)
	}
	t := plaintable.New(header, numbers...)
	for i := range r.Networks {
		row := table.Row{r.Networks[i].Name}
		for _, c := range r.Networks[i].Cells {
			row = append(row, fmt.Sprintf("%d in %d", c.Operators, c.Regions))
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t)
}

func (r *BackendReport) toDirect(notes *notes) string {
	header, numbers := table.Row{"network"}, []int{}
	for i, o := range r.Overheads {
		header, numbers = append(header, o.Backend+", directly ms", o.Backend+" alone to it"),
			append(numbers, 2*i+2, 2*i+3)
	}
	t := plaintable.New(header, numbers...)
	for i := range r.Networks {
		row := table.Row{r.Networks[i].Name}
		for _, o := range r.Overheads {
			for k := range r.Networks[i].Cells {
				cell := &r.Networks[i].Cells[k]
				switch {
				case cell.Peer != o.Backend:
				case cell.Direct == nil:
					row = append(row, "-", "-")
				default:
					row = append(row, cell.Direct.text(r.Networks[i].Name, notes), ratioText(cell.ToDirect, notes))
				}
			}
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t)
}

// WritePicture writes it as SVG.
func (r *BackendReport) WritePicture(w io.Writer) error {
	plot := &dotPlot{Title: fmt.Sprintf("Whole networks on each backend alone, %s, %d threads", r.Precision, r.Threads),
		X: "network",
		Y: "time to the fastest backend's (log scale)", Wide: true}
	for i, name := range r.columns() {
		series := dots{Name: name}
		for k := range r.Networks {
			n := &r.Networks[k]
			ratio := 0.0
			if cell := &n.Cells[i]; len(cell.Turns) > 0 && !cell.Wrong {
				ratio = cell.Median / n.fastest()
			}
			series.Ratios = append(series.Ratios, ratio)
		}
		plot.Series = append(plot.Series, series)
	}
	all := dots{Name: "all together"}
	for k := range r.Networks {
		n := &r.Networks[k]
		plot.Labels = append(plot.Labels, n.Name)
		ratio := 0.0
		if n.Ours != nil {
			ratio = n.Ours.Median / n.fastest()
		}
		all.Ratios = append(all.Ratios, ratio)
	}
	plot.Series = append(plot.Series, all)
	return plot.render(w, chart.SVG)
}

// fastest is the least median of the backends alone, 0 where none ran.
func (row *BackendRow) fastest() float64 {
	for i := range row.Cells {
		if row.Cells[i].Peer == row.Fastest {
			return row.Cells[i].Median
		}
	}
	return 0
}
