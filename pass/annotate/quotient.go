// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"github.com/collage-tvm/collage/relay"
)

// quotient is a graph whose vertices are groups of nodes; it never has a cycle. It keeps a topological order of the
// groups, so that the search for a path between two of them looks only at what lies between them (Pearce and Kelly's
// way of keeping an order under insertions).
type quotient struct {
	g      *relay.Graph
	parent []relay.NodeID // union-find; a group is named by its top
	// For each group's top: its place in the order, and those of its nodes that may be used outside.
	place []int32
	exits [][]relay.NodeID
	// at is the group at each place; NoNode where none is.
	at   []relay.NodeID
	seen []int32
	look int32
}

// newQuotient is the graph with each node a group by itself. Post-order is a topological order.
func newQuotient(g *relay.Graph) *quotient {
	n := len(g.Nodes)
	q := &quotient{g: g, parent: make([]relay.NodeID, n), place: make([]int32, n), exits: make([][]relay.NodeID, n),
		at: make([]relay.NodeID, n), seen: make([]int32, n)}
	self := make([]relay.NodeID, n)
	for i := range n {
		v := relay.NodeID(i)
		self[i], q.parent[i], q.place[i], q.at[i] = v, v, int32(i), v
		q.exits[i] = self[i : i+1 : i+1]
	}
	return q
}

func (q *quotient) find(v relay.NodeID) relay.NodeID {
	for q.parent[v] != v {
		q.parent[v] = q.parent[q.parent[v]]
		v = q.parent[v]
	}
	return v
}

// contract makes the nodes of a candidate one group. They have one exit, their last, so whatever leaves the group
// leaves from there: the group takes the exit's place in the order, and no cycle can come of it.
func (q *quotient) contract(nodes []relay.NodeID) {
	root := nodes[len(nodes)-1]
	for _, v := range nodes[:len(nodes)-1] {
		q.parent[v] = root
		q.at[q.place[v]] = relay.NoNode
	}
}

// merge makes the groups of a node and of one of its users one group, unless some way leads from the one to the other
// through a third group: then the merged group would need a result of its own. It says whether they are one group now.
func (q *quotient) merge(producer, user relay.NodeID) bool {
	a, b := q.find(producer), q.find(user)
	if a == b {
		return true
	}
	// Whatever stands on a way from a to b stands between them in the order.
	last := q.place[b]
	q.look++
	var behind []relay.NodeID // the groups up to b that a leads to, without b itself
	reach := func(from relay.NodeID) (user bool) {
		q.eachUser(from, func(v relay.NodeID) {
			switch {
			case v == b:
				user = true
			case q.place[v] < last && q.seen[v] != q.look:
				q.seen[v] = q.look
				behind = append(behind, v)
			}
		})
		return user
	}
	reach(a)
	for i := 0; i < len(behind); i++ {
		if reach(behind[i]) {
			return false
		}
	}
	q.join(a, b)
	return true
}

// eachUser calls yield for the groups that use values of a group, some of them more than once. Nodes that are used
// inside only are forgotten on the way.
func (q *quotient) eachUser(group relay.NodeID, yield func(relay.NodeID)) {
	exits := q.exits[group]
	kept := exits[:0]
	for _, v := range exits {
		used := false
		for _, c := range q.g.Consumers(v) {
			if user := q.find(c); user != group {
				used = true
				yield(user)
			}
		}
		if used {
			kept = append(kept, v)
		}
	}
	q.exits[group] = kept
}

// join makes b a part of a's group. The groups between them that a leads to (marked in seen) go behind the new group,
// the others stay in front of it, and all keep their order among themselves.
func (q *quotient) join(a, b relay.NodeID) {
	from, to := q.place[a], q.place[b]
	free := from
	put := func(v relay.NodeID) {
		q.at[free], q.place[v] = v, free
		free++
	}
	var behind []relay.NodeID
	for i := from + 1; i < to; i++ {
		switch v := q.at[i]; {
		case v == relay.NoNode:
		case q.seen[v] == q.look:
			behind = append(behind, v)
		default:
			put(v)
		}
	}
	if len(q.exits[a]) < len(q.exits[b]) {
		a, b = b, a
	}
	q.parent[b] = a
	q.exits[a] = append(q.exits[a], q.exits[b]...)
	q.exits[b] = nil
	put(a)
	for _, v := range behind {
		put(v)
	}
	for ; free <= to; free++ {
		q.at[free] = relay.NoNode
	}
}
