// SPDX-License-Identifier: Apache-2.0

package relay

// Quotient is a graph whose vertices are groups of nodes; it never has a cycle. It keeps a topological order of the
// groups, so that the search for a path between some of them looks only at what lies between them (Pearce and Kelly's
// way of keeping an order under insertions).
type Quotient struct {
	g      *Graph
	parent []NodeID // union-find; a group is named by its top
	// For each group's top: its place in the order, and those of its nodes that may be used outside.
	place []int32
	exits [][]NodeID
	// at is the group at each place; NoNode where none is.
	at []NodeID
	// seen and mine are marks of the look-th search: groups that were reached, and those that are to be united.
	seen, mine []int32
	look       int32
}

// NewQuotient is the graph with each node a group by itself. Post-order is a topological order.
func NewQuotient(g *Graph) *Quotient {
	n := len(g.Nodes)
	q := &Quotient{g: g, parent: make([]NodeID, n), place: make([]int32, n), exits: make([][]NodeID, n),
		at: make([]NodeID, n), seen: make([]int32, n), mine: make([]int32, n)}
	self := make([]NodeID, n)
	for i := range n {
		v := NodeID(i)
		self[i], q.parent[i], q.place[i], q.at[i] = v, v, int32(i), v
		q.exits[i] = self[i : i+1 : i+1]
	}
	return q
}

// Find is the group of a node, named by one of its nodes.
func (q *Quotient) Find(v NodeID) NodeID {
	for q.parent[v] != v {
		q.parent[v] = q.parent[q.parent[v]]
		v = q.parent[v]
	}
	return v
}

// Contract makes nodes with one exit, their last, one group; each must be a group by itself still. Whatever leaves the
// group leaves from the exit: the group takes the exit's place in the order, and no cycle can come of it.
func (q *Quotient) Contract(nodes []NodeID) {
	root := nodes[len(nodes)-1]
	for _, v := range nodes[:len(nodes)-1] {
		q.parent[v] = root
		q.at[q.place[v]] = NoNode
	}
}

// Unite makes the groups of nodes one group, unless some way leads out of them through another group and back: then the
// united group would need a result of its own. It says whether they are one group now.
func (q *Quotient) Unite(nodes ...NodeID) bool {
	q.look++
	var tops []NodeID
	first, last := int32(len(q.at)), int32(-1)
	for _, v := range nodes {
		top := q.Find(v)
		if q.mine[top] != q.look {
			q.mine[top] = q.look
			tops = append(tops, top)
			first, last = min(first, q.place[top]), max(last, q.place[top])
		}
	}
	if len(tops) < 2 {
		return true
	}
	// Whatever stands on a way from one of them to another stands between them in the order.
	var behind []NodeID // the groups before the last of them that they lead to
	reach := func(from NodeID) (back bool) {
		q.eachUser(from, func(v NodeID) {
			switch {
			case q.mine[v] == q.look:
				back = true
			case q.place[v] < last && q.seen[v] != q.look:
				q.seen[v] = q.look
				behind = append(behind, v)
			}
		})
		return back
	}
	for _, top := range tops {
		if q.place[top] < last { // nothing that the last one leads to stands before it
			reach(top)
		}
	}
	for i := 0; i < len(behind); i++ {
		if reach(behind[i]) {
			return false
		}
	}
	q.join(tops, first, last)
	return true
}

// eachUser calls yield for the groups that use values of a group, some of them more than once. Nodes that are used
// inside only are forgotten on the way.
func (q *Quotient) eachUser(group NodeID, yield func(NodeID)) {
	exits := q.exits[group]
	kept := exits[:0]
	for _, v := range exits {
		used := false
		for _, c := range q.g.Consumers(v) {
			if user := q.Find(c); user != group {
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

// join makes the groups tops, which stand between the places first and last, one group. The groups between them that
// they lead to (marked in seen) go behind the new group, the others stay in front of it, and all keep their order
// among themselves.
func (q *Quotient) join(tops []NodeID, first, last int32) {
	free := first
	put := func(v NodeID) {
		q.at[free], q.place[v] = v, free
		free++
	}
	var behind []NodeID
	for i := first; i <= last; i++ {
		switch v := q.at[i]; {
		case v == NoNode || q.mine[v] == q.look:
		case q.seen[v] == q.look:
			behind = append(behind, v)
		default:
			put(v)
		}
	}
	top := tops[0]
	for _, t := range tops[1:] { // the one with the most exits takes in the others
		if len(q.exits[t]) > len(q.exits[top]) {
			top = t
		}
	}
	for _, t := range tops {
		if t != top {
			q.parent[t] = top
			q.exits[top] = append(q.exits[top], q.exits[t]...)
			q.exits[t] = nil
		}
	}
	put(top)
	for _, v := range behind {
		put(v)
	}
	for ; free <= last; free++ {
		q.at[free] = NoNode
	}
}
