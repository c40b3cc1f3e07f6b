// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/collage-tvm/collage/internal/plaintable"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

// shownExplained is how many explanations are written in full; more of them share a table.
const shownExplained = 3

// WriteExplanations writes why operators are where they are (plan.Plan.Explain). Many of them share a table with a line
// each, unless Verbose.
func WriteExplanations(w io.Writer, explanations []plan.Explanation, opts Options) error {
	var b strings.Builder
	if len(explanations) > shownExplained && !opts.Verbose {
		b.WriteString(explanationTable(explanations))
	} else {
		for i := range explanations {
			if i > 0 {
				b.WriteString("\n")
			}
			explain(&b, &explanations[i])
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func explain(b *strings.Builder, e *plan.Explanation) {
	fmt.Fprintf(b, "%s is on %s", subject(e), e.Backend)
	if e.Composite != "" {
		fmt.Fprintf(b, " as %s", e.Composite)
	}
	if others := len(e.Nodes) - len(e.Selected); others > 0 {
		fmt.Fprintf(b, ", together with %s", otherNodes(e))
	}
	fmt.Fprintf(b, ": region %d", e.Region)
	if e.Symbol != "" {
		fmt.Fprintf(b, ", %s", e.Symbol)
	} else {
		b.WriteString(", inline")
	}
	fmt.Fprintf(b, "\n%s ms", ms(e.Estimate))
	if e.InPlace {
		fmt.Fprintf(b, " %s\n\n", evidenceInPlace(e))
	} else {
		if charged := e.Estimate - e.Cost.Estimate(); charged > 1e-9 && e.Cost.Known() {
			fmt.Fprintf(b, ", %s of them for starting it: its own time is", ms(charged))
		}
		fmt.Fprintf(b, " %s\n\n", evidence(e.Cost))
	}

	t := plaintable.New(table.Row{"", "node", "operator", "price ms", "type", "from"}, 4)
	for i := range e.Nodes {
		n := &e.Nodes[i]
		mark := ""
		if slices.Contains(e.Selected, n.Index) {
			mark = ">"
		}
		t.AppendRow(table.Row{mark, "%" + strconv.Itoa(n.Index), n.Operator, ms(n.Price), n.Type, n.Span})
	}
	b.WriteString(plaintable.Render(t))
	b.WriteString("\n")
	if len(e.Others) == 0 {
		b.WriteString("nothing else was proposed for it\n")
		return
	}
	t = plaintable.New(table.Row{"instead", "backend", "operators", "nodes", "ms", "interval", "to be taken"}, 5)
	var impossible []string
	for i := range e.Others {
		o := &e.Others[i]
		if o.Fate != plan.FateDearer && o.Fate != plan.FateBounded {
			impossible = append(impossible, fmt.Sprintf("%s on %s (%s) %s\n", otherName(o), o.Backend,
				nodeRanges(o.Nodes), fate(o)))
			continue
		}
		estimate, interval := estimateCells(o)
		t.AppendRow(table.Row{o.Composite, o.Backend, operators(o.Operators), nodeRanges(o.Nodes), estimate, interval,
			needed(o)})
	}
	if t.Length() > 0 {
		b.WriteString(plaintable.Render(t))
	} else {
		b.WriteString("nothing else could have been placed\n")
	}
	if len(impossible) > 0 {
		b.WriteString("\nnot placeable:\n")
		for _, line := range impossible {
			b.WriteString("  " + line)
		}
	}
}

// estimateCells are the estimate of a candidate that could have been placed, and its interval.
func estimateCells(o *plan.Other) (estimate, interval string) {
	if o.Fate == plan.FateBounded && o.InPlace {
		return "perhaps " + ms(o.Estimate), "not measured"
	}
	if o.Fate == plan.FateBounded {
		return "at least " + ms(o.Estimate), "not measured"
	}
	if o.High > 0 {
		interval = ms(o.Low) + " - " + ms(o.High)
	}
	return ms(o.Estimate), interval
}

// subject is what was asked for: "nn.conv2d %2 of main".
func subject(e *plan.Explanation) string {
	var parts []string
	for i := range e.Nodes {
		if n := &e.Nodes[i]; slices.Contains(e.Selected, n.Index) {
			parts = append(parts, fmt.Sprintf("%s %%%d", n.Operator, n.Index))
		}
	}
	return fmt.Sprintf("%s of %s", strings.Join(parts, ", "), e.Function)
}

func otherNodes(e *plan.Explanation) string {
	var parts []string
	for i := range e.Nodes {
		if n := &e.Nodes[i]; !slices.Contains(e.Selected, n.Index) {
			parts = append(parts, fmt.Sprintf("%s %%%d", n.Operator, n.Index))
		}
	}
	const shown = 5
	if len(parts) > shown {
		return fmt.Sprintf("%s and %d others", strings.Join(parts[:shown], ", "), len(parts)-shown)
	}
	return strings.Join(parts, ", ")
}

// evidence says where a cost is from: "from the store (10 samples; 90 % interval 0.740 - 0.760; error 1.5e-06)".
func evidence(c cost.Cost) string {
	var origin string
	switch c.Origin {
	case cost.Measured:
		origin = "measured"
	case cost.Stored:
		origin = "from the store"
	case cost.ByBackend:
		return "the backend's own estimate, not measured"
	default:
		return "by rule or as given"
	}
	details := []string{fmt.Sprintf("%d samples", len(c.Samples))}
	if len(c.Samples) == 1 {
		details[0] = "1 sample"
	}
	if len(c.Samples) > 1 {
		low, high := c.Interval()
		details = append(details, fmt.Sprintf("90 %% interval %s - %s ms", ms(low), ms(high)))
	}
	if c.MaxError > 0 {
		details = append(details, fmt.Sprintf("greatest difference from TVM's result %.3g", c.MaxError))
	}
	return fmt.Sprintf("%s (%s)", origin, strings.Join(details, "; "))
}

// evidenceInPlace says what a cost in place rests on.
func evidenceInPlace(e *plan.Explanation) string {
	switch {
	case e.Profiles > 1:
		return fmt.Sprintf("in place: its time within %d whole networks, and what is added for starting it", e.Profiles)
	case e.Context > 0:
		return "in place: its time within a whole network, and what is added for starting it"
	case e.Cost.Origin == cost.Bounded:
		return "in place, as is believed: it was never run, and the lower bound counts as much more as those of its like " +
			"proved too low"
	case e.Estimate == 0:
		return "in place: it costs nothing"
	}
	return "in place, as is believed: it was in no network that ran, and what it took alone, " + evidence(e.Cost) +
		", is brought to what its like took in place"
}

// needed says how much faster a loser would have had to be.
func needed(o *plan.Other) string {
	switch {
	case o.Exchange != nil && *o.Exchange <= 0 && o.Fate == plan.FateBounded:
		return fmt.Sprintf("might save %s: it was never run", shortTime(-*o.Exchange))
	case o.Exchange != nil && *o.Exchange <= 0:
		return fmt.Sprintf("believed to save %s: what was measured decided", shortTime(-*o.Exchange))
	case o.Exchange != nil:
		return fmt.Sprintf("%s faster, borders counted", shortTime(*o.Exchange))
	case o.Regret == nil && o.InPlace:
		return "not by its own cost: by borders, or by what was measured"
	case o.Regret == nil:
		return "fits into no placement"
	case *o.Regret == 0 && o.Fate == plan.FateBounded:
		return "its bound leaves it a chance"
	case *o.Regret == 0:
		return "another placement as cheap"
	case *o.Regret < 5e-4:
		return fmt.Sprintf("%s faster (%s)", shortTime(*o.Regret), percent(*o.Regret/o.Estimate))
	case *o.Regret > o.Estimate:
		return fmt.Sprintf("not even at no cost (%s ms short)", ms(*o.Regret-o.Estimate))
	}
	return fmt.Sprintf("%s ms faster (%s)", ms(*o.Regret), percent(*o.Regret/o.Estimate))
}

// shortTime is a time that may be a matter of microseconds.
func shortTime(milliseconds float64) string {
	if milliseconds < 5e-4 {
		return fmt.Sprintf("%.3g us", 1e3*milliseconds)
	}
	return ms(milliseconds) + " ms"
}

func percent(ratio float64) string {
	switch p := 100 * ratio; {
	case p < 0.1:
		return "under 0.1 %"
	case p < 10:
		return fmt.Sprintf("%.1f %%", p)
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

func otherName(o *plan.Other) string {
	if o.Composite != "" {
		return o.Composite
	}
	return operators(o.Operators)
}

// fate says why a candidate could not be placed.
func fate(o *plan.Other) string {
	switch o.Fate {
	case plan.FateFailed:
		return "failed: " + o.Reason
	case plan.FateExcluded:
		return "is ruled out: " + o.Reason
	}
	return "was refused: " + o.Reason
}

// nodeRanges writes nodes as "%2, %4-%5".
func nodeRanges(nodes []int) string {
	var parts []string
	for i := 0; i < len(nodes); {
		j := i
		for j+1 < len(nodes) && nodes[j+1] == nodes[j]+1 {
			j++
		}
		if len(parts) == 4 {
			parts = append(parts, "...")
			break
		}
		if j == i {
			parts = append(parts, fmt.Sprintf("%%%d", nodes[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%%%d-%%%d", nodes[i], nodes[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// explanationTable has a line for each chosen candidate, with the one that was closest to taking its place.
func explanationTable(explanations []plan.Explanation) string {
	t := plaintable.New(table.Row{"nodes", "backend", "composite", "ms", "price ms", "closest other", "its ms",
		"to be taken"}, 4, 5, 7)
	for i := range explanations {
		e := &explanations[i]
		price := 0.0
		for k := range e.Nodes {
			if slices.Contains(e.Selected, e.Nodes[k].Index) {
				price += e.Nodes[k].Price
			}
		}
		row := table.Row{nodeRanges(e.Selected), e.Backend, e.Composite, ms(e.Estimate), ms(price), "-", "", ""}
		if len(e.Others) > 0 {
			switch o := &e.Others[0]; o.Fate {
			case plan.FateDearer, plan.FateBounded:
				row[5], row[7] = otherName(o)+" on "+o.Backend, needed(o)
				row[6], _ = estimateCells(o)
			default:
				row[5], row[7] = otherName(o)+" on "+o.Backend, string(o.Fate)
			}
		}
		t.AppendRow(row)
	}
	return plaintable.Render(t) + "a single node (as in %12) and --verbose say more\n"
}

// WriteClosest writes which of the candidates that were not placed came closest.
func WriteClosest(w io.Writer, rivals []plan.Rival) error {
	if len(rivals) == 0 {
		return nil
	}
	t := plaintable.New(table.Row{"closest to being taken", "backend", "nodes", "ms", "interval", "to be taken"}, 4)
	for i := range rivals {
		o := &rivals[i].Other
		estimate, interval := estimateCells(o)
		t.AppendRow(table.Row{otherName(o), o.Backend, nodeRanges(o.Nodes), estimate, interval, needed(o)})
	}
	_, err := io.WriteString(w, plaintable.Render(t))
	return err
}
