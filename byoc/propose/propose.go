// SPDX-License-Identifier: Apache-2.0

// Package propose is how a graph-level backend cuts a network into candidates: an engine that optimises across
// operators is at its best on all of a network, and the search wants smaller pieces beside the whole, because another
// backend may be better at some of it.
//
// What comes in: a graph, and which operators the engine supports. What goes out: a bounded number of groups of nodes,
// each legal as a candidate: the greatest ones that the engine can run, and their parts. Most have one exit and end at
// post-dominators; where one exit is not enough, they are convex sets with several.
package propose

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Limit is a good number of proposals for an engine whose regions take a second to build: the whole of a network, its
// halves, quarters, ... down to 32 stages.
const Limit = 64

// Regions proposes regions of supported operators, at most limit of them. supported is asked once for each operator;
// tuples and projections are no operators and are taken along where both sides of them are inside. The regions are bare
// (byoc.Proposal.Bare), hold at least two operators, and give tensors. The same graph and answers give the same
// regions in the same order: greater ones first.
//
// First come the maximal regions with one exit: no two of them overlap, and none can be made larger. Then the
// greatest convex sets, where they have several exits. Then all of these are cut in two, the one with the most work
// first, at the post-dominator nearest to the half of its work, and the parts again, until the limit is reached.
// Where such a cut leaves something out or is far from the half, the region is also cut behind what some node depends
// on, which may have several exits: the encoder of a U-Net, the first half of NASNet's cells. A cut is made only in
// front of operators that make up the work of a network (convolutions, dense layers, matrix products), so that bias
// and activation stay with the operator that they follow.
func Regions(g *relay.Graph, supported func(relay.NodeID) bool, limit int) []byoc.Proposal {
	if limit <= 0 {
		return nil
	}
	c := &cutter{g: g, supported: make([]bool, len(g.Nodes)), seen: map[string]bool{}}
	for v := range g.Nodes {
		id, n := relay.NodeID(v), &g.Nodes[v]
		switch {
		case !g.Placeable(id):
		case n.Kind == relay.KindTuple || n.Kind == relay.KindTupleGetItem:
			c.supported[v] = true
		case n.Kind == relay.KindCall && n.Op != "":
			c.supported[v] = supported(id)
		}
	}
	c.maximal()
	c.components()
	for len(c.queue) > 0 && len(c.proposals) < limit {
		c.split(heap.Pop(&c.queue).(*region))
	}
	if len(c.proposals) > limit {
		c.proposals = c.proposals[:limit]
	}
	return c.proposals
}

// cutter collects proposals for one graph.
type cutter struct {
	g         *relay.Graph
	supported []bool
	proposals []byoc.Proposal
	seen      map[string]bool // the node sets proposed so far
	queue     queue           // the regions that may be cut further
}

// region is a group of nodes.
type region struct {
	nodes []relay.NodeID // ascending; the last is the exit, or one of several
	exits int
	work  int // how many of them make up the work
	order int // the place in which it was found
}

func (r *region) exit() relay.NodeID { return r.nodes[len(r.nodes)-1] }

func (r *region) has(v relay.NodeID) bool {
	_, ok := slices.BinarySearch(r.nodes, v)
	return ok
}

// maximal proposes the greatest regions. A node that is in none of those with a later exit is the exit of one of its
// own: if it were inside a region with a later exit, so would be all of its own region.
func (c *cutter) maximal() {
	covered := make([]bool, len(c.g.Nodes))
	var found []*region
	for v := len(c.g.Nodes) - 1; v >= 0; v-- {
		if covered[v] || !c.mayEnd(relay.NodeID(v)) {
			continue
		}
		if r := c.grow(relay.NodeID(v), relay.NoNode); r != nil {
			for _, u := range r.nodes {
				covered[u] = true
			}
			found = append(found, r)
		}
	}
	c.addAll(found)
}

// addAll proposes regions, those with the most work first.
func (c *cutter) addAll(found []*region) {
	slices.SortStableFunc(found, func(a, b *region) int {
		return cmp.Or(b.work-a.work, len(b.nodes)-len(a.nodes), int(a.exit()-b.exit()))
	})
	for _, r := range found {
		c.add(r)
	}
}

// mayEnd says that a node's value may be what a region gives: it is computed by an operator or taken out of such a
// one's results, and a tensor.
func (c *cutter) mayEnd(v relay.NodeID) bool {
	n := &c.g.Nodes[v]
	return c.supported[v] && n.Type != nil && n.Type.Kind == relay.TypeTensor
}

// grow gives the greatest region that ends in exit and does not hold stop; nil where there is none.
func (c *cutter) grow(exit, stop relay.NodeID) *region {
	left := map[relay.NodeID]bool{stop: true}
	for {
		inside := c.closure(exit, left)
		again := false
		for v := range inside {
			if c.readsTuple(v, inside) {
				left[v], again = true, true
			}
		}
		if left[exit] {
			return nil
		}
		if !again {
			return c.newRegion(inside)
		}
	}
}

// readsTuple says that a node of a region takes a tuple from outside. Regions have tensors as inputs.
func (c *cutter) readsTuple(v relay.NodeID, inside map[relay.NodeID]bool) bool {
	return slices.ContainsFunc(c.g.Nodes[v].Inputs, func(in relay.NodeID) bool {
		t := c.g.Nodes[in].Type
		return !inside[in] && (t == nil || t.Kind != relay.TypeTensor)
	})
}

// newRegion makes a region of a set of nodes with one exit.
func (c *cutter) newRegion(inside map[relay.NodeID]bool) *region {
	r := &region{exits: 1, nodes: slices.Sorted(maps.Keys(inside))}
	r.work = c.work(r.nodes)
	return r
}

// regionOf makes a region of nodes, ascending.
func (c *cutter) regionOf(nodes []relay.NodeID) *region {
	return &region{nodes: nodes, exits: len(c.g.Exits(nodes)), work: c.work(nodes)}
}

// work counts the operators that make up the work.
func (c *cutter) work(nodes []relay.NodeID) int {
	n := 0
	for _, v := range nodes {
		if isWork(c.g.Nodes[v].Op) {
			n++
		}
	}
	return n
}

// closure gives exit and the supported nodes, but for those left out, all of whose users are in it. Nodes are looked at
// from the back, so that all users of a node have been decided when it is its turn.
func (c *cutter) closure(exit relay.NodeID, left map[relay.NodeID]bool) map[relay.NodeID]bool {
	g := c.g
	inside := map[relay.NodeID]bool{exit: true}
	ahead := &nodeHeap{exit}
	queued := map[relay.NodeID]bool{exit: true}
	for ahead.Len() > 0 {
		v := heap.Pop(ahead).(relay.NodeID)
		if v != exit {
			fits := !left[v] && c.supported[v] && g.Nodes[v].Scope == g.Nodes[exit].Scope && !g.ScopeRoot(v)
			for _, use := range g.Consumers(v) {
				fits = fits && inside[use]
			}
			if !fits {
				continue
			}
			inside[v] = true
		}
		for _, in := range g.Reads(v) {
			if !queued[in] {
				queued[in] = true
				heap.Push(ahead, in)
			}
		}
	}
	return inside
}

// add proposes a region that is new and holds more than one operator, and queues it for being cut.
func (c *cutter) add(r *region) {
	if r == nil {
		return
	}
	operators := 0
	var key []byte
	for _, v := range r.nodes {
		if c.g.Nodes[v].Kind == relay.KindCall {
			operators++
		}
		key = binary.BigEndian.AppendUint32(key, uint32(v))
	}
	if operators < 2 || c.seen[string(key)] {
		return
	}
	c.seen[string(key)] = true
	c.proposals = append(c.proposals, byoc.Proposal{Bare: true, Nodes: r.nodes})
	if r.work > 1 {
		r.order = len(c.proposals)
		heap.Push(&c.queue, r)
	}
}

// split proposes the two parts of a region that are nearest to being halves. Where no post-dominator cuts off as much
// as an eighth of the work, the parts that hang off its spine are proposed instead (the branches of a cell). Where
// parts with one exit leave something out or are far from halves, or the region has several exits, parts with several
// are proposed, too.
func (c *cutter) split(r *region) {
	if r.exits > 1 {
		c.halve(r, 0)
		return
	}
	most := c.spine(r, false)
	front, end := c.parted(r, slices.Concat(c.spine(r, true), most))
	score, kept := 0, 0
	if front != nil {
		score, kept = min(front.work, end.work), front.work+end.work
	}
	if 8*score >= r.work {
		c.add(front)
		c.add(end)
		if kept < r.work {
			score = 0 // something belongs to neither
		}
		c.halve(r, score)
		return
	}
	c.halve(r, 0)
	for _, u := range most {
		for _, child := range c.g.PostDominators().Children(u.node) {
			if r.has(child) && c.mayEnd(child) && !onSpine(most, child) {
				if part := c.growWithin(r, child, relay.NoNode); part != nil && part.work > 0 {
					c.add(part)
				}
			}
		}
	}
}

// parted are the parts of a region, cut behind one of the nodes of its spines, of which the smaller holds the most
// work; of equals those that hold the most together, and then the first. nil where there are none.
//
// What is post-dominated by a node is all that can come before it, and nothing of that can come after it: so much more
// is not to be had there, and most nodes need not be looked at any closer.
func (c *cutter) parted(r *region, spines []spineNode) (front, end *region) {
	type place struct{ order, most int }
	places := make([]place, len(spines))
	for i, s := range spines {
		places[i] = place{i, min(s.work, r.work-s.work)}
	}
	slices.SortStableFunc(places, func(a, b place) int { return b.most - a.most })
	score, kept, first := 0, 0, len(spines)
	for _, p := range places {
		if p.most < max(score, 1) {
			break
		}
		u := spines[p.order].node
		if p.most == score && kept == r.work && p.order > first || u == r.exit() || !c.mayEnd(u) || !c.clean(u) {
			continue
		}
		before, after := c.growWithin(r, u, relay.NoNode), c.growWithin(r, r.exit(), u)
		if before == nil || after == nil {
			continue
		}
		smaller, sum := min(before.work, after.work), before.work+after.work
		if smaller > 0 && cmp.Or(smaller-score, sum-kept, first-p.order) > 0 {
			front, end, score, kept, first = before, after, smaller, sum, p.order
		}
	}
	return front, end
}

// growWithin is grow, held to the nodes of a region; of what has one exit, that part has one too.
func (c *cutter) growWithin(r *region, exit, stop relay.NodeID) *region {
	part := c.grow(exit, stop)
	if part == nil {
		return nil
	}
	inside := make(map[relay.NodeID]bool, len(part.nodes))
	for _, v := range part.nodes {
		if r.has(v) {
			inside[v] = true
		}
	}
	return c.newRegion(inside)
}

// spineNode is a node of a spine with the work of the region that it post-dominates, its own with it.
type spineNode struct {
	node relay.NodeID
	work int
}

func onSpine(spine []spineNode, v relay.NodeID) bool {
	return slices.ContainsFunc(spine, func(s spineNode) bool { return s.node == v })
}

// spine is a way through a region's post-dominator tree from its exit down; what comes before each node of it can be
// computed without what comes after. Of children that hold work it takes the first (what both branches of a block read
// comes before them), or the one that holds the most, the later one of equals.
func (c *cutter) spine(r *region, first bool) []spineNode {
	tree := c.g.PostDominators()
	// Children come before their parents in post-order.
	work := make(map[relay.NodeID]int, len(r.nodes))
	for _, v := range r.nodes {
		if isWork(c.g.Nodes[v].Op) {
			work[v]++
		}
		if v != r.exit() {
			work[tree.Parent(v)] += work[v]
		}
	}
	spine := []spineNode{{r.exit(), work[r.exit()]}}
	for {
		next := relay.NoNode
		for _, child := range tree.Children(spine[len(spine)-1].node) {
			if r.has(child) && work[child] > 0 && (next == relay.NoNode || !first && work[child] >= work[next]) {
				next = child
			}
		}
		if next == relay.NoNode {
			return spine
		}
		spine = append(spine, spineNode{next, work[next]})
	}
}

// clean says that a region may be cut behind u: on some way from u to its post-dominator there is work, so that the cut
// does not part an operator from its bias or activation.
func (c *cutter) clean(u relay.NodeID) bool {
	next := c.g.PostDominators().Parent(u)
	seen := map[relay.NodeID]bool{}
	var works func(v relay.NodeID) bool
	works = func(v relay.NodeID) bool {
		for _, use := range c.g.Consumers(v) {
			if seen[use] {
				continue
			}
			seen[use] = true
			if isWork(c.g.Nodes[use].Op) || use != next && works(use) {
				return true
			}
		}
		return false
	}
	return works(u)
}

// isWork says that an operator is one of those that make up the time of a network.
func isWork(op string) bool {
	name := strings.TrimPrefix(op, "nn.")
	return strings.HasPrefix(name, "conv") || name == "dense" || name == "matmul" || name == "batch_matmul" ||
		strings.HasPrefix(name, "contrib_")
}

// nodeHeap gives the greatest node first.
type nodeHeap []relay.NodeID

func (h nodeHeap) Len() int           { return len(h) }
func (h nodeHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h nodeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop are container/heap's.
func (h *nodeHeap) Push(x any) { *h = append(*h, x.(relay.NodeID)) }

// Pop takes the last element off.
func (h *nodeHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	*h = old[:len(old)-1]
	return v
}

// queue gives the region with the most work first, the earlier one of equals.
type queue []*region

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].work != q[j].work {
		return q[i].work > q[j].work
	}
	return q[i].order < q[j].order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop are container/heap's.
func (q *queue) Push(x any) { *q = append(*q, x.(*region)) }

// Pop takes the last element off.
func (q *queue) Pop() any {
	old := *q
	r := old[len(old)-1]
	*q = old[:len(old)-1]
	return r
}
