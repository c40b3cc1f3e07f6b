// SPDX-License-Identifier: Apache-2.0

// Package page shows a plan as one HTML file that a browser opens without a network.
//
// What comes in: a Content, which is a plan and what a run knows beside it. What goes out (Write): the page. The
// network is drawn by libraries that scripts/report.sh lays into the folder libraries before the build; without them
// Available says what to do, and nothing is written. All else is here: what is drawn (Data), the page's tables (the
// template), and its programs and style (assets).
package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/python/collage"
)

// libraries has README.md alone where scripts/report.sh was not run.
//
//go:embed libraries
var libraries embed.FS

//go:embed assets
var assets embed.FS

// The libraries' files, as scripts/report-libraries.txt has them.
const (
	drawing = "libraries/cytoscape.min.js"
	layout  = "libraries/elk-worker.min.js"
)

// programs are the page's own, in the order in which they are read.
var programs = []string{"assets/layout.js", "assets/drawing.js", "assets/details.js", "assets/regions.js",
	"assets/start.js"}

// Content is what a page is of.
type Content struct {
	Plan *plan.Plan
	// Command is a command line, and CommandSays what it does ("This makes the report again:"); Why says why what was
	// kept was kept. All may be "".
	Command, CommandSays, Why string
	// Notes are what the run told its user beside the tables.
	Notes []string
}

// Available says why no page can be written with this build; nil where one can.
func Available() error {
	for _, name := range []string{drawing, layout} {
		if _, err := fs.Stat(libraries, name); err != nil {
			return errors.New("this build of collage has no libraries that draw the network (cytoscape, elkjs): in the source " +
				"tree `make report` fetches them with npm, and `make build` puts them in")
		}
	}
	return nil
}

// view is what the template shows; all that the page's programs need is in Data.
type view struct {
	Content
	Title, Version string
	Summary        *report.Summary
	Shares         []share
	Finalists      []finalist
	Search         *course
	// Bounded, Failed, Refused and Excluded are candidates that were not measured or could not be placed; Rests is what
	// the proof rests on.
	Bounded, Failed, Refused, Excluded []leftOut
	Rests                              string
	Licences                           []licence
	Style                              template.CSS
	Data, Layout                       template.JS
	Programs                           []template.JS
	Regions                            int
}

// share is a backend's part of the network.
type share struct {
	report.Backend
	Colour  int
	Percent string
}

// licence is that of a library which is in the page.
type licence struct{ Name, Text string }

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{"ms": milliseconds}).
	ParseFS(assets, "assets/page.html"))

// Write writes the page. The errors are Available's, and those of the plan's costs and of w.
func Write(w io.Writer, content Content) error {
	if err := Available(); err != nil {
		return err
	}
	v, err := newView(content)
	if err != nil {
		return err
	}
	if err := v.embed(); err != nil {
		return err
	}
	return page.Execute(w, v)
}

// newView has all of the page but what embed adds.
func newView(content Content) (*view, error) {
	p := content.Plan
	data, err := newData(p)
	if err != nil {
		return nil, err
	}
	s := report.Summarise(p)
	v := &view{Content: content, Title: s.Module, Version: collage.Version(), Summary: s, Shares: newShares(s),
		Finalists: newFinalists(s), Search: newCourse(p), Bounded: boundedAway(p), Rests: report.Rests(&p.Candidates)}
	if v.Title == "" {
		v.Title = "a network"
	}
	for _, r := range s.Regions {
		if len(r.Operators) > 0 {
			v.Regions++
		}
	}
	v.Failed, v.Refused, v.Excluded = impossible(p)
	encoded, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	v.Data = template.JS(encoded) // json.Marshal leaves no <, > or & in it
	return v, nil
}

// newShares has the backends that were offered, in the order of their colours.
func newShares(s *report.Summary) (shares []share) {
	total := 0.0
	for _, b := range s.Backends {
		total += b.Estimate
	}
	for i, b := range s.Backends {
		percent := 0.0
		if total > 0 {
			percent = 100 * b.Estimate / total
		}
		shares = append(shares, share{b, i % colours, fmt.Sprintf("%.1f", percent)})
	}
	return shares
}

// colours is how many there are for backends in assets/style.css.
const colours = 8

// embed takes the libraries, the page's programs and its style into the view.
func (v *view) embed() error {
	text, err := libraries.ReadFile(layout)
	if err != nil {
		return err
	}
	// A worker's program is text to the page, from which it makes an address of its own.
	encoded, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	v.Layout = template.JS(encoded)
	if text, err = libraries.ReadFile(drawing); err != nil {
		return err
	}
	if bytes.Contains(bytes.ToLower(text), []byte("</script")) || bytes.Contains(text, []byte("<!--")) {
		return fmt.Errorf("%s holds what ends a script in a page: it cannot be embedded", drawing)
	}
	v.Programs = append(v.Programs, template.JS(text))
	for _, name := range programs {
		text, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		v.Programs = append(v.Programs, template.JS(text))
	}
	if text, err = assets.ReadFile("assets/style.css"); err != nil {
		return err
	}
	v.Style = template.CSS(text)
	names, err := fs.Glob(libraries, "libraries/*.LICENSE.txt")
	if err != nil {
		return err
	}
	for _, name := range names {
		if text, err = libraries.ReadFile(name); err != nil {
			return err
		}
		library := strings.TrimSuffix(strings.TrimPrefix(name, "libraries/"), ".LICENSE.txt")
		v.Licences = append(v.Licences, licence{library + " " + versionOf(library), string(text)})
	}
	return nil
}

// versionOf is the version of a library, as scripts/report.sh has left it; "" where it has left none.
func versionOf(library string) string {
	text, _ := libraries.ReadFile("libraries/versions.txt")
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == library {
			return words[1]
		}
	}
	return ""
}
