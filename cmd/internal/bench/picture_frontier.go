// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
)

// leastShownError is where the horizontal axis begins: what is off by less, or not at all, is drawn there.
const leastShownError = 1e-8

// FrontierPicture draws, as format has it (chart.SVG or chart.PNG), the networks that a search ran: time against error,
// and a line through those that no other one beats in both; and the corners of all placements, as both are believed,
// where the plan has them, with what is the fastest there is within an error as a line. Errors: w's; there is none whose
// error was taken.
func FrontierPicture(w io.Writer, p *plan.Plan, format chart.RendererProvider) error {
	points := report.Summarise(p).Frontier
	if len(points) == 0 || p.GraphLevel == nil {
		return errors.New("there is nothing to draw: no whole network was run whose errors were taken")
	}
	x := func(e float64) float64 { return math.Log10(max(e, leastShownError)) }
	networks := chart.ContinuousSeries{Name: "networks that were run", Style: chart.Style{StrokeWidth: chart.Disabled,
		DotWidth: 3, DotColor: drawing.ColorFromHex(colours[9])}}
	right, most := math.Log10(p.Precision.MaxError), 0.0
	for _, n := range p.GraphLevel.Networks {
		if n.Failure == "" {
			networks.XValues = append(networks.XValues, x(n.Error))
			networks.YValues = append(networks.YValues, n.Milliseconds)
			right, most = max(right, x(n.Error)), max(most, n.Milliseconds)
		}
	}
	believed := corners(p.Precision.Corners, x)
	for i := range believed.XValues {
		right, most = max(right, believed.XValues[i]), max(most, believed.YValues[i])
	}
	right = math.Ceil(right)
	line := chart.ContinuousSeries{Name: "none is faster and less far off", Style: chart.Style{StrokeWidth: 2,
		StrokeColor: drawing.ColorFromHex(colours[6])}}
	for i, n := range points {
		if i > 0 { // what is as exact as this is as slow as the one before
			line.XValues, line.YValues = append(line.XValues, x(n.Error)), append(line.YValues, points[i-1].Milliseconds)
		}
		line.XValues, line.YValues = append(line.XValues, x(n.Error)), append(line.YValues, n.Milliseconds)
	}
	line.XValues = append(line.XValues, right)
	line.YValues = append(line.YValues, points[len(points)-1].Milliseconds)
	limit := chart.ContinuousSeries{Name: "what is allowed", Style: chart.Style{StrokeWidth: 1,
		StrokeColor: drawing.ColorFromHex(colours[4]), StrokeDashArray: []float64{5, 4}},
		XValues: []float64{math.Log10(p.Precision.MaxError), math.Log10(p.Precision.MaxError)},
		YValues: []float64{0, most * 1.05}}
	picture := chart.Chart{
		Title: p.Module.Name, TitleStyle: chart.Style{FontSize: 11}, Height: plotHeight, Width: linesWidth,
		Background: chart.Style{Padding: chart.Box{Top: 50, Left: 260, Right: 20, Bottom: 20}},
		XAxis: chart.XAxis{Name: "off by (" + cost.MeasureText(p.Precision.Measure) + "; at the left end, less)",
			Style: chart.Style{FontSize: 8}, Ticks: powerTicks(math.Log10(leastShownError), right),
			Range: &chart.ContinuousRange{Min: math.Log10(leastShownError), Max: right}},
		YAxis:  chart.YAxis{Name: "milliseconds", Range: &chart.ContinuousRange{Min: 0, Max: most * 1.05}},
		Series: []chart.Series{line, limit, networks},
	}
	if len(believed.XValues) > 0 {
		believed.XValues = append(believed.XValues, right)
		believed.YValues = append(believed.YValues, believed.YValues[len(believed.YValues)-1])
		picture.Series = append(picture.Series, believed)
	}
	picture.Elements = []chart.Renderable{chart.LegendLeft(&picture)}
	if err := picture.Render(format, w); err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	return nil
}

// corners are those of all placements, and between them how fast is known to be reached; x says where an error is.
func corners(list []plan.Corner, x func(e float64) float64) chart.ContinuousSeries {
	series := chart.ContinuousSeries{Name: "believed: corners of all", Style: chart.Style{StrokeWidth: 1, DotWidth: 2,
		StrokeColor: drawing.ColorFromHex(colours[2]), DotColor: drawing.ColorFromHex(colours[2]),
		StrokeDashArray: []float64{2, 3}}}
	for i, c := range list {
		if i > 0 {
			series.XValues, series.YValues = append(series.XValues, x(c.Error)), append(series.YValues, list[i-1].Milliseconds)
		}
		series.XValues, series.YValues = append(series.XValues, x(c.Error)), append(series.YValues, c.Milliseconds)
	}
	return series
}

// powerTicks are the marks of an axis of powers of ten.
func powerTicks(from, to float64) []chart.Tick {
	var ticks []chart.Tick
	for power := from; power <= to; power++ {
		ticks = append(ticks, chart.Tick{Value: power, Label: fmt.Sprintf("1e%g", power)})
	}
	return ticks
}
