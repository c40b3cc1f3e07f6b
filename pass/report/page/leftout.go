// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"slices"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
)

// leftOut is a group of candidates that were not measured, or could not be placed, for one reason.
type leftOut struct {
	Backend, What, Reason, Where string
	Count                        int
}

// boundedAway are the candidates that a lower bound left no chance, by backend and pattern, most of them first.
func boundedAway(p *plan.Plan) []leftOut {
	groups := map[[2]string]*leftOut{}
	var out []*leftOut
	for i := range p.Candidates.Rejected {
		r := &p.Candidates.Rejected[i]
		if r.Origin != cost.Bounded {
			continue
		}
		id := [2]string{r.Backend, r.Composite}
		if groups[id] == nil {
			groups[id] = &leftOut{Backend: r.Backend, What: cmp.Or(r.Composite, "groups of operators")}
			out = append(out, groups[id])
		}
		groups[id].Count++
	}
	slices.SortStableFunc(out, func(a, b *leftOut) int { return b.Count - a.Count })
	rows := make([]leftOut, len(out))
	for i, group := range out {
		rows[i] = *group
	}
	return rows
}

// impossible are those that failed, were refused by a backend's limits, or are ruled out by what the user asked.
func impossible(p *plan.Plan) (failed, refused, excluded []leftOut) {
	c := &p.Candidates
	for i := range c.Failures {
		f := &c.Failures[i]
		failed = append(failed, leftOut{f.Backend, cmp.Or(f.Composite, report.Operators(f.Operators)),
			f.Failure.String(), report.Places(f.Places), len(f.Places)})
	}
	for i := range c.Refusals {
		r := &c.Refusals[i]
		refused = append(refused, leftOut{r.Backend, r.Composite, r.Reason, report.Places(r.Places), len(r.Places)})
	}
	groups := map[[3]string]int{}
	for i := range c.Excluded {
		e := &c.Excluded[i]
		id := [3]string{e.Constraint, e.Backend, e.Composite}
		at, known := groups[id]
		if !known {
			at = len(excluded)
			groups[id] = at
			excluded = append(excluded, leftOut{Backend: e.Backend, What: cmp.Or(e.Composite, "groups of operators"),
				Reason: e.Constraint})
		}
		excluded[at].Count++
	}
	return failed, refused, excluded
}
