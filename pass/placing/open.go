// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"slices"

	"github.com/collage-tvm/collage/pass/candidate"
)

// withoutOpen leaves out what backends would take of parts with open dimensions, where costs decide: nothing is known of
// these by themselves. A backend that is to have all that it takes (Config.Only) has them, and what is placed as it was
// with fixed sizes (Like), or as a plan says (Replay).
func (s *Module) withoutOpen(set *candidate.Set) {
	set.Candidates = slices.DeleteFunc(set.Candidates, func(c candidate.Candidate) bool { return s.withoutCost(&c) })
}

func (s *Module) withoutCost(c *candidate.Candidate) bool {
	return s.Config.Only == "" && !s.Config.WithoutCosts && c.Open && !c.Free
}
