// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/pass/plan"
)

// Evidence says what the cost of what was chosen rests on: "measured (10 samples; 90 % interval 0.740 - 0.760 ms)".
func Evidence(e *plan.Explanation) string {
	if e.InPlace {
		return evidenceInPlace(e)
	}
	return evidence(e.Cost)
}

// Name is what tables call a candidate that was not chosen: its pattern, or its operators.
func Name(o *plan.Other) string { return otherName(o) }

// Verdict says by how much a candidate missed being chosen ("0.120 ms faster (12 %)" is what it would have had to be),
// or why it could not be.
func Verdict(o *plan.Other) string {
	if o.Fate == plan.FateDearer || o.Fate == plan.FateBounded {
		return needed(o)
	}
	return fate(o)
}

// Why says in a sentence or two why what was chosen stands where it does: what came closest to its place, and by how much
// that missed it.
func Why(e *plan.Explanation) string {
	if len(e.Others) == 0 {
		return "Nothing else was proposed for it."
	}
	o := &e.Others[0]
	if o.Fate != plan.FateDearer && o.Fate != plan.FateBounded {
		return fmt.Sprintf("Nothing else could be placed here: %s.", Counted(len(e.Others), "candidate"))
	}
	estimate, _ := estimateCells(o)
	verdict := needed(o)
	if o.Exchange != nil && *o.Exchange > 0 || o.Exchange == nil && o.Regret != nil && *o.Regret > 0 {
		verdict = "to be taken: " + verdict
	}
	return fmt.Sprintf("Closest to its place: %s on %s, %s ms; %s.", otherName(o), o.Backend, estimate, verdict)
}

// Places says where something is, shortened: "%12, %30", or "5 places".
func Places(at []plan.Place) string { return strings.Trim(places(at, Options{}), " ()") }

// Counted is "1 region" or "2 regions".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Operators shortens the names of operators, as tables have them: "nn.conv2d + add + nn.relu".
func Operators(names []string) string { return operators(names) }
