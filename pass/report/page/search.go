// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
)

// course is what the page shows of the search among whole networks; times are formatted.
type course struct {
	// Seconds is how long it took, Why what ended it.
	Seconds, Why string
	// Chart is drawn where the plan says when what was found; nil else.
	Chart *chart
	// Tried are the networks in the order in which they were measured.
	Tried []tried
}

// tried is a network of the search.
type tried struct {
	At, Name, Milliseconds, Ratio string
	Regions                       int
	// Best says that it was the fastest so far of those that may be kept, Verdict what else is to be said.
	Best    bool
	Verdict string
}

// chart is a picture of networks over time: points, and below them the line of the best so far. The template has its
// frame, 720 wide and 240 high; lines and points lie between chartLeft and chartRight, chartTop and chartBottom.
type chart struct {
	Points []point
	// Line are the corners of the best so far, as SVG has them.
	Line string
	// Across are lines with their texts: shares of plain TVM's time; Down seconds.
	Across, Down []gridLine
	// Says is the same in words.
	Says string
}

type point struct {
	X, Y  string
	Title string
	Best  bool
}

type gridLine struct{ At, Text string }

const (
	chartLeft, chartTop     = 56, 14
	chartRight, chartBottom = 706, 206
)

// newSearch is nil where no whole network was measured.
func newCourse(p *plan.Plan) *course {
	g := p.GraphLevel
	if g == nil || len(g.Networks) == 0 {
		return nil
	}
	s := &course{Seconds: fmt.Sprintf("%.0f", g.Seconds), Why: g.Why}
	best := math.Inf(1)
	networks := inOrder(p)
	for _, n := range networks {
		row := tried{Name: n.Name, Regions: n.Regions}
		if n.moment != nil {
			row.At = fmt.Sprintf("%.1f", n.moment.Seconds)
			if n.moment.Stored {
				row.Verdict = "known from the store"
			}
		}
		switch {
		case n.Failure != "":
			first, _, _ := strings.Cut(n.Failure, "\n")
			row.Verdict = "failed: " + first
		case n.Exceeds != "":
			row.Verdict = "too far off: " + n.Exceeds
		}
		if n.Failure == "" {
			row.Milliseconds, row.Ratio = milliseconds(n.Milliseconds), fmt.Sprintf("%.3f", n.Ratio)
			if n.Exceeds == "" && n.Ratio < best {
				best, row.Best = n.Ratio, true
			}
		}
		s.Tried = append(s.Tried, row)
	}
	if networks[0].moment != nil && !math.IsInf(best, 1) {
		s.Chart = newChart(networks, p.Timeline.Taken, best)
	}
	return s
}

// measured is a network of the search, and when it was known; nil where the plan does not say that.
type measured struct {
	plan.Network
	moment *plan.Moment
}

// inOrder are the networks of the search in the order in which they were known.
func inOrder(p *plan.Plan) (all []measured) {
	timed := p.Timeline != nil && len(p.Timeline.Networks) == len(p.GraphLevel.Networks)
	for i, n := range p.GraphLevel.Networks {
		one := measured{Network: n}
		if timed {
			one.moment = &p.Timeline.Networks[i]
		}
		all = append(all, one)
	}
	if timed {
		slices.SortStableFunc(all, func(a, b measured) int { return cmp.Compare(a.moment.Seconds, b.moment.Seconds) })
	}
	return all
}

// newChart draws networks, the best of which takes so much of plain TVM's time; taken is how many seconds all took.
func newChart(networks []measured, taken, best float64) *chart {
	end, top := math.Max(taken, 1e-3), 0.0
	for _, n := range networks {
		end = math.Max(end, n.moment.Seconds)
		top = math.Max(top, n.Ratio)
	}
	// What takes more than twice as long as the slowest that matters is drawn at the edge.
	top = math.Min(top, math.Max(2, 2*best)) * 1.05
	x := func(seconds float64) float64 { return chartLeft + (chartRight-chartLeft)*seconds/end }
	y := func(ratio float64) float64 { return chartBottom - (chartBottom-chartTop)*math.Min(ratio, top)/top }
	c := &chart{}
	var line []string
	so := math.Inf(1)
	for _, n := range networks {
		if n.Failure != "" {
			continue
		}
		seconds := n.moment.Seconds
		one := point{X: tenth(x(seconds)), Y: tenth(y(n.Ratio)),
			Title: fmt.Sprintf("%s: %s ms, %.3f of plain TVM's time, after %.1f s", n.Name, milliseconds(n.Milliseconds),
				n.Ratio, seconds)}
		if n.Exceeds == "" && n.Ratio < so {
			if !math.IsInf(so, 1) {
				line = append(line, tenth(x(seconds))+","+tenth(y(so)))
			}
			so, one.Best = n.Ratio, true
			line = append(line, tenth(x(seconds))+","+tenth(y(so)))
		}
		c.Points = append(c.Points, one)
	}
	c.Line = strings.Join(append(line, tenth(x(end))+","+tenth(y(so))), " ")
	for _, v := range ticks(top, 4) {
		c.Across = append(c.Across, gridLine{tenth(y(v)), fmt.Sprintf("%g", v)})
	}
	for _, v := range ticks(end, 6) {
		c.Down = append(c.Down, gridLine{tenth(x(v)), fmt.Sprintf("%g s", v)})
	}
	c.Says = fmt.Sprintf("%d networks over %.0f seconds; the best takes %.3f of plain TVM's time", len(c.Points), end,
		best)
	return c
}

// ticks are round numbers from 0 to end, about so many.
func ticks(end float64, about int) (at []float64) {
	step := math.Pow(10, math.Floor(math.Log10(end/float64(about))))
	for _, factor := range []float64{1, 2, 5, 10} {
		if end/(step*factor) <= float64(about)+0.5 {
			step *= factor
			break
		}
	}
	for i := 0; float64(i)*step <= end; i++ {
		at = append(at, math.Round(float64(i)*step*1e9)/1e9)
	}
	return at
}

// tenth is a coordinate.
func tenth(v float64) string { return fmt.Sprintf("%.1f", v) }

// milliseconds is a time as tables have it.
func milliseconds(v float64) string { return fmt.Sprintf("%.3f", v) }
