// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"

	"golang.org/x/tools/cover"
)

// coverage says which parts of a package's files the tests run.
type coverage map[string][]cover.ProfileBlock // by the file's base name

func readCoverage(profile string) (coverage, error) {
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		return nil, fmt.Errorf("reading the coverage: %w", err)
	}
	c := coverage{}
	for _, p := range profiles {
		c[path.Base(p.FileName)] = p.Blocks
	}
	return c, nil
}

// runs says that some test runs what stands there. Where no block says anything (a case's condition) it is taken to be
// run.
func (c coverage) runs(m *Mutant) bool {
	for _, b := range c[path.Base(m.File)] {
		after := m.Line > b.StartLine || m.Line == b.StartLine && m.Column >= b.StartCol
		before := m.Line < b.EndLine || m.Line == b.EndLine && m.Column < b.EndCol
		if after && before {
			return b.Count > 0
		}
	}
	return true
}
