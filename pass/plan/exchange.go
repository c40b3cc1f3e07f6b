// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
)

// RejectedID names a candidate of a function by its backend, its composite and its nodes.
func RejectedID[N ~int | ~int32](backend, composite string, nodes []N) string {
	return fmt.Sprint(backend, " ", composite, " ", nodes)
}

// Exchange records what the network would take more, in milliseconds, with each of these rejected candidates
// (RejectedID) of a function in the place of those that it overlaps (Rejected.Exchange).
func (p *Plan) Exchange(function string, more map[string]float64) {
	for i := range p.Candidates.Rejected {
		r := &p.Candidates.Rejected[i]
		if ms, known := more[RejectedID(r.Backend, r.Composite, r.Nodes)]; known && r.Function == function {
			ms = round(ms)
			r.Exchange = &ms
		}
	}
}

// Exchanged says that the plan has what the network would take more with other candidates (Rejected.Exchange). What
// Explain and Closest say of costs is then by those in place, and by what is paid between regions.
func (p *Plan) Exchanged() bool {
	return p.believed() != nil &&
		slices.ContainsFunc(p.Candidates.Rejected, func(r Rejected) bool { return r.Exchange != nil })
}

// exchangeOf is what the plan says of where another plan has a node; nil where it says nothing.
func (p *Plan) exchangeOf(function string, there spot) *float64 {
	id := RejectedID(there.region.BackendOf(there.candidate), there.candidate.Composite, there.side().Nodes)
	for i := range p.Candidates.Rejected {
		r := &p.Candidates.Rejected[i]
		if r.Exchange != nil && r.Function == function && RejectedID(r.Backend, r.Composite, r.Nodes) == id {
			return r.Exchange
		}
	}
	return nil
}
