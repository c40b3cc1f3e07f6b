// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// Group is a set of nodes on its way to become a candidate (TVM's prototype: SubGraph and CandidatePartition). Rules
// make small ones and combine them; not every group on the way is legal.
type Group struct {
	// Nodes are the operators, tuples and projections, and the constants that a pattern asked for.
	Nodes NodeSet
	// Kind is the hardest fusion kind inside.
	Kind OpPattern
	// Label joins the names of the operators by '+', Rule those of the rules that made the group.
	Label, Rule string
	// Parts are the pattern matches that the group holds, by their first nodes. What is in no part stands bare.
	Parts []Part
	// Depth is the greatest number of nodes on a path from an entry to an exit.
	Depth int

	// entries read, exits are read by what is outside; readers are outside and read what is inside, sources are
	// outside and read by what is inside.
	entries, exits, readers, sources NodeSet
}

// Part is one match of a pattern within a group.
type Part struct {
	Composite string
	Nodes     NodeSet
}

// Group makes a group of nodes.
func (f *Flow) Group(nodes NodeSet, kind OpPattern, label, rule string, parts []Part) *Group {
	n := len(f.Graph.Nodes)
	g := &Group{Nodes: nodes, Kind: kind, Label: label, Rule: rule, Parts: parts,
		entries: NewNodeSet(n), exits: NewNodeSet(n), readers: NewNodeSet(n), sources: NewNodeSet(n)}
	slices.SortStableFunc(g.Parts, func(a, b Part) int {
		if c := cmp.Compare(a.Nodes.First(), b.Nodes.First()); c != 0 || !a.Nodes.Less(b.Nodes) {
			return c
		}
		return -1
	})
	for _, v := range nodes.Nodes() {
		for _, in := range f.inputs[v] {
			if !nodes.Has(in) && !f.inline[in] {
				g.entries.Add(v)
				g.sources.Add(in)
			}
		}
		constant := f.Graph.Nodes[v].Kind == relay.KindConstant
		if constant && f.SharedConstants {
			continue
		}
		if f.Graph.ScopeRoot(v) {
			g.exits.Add(v)
		}
		for _, out := range f.outputs[v] {
			if !nodes.Has(out) {
				g.exits.Add(v)
				g.readers.Add(out)
			}
		}
	}
	g.Depth = f.depth(g)
	return g
}

// Single is the group of one node.
func (f *Flow) Single(v relay.NodeID, rule string) *Group {
	set := NewNodeSet(len(f.Graph.Nodes))
	set.Add(v)
	return f.Group(set, f.kinds[v], f.labels[v], rule, nil)
}

// GroupOf describes nodes by themselves: their hardest kind, their names.
func (f *Flow) GroupOf(nodes NodeSet, composite string) *Group {
	kind, labels := ElemWise, []string{}
	for _, v := range nodes.Nodes() {
		kind = max(kind, f.kinds[v])
		labels = append(labels, f.labels[v])
	}
	label := strings.Join(labels, "+")
	return f.Group(nodes, kind, label, NestNames(composite, label), []Part{{composite, nodes}})
}

// depth is the longest path from the entries to an exit, counted in nodes.
func (f *Flow) depth(g *Group) int {
	deepest := map[relay.NodeID]int{}
	result := 0
	// Readers stand behind what they read, but for variables of Let, which nobody groups.
	for _, v := range g.Nodes.Nodes() {
		at, reached := deepest[v]
		if !reached && !g.entries.Has(v) {
			continue
		}
		if g.exits.Has(v) {
			result = max(result, at+1)
		}
		for _, out := range f.outputs[v] {
			if g.Nodes.Has(out) {
				deepest[out] = max(deepest[out], at+1)
			}
		}
	}
	return result
}

// flowsInto says that what a gives to others than b comes back into b.
func (f *Flow) flowsInto(a, b *Group) bool {
	for _, v := range a.readers.Nodes() {
		if !b.Nodes.Has(v) && f.Downstream(v).Intersects(b.entries) {
			return true
		}
	}
	return false
}

// Touch says that b reads what a gives and that the two can be one without a cycle.
func (f *Flow) Touch(a, b *Group) bool {
	return !a.Nodes.Intersects(b.Nodes) && a.readers.Intersects(b.entries) && !f.flowsInto(a, b) && !f.flowsInto(b, a)
}

// Union joins two disjoint groups.
func (f *Flow) Union(a, b *Group) *Group {
	return f.Group(a.Nodes.Or(b.Nodes), max(a.Kind, b.Kind), UnionNames(a.Label, b.Label), UnionNames(a.Rule, b.Rule),
		slices.Concat(a.Parts, b.Parts))
}

// Legal says that the group can be a candidate no deeper than maxDepth: one exit that nothing inside reads, all nodes
// in one scope, nothing dead, no way out and back in.
func (f *Flow) Legal(g *Group, maxDepth int) bool {
	if g.exits.Len() > 1 || g.Depth > maxDepth {
		return false
	}
	for _, v := range g.readers.Nodes() {
		if f.Downstream(v).Intersects(g.entries) {
			return false
		}
	}
	return Check(f.Graph, f.Placeable(g)) == nil
}

// Placeable are the group's nodes without its constants, ascending.
func (f *Flow) Placeable(g *Group) []relay.NodeID {
	return slices.DeleteFunc(g.Nodes.Nodes(), func(v relay.NodeID) bool { return !f.Graph.Placeable(v) })
}

// identity says which groups are the same: those of the same nodes, in the same parts.
func (g *Group) identity() string {
	var text strings.Builder
	text.WriteString(g.Nodes.key())
	for _, p := range g.Parts {
		text.WriteString(p.Nodes.key())
		text.WriteString(p.Composite)
		text.WriteByte(0)
	}
	return text.String()
}

// UnionNames joins two names as TVM's prototype does.
func UnionNames(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "+" + b
}

// NestNames puts a name in front of another one, unless that begins with it already.
func NestNames(outer, inner string) string {
	if outer == "" || inner == "" {
		return outer + inner
	}
	if len(inner) > len(outer) && strings.HasPrefix(inner, outer) {
		return inner
	}
	return outer + "." + inner
}
