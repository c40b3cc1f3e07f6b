// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/settings"
)

// note is told to whoever asked for the network, and stands in its plan (but see hurry): once, however often it is
// found. It says whether it is news.
func (c *decision) note(format string, args ...any) bool {
	text := fmt.Sprintf(format, args...)
	if slices.Contains(c.notes, text) {
		return false
	}
	c.notes = append(c.notes, text)
	return true
}

// warn is a note of what went otherwise than it should, or is not known: those are told also where nobody reads notes
// (settings.Config.Warn).
func (c *decision) warn(format string, args ...any) bool {
	news := c.note(format, args...)
	if news {
		warning := c.notes[len(c.notes)-1]
		c.warnings = append(c.warnings, warning)
		if c.Strict {
			c.refuse(warning)
		}
	}
	return news
}

// refuse ends the decision with a warning as its error, where Strict does not let that pass; the first one counts.
func (c *decision) refuse(warning string) {
	if c.stopped != nil {
		return
	}
	c.stopped = &settings.StrictError{Warning: warning}
	if c.quit != nil {
		c.quit()
	}
}

// hurry marks a note that says what came of the time there was. It is told, and stands in no plan: a plan that is made
// again from the same costs is the same, whatever else the machine did meanwhile.
func (c *decision) hurry(text string) string {
	c.hurried = append(c.hurried, text)
	return text
}

// lasting are the notes that stand in the plan.
func (c *decision) lasting() []string {
	return slices.DeleteFunc(slices.Clone(c.notes), func(note string) bool { return slices.Contains(c.hurried, note) })
}

// unlearnt takes in what the search says it could not learn of a network. A search is begun several times, and each
// says it anew; it is shown once.
func (c *decision) unlearnt(notes []string) {
	for _, note := range notes {
		line := oneLine(errors.New(note))
		if !strings.HasSuffix(line, ".") {
			line += "."
		}
		if c.warn("%s", strings.ToUpper(line[:1])+line[1:]) {
			c.Progress.Note("  %s", note)
		}
	}
}
