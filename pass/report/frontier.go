// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/plaintable"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

// FrontierPoint is a network of the search that no other one beats in both time and error.
type FrontierPoint struct {
	// Name is what the search called it.
	Name string `json:"name"`
	// Error is how far its outputs are off, Milliseconds and Ratio (to plain TVM's) what it takes.
	Error        float64 `json:"error"`
	Milliseconds float64 `json:"measured_ms"`
	Ratio        float64 `json:"ratio"`
	// Exceeds says that its outputs are further off than was allowed; "" where they are not.
	Exceeds string `json:"exceeds,omitempty"`
}

// frontier are the networks of the search that none is both faster and less far off than, the most exact first; nil
// where errors were not taken.
func frontier(p *plan.Plan) []FrontierPoint {
	if p.Precision == nil || p.GraphLevel == nil {
		return nil
	}
	var all []FrontierPoint
	for _, n := range p.GraphLevel.Networks {
		if n.Failure == "" {
			all = append(all, FrontierPoint{n.Name, n.Error, n.Milliseconds, n.Ratio, n.Exceeds})
		}
	}
	slices.SortStableFunc(all, func(a, b FrontierPoint) int {
		return cmp.Or(cmp.Compare(a.Error, b.Error), cmp.Compare(a.Ratio, b.Ratio))
	})
	var points []FrontierPoint
	for _, n := range all {
		if len(points) == 0 || n.Ratio < points[len(points)-1].Ratio {
			points = append(points, n)
		}
	}
	return points
}

// lagrangianText says what the last placement by a price for errors was worth, on a line of its own.
func lagrangianText(l *plan.Lagrangian) string {
	switch {
	case l == nil:
		return ""
	case l.Error > l.Allowed:
		return fmt.Sprintf("\nby what is believed of errors nothing is within %.2g: the least that was found is off by %.2g",
			l.Allowed, l.Error)
	case l.Price == 0:
		return "\nby what is believed of errors the fastest placement is allowed: nothing is paid for them"
	}
	return fmt.Sprintf("\nby what is believed of errors, at a price of %.3g ms a unit (lambda): %s ms, off by %.2g; none that "+
		"is within %.2g takes less than %s ms, %s ms less", l.Price, ms(l.Milliseconds), l.Error, l.Allowed, ms(l.Bound),
		ms(l.Gap))
}

// WriteFrontier writes the networks that no other one beats in both time and error.
func (s *Summary) WriteFrontier(w io.Writer) error {
	if len(s.Frontier) == 0 {
		_, err := io.WriteString(w, "No whole network was run whose errors were taken.\n")
		return err
	}
	_, err := io.WriteString(w, s.frontierText())
	return err
}

func (s *Summary) frontierText() string {
	t := plaintable.New(table.Row{"off by (" + cost.MeasureText(s.Precision.Measure) + ")", "ms", "of plain TVM's time", "network", ""}, 1, 2, 3)
	for _, n := range s.Frontier {
		verdict := ""
		if n.Exceeds != "" {
			verdict = "too far off"
		}
		t.AppendRow(table.Row{strconv.FormatFloat(n.Error, 'g', 2, 64), ms(n.Milliseconds),
			strconv.FormatFloat(n.Ratio, 'f', 3, 64), n.Name, verdict})
	}
	return plaintable.Render(t) + strings.TrimPrefix(lagrangianText(s.Precision.Lagrangian)+"\n", "\n") +
		cornersText(s.Precision)
}

// cornersText is a table of the corners of time against error, as both are believed; "" where the plan has none.
func cornersText(p *plan.Precision) string {
	if len(p.Corners) == 0 {
		return ""
	}
	t := plaintable.New(table.Row{"off by", "ms", "at most between it and the next, ms less", "lambda to the next, ms",
		"operators"}, 1, 2, 3, 4)
	unproven := 0.0
	for i, c := range p.Corners {
		gap, price := "-", "-"
		if i < len(p.Corners)-1 {
			gap, price = ms(c.Gap), strconv.FormatFloat(c.Price, 'g', 3, 64)
		}
		var operators []string
		for _, precision := range byoc.Precisions() {
			if count := c.Operators[string(precision)]; count > 0 {
				operators = append(operators, fmt.Sprintf("%d %s", count, precision))
			}
		}
		t.AppendRow(table.Row{strconv.FormatFloat(c.Error, 'g', 2, 64), ms(c.Milliseconds), gap, price,
			strings.Join(operators, ", ")})
		unproven = max(unproven, c.Unproven)
	}
	proof := "that no placement lies below the line between two of them is proven"
	if unproven > 0 {
		proof = fmt.Sprintf("placements may lie below the line between two of them by %s ms at most", ms(unproven))
	}
	return "\nthe corners of all placements, by what is believed of times, without what is paid between regions, and of " +
		"errors; " + proof + "\n" + plaintable.Render(t)
}
