// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/collage-tvm/collage/internal/plaintable"
)

// columns are the outcomes in the table's order.
var columns = []Outcome{Killed, TimedOut, Survived, Uncovered, Equivalent, Broken}

// report writes the table by file and the survivors, and gives the package's result.
func report(out io.Writer, path string, all int, mutants []*Mutant) *Package {
	p := &Package{Path: path, All: all, Tried: len(mutants), Counts: map[Outcome]int{}, Mutants: mutants}
	byFile := map[string]map[Outcome]int{}
	var files []string
	for _, m := range mutants {
		if byFile[m.File] == nil {
			byFile[m.File] = map[Outcome]int{}
			files = append(files, m.File)
		}
		byFile[m.File][m.Outcome]++
		p.Counts[m.Outcome]++
	}
	slices.Sort(files)
	p.Score = score(p.Counts)

	header := table.Row{"file"}
	numbers := []int{}
	for i, c := range columns {
		header = append(header, string(c))
		numbers = append(numbers, i+2)
	}
	header = append(header, "score")
	t := plaintable.New(header, append(numbers, len(columns)+2)...)
	line := func(name string, counts map[Outcome]int) {
		row := table.Row{name}
		for _, c := range columns {
			row = append(row, counts[c])
		}
		t.AppendRow(append(row, fmt.Sprintf("%.1f %%", score(counts))))
	}
	for _, f := range files {
		line(f, byFile[f])
	}
	line("all", p.Counts)
	fmt.Fprint(out, plaintable.Render(t))
	for _, m := range mutants {
		if m.Outcome == Survived || m.Outcome == Uncovered {
			fmt.Fprintf(out, "%s: %s\n", m.Outcome, m)
		}
	}
	return p
}

// score is noticed mutants in a hundred of those that count.
func score(counts map[Outcome]int) float64 {
	noticed, counted := 0, 0
	for o, n := range counts {
		if o.noticed() {
			noticed += n
		}
		if o.counts() {
			counted += n
		}
	}
	if counted == 0 {
		return 100
	}
	return 100 * float64(noticed) / float64(counted)
}
