// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"sync"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"
)

// WriteSVG writes the picture as SVG: a group for each region, each box with a title that viewers show.
func (p *Picture) WriteSVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" `+
		`font-family="Roboto, Helvetica, Arial, sans-serif">`+"\n", width, p.Height, width, p.Height)
	fmt.Fprintf(b, "<title>%s: what runs where</title>\n", html.EscapeString(p.title))
	fmt.Fprintf(b, "<rect width=\"%d\" height=\"%d\" fill=\"#%s\"/>\n", width, p.Height, paper)
	for _, t := range p.texts {
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" font-size=\"%.0f\" fill=\"#%s\">%s</text>\n", t.x, t.y, pixels(t.size),
			t.colour, html.EscapeString(t.text))
	}
	for i := range p.regions {
		r := &p.regions[i]
		fmt.Fprintf(b, "<g aria-label=\"%s\">\n", html.EscapeString(r.says))
		for _, one := range r.boxes {
			fmt.Fprintf(b, ` <g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" fill="#%s" stroke="#%s"/>`,
				html.EscapeString(one.says), one.x, one.y, one.width, one.height, one.colour, paper)
			if one.name != "" {
				x, y := one.middle()
				fmt.Fprintf(b, `<text x="%d" y="%d" font-size="%.0f" fill="#%s" text-anchor="middle">%s</text>`, x, y,
					pixels(textSize), onBoxes, html.EscapeString(one.name))
			}
			fmt.Fprintln(b, "</g>")
		}
		for _, f := range r.frame {
			fmt.Fprintf(b, " <path d=\"%s\" fill=\"none\" stroke=\"#%s\" stroke-width=\"2\"/>\n", f.path(), ink)
		}
		fmt.Fprintln(b, "</g>")
	}
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

// path are the sides of a frame that are there, as SVG has them.
func (f *piece) path() (d string) {
	for i, corner := range f.corners() {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		d += fmt.Sprintf("%s%d %d", verb, corner[0], corner[1])
	}
	if !f.openLeft && !f.openRight {
		d += "Z"
	} else if f.openLeft && f.openRight {
		d = fmt.Sprintf("M%d %dL%d %dM%d %dL%d %d", f.left, f.top, f.right, f.top, f.left, f.bottom, f.right, f.bottom)
	}
	return d
}

// corners are the ends of the sides, one after the other; where both ends are open, there are two lines of them.
func (f *piece) corners() [][2]int {
	if f.openLeft {
		return [][2]int{{f.left, f.top}, {f.right, f.top}, {f.right, f.bottom}, {f.left, f.bottom}}
	}
	return [][2]int{{f.right, f.top}, {f.left, f.top}, {f.left, f.bottom}, {f.right, f.bottom}}
}

// middle is where the name of a box stands.
func (b *box) middle() (x, y int) { return b.x + b.width/2, b.y + b.height/2 + 4 }

// WritePNG writes the picture as PNG, a pixel for each of the SVG's.
func (p *Picture) WritePNG(w io.Writer) error {
	r, err := chart.PNG(width, p.Height)
	if err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	font, err := chart.GetDefaultFont()
	if err != nil {
		return fmt.Errorf("drawing the picture: %w", err)
	}
	r.SetDPI(dotsPerInch)
	r.SetFont(font)
	rectangle(r, 0, 0, width, p.Height)
	r.SetFillColor(drawing.ColorFromHex(paper))
	r.Fill()
	write := func(t text) {
		r.SetFontSize(t.size)
		r.SetFontColor(drawing.ColorFromHex(t.colour))
		r.Text(t.text, t.x, t.y)
	}
	for _, t := range p.texts {
		write(t)
	}
	for i := range p.regions {
		for _, one := range p.regions[i].boxes {
			rectangle(r, one.x, one.y, one.width, one.height)
			r.SetFillColor(drawing.ColorFromHex(one.colour))
			r.SetStrokeColor(drawing.ColorFromHex(paper))
			r.SetStrokeWidth(1)
			r.FillStroke()
			if one.name != "" {
				x, y := one.middle()
				write(text{x - textWidth(one.name, textSize)/2, y, textSize, onBoxes, one.name})
			}
		}
		for _, f := range p.regions[i].frame {
			f.draw(r)
		}
	}
	return r.Save(w)
}

func (f *piece) draw(r chart.Renderer) {
	corners := f.corners()
	for i, corner := range corners {
		if i == 0 || f.openLeft && f.openRight && i == 2 {
			r.MoveTo(corner[0], corner[1])
		} else {
			r.LineTo(corner[0], corner[1])
		}
	}
	if !f.openLeft && !f.openRight {
		r.LineTo(corners[0][0], corners[0][1])
	}
	r.SetStrokeColor(drawing.ColorFromHex(ink))
	r.SetStrokeWidth(2)
	r.Stroke()
}

func rectangle(r chart.Renderer, x, y, width, height int) {
	r.MoveTo(x, y)
	r.LineTo(x+width, y)
	r.LineTo(x+width, y+height)
	r.LineTo(x, y+height)
	r.LineTo(x, y)
}

const dotsPerInch = 92.0

// pixels is a size of letters in pixels.
func pixels(points float64) float64 { return points * dotsPerInch / 72 }

// measuring has the letters' widths; go-chart's renderers may be used by one goroutine at a time.
var measuring struct {
	sync.Mutex
	renderer chart.Renderer
}

// textWidth is how wide a text is in pixels.
func textWidth(s string, size float64) int {
	measuring.Lock()
	defer measuring.Unlock()
	if measuring.renderer == nil {
		font, err := chart.GetDefaultFont()
		if err != nil { // it is built in
			panic(err)
		}
		measuring.renderer, _ = chart.PNG(1, 1)
		measuring.renderer.SetDPI(dotsPerInch)
		measuring.renderer.SetFont(font)
	}
	measuring.renderer.SetFontSize(size)
	return measuring.renderer.MeasureText(s).Width()
}
