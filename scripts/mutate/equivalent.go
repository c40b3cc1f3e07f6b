// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// separator stands between the fields of a line of the list.
const separator = " :: "

// equivalents are the mutants that change nothing that a test could see, each with the reason. A line of the file is
//
//	FILE :: SOURCE LINE :: CHANGE :: REASON
//
// without line numbers, so that it holds when others move; empty lines and those that begin with # are for people.
type equivalents struct {
	reasons map[string]string
	unused  map[string]bool
}

func readEquivalents(path string) (*equivalents, error) {
	e := &equivalents{reasons: map[string]string{}, unused: map[string]bool{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, separator)
		if len(fields) != 4 || slices.Contains(fields, "") {
			return nil, fmt.Errorf("%s:%d: not FILE :: SOURCE LINE :: CHANGE :: REASON", path, number)
		}
		id := strings.Join(fields[:3], separator)
		e.reasons[id] = fields[3]
		e.unused[id] = true
	}
	return e, nil
}

// reason is why the mutant is equivalent; "" where it is not listed.
func (e *equivalents) reason(m *Mutant) string {
	id := strings.Join([]string{m.File, m.Source, m.Change}, separator)
	delete(e.unused, id)
	return e.reasons[id]
}

// stale are the entries for files of these mutants that none of them is: the code has changed.
func (e *equivalents) stale(all []*Mutant) []string {
	files := map[string]bool{}
	for _, m := range all {
		files[m.File] = true
	}
	var stale []string
	for id := range e.unused {
		if file, _, _ := strings.Cut(id, separator); files[file] {
			stale = append(stale, id)
		}
	}
	slices.Sort(stale)
	return stale
}
