// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/collage-tvm/collage/internal/plaintable"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

// Options say how much a text report shows.
type Options struct {
	// Verbose shows each region on a line of its own, each of its parts with its operators and their indices, and each
	// failure and refusal with its places. Otherwise regions that compute the same share a line, and long lists are
	// cut, always saying what was left out.
	Verbose bool
}

// How much is shown without Verbose.
const (
	shownRegions   = 40
	shownOperators = 6
	shownFailures  = 8
)

// WriteText writes the summary as text tables.
func (s *Summary) WriteText(w io.Writer, opts Options) error {
	sections := []string{s.regions(opts), s.shares()}
	if s.Candidates.Proposed > 0 {
		sections = append(sections, s.candidates(opts))
	}
	if s.GraphLevel != nil {
		sections = append(sections, s.graphLevel(opts))
	}
	if len(s.Finalists) > 0 {
		sections = append(sections, s.finalists())
	}
	if len(s.Frontier) > 0 {
		sections = append(sections, s.frontierText())
	}
	sections = append(sections, s.times())
	_, err := io.WriteString(w, strings.Join(sections, "\n"))
	return err
}

func ms(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// row is one line of the table of regions: regions that compute the same.
type row struct {
	first *Region
	ids   []int
	sum   float64
}

func (s *Summary) regions(opts Options) string {
	var rows []row
	at := map[string]int{}
	hidden, functions := 0, map[string]bool{}
	for i := range s.Regions {
		r := &s.Regions[i]
		functions[r.Function] = true
		if len(r.Operators) == 0 && !opts.Verbose {
			hidden++
			continue
		}
		k, ok := at[r.Key]
		if !ok || opts.Verbose {
			k = len(rows)
			at[r.Key] = k
			rows = append(rows, row{first: r})
		}
		rows[k].ids = append(rows[k].ids, r.ID)
		rows[k].sum += r.Estimate
	}
	var b strings.Builder
	if s.Module != "" {
		fmt.Fprintf(&b, "%s: ", s.Module)
	}
	fmt.Fprintf(&b, "%s in %s, for %s, %s", Counted(s.Operators, "operator"), Counted(len(s.Regions)-hidden, "region"),
		s.Target, Counted(s.Threads, "thread"))
	if s.Level != "" {
		fmt.Fprintf(&b, "; placed at the %s level", s.Level)
	}
	b.WriteString("\n\n")

	cut, rest := 0, 0.0
	if !opts.Verbose && len(rows) > shownRegions {
		rows, cut, rest = dearest(rows)
	}
	if opts.Verbose {
		b.WriteString(plaintable.Render(s.everyRegion(rows)))
		return b.String()
	}
	t := plaintable.New(table.Row{"region", "times", "operators", "backend", "estimated ms", "each ms"}, 2, 5, 6)
	for _, r := range rows {
		each := ""
		if len(r.ids) > 1 {
			each = s.partMS(r.sum / float64(len(r.ids)))
		}
		t.AppendRow(table.Row{ranges(r.ids), len(r.ids), operators(r.first.Operators), r.first.Backend, s.partMS(r.sum),
			each})
	}
	b.WriteString(plaintable.Render(t))
	if cut > 0 {
		fmt.Fprintf(&b, "and %d cheaper kinds of regions, %s ms together (--verbose shows all)\n", cut, ms(rest))
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "not shown: %d without an operator (tuples, projections, calls)\n", hidden)
	}
	return b.String()
}

// everyRegion has a line for each region, and under it one for each part where there are several.
func (s *Summary) everyRegion(rows []row) table.Writer {
	t := plaintable.New(table.Row{"region", "operators", "backend", "composite", "estimated ms"}, 1, 5)
	for _, r := range rows {
		region := r.first
		if len(region.Parts) == 1 {
			part := &region.Parts[0]
			t.AppendRow(table.Row{region.ID, withIndices(part), region.Backend, part.Composite,
				s.partMS(region.Estimate)})
			continue
		}
		t.AppendRow(table.Row{region.ID, operators(region.Operators), region.Backend, "", s.partMS(region.Estimate)})
		for i := range region.Parts {
			part := &region.Parts[i]
			t.AppendRow(table.Row{"", "  " + withIndices(part), part.Backend, part.Composite, "(" +
				s.partMS(part.Estimate) + ")"})
		}
	}
	return t
}

// dearest keeps the rows that take most time, in their order, and says how many it left out and what they take.
func dearest(rows []row) (kept []row, cut int, rest float64) {
	order := slices.Clone(rows)
	slices.SortStableFunc(order, func(a, b row) int {
		if a.sum != b.sum {
			if a.sum > b.sum {
				return -1
			}
			return 1
		}
		return a.first.ID - b.first.ID
	})
	for _, r := range order[shownRegions:] {
		rest += r.sum
	}
	kept = order[:shownRegions]
	slices.SortFunc(kept, func(a, b row) int { return a.first.ID - b.first.ID })
	return kept, len(order) - shownRegions, rest
}

// ranges writes ascending numbers as "0, 4, 7-9", and no more than a few of them.
func ranges(ids []int) string {
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if len(parts) == 3 {
			return strings.Join(append(parts, "..."), ", ")
		}
		switch {
		case j == i:
			parts = append(parts, strconv.Itoa(ids[i]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// operators writes a few operators one by one and many by their numbers.
func operators(names []string) string {
	if len(names) <= shownOperators {
		return strings.Join(names, " ")
	}
	counts := map[string]int{}
	var order []string
	for _, name := range names {
		if counts[name] == 0 {
			order = append(order, name)
		}
		counts[name]++
	}
	slices.SortStableFunc(order, func(a, b string) int { return counts[b] - counts[a] })
	parts := make([]string, 0, shownOperators)
	others := len(names)
	for i, name := range order {
		if i == shownOperators-1 && len(order) > shownOperators {
			parts = append(parts, fmt.Sprintf("%d others", others))
			break
		}
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
		others -= counts[name]
	}
	return strings.Join(parts, ", ")
}

func withIndices(part *Part) string {
	if len(part.Operators) == 0 {
		return "-"
	}
	names := make([]string, len(part.Operators))
	for i, name := range part.Operators {
		names[i] = fmt.Sprintf("%s %%%d", name, part.Nodes[i])
	}
	return strings.Join(names, ", ")
}

func (s *Summary) shares() string {
	t := plaintable.New(table.Row{"backend", "library", "regions", "operators", "estimated ms"}, 3, 4, 5)
	notes := ""
	for _, b := range s.Backends {
		if b.Unusable != "" {
			notes += fmt.Sprintf("%s was left out: %s\n", b.Name, b.Unusable)
			continue
		}
		if len(b.Kernels) > 0 {
			notes += fmt.Sprintf("kernels of %s: %s\n", b.Name, kernels(b.Kernels))
		}
		t.AppendRow(table.Row{b.Name, strings.TrimSpace(b.Library + " " + b.Version), b.Regions, b.Operators,
			s.partMS(b.Estimate)})
	}
	for _, b := range s.Backends {
		if b.Declared != "" {
			notes += fmt.Sprintf("not measured: what %s takes is declared in %s\n", b.Name, b.Declared)
		}
	}
	for _, device := range slices.Sorted(maps.Keys(s.Copies)) {
		c := s.Copies[device]
		notes += fmt.Sprintf("copied in each call: %s to the device %s, %s from there\n",
			tensors(c.ToDevice, c.ToBytes), device, tensors(c.FromDevice, c.FromBytes))
	}
	if s.Exact {
		notes += "exact: kernels that associate sums otherwise than a direct sum does were not offered\n"
	}
	return plaintable.Render(t) + notes
}

// tensors says how many there are, and how large they are together: "3 tensors (12.5 kB)".
func tensors(count int, bytes int64) string {
	word := "tensors"
	if count == 1 {
		word = "tensor"
	}
	return fmt.Sprintf("%d %s (%.1f kB)", count, word, float64(bytes)/1e3)
}

// kernels are a backend's kernels with what they run, the frequent ones first: "12 winograd, 3 projection".
func kernels(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}

func (s *Summary) candidates(opts Options) string {
	c := &s.Candidates
	var b strings.Builder
	fmt.Fprintf(&b, "%d candidates: %d cost nothing, ", c.Proposed, c.Free)
	if c.Excluded > 0 {
		fmt.Fprintf(&b, "%d were ruled out, ", c.Excluded)
	}
	fmt.Fprintf(&b, "the others are %d different computations\n", c.Distinct)
	costs := []string{fmt.Sprintf("%d measured", c.Measured), fmt.Sprintf("%d from the store", c.Stored)}
	for _, more := range []struct {
		n    int
		text string
	}{{c.Given, "%d given"}, {c.InPlace, "%d seen in place"}, {c.Bounded, "%d bounded away"},
		{c.Unknown, "%d unknown"}} {
		if more.n > 0 {
			costs = append(costs, fmt.Sprintf(more.text, more.n))
		}
	}
	fmt.Fprintf(&b, "their costs: %s; %d failed\n", strings.Join(costs, ", "), c.Failed)
	if c.Bounded > 0 {
		fmt.Fprintf(&b, "lower bounds: %s\n", boundsText(c.Tested, c.Wrong))
	}
	if c.Ties > 0 {
		fmt.Fprintf(&b, "ties: at %d places candidates took so nearly the same time that further samples did not "+
			"tell them apart\n", c.Ties)
	}
	b.WriteString(failures(c.Failures, opts))
	if len(c.Refusals) == 0 {
		return b.String()
	}
	if !opts.Verbose {
		met := 0
		for _, r := range c.Refusals {
			met += len(r.Places)
		}
		what := "matches were"
		if met == 1 {
			what = "match was"
		}
		fmt.Fprintf(&b, "%d %s beyond a backend's limits (--verbose says which)\n", met, what)
		return b.String()
	}
	b.WriteString("beyond a backend's limits:\n")
	for _, r := range c.Refusals {
		fmt.Fprintf(&b, "  %s on %s%s: %s\n", r.Composite, r.Backend, places(r.Places, opts), r.Reason)
	}
	return b.String()
}

// boundsText says how good lower bounds were found to be.
func boundsText(tested, wrong int) string {
	switch {
	case tested == 0:
		return "none of them was held against a cost"
	case wrong == 0:
		return fmt.Sprintf("of %d that were held against a cost none was above it", tested)
	}
	return fmt.Sprintf("of %d that were held against a cost %d proved too high, and all are lowered for that", tested,
		wrong)
}

// Rests says what a plan's proof rests on.
func Rests(c *plan.Candidates) string {
	var parts []string
	for _, of := range []struct {
		n    int
		text string
	}{{c.Measured, "%d measured"}, {c.Stored, "%d from the store"}, {c.Given, "%d given"},
		{c.InPlace, "%d seen in place"},
		{c.Bounded, "%d lower bounds of a roofline"}} {
		if of.n > 0 {
			parts = append(parts, fmt.Sprintf(of.text, of.n))
		}
	}
	if parts == nil {
		return "costs of nothing"
	}
	text := fmt.Sprintf("the costs of %d computations: %s", c.Distinct, strings.Join(parts, ", "))
	if c.Bounded > 0 {
		text += "; " + boundsText(c.Tested, c.Wrong)
	}
	return text
}

// failures says what failed, how and where. Without Verbose, what failed alike on one backend shares a line: where a
// library is broken, everything that it was offered says the same.
func failures(list []plan.Failure, opts Options) string {
	type line struct {
		what, how string
		computes  int
		at        []plan.Place
	}
	var lines []line
	alike := map[string]int{}
	for _, f := range list {
		what := operators(f.Operators)
		if f.Composite != "" {
			what = f.Composite
		}
		l := line{what: what + " on " + f.Backend, how: firstLine(f.Failure.String(), opts), computes: 1, at: f.Places}
		k, ok := alike[f.Backend+"\n"+l.how]
		if !ok || opts.Verbose {
			alike[f.Backend+"\n"+l.how] = len(lines)
			lines = append(lines, l)
			continue
		}
		lines[k].what = fmt.Sprintf("%d computations on %s", lines[k].computes+1, f.Backend)
		lines[k].computes++
		lines[k].at = append(slices.Clone(lines[k].at), f.Places...)
	}
	var b strings.Builder
	for i, l := range lines {
		if i == shownFailures && !opts.Verbose {
			fmt.Fprintf(&b, "  and %d other kinds of failures (--verbose shows all)\n", len(lines)-i)
			break
		}
		fmt.Fprintf(&b, "  %s%s: %s\n", l.what, places(l.at, opts), l.how)
	}
	return b.String()
}

// places says where something happened: " (%12, %30)", or how often.
func places(at []plan.Place, opts Options) string {
	if !opts.Verbose && len(at) > 4 {
		return fmt.Sprintf(" (%d places)", len(at))
	}
	parts := make([]string, len(at))
	for i, p := range at {
		parts[i] = fmt.Sprintf("%%%d", p.Index)
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// firstLine cuts what compilers say.
func firstLine(s string, opts Options) string {
	if opts.Verbose {
		return strings.ReplaceAll(s, "\n", "\n      ")
	}
	line, _, more := strings.Cut(s, "\n")
	const width = 160
	if runes := []rune(line); len(runes) > width {
		line, more = string(runes[:width]), true
	}
	if more {
		line += " ..."
	}
	return line
}

func (s *Summary) finalists() string {
	header := table.Row{"", "network", "median ms", "lower quartile ms", "its 90 % interval", "max error"}
	weighed := slices.ContainsFunc(s.Finalists, func(f Finalist) bool { return f.Resident > 0 })
	if weighed {
		header = append(header, "file MB", "memory MB")
	}
	if s.Precision != nil {
		header = append(header, "off by ("+cost.MeasureText(s.Precision.Measure)+")")
	}
	if s.Reference != "" {
		header = append(header, "time / "+s.Reference+"'s")
	}
	t := plaintable.New(header, 3, 4, 5, 6, 7, 8, 9, 10)
	rounds := 0
	var failed, short []string
	for _, f := range s.Finalists {
		if f.Failure != nil {
			if f.Failure.Kind == cost.KindOverBudget {
				failed = append(failed, fmt.Sprintf("%s may not be kept: %s\n", f.Name, f.Failure.Detail))
			} else {
				failed = append(failed, fmt.Sprintf("%s could not be run: %s\n", f.Name, f.Failure))
			}
			continue
		}
		rounds = max(rounds, f.Rounds)
		mark := ""
		if f.Chosen {
			mark = "*"
		}
		cells := table.Row{mark, f.Name, ms(f.Median), ms(f.LowerQuartile), ms(f.Low) + " - " + ms(f.High),
			strconv.FormatFloat(f.MaxError, 'g', 3, 64)}
		if weighed {
			cells = append(cells, megabytes(f.Bytes), megabytes(f.Resident))
		}
		if s.Precision != nil {
			cells = append(cells, strconv.FormatFloat(f.Error, 'g', 2, 64))
		}
		if s.Reference != "" {
			cells = append(cells, strconv.FormatFloat(f.Ratio, 'f', 3, 64))
		}
		t.AppendRow(cells)
	}
	for _, f := range s.Finalists {
		if f.Failure == nil && f.Rounds < rounds {
			short = append(short, fmt.Sprintf("%s in the first %d alone", f.Name, f.Rounds))
		}
	}
	note := fmt.Sprintf("%d rounds, the networks taken in turn", rounds)
	if len(short) > 0 {
		note += " (" + strings.Join(short, ", ") + ")"
	}
	if slices.ContainsFunc(s.Finalists, func(f Finalist) bool { return f.Chosen }) {
		note += "; * is the one that was kept"
	}
	if p := s.Precision; p != nil {
		of := "random inputs"
		if p.Calibration != "" {
			of = "samples of the calibration data"
		}
		note += fmt.Sprintf("\nup to %s; outputs may be off by %g (%s), on %d %s that the search had not seen",
			p.Allowed, p.MaxError, cost.MeasureText(p.Measure), p.HeldOut, of)
		note += methodText(p)
		note += lagrangianText(p.Lagrangian)
	}
	return plaintable.Render(t) + note + "\n" + strings.Join(failed, "")
}

// estimated says that the parts' costs are known: a placement that was not searched for has none.
func (s *Summary) estimated() bool {
	return s.Times.Optimal || s.Times.Bound > 0 || s.Times.Estimate > 0
}

// partMS is a part's estimated time in the tables.
func (s *Summary) partMS(v float64) string {
	if !s.estimated() {
		return "-"
	}
	return ms(v)
}

// partsText says what the estimate is the sum of.
func (s *Summary) partsText() string {
	switch {
	case slices.ContainsFunc(s.Backends, func(b Backend) bool { return b.Declared != "" }):
		return "sum of the placed parts, each as it is declared, or measured by itself"
	case s.Candidates.InPlace > 0:
		return "sum of the placed parts, each measured by itself, or seen in place"
	}
	return "sum of the placed parts, each measured by itself"
}

// times are three separate lines, since none of the three numbers says anything about the others for sure.
func (s *Summary) times() string {
	lines := [][3]string{}
	if s.Times.Optimal {
		lines = append(lines, [3]string{"additive bound", ms(s.Times.Bound) + " ms",
			"no placement of these candidates has a smaller sum"})
	} else if s.Times.Bound > 0 && s.GraphLevel != nil {
		lines = append(lines, [3]string{"additive bound", ms(s.Times.Bound) + " ms",
			"no placement of these candidates has a smaller sum"})
	} else if s.Times.Bound > 0 {
		lines = append(lines, [3]string{"additive bound", ms(s.Times.Bound) + " ms",
			"no placement of these candidates has a smaller sum; that there is none between is not proven"})
	} else {
		lines = append(lines, [3]string{"additive bound", "none", "this placement was not searched for"})
	}
	if s.estimated() {
		lines = append(lines, [3]string{"additive estimate", ms(s.Times.Estimate) + " ms", s.partsText()})
	} else {
		lines = append(lines, [3]string{"additive estimate", "none",
			"nothing was measured: there was nothing to choose"})
	}
	if s.Times.Context > 0 {
		lines = append(lines, [3]string{"estimate in place", ms(s.Times.Context) + " ms",
			"sum of the placed parts, each timed within a whole network"})
	}
	if s.Times.Measured > 0 {
		lines = append(lines, [3]string{"measured", ms(s.Times.Measured) + " ms", "median of the whole network's runs"})
	} else {
		lines = append(lines, [3]string{"measured", "-", "the whole network was not run"})
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%-18s %12s   %s\n", l[0], l[1], l[2])
	}
	return b.String()
}
