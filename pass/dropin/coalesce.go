// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"slices"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// regionOf is a group of chosen options of one external code generator.
type regionOf struct {
	group  *candidate.Group
	target *target
}

// coalesce joins neighbours of the same external code generator, in the prototype's order, and gives the groups in the
// order of their last nodes. chosen comes last option first.
//
// The prototype joins a group with each of its readers in the same round, so that it ends up in several partitions, and
// it does not see when two partitions come to need each other. Here a group joins one reader a round, and where a join
// leaves the partitions without an order, all are done again with that looked at before each.
//
// corrected says that the prototype's module would have been wrong.
func (f *function) coalesce(chosen []*option) (regions []regionOf, corrected bool) {
	regions, corrected = f.join(chosen, false)
	if !f.ordered(regions) {
		regions, _ = f.join(chosen, true)
		corrected = true
	}
	slices.SortFunc(regions, func(a, b regionOf) int { return int(a.group.Nodes.Last() - b.group.Nodes.Last()) })
	return regions, corrected || f.loses(regions)
}

// loses says that the prototype would leave one of the regions, which come in the order of their last nodes, on TVM: it
// writes the last one first, and what lies behind any of a region's outputs is then no longer the expression that it
// looks for.
func (f *function) loses(regions []regionOf) bool {
	for i, late := range regions {
		for _, v := range outputs(f.graph, late.group.Nodes) {
			for _, early := range regions[:i] {
				if f.strict.Downstream(v).Intersects(early.group.Nodes) {
					return true
				}
			}
		}
	}
	return false
}

// join is one go. twice says that the prototype would have put a group into two partitions.
func (f *function) join(chosen []*option, careful bool) (current []regionOf, twice bool) {
	var added []regionOf
	for _, o := range chosen {
		if o.external() {
			added = append(added, regionOf{o.group, o.target})
		}
	}
	for len(added) > 0 {
		current = append(current, added...)
		added = nil
		gone := make([]bool, len(current))
		alive := func() []regionOf {
			var all []regionOf
			for i, r := range current {
				if !gone[i] {
					all = append(all, r)
				}
			}
			return append(all, added...)
		}
		for i, up := range current {
			if gone[i] {
				continue
			}
			for j, down := range current {
				if i == j || gone[j] || up.target != down.target || !f.strict.Touch(up.group, down.group) {
					continue
				}
				union := regionOf{f.strict.Union(up.group, down.group), up.target}
				gone[i], gone[j] = true, true
				if careful && !f.ordered(append(alive(), union)) {
					gone[i], gone[j] = false, false
					continue
				}
				added = append(added, union)
				for k := j + 1; k < len(current) && !twice; k++ {
					twice = !gone[k] && current[k].target == up.target && f.strict.Touch(up.group, current[k].group)
				}
				break
			}
		}
		kept := current[:0:0]
		for i, r := range current {
			if !gone[i] {
				kept = append(kept, r)
			}
		}
		current = kept
	}
	return current, twice
}

// ordered says that the regions, and the nodes in none, can be run one after the other.
func (f *function) ordered(regions []regionOf) bool {
	reads := make([][]relay.NodeID, len(f.graph.Nodes))
	for v := range reads {
		reads[v] = f.graph.Reads(relay.NodeID(v))
	}
	nodes := make([][]relay.NodeID, len(regions))
	for i, r := range regions {
		nodes[i] = f.flow.Placeable(r.group)
	}
	return place.QuotientAcyclic(reads, nodes) == nil
}
