// SPDX-License-Identifier: Apache-2.0

package propose

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// components proposes the greatest convex sets: neighbours joined as long as no way leads out of the joined ones and
// back. Where several values of one are read outside (the levels of an encoder, what a training graph's forward part
// saves, the heads of a detector) it holds more than any region with one exit.
func (c *cutter) components() {
	whole := c.whole()
	groups := relay.NewQuotient(c.g)
	for v := range whole {
		for _, in := range c.g.Reads(relay.NodeID(v)) {
			if whole[v] && whole[in] && c.g.Nodes[in].Scope == c.g.Nodes[v].Scope {
				groups.Unite(in, relay.NodeID(v))
			}
		}
	}
	members := make([][]relay.NodeID, len(whole))
	for v := range whole {
		if whole[v] {
			top := groups.Find(relay.NodeID(v))
			members[top] = append(members[top], relay.NodeID(v))
		}
	}
	var found []*region
	for _, nodes := range members {
		if len(nodes) > 0 && c.givesTensors(nodes) {
			found = append(found, c.regionOf(nodes))
		}
	}
	c.addAll(found)
}

// whole are the supported nodes but for those that would have to be handed a tuple or to give one: what makes a tuple
// stays with all that read it.
func (c *cutter) whole() []bool {
	g := c.g
	whole := slices.Clone(c.supported)
	isTensor := func(v relay.NodeID) bool { return g.Nodes[v].Type != nil && g.Nodes[v].Type.Kind == relay.TypeTensor }
	outside := func(v relay.NodeID) bool { return !whole[v] }
	for changed := true; changed; {
		changed = false
		for v := range whole {
			id := relay.NodeID(v)
			if whole[v] && (!isTensor(id) && (g.ScopeRoot(id) || slices.ContainsFunc(g.Consumers(id), outside)) ||
				slices.ContainsFunc(g.Nodes[v].Inputs,
					func(in relay.NodeID) bool { return !isTensor(in) && !whole[in] })) {
				whole[v], changed = false, true
			}
		}
	}
	return whole
}

// givesTensors says that only tensors cross the border of a set of nodes (ascending).
func (c *cutter) givesTensors(nodes []relay.NodeID) bool {
	for _, v := range c.g.Exits(nodes) {
		if !c.mayEnd(v) {
			return false
		}
	}
	inside := make(map[relay.NodeID]bool, len(nodes))
	for _, v := range nodes {
		inside[v] = true
	}
	return !slices.ContainsFunc(nodes, func(v relay.NodeID) bool { return c.readsTuple(v, inside) })
}

// cut is a region in two parts, one before the other, neither of which needs one exit only: what a node of it depends
// on, with that node, and the rest.
type cut struct {
	at relay.NodeID
	// before are the places, in the region's nodes, of what the node depends on.
	before []uint64
	// smaller is the work of the part with less of it, exits the number of values that the rest reads of what is
	// before.
	smaller, exits int
}

// halve proposes the parts of a region nearest to being halves, if the smaller of them holds more work for each value
// that goes between them than one: what a cut behind a single value gives. Where that leaves something out one is 0,
// and the parts between which the most values go are proposed, too: there a region with one exit holds the least of
// what belongs together (an encoder and its decoder).
func (c *cutter) halve(r *region, one int) {
	cuts := slices.DeleteFunc(c.cuts(r), func(k cut) bool { return k.smaller <= one*k.exits })
	half := func(a, b cut) int {
		return cmp.Or(b.smaller-a.smaller, a.exits-b.exits, int(b.at-a.at))
	}
	slices.SortFunc(cuts, half)
	c.cutAt(r, cuts)
	if one == 0 {
		slices.SortFunc(cuts, func(a, b cut) int { return cmp.Or(b.exits-a.exits, half(a, b)) })
		c.cutAt(r, cuts)
	}
}

// cutAt proposes the two parts of the first cut that parts no operator from its bias or activation, and over which
// tensors go.
func (c *cutter) cutAt(r *region, cuts []cut) {
	for _, k := range cuts {
		if !c.clean(k.at) {
			continue
		}
		var before, after []relay.NodeID
		for i, v := range r.nodes {
			if k.before[i/64]>>(i%64)&1 == 1 {
				before = append(before, v)
			} else {
				after = append(after, v)
			}
		}
		if c.givesTensors(before) && c.givesTensors(after) {
			c.add(c.regionOf(before))
			c.add(c.regionOf(after))
			return
		}
	}
}

// mostParted is of how many nodes a region is at most that is cut where several values cross: what each node depends on
// takes the square of that in bits, 8 MB for so many. A larger one is cut at its post-dominators alone.
const mostParted = 8192

// cuts are all that leave work on both sides; none of a region with more than mostParted nodes.
func (c *cutter) cuts(r *region) []cut {
	if len(r.nodes) > mostParted {
		return nil
	}
	words := (len(r.nodes) + 63) / 64
	place := make(map[relay.NodeID]int, len(r.nodes))
	works := make([]uint64, words)
	before := make([][]uint64, len(r.nodes)) // what each node depends on, and itself
	users := make([][]int, len(r.nodes))     // the places of those that read a node's value
	for i, v := range r.nodes {
		place[v] = i
		if isWork(c.g.Nodes[v].Op) {
			works[i/64] |= 1 << (i % 64)
		}
		before[i] = make([]uint64, words)
		before[i][i/64] |= 1 << (i % 64)
		for _, in := range c.g.Reads(v) {
			if k, inside := place[in]; inside {
				users[k] = append(users[k], i)
				for w := range words {
					before[i][w] |= before[k][w]
				}
			}
		}
	}
	var cuts []cut
	for i, v := range r.nodes {
		work := 0
		for w := range words {
			work += bits.OnesCount64(before[i][w] & works[w])
		}
		if smaller := min(work, r.work-work); smaller > 0 && c.mayEnd(v) {
			cuts = append(cuts, cut{at: v, before: before[i], smaller: smaller, exits: crossing(users, before[i])})
		}
	}
	return cuts
}

// crossing counts the values of a part of a region that the rest of it reads.
func crossing(users [][]int, part []uint64) int {
	in := func(i int) bool { return part[i/64]>>(i%64)&1 == 1 }
	n := 0
	for w, word := range part {
		for ; word != 0; word &= word - 1 {
			if slices.ContainsFunc(users[64*w+bits.TrailingZeros64(word)], func(use int) bool { return !in(use) }) {
				n++
			}
		}
	}
	return n
}
