// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/wcharczuk/go-chart/v2"

	"github.com/collage-tvm/collage/internal/plaintable"
	"github.com/collage-tvm/collage/internal/statistics"
)

// WriteText writes the report as tables: milliseconds, ratios with their intervals, what is not there.
func (r *NetworkReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Whole networks, %s, %d threads: median ms of %d turns of at least %.0f ms, the engines in turn\n\n", r.Precision,
		r.Threads, r.Rounds, r.TurnMS)
	notes := newNotes()
	b.WriteString(r.times(notes))
	b.WriteString("\nTime of each engine to that of what Collage compiled, turn by turn, with its interval (sign " +
		"test): above 1, Collage's is faster\n\n")
	b.WriteString(r.toOurs(notes))
	if r.Precision != "float32" {
		b.WriteString("\nHow far the outputs are off plain TVM's in float32 (length of the difference)\n\n" + r.errors())
	}
	if r.searched() {
		b.WriteString("\nSeconds until it was decided what is kept, and what that is\n\n" + r.searches())
	}
	b.WriteString("\n" + notes.String() + r.Summary.text(len(r.Networks)) + noUseText(r.Summary.NoUse) + r.borders())
	for _, p := range r.Peers {
		switch {
		case p.Absent != "":
			fmt.Fprintf(&b, "%s was not run: %s\n  to get it: %s\n", p.Name, p.Absent, p.Remedy)
		case p.Name != Ours && p.Version != "":
			fmt.Fprintf(&b, "%s is %s\n", p.Name, p.Version)
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

// ran are the columns of engines that ran something.
func (r *NetworkReport) ran() []string {
	var names []string
	for _, p := range r.Peers {
		if p.Absent == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

func (r *NetworkReport) times(notes *notes) string {
	header, numbers := table.Row{"network"}, []int{}
	for i, name := range r.ran() {
		header, numbers = append(header, name), append(numbers, i+2)
	}
	if header = append(header, "Collage kept"); r.hasOlder() {
		header = append(header, "taken")
	}
	t := plaintable.New(header, numbers...)
	for i := range r.Networks {
		n := &r.Networks[i]
		row := table.Row{n.Name}
		for range numbers[len(n.Cells):] {
			row = append(row, "-")
		}
		for _, c := range n.Cells {
			row = append(row, c.text(n.Name, notes))
		}
		if n.Failure != "" {
			t.AppendRow(append(row, "-"+notes.mark(n.Name+": "+n.Failure)))
			continue
		}
		if row = append(row, n.kept()); r.hasOlder() {
			row = append(row, n.Taken.Format("2006-01-02 15:04"))
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t)
}

// hasOlder says that there are rows that were taken before the report was begun.
func (r *NetworkReport) hasOlder() bool {
	return slices.ContainsFunc(r.Networks, func(n NetworkRow) bool {
		return !n.Taken.IsZero() && n.Taken.Before(r.Taken)
	})
}

// errors is a table of how far each engine's outputs are off.
func (r *NetworkReport) errors() string {
	header, numbers := table.Row{"network"}, []int{}
	for i, name := range r.ran() {
		header, numbers = append(header, name), append(numbers, i+2)
	}
	t := plaintable.New(header, numbers...)
	for i := range r.Networks {
		row := table.Row{r.Networks[i].Name}
		for _, c := range r.Networks[i].Cells {
			if len(c.Turns) == 0 {
				row = append(row, "-")
			} else {
				row = append(row, fmt.Sprintf("%.2g", c.L2))
			}
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t)
}

// text is the cell's time, with a note where it has none, or outputs that are wrong.
func (c *NetworkCell) text(network string, notes *notes) string {
	switch {
	case c.Absent != "":
		return "-" + notes.mark(c.Peer+": "+c.Absent)
	case c.Wrong:
		return milliseconds(c.Median) + notes.mark(fmt.Sprintf(
			"%s on %s: its outputs differ from TVM's by up to %.2g, where the greatest is %.2g; it is not compared with",
			c.Peer, network, c.MaxError, c.Greatest))
	}
	return milliseconds(c.Median)
}

// ratioText is the ratio with its interval, "-" for none; a note says it where there are too few turns for the usual
// one.
func ratioText(r statistics.Ratio, notes *notes) string {
	if r.Median == 0 {
		return "-"
	}
	text := fmt.Sprintf("%.2f [%.2f, %.2f]", r.Median, r.Low, r.High)
	if r.Coverage < statistics.Confidence {
		text += notes.mark(fmt.Sprintf("there are too few turns: their intervals are of %.0f %%", 100*r.Coverage))
	}
	return text
}

// kept says what Collage's executable is: "collage: dnnl 67, tvm 49 operators".
func (n *NetworkRow) kept() string {
	var shares []string
	for _, name := range slices.Sorted(maps.Keys(n.Shares)) {
		shares = append(shares, fmt.Sprintf("%s %d", name, n.Shares[name]))
	}
	switch {
	case n.Chosen == "" && shares == nil:
		return "?"
	case shares == nil:
		return n.Chosen
	}
	text := n.Chosen + ": " + strings.Join(shares, ", ")
	if n.BestSingle != "" {
		text += fmt.Sprintf("; best single %s %.2f [%.2f, %.2f]", n.BestSingle, n.ToBestSingle.Median,
			n.ToBestSingle.Low, n.ToBestSingle.High)
	}
	return text
}

func (r *NetworkReport) toOurs(notes *notes) string {
	header, numbers := table.Row{"network"}, []int{}
	for i, name := range r.ran()[1:] {
		header, numbers = append(header, name), append(numbers, i+2)
	}
	t := plaintable.New(append(header, "best peer"), numbers...)
	for i := range r.Networks {
		n := &r.Networks[i]
		row := table.Row{n.Name}
		if n.Failure != "" {
			continue
		}
		for _, c := range n.Cells[1:] {
			row = append(row, ratioText(c.Ratio, notes))
		}
		best := n.Best
		if best == "" {
			best = "-"
		}
		t.AppendRow(append(row, best))
	}
	return plaintable.Render(t)
}

// searched says that there is a column beside Collage's own that was searched for.
func (r *NetworkReport) searched() bool {
	return slices.ContainsFunc(r.Networks, func(n NetworkRow) bool {
		return slices.ContainsFunc(n.Cells, func(c NetworkCell) bool { return c.SearchSeconds > 0 && c.Peer != Ours })
	})
}

// borders says what could be gained at the borders between regions; "" where no search has learnt what they cost.
func (r *NetworkReport) borders() string {
	var list []string
	for _, n := range r.Networks {
		if n.Borders > 0 {
			list = append(list, fmt.Sprintf("%s %.3f", n.Name, n.Borders))
		}
	}
	if list == nil {
		return ""
	}
	return "the least that a network takes to the least were nothing paid between regions, as each search believed " +
		"at its end: " +
		strings.Join(list, ", ") + "\n"
}

func (r *NetworkReport) searches() string {
	header := table.Row{"network"}
	var columns []string
	for _, name := range r.ran() {
		if slices.ContainsFunc(r.Networks, func(n NetworkRow) bool {
			return slices.ContainsFunc(n.Cells,
				func(c NetworkCell) bool { return c.Peer == name && c.SearchSeconds > 0 })
		}) {
			columns, header = append(columns, name), append(header, name)
		}
	}
	t := plaintable.New(header)
	for i := range r.Networks {
		row := table.Row{r.Networks[i].Name}
		for _, name := range columns {
			text := "-"
			for _, c := range r.Networks[i].Cells {
				if c.Peer == name && c.SearchSeconds > 0 {
					text = fmt.Sprintf("%.1f %s", c.SearchSeconds, c.Kept)
				}
			}
			row = append(row, text)
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t)
}

func (s *NetworkSummary) text(networks int) string {
	var b strings.Builder
	mean := func(what string, g statistics.GeometricMean) {
		if g.Networks > 0 {
			fmt.Fprintf(&b, "geometric mean over %d networks, %s to ours: %.3f [%.3f, %.3f] (bootstrap over turns)\n",
				g.Networks, what,
				g.Mean, g.Low, g.High)
		}
	}
	mean("the best peer of each", s.BestPeer)
	mean("the best of TVM and PyTorch", s.BestOfTVMAndTorch)
	for _, other := range s.Others {
		mean(other.Name, other.Mean)
	}
	if s.BestPeer.Networks > 0 {
		fmt.Fprintf(&b, "no peer is faster (intervals not below 1) on %d of %d: %s\n", len(s.NotSlower), networks,
			orNone(s.NotSlower))
	}
	fmt.Fprintf(&b, "two or more backends share the executable on: %s\n", orNone(s.Mixed))
	if s.Gain > 0 {
		fmt.Fprintf(&b, "geometric mean over those of them whose best single backend was measured, that one to theirs: "+
			"%.3f (when they were compiled)\n", s.Gain)
	}
	if len(s.Failed) > 0 {
		fmt.Fprintf(&b, "not compiled or not run: %s\n", strings.Join(s.Failed, ", "))
	}
	return b.String()
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// WritePicture writes it as SVG.
func (r *NetworkReport) WritePicture(w io.Writer) error {
	plot := &dotPlot{Title: fmt.Sprintf("Whole networks, %s, %d threads", r.Precision, r.Threads), X: "network",
		Y: "time to Collage's (log scale)", Wide: true}
	for _, n := range r.Networks {
		plot.Labels = append(plot.Labels, n.Name)
	}
	for i, name := range r.ran() {
		series := dots{Name: name}
		for k := range r.Networks {
			if r.Networks[k].Failure != "" {
				series.Ratios = append(series.Ratios, 0)
				continue
			}
			cell := &r.Networks[k].Cells[i]
			switch {
			case len(cell.Turns) == 0 || cell.Wrong:
				series.Ratios = append(series.Ratios, 0)
			case i == 0:
				series.Ratios = append(series.Ratios, 1)
			default:
				series.Ratios = append(series.Ratios, cell.Ratio.Median)
			}
		}
		plot.Series = append(plot.Series, series)
	}
	return plot.render(w, chart.SVG)
}
