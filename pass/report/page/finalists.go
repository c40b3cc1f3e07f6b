// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"math"
	"strconv"

	"github.com/collage-tvm/collage/pass/report"
)

// finalist is a whole network that was run, as a row with a bar. Widths and places are in percent of the column.
type finalist struct {
	Name, Origin   string
	Chosen         bool
	Bar, Low, Span string
	// Median, Interval (of the lower quartile), Ratio (to Reference) and Difference (from plain TVM's outputs) are
	// formatted; "" where they are not known.
	Median, Interval, Ratio, Difference string
	Regions, Rounds                     int
	// Failure says why it did not run; "" where it did.
	Failure string
}

// newFinalists has a row for each finalist; the longest bar is that of the slowest.
func newFinalists(s *report.Summary) []finalist {
	longest := 0.0
	for _, f := range s.Finalists {
		longest = math.Max(longest, math.Max(f.LowerQuartile, f.High))
	}
	percent := func(ms float64) string { return fmt.Sprintf("%.2f", 100*ms/longest) }
	var rows []finalist
	for _, f := range s.Finalists {
		row := finalist{Name: f.Name, Origin: f.Origin, Chosen: f.Chosen, Regions: f.Regions, Rounds: f.Rounds}
		switch {
		case f.Failure != nil:
			row.Failure = f.Failure.String()
		case f.LowerQuartile > 0:
			row.Bar, row.Low, row.Span = percent(f.LowerQuartile), percent(f.Low), percent(f.High-f.Low)
			row.Median = milliseconds(f.Median)
			row.Interval = milliseconds(f.Low) + " - " + milliseconds(f.High)
			row.Difference = strconv.FormatFloat(f.MaxError, 'g', 2, 64)
			if f.Ratio > 0 {
				row.Ratio = fmt.Sprintf("%.3f", f.Ratio)
			}
		}
		rows = append(rows, row)
	}
	return rows
}
