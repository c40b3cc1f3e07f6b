// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
)

// Gain says what a run of the network that was kept takes, and how many times as long plain TVM and the fastest backend
// by itself take: "A run takes 4.21 ms; tvm alone takes 2.63 times as long, dnnl alone 1.04 times." It is "" where no
// network was run.
func (s *Summary) Gain() string {
	at := slices.IndexFunc(s.Finalists, func(f Finalist) bool { return f.Chosen && f.Median > 0 })
	if at < 0 {
		return ""
	}
	kept := &s.Finalists[at]
	var beside []string
	for _, f := range s.Finalists {
		alone := f.Name == "tvm" || f.Name == s.Reference && f.Name != plan.PlacementName
		if f.Chosen || !alone || f.Failure != nil || f.Median == 0 {
			continue
		}
		verb := " takes %.2f times as long"
		if len(beside) > 0 {
			verb = " %.2f times"
		}
		beside = append(beside, f.Name+" alone"+fmt.Sprintf(verb, f.Median/kept.Median))
	}
	text := fmt.Sprintf("A run takes %.3g ms", kept.Median)
	if len(beside) > 0 {
		text += "; " + strings.Join(beside, ", ")
	}
	return text + "."
}

// Where says which backend runs how many operators, the most first: "79 operators run on native, 37 on dnnl, 1 on tvm."
func (s *Summary) Where() string {
	backends := slices.DeleteFunc(slices.Clone(s.Backends), func(b Backend) bool { return b.Operators == 0 })
	slices.SortStableFunc(backends, func(a, b Backend) int { return cmp.Compare(b.Operators, a.Operators) })
	if len(backends) == 0 {
		return "There is no operator in it."
	}
	words := "operators run"
	if backends[0].Operators == 1 {
		words = "operator runs"
	}
	texts := []string{fmt.Sprintf("%d %s on %s", backends[0].Operators, words, backends[0].Name)}
	for _, b := range backends[1:] {
		texts = append(texts, fmt.Sprintf("%d on %s", b.Operators, b.Name))
	}
	return strings.Join(texts, ", ") + "."
}
