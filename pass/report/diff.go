// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/collage-tvm/collage/internal/plaintable"
	"github.com/collage-tvm/collage/pass/plan"
)

// How much of a difference is shown without Verbose.
const (
	shownMoves = 20
	shownCosts = 10
)

// WriteDifference writes what differs between two plans, which names call.
func WriteDifference(w io.Writer, d *plan.Difference, names [2]string, opts Options) error {
	var sections []string
	if len(d.Fields) > 0 {
		t := plaintable.New(table.Row{"", names[0], names[1]})
		for _, f := range d.Fields {
			t.AppendRow(table.Row{f.Field, field(f.From, opts), field(f.To, opts)})
		}
		sections = append(sections, plaintable.Render(t))
	}
	sections = append(sections, differenceSums(d, names))
	switch {
	case !d.SameModule:
		sections = append(sections, "The plans are for different modules, so their places cannot be compared.\n")
	case d.Identical:
		sections = append(sections, "Both plans place everything alike.\n")
	case len(d.Moves) == 0:
		sections = append(sections, "Both plans place every operator alike; they join them into other regions.\n")
	default:
		sections = append(sections, differenceMoves(d, opts))
	}
	if len(d.Costs) > 0 {
		sections = append(sections, differenceCosts(d, opts))
	}
	if len(d.Fates) > 0 {
		var b strings.Builder
		for _, f := range d.Fates {
			name := f.Composite
			if name == "" {
				name = operators(f.Operators)
			}
			if f.From != nil {
				fmt.Fprintf(&b, "%s on %s works in %s; in %s it failed: %s\n", name, f.Backend, names[1], names[0],
					firstLine(f.From.String(), opts))
			} else {
				fmt.Fprintf(&b, "%s on %s works in %s; in %s it failed: %s\n", name, f.Backend, names[0], names[1],
					firstLine(f.To.String(), opts))
			}
		}
		sections = append(sections, b.String())
	}
	for i, n := range d.Only {
		if n > 0 {
			sections = append(sections, fmt.Sprintf("%d candidates are in %s only.\n", n, names[i]))
		}
	}
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

// field is a property's value, cut so that two stand on a line.
func field(text string, opts Options) string {
	const width = 60
	runes := []rune(text)
	switch {
	case text == "":
		return "-"
	case len(runes) > width && !opts.Verbose:
		return string(runes[:width]) + "..."
	}
	return text
}

func differenceSums(d *plan.Difference, names [2]string) string {
	t := plaintable.New(table.Row{"", names[0], names[1], "change"}, 2, 3, 4)
	for _, s := range d.Shares {
		t.AppendRow(table.Row{"operators on " + s.Backend, s.Operators[0], s.Operators[1],
			signed(s.Operators[1] - s.Operators[0])})
	}
	t.AppendRow(table.Row{"estimate ms", ms(d.Estimate[0].Milliseconds), ms(d.Estimate[1].Milliseconds),
		change(d.Estimate[0].Milliseconds, d.Estimate[1].Milliseconds)})
	gap := func(e plan.Estimate) string {
		if !e.Optimal && e.Bound == 0 {
			return "not searched"
		}
		return ms(e.Gap)
	}
	t.AppendRow(table.Row{"gap ms", gap(d.Estimate[0]), gap(d.Estimate[1]), ""})
	return plaintable.Render(t)
}

func signed(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", n)
}

// change is the relative one.
func change(from, to float64) string {
	switch {
	case from == to:
		return ""
	case from == 0:
		return "+" + ms(to)
	}
	p := 100 * (to/from - 1)
	if math.Abs(p) < 0.05 {
		return "under 0.1 %"
	}
	return fmt.Sprintf("%+.1f %%", p)
}

func differenceMoves(d *plan.Difference, opts Options) string {
	var b strings.Builder
	moved, regrouped := 0, 0
	for i := range d.Moves {
		if d.Moves[i].Backends() {
			moved += len(d.Moves[i].Operators)
		} else {
			regrouped += len(d.Moves[i].Operators)
		}
	}
	fmt.Fprintf(&b, "%d operators went to another backend, %d are grouped in another way:\n", moved, regrouped)
	list := slices.Clone(d.Moves)
	// What went to another backend comes first.
	slices.SortStableFunc(list, func(x, y plan.Move) int {
		switch {
		case x.Backends() == y.Backends():
			return 0
		case x.Backends():
			return -1
		}
		return 1
	})
	cut := 0
	if !opts.Verbose && len(list) > shownMoves {
		cut, list = len(list)-shownMoves, list[:shownMoves]
	}
	t := plaintable.New(table.Row{"nodes", "operators", "from", "ms", "to", "ms"}, 4, 6)
	exchanged := slices.ContainsFunc(list, func(m plan.Move) bool { return m.Exchange != nil })
	if exchanged {
		t = plaintable.New(table.Row{"nodes", "operators", "from", "ms", "to", "ms", "believed before"}, 4, 6)
	}
	for i := range list {
		m := &list[i]
		row := table.Row{nodeRanges(m.Nodes), operators(m.Operators), sideText(m.From, m.Nodes), ms(m.From.Estimate),
			sideText(m.To, m.Nodes), ms(m.To.Estimate)}
		if exchanged {
			row = append(row, exchangeText(m.Exchange))
		}
		t.AppendRow(row)
	}
	b.WriteString(plaintable.Render(t))
	if cut > 0 {
		fmt.Fprintf(&b, "and %d more (--verbose shows all)\n", cut)
	}
	return b.String()
}

// exchangeText is what the first plan says of a move: "0.021 ms slower", borders counted.
func exchangeText(more *float64) string {
	switch {
	case more == nil:
		return "-"
	case *more < 0:
		return shortTime(-*more) + " faster"
	}
	return shortTime(*more) + " slower"
}

// sideText is "dnnl.conv2d_bias_relu on dnnl", with what else the candidate covers.
func sideText(s plan.Side, nodes []int) string {
	text := s.Backend
	if s.Composite != "" {
		text = s.Composite
		if !strings.HasPrefix(text, s.Backend+".") {
			text += " on " + s.Backend
		}
	}
	if others := slices.DeleteFunc(slices.Clone(s.Nodes),
		func(v int) bool { return slices.Contains(nodes, v) }); len(others) > 0 {
		text += " with " + nodeRanges(others)
	}
	return text
}

func differenceCosts(d *plan.Difference, opts Options) string {
	list := d.Costs
	cut := 0
	if !opts.Verbose && len(list) > shownCosts {
		cut, list = len(list)-shownCosts, list[:shownCosts]
	}
	t := plaintable.New(table.Row{"cost of", "backend", "places", "ms before", "ms after", "change", "placed"}, 3, 4, 5,
		6)
	for _, c := range list {
		name := c.Composite
		if name == "" {
			name = operators(c.Operators)
		}
		placed := map[[2]bool]string{{true, true}: "in both", {true, false}: "before", {false, true}: "after",
			{}: ""}[c.Chosen]
		t.AppendRow(table.Row{name, c.Backend, len(c.Places), ms(c.Estimate[0]), ms(c.Estimate[1]),
			change(c.Estimate[0], c.Estimate[1]), placed})
	}
	text := plaintable.Render(t)
	if cut > 0 {
		text += fmt.Sprintf("and %d smaller changes (--verbose shows all)\n", cut)
	}
	return text
}
