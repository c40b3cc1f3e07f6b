// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/collage-tvm/collage/internal/plaintable"
)

// graphLevel says what the search among whole networks did: the turns of the feedback with their figures, and what came
// of the rest.
func (s *Summary) graphLevel(opts Options) string {
	g := s.GraphLevel
	failed := 0
	for _, n := range g.Networks {
		if n.Failure != "" {
			failed++
		}
	}
	var b strings.Builder
	level := "graph"
	if s.Level != "" {
		level = s.Level
	}
	fmt.Fprintf(&b, "%s level: %d whole networks built and measured in %.0f s", level, len(g.Networks), g.Seconds)
	if failed > 0 {
		fmt.Fprintf(&b, ", %d of them failed", failed)
	}
	if g.Why != "" {
		fmt.Fprintf(&b, "; it ended because %s", g.Why)
	}
	b.WriteString("\n")
	if len(g.Steps) > 0 {
		t := plaintable.New(table.Row{"feedback from", "regions", "believed ms", "kernels in place ms",
			"of it at borders", "measured ms"}, 2, 3, 4, 5, 6)
		for _, step := range g.Steps {
			name := step.Name
			if step.Repeats {
				name += " (again)"
			}
			t.AppendRow(table.Row{name, step.Regions, ms(step.Predicted), ms(step.Kernels), ms(step.Border),
				ms(step.Measured)})
		}
		b.WriteString(plaintable.Render(t))
	}
	if believed := g.Believed; believed != nil {
		fmt.Fprintf(&b, "by the costs in place and the borders as they were learnt, what was kept takes %s ms, %s of "+
			"them between regions; no network "+
			"of these candidates takes less than %s ms: within %s ms of the least\n", ms(believed.Milliseconds),
			ms(believed.Transfers),
			ms(believed.Bound), ms(believed.Gap))
		b.WriteString(s.PlacedBy.text())
	}
	if !opts.Verbose {
		return b.String()
	}
	t := plaintable.New(table.Row{"network", "regions", "rounds", "measured ms", "time / tvm's"}, 2, 3, 4, 5)
	for _, n := range g.Networks {
		if n.Failure != "" {
			t.AppendRow(table.Row{n.Name, n.Regions, "", firstLine(n.Failure, Options{}), ""})
			continue
		}
		t.AppendRow(table.Row{n.Name, n.Regions, n.Rounds, ms(n.Milliseconds),
			strconv.FormatFloat(n.Ratio, 'f', 3, 64)})
	}
	b.WriteString(plaintable.Render(t))
	return b.String()
}

// text says what is known of how long the parts take that were placed.
func (p *PlacedBy) text() string {
	var rest []string
	if p.Alone > 0 {
		rest = append(rest, fmt.Sprintf("%d measured alone, and brought to what their like took in place", p.Alone))
	}
	if p.Bounded > 0 {
		rest = append(rest, fmt.Sprintf("of %d a lower bound alone is known, which counts as much more as the bounds of "+
			"their like proved too low", p.Bounded))
	}
	text := fmt.Sprintf("of %d parts that were placed %d were timed in place, within whole networks",
		p.InPlace+p.Alone+p.Bounded, p.InPlace)
	for _, more := range rest {
		text += "; " + more
	}
	return text + "\n"
}

// megabytes is a size in the tables; "-" where it is not known.
func megabytes(bytes int64) string {
	if bytes <= 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(bytes)/1e6, 'f', 1, 64)
}
