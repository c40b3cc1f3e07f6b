// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Some backends round what their operators read to bytes by scales that must be known when a region is written
// (byoc.Rounding). They are found on inputs of the network's: a build of the network that gives these values, too, is
// run on inputs of which the search may see, and rounding.Seen.StepsBy makes the steps of it by a method (Lane.made).
// That is done when the first network with such a region is to be built (Lane.Know), and once: the cost store keeps it.

// unfit says that a candidate's scales could not be found: nothing is run here that would tell them, or the values that
// it has rounded are no network's own.
func (s *Module) unfit(g *relay.Graph, c *candidate.Candidate) bool {
	return len(byoc.RoundedBy(s.ByName[c.Backend], g, c.Nodes)) > 0 && (!s.Config.KnowsScales ||
		g.Name != "main" || c.Scope != 0)
}

// fitting leaves those of a set's candidates out that are unfit.
func (s *Module) fitting(set *candidate.Set) {
	set.Candidates = slices.DeleteFunc(set.Candidates, func(c candidate.Candidate) bool { return s.unfit(set.Graph, &c) })
}

// RoundedIn are the values that a region of a set's candidates has rounded.
func (s *Module) RoundedIn(set *candidate.Set, r *annotate.Region) (values []relay.NodeID) {
	for _, k := range r.Candidates {
		c := &set.Candidates[k]
		values = append(values, byoc.RoundedBy(s.ByName[c.Backend], set.Graph, c.Nodes)...)
	}
	return values
}

// GivenIn are the values that a region of a set's candidates gives rounded, ascending.
func (s *Module) GivenIn(set *candidate.Set, r *annotate.Region) (values []relay.NodeID) {
	for _, k := range r.Candidates {
		c := &set.Candidates[k]
		values = append(values, byoc.GivenBy(s.ByName[c.Backend], set.Graph, c.Nodes)...)
	}
	slices.Sort(values)
	return values
}
