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

// dotPlot is a picture of ratios: for each label a column, in it a dot for each series.
type dotPlot struct {
	Title, X, Y string
	Labels      []string
	Series      []dots
	// Wide makes room for long labels.
	Wide bool
}

// dots are the ratios of one series, one for each label; 0 for none.
type dots struct {
	Name   string
	Ratios []float64
}

// colours are told apart by people who see fewer of them, too (Okabe and Ito's, black first).
var colours = []string{"000000", "e69f00", "56b4e9", "009e73", "d55e00", "cc79a7", "0072b2", "b8ad00", "8b5a2b",
	"7f7f7f"}

// Sizes in pixels, and how much of a column's width the dots of all series take side by side.
const (
	plotHeight   = 460
	columnWidth  = 42
	wideColumn   = 130
	plotMargins  = 190
	spreadOfDots = 0.6
)

// render writes the picture. The vertical scale is logarithmic, so that half and twice are as far from 1. format is
// chart.SVG (chart.PNG draws the same).
func (p *dotPlot) render(w io.Writer, format chart.RendererProvider) error {
	low, high := math.Inf(1), math.Inf(-1)
	var series []chart.Series
	for i, s := range p.Series {
		colour := drawing.ColorFromHex(colours[i%len(colours)])
		drawn := chart.ContinuousSeries{Name: s.Name,
			Style: chart.Style{StrokeWidth: chart.Disabled, StrokeColor: colour,
				DotWidth: 4, DotColor: colour}}
		for k, ratio := range s.Ratios {
			if !(ratio > 0) || math.IsInf(ratio, 1) {
				continue
			}
			shift := 0.0
			if len(p.Series) > 1 {
				shift = spreadOfDots * (float64(i)/float64(len(p.Series)-1) - 0.5)
			}
			y := math.Log2(ratio)
			low, high = min(low, y), max(high, y)
			drawn.XValues = append(drawn.XValues, float64(k+1)+shift)
			drawn.YValues = append(drawn.YValues, y)
		}
		if len(drawn.XValues) > 0 {
			series = append(series, drawn)
		}
	}
	if len(series) == 0 {
		return errors.New("there is nothing to draw: no backend or peer gave a time")
	}
	low, high = math.Floor(min(low, -0.5)*2)/2, math.Ceil(max(high, 0.5)*2)/2
	column, least := columnWidth, 10
	if p.Wide {
		column, least = wideColumn, 4
	}
	grid := chart.Style{StrokeColor: drawing.ColorFromHex("dddddd"), StrokeWidth: 1}
	picture := chart.Chart{
		Title: p.Title, TitleStyle: chart.Style{FontSize: 11}, Height: plotHeight,
		Width:      plotMargins + column*max(len(p.Labels), least),
		Background: chart.Style{Padding: chart.Box{Top: 50, Left: 130, Right: 20, Bottom: 20}},
		XAxis:      chart.XAxis{Name: p.X, Style: chart.Style{FontSize: 8}},
		YAxis: chart.YAxis{Name: p.Y, Range: &chart.ContinuousRange{Min: low, Max: high}, GridMajorStyle: grid,
			GridMinorStyle: grid, Ticks: logTicks(low, high)},
		Series: series,
	}
	// The axis reaches from the first to the last tick.
	edge := float64(len(p.Labels)) + 0.5
	picture.XAxis.Ticks = []chart.Tick{{Value: 0.5}}
	for i, label := range p.Labels {
		picture.XAxis.Ticks = append(picture.XAxis.Ticks, chart.Tick{Value: float64(i + 1), Label: label})
	}
	picture.XAxis.Ticks = append(picture.XAxis.Ticks, chart.Tick{Value: edge})
	picture.Elements = []chart.Renderable{chart.LegendLeft(legendOf(&picture))}
	if err := picture.Render(format, w); err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	return nil
}

// legendOf is the chart with lines in place of dots, since legends show lines alone.
func legendOf(picture *chart.Chart) *chart.Chart {
	shown := *picture
	shown.Series = make([]chart.Series, len(picture.Series))
	for i, s := range picture.Series {
		dotted := s.(chart.ContinuousSeries)
		dotted.Style = chart.Style{StrokeWidth: 4, StrokeColor: dotted.Style.DotColor}
		shown.Series[i] = dotted
	}
	return &shown
}

// logTicks are the marks of the vertical axis, whole and half powers of two, with the ratios as labels.
func logTicks(low, high float64) []chart.Tick {
	step := 0.5
	if high-low > 5 {
		step = 1
	}
	var ticks []chart.Tick
	for y := math.Ceil(low/step) * step; y <= high; y += step {
		ticks = append(ticks, chart.Tick{Value: y, Label: strconv.FormatFloat(math.Exp2(y), 'g', 2, 64)})
	}
	return ticks
}
