// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"
)

// linePlot is a picture of ratios that change with time.
type linePlot struct {
	Title, X, Y string
	// End is where the horizontal axis ends; it begins at 0.
	End    float64
	Curves []curve
}

// curve is one line. Those of one Colour belong together, and are told apart by being dashed.
type curve struct {
	Name   string
	Colour int
	Dashed bool
	// xs and ys are the corners.
	xs, ys []float64
}

// step is a corner: from x on it is y.
func (c *curve) step(x, y float64) {
	if n := len(c.ys); n > 0 {
		c.xs, c.ys = append(c.xs, x), append(c.ys, c.ys[n-1])
	}
	c.xs, c.ys = append(c.xs, x), append(c.ys, y)
}

// until draws the line on to x.
func (c *curve) until(x float64) {
	if n := len(c.xs); n > 0 && c.xs[n-1] <= x {
		c.xs, c.ys = append(c.xs, x), append(c.ys, c.ys[n-1])
	}
}

// Sizes in pixels.
const (
	linesHeight = 560
	linesWidth  = 1000
)

// render writes the picture; the vertical scale is logarithmic.
func (p *linePlot) render(w io.Writer, format chart.RendererProvider) error {
	low, high := 0.0, 0.5
	var series []chart.Series
	for _, c := range p.Curves {
		colour := drawing.ColorFromHex(colours[c.Colour%len(colours)])
		drawn := chart.ContinuousSeries{Name: c.Name, Style: chart.Style{StrokeWidth: 2, StrokeColor: colour}}
		if c.Dashed {
			drawn.Style.StrokeDashArray = []float64{5, 4}
		}
		for i, ratio := range c.ys {
			if !(ratio > 0) || math.IsInf(ratio, 1) {
				continue
			}
			y := math.Log2(ratio)
			low, high = min(low, y), max(high, y)
			drawn.XValues, drawn.YValues = append(drawn.XValues, c.xs[i]), append(drawn.YValues, y)
		}
		if len(drawn.XValues) > 1 {
			series = append(series, drawn)
		}
	}
	if len(series) == 0 {
		return errors.New("there is nothing to draw: nothing ran")
	}
	low, high = math.Floor(low*2)/2, math.Ceil(high*2)/2
	grid := chart.Style{StrokeColor: drawing.ColorFromHex("dddddd"), StrokeWidth: 1}
	picture := chart.Chart{
		Title: p.Title, TitleStyle: chart.Style{FontSize: 11}, Height: linesHeight, Width: linesWidth,
		Background: chart.Style{Padding: chart.Box{Top: 50, Left: 220, Right: 20, Bottom: 20}},
		XAxis: chart.XAxis{Name: p.X, Style: chart.Style{FontSize: 8}, Ticks: timeTicks(p.End),
			Range: &chart.ContinuousRange{Min: 0, Max: p.End}},
		YAxis: chart.YAxis{Name: p.Y, Range: &chart.ContinuousRange{Min: low, Max: high}, GridMajorStyle: grid,
			GridMinorStyle: grid, Ticks: logTicks(low, high)},
		Series: series,
	}
	picture.Elements = []chart.Renderable{chart.LegendLeft(&picture)}
	if err := picture.Render(format, w); err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	return nil
}

// timeTicks are the marks of the horizontal axis: about eight, at round seconds.
func timeTicks(end float64) []chart.Tick {
	step := 1.0
	for _, wider := range []float64{2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600} {
		if end/step > 9 {
			step = wider
		}
	}
	var ticks []chart.Tick
	for x := 0.0; x < end; x += step {
		ticks = append(ticks, chart.Tick{Value: x, Label: strconv.FormatFloat(x, 'g', -1, 64)})
	}
	last := chart.Tick{Value: end} // the axis ends with it
	if math.Mod(end, step) == 0 {
		last.Label = strconv.FormatFloat(end, 'g', -1, 64)
	}
	return append(ticks, last)
}
