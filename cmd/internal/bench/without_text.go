// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/internal/plaintable"
)

// WriteText writes the report as a table: a row for each network and kernel, then a line for each kernel.
func (r *WithoutReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Networks without one kernel of %s, float32, %d threads: median ms of %d turns of at least %.0f ms, in "+
		"turn with what was kept\n\n", r.Backend, r.Threads, r.Rounds, r.TurnMS)
	fmt.Fprintf(&b, "Each was searched for %g s with what the cost store knew. To kept, to again: time to that of what was kept,\n"+
		"and of what the same search found with all kernels, turn by turn, with its interval (sign test). A kernel earns\n"+
		"something where both intervals are above 1, and that of oneDNN alone as well.\n\n", r.SearchSeconds)
	notes := newNotes()
	b.WriteString(r.table(notes))
	b.WriteString("\n" + notes.String() + r.kernels())
	b.WriteString(machineText(r.Machine, r.Load))
	for _, n := range r.Networks {
		if n.Load.Disturbed() {
			fmt.Fprintf(&b, "while %s ran: %s\n", n.Name, n.Load)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *WithoutReport) table(notes *notes) string {
	t := plaintable.New(table.Row{"network", "without", "operators", "ms", "to kept", "to again", "earns", "what it is"},
		3, 4, 5, 6)
	for i := range r.Networks {
		n := &r.Networks[i]
		kept := NetworkRow{Chosen: n.Chosen, Shares: n.Shares}
		switch {
		case n.Failure != "":
			t.AppendRow(table.Row{n.Name, "-", "-", "-" + notes.mark(n.Name+": "+n.Failure), "-", "-", "-", "-"})
			continue
		case n.Kept == nil:
			t.AppendRow(table.Row{n.Name, "(kept)", "-", "-" + notes.mark("nothing of "+r.Backend+" was kept"), "-", "-",
				"-", kept.kept()})
			continue
		}
		t.AppendRow(table.Row{n.Name, "(kept)", "-", n.Kept.text(n.Name, notes), "-", "-", "-", kept.kept()})
		if n.Alone != nil {
			t.AppendRow(table.Row{n.Name, "(" + withoutNative + ")", "-", n.Alone.text(n.Name, notes),
				ratioText(n.Alone.Ratio, notes), "-", "-", "-"})
		}
		for k := range n.Rows {
			row := &n.Rows[k]
			found := NetworkRow{Chosen: row.NetworkCell.Kept, Shares: row.Shares}
			name, operators, earns := row.Kernel, fmt.Sprint(row.Operators), "no"
			if row.Earns {
				earns = "yes"
			}
			if row.Kernel == "" {
				name, operators, earns = "(again)", "-", "-"
			}
			t.AppendRow(table.Row{n.Name, name, operators, row.text(n.Name, notes), ratioText(row.Ratio, notes),
				ratioText(row.ToAgain, notes), earns, found.kept()})
		}
	}
	return plaintable.Render(t)
}

// kernels say of each kernel where it earns something.
func (r *WithoutReport) kernels() string {
	var b strings.Builder
	var nothing []string
	for i := range r.Kernels {
		k := &r.Kernels[i]
		if len(k.Earns) == 0 {
			nothing = append(nothing, k.Kernel)
		}
		fmt.Fprintf(&b, "%s: kept on %d of %d networks, earns on %s", k.Kernel, len(k.Kept), len(r.Networks),
			orNone(k.Earns))
		if k.Gain.Networks > 0 {
			fmt.Fprintf(&b, "; without it %.3f [%.3f, %.3f] of the time (geometric mean over %d, bootstrap over turns)",
				k.Gain.Mean, k.Gain.Low, k.Gain.High, k.Gain.Networks)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "kernels that earn nothing on any of them: %s\n", orNone(nothing))
	return b.String()
}

// WritePicture writes it as SVG.
func (r *WithoutReport) WritePicture(w io.Writer) error {
	plot := &dotPlot{Title: fmt.Sprintf("Networks without one kernel of %s, float32, %d threads", r.Backend, r.Threads),
		X: "network", Y: "time to that of what was kept (log scale)", Wide: true}
	names := []string{""}
	for i := range r.Kernels {
		if len(r.Kernels[i].Kept) > 0 {
			names = append(names, r.Kernels[i].Kernel)
		}
	}
	var drawn []*WithoutNetwork
	for i := range r.Networks {
		if r.Networks[i].Kept != nil {
			drawn = append(drawn, &r.Networks[i])
			plot.Labels = append(plot.Labels, r.Networks[i].Name)
		}
	}
	for _, name := range names {
		one := Left{Kernel: name}
		series := dots{Name: one.name()}
		for _, n := range drawn {
			ratio := 0.0
			k := slices.IndexFunc(n.Rows, func(row WithoutRow) bool { return row.Kernel == name })
			if k >= 0 && !n.Rows[k].Wrong {
				ratio = n.Rows[k].Ratio.Median
			}
			series.Ratios = append(series.Ratios, ratio)
		}
		plot.Series = append(plot.Series, series)
	}
	return plot.render(w, chart.SVG)
}
