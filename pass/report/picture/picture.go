// SPDX-License-Identifier: Apache-2.0

// Package picture draws where a plan puts each operator, as the paper's last figure does: a box for each operator, in
// the colour of its backend and in the order in which they run, a frame around each region.
//
// What comes in: a plan. What goes out: a Picture, which is written as SVG or as PNG; both show the same. No browser is
// needed, and the same plan gives the same picture.
package picture

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
)

// Sizes in pixels. Boxes of one candidate touch, those of one region stand closer together than regions do.
const (
	width  = 1240
	margin = 20
	// between candidates, between a region and its neighbours, and from a frame to its boxes.
	candidateGap, regionGap, frameGap = 4, 16, 4
	rowGap                            = 20
	headHeight                        = 30
	rowBegin, rowEnd                  = margin + frameGap, width - margin - frameGap
	textSize                          = 9.0
	titleSize                         = 13.0
)

// mostNamed is of how many operators the names are still shown: 300 fill two screens.
const mostNamed = 600

// colours are those of the report's page, where it is light (pass/report/page/assets/style.css), by the backends' order.
var colours = []string{"5f6b78", "1669b5", "a8480a", "14785a", "8e3a86", "7a6200", "b3315b", "2f6f8f"}

const (
	paper   = "ffffff"
	ink     = "1b1f24"
	faint   = "5b6570"
	onBoxes = "ffffff"
)

// Picture is what is drawn.
type Picture struct {
	Height  int
	title   string
	texts   []text
	regions []framed
}

type text struct {
	x, y   int
	size   float64
	colour string
	text   string
}

// framed is a group of boxes, with pieces of its frame: one for each row that it reaches over.
type framed struct {
	says  string
	boxes []box
	frame []piece
}

// box is an operator, or a colour of the legend.
type box struct {
	x, y, width, height int
	colour, name, says  string
}

// piece is a frame around boxes of one row; it is open where the region goes on in another row.
type piece struct {
	left, top, right, bottom int
	openLeft, openRight      bool
}

// sketch lays a plan out.
type sketch struct {
	plan                  *plan.Plan
	picture               *Picture
	boxWidth, boxHeight   int
	named                 bool
	x, y                  int
	rowBegins, hasAnybody bool
}

// New lays a plan out. The error: it has no operators.
func New(p *plan.Plan) (*Picture, error) {
	operators := p.Operators()
	d := &sketch{plan: p, picture: &Picture{}, boxWidth: 90, boxHeight: 24, named: operators <= mostNamed}
	if !d.named {
		d.boxWidth, d.boxHeight = 12, 12
	}
	d.head(operators)
	for i, f := range p.Module.Functions {
		regions := slices.DeleteFunc(slices.Clone(p.Regions), func(r plan.Region) bool { return r.Function != f.Name })
		if len(regions) == 0 {
			continue
		}
		if i > 0 {
			d.newRow()
		}
		if len(p.Module.Functions) > 1 {
			d.picture.texts = append(d.picture.texts, text{margin, d.y + 10, textSize, faint, "the function " + f.Name})
			d.y += headHeight
		}
		for k := range regions {
			d.region(&regions[k])
		}
	}
	if !d.hasAnybody {
		return nil, errors.New("there is nothing to draw: the plan has no operators")
	}
	d.picture.Height = d.y + d.boxHeight + margin
	return d.picture, nil
}

// head writes the title, what the signs mean, and the legend.
func (d *sketch) head(operators int) {
	title := d.plan.Module.Name
	if title == "" {
		title = "a network"
	}
	d.picture.title = title
	regions := 0
	for i := range d.plan.Regions {
		if d.plan.Regions[i].Symbol != "" {
			regions++
		}
	}
	says := fmt.Sprintf("%s, %s. They run from left to right and from the top down; boxes that touch are one candidate, "+
		"a frame is around a region.", report.Counted(operators, "operator"), report.Counted(regions, "region"))
	if !d.named {
		says += fmt.Sprintf(" Names are left out of more than %d.", mostNamed)
	}
	d.picture.texts = append(d.picture.texts, text{margin, margin + 10, titleSize, ink, title},
		text{margin, margin + headHeight, textSize, faint, says})
	d.x, d.y = margin, margin+headHeight+16
	legend := framed{says: "legend"}
	for i, b := range d.plan.Backends {
		if b.Operators == 0 {
			continue
		}
		label := fmt.Sprintf("%s: %s", b.Name, report.Counted(b.Operators, "operator"))
		if b.Compiler != "" {
			label += fmt.Sprintf(" in %s", report.Counted(b.Regions, "region"))
		}
		long := 30 + textWidth(label, textSize)
		if d.x+long > width-margin {
			d.x, d.y = margin, d.y+headHeight-8
		}
		legend.boxes = append(legend.boxes, box{d.x, d.y, 14, 14, colourOf(i), "", b.Name})
		d.picture.texts = append(d.picture.texts, text{d.x + 20, d.y + 11, textSize, ink, label})
		d.x += long + 14
	}
	d.picture.regions = append(d.picture.regions, legend)
	d.x, d.y, d.rowBegins = rowBegin, d.y+headHeight+8, true
}

func (d *sketch) newRow() {
	d.x, d.y, d.rowBegins = rowBegin, d.y+d.boxHeight+rowGap, true
}

// region draws the boxes of a region's candidates, and its frame where it is a function of its own.
func (d *sketch) region(r *plan.Region) {
	drawn := framed{says: fmt.Sprintf("region %d on %s, %.4g ms", r.ID, r.Backend, r.Milliseconds)}
	if !d.rowBegins {
		d.x += regionGap
	}
	for k := range r.Candidates {
		c := &r.Candidates[k]
		if k > 0 && !d.rowBegins {
			d.x += candidateGap
		}
		d.keepTogether(c)
		for i := range c.Nodes {
			if c.Nodes[i].IsOperator() {
				d.operator(&drawn, r, c, &c.Nodes[i])
			}
		}
	}
	if len(drawn.boxes) == 0 {
		return
	}
	d.hasAnybody = true
	if r.Symbol != "" {
		drawn.frame = frame(drawn.boxes)
	}
	d.picture.regions = append(d.picture.regions, drawn)
}

// keepTogether goes on in the next row where a candidate fits into that one and no longer into this one.
func (d *sketch) keepTogether(c *plan.Candidate) {
	wide := 0
	for i := range c.Nodes {
		if c.Nodes[i].IsOperator() {
			wide += d.boxWidth
		}
	}
	if !d.rowBegins && d.x+wide > rowEnd && rowBegin+wide <= rowEnd {
		d.newRow()
	}
}

func (d *sketch) operator(into *framed, r *plan.Region, c *plan.Candidate, n *plan.Node) {
	if d.x+d.boxWidth > rowEnd {
		d.newRow()
	}
	backend := r.BackendOf(c)
	says := fmt.Sprintf("%%%d %s", n.Index, n.Operator)
	for _, more := range []string{n.Type, n.Span, strings.TrimSpace(backend + " " + c.Composite),
		fmt.Sprintf("%.4g ms", c.Milliseconds)} {
		if more != "" {
			says += ", " + more
		}
	}
	one := box{d.x, d.y, d.boxWidth, d.boxHeight, d.colour(backend), "", says}
	if d.named {
		one.name = fitting(short(n.Operator), d.boxWidth-6)
	}
	into.boxes = append(into.boxes, one)
	d.x += d.boxWidth
	d.rowBegins = false
}

// frame is around boxes, which stand in rows from the left to the right.
func frame(boxes []box) (pieces []piece) {
	for i, b := range boxes {
		if i == 0 || boxes[i-1].y != b.y {
			pieces = append(pieces, piece{left: b.x - frameGap, top: b.y - frameGap, bottom: b.y + b.height + frameGap,
				openLeft: i > 0})
		}
		pieces[len(pieces)-1].right = b.x + b.width + frameGap
	}
	for i := range pieces[:len(pieces)-1] {
		pieces[i].openRight = true
	}
	return pieces
}

func (d *sketch) colour(backend string) string {
	return colourOf(slices.IndexFunc(d.plan.Backends, func(b plan.Backend) bool { return b.Name == backend }))
}

func colourOf(backend int) string {
	if backend < 0 {
		return faint
	}
	return colours[backend%len(colours)]
}

// short is an operator's name without what stands before all of them.
func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "nn."), "contrib_")
}

// fitting is a name as far as there is room for it.
func fitting(name string, room int) string {
	if textWidth(name, textSize) <= room {
		return name
	}
	letters := []rune(name)
	for len(letters) > 1 && textWidth(string(letters)+"…", textSize) > room {
		letters = letters[:len(letters)-1]
	}
	return string(letters) + "…"
}
