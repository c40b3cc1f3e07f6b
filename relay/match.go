// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"slices"
)

// Match is one way in which a pattern matches: a group of nodes of one scope with one exit.
type Match struct {
	// Root is the node whose value is the group's value; the greatest of Nodes.
	Root NodeID
	// Nodes are the covered calls and tuples, ascending.
	Nodes []NodeID
	// Inputs are the values that come from outside, each once, in the order of first use (nodes ascending,
	// then by argument); constants are not among them.
	Inputs []NodeID
	// Constants are the constants that covered nodes read, each once, in the order of first use.
	Constants []NodeID
	// Named are the nodes that stand where the pattern says Named. Alternatives that were not taken leave
	// their names out.
	Named map[string]NodeID
}

// Covers says that id is one of the covered nodes.
func (m *Match) Covers(id NodeID) bool {
	_, ok := slices.BinarySearch(m.Nodes, id)
	return ok
}

// Match returns all ways in which p matches at root, those that cover most nodes first, else in ascending order
// of their nodes. Only legal ones: the covered nodes belong to one scope, and no value of them but the root's is
// used outside. Two ways that cover the same nodes are both returned if they name nodes differently.
func (g *Graph) Match(p Pattern, root NodeID) []*Match {
	if !p.canRoot(&g.Nodes[root]) {
		return nil
	}
	s := &matching{g: g, root: root}
	var found []*Match
	p.try(s, root, func() bool {
		if m := s.legal(); m != nil && !slices.ContainsFunc(found, m.same) {
			found = append(found, m)
		}
		return len(found) < maxMatches
	})
	slices.SortStableFunc(found, func(a, b *Match) int {
		if c := cmp.Compare(len(b.Nodes), len(a.Nodes)); c != 0 {
			return c
		}
		return slices.Compare(a.Nodes, b.Nodes)
	})
	return found
}

// maxMatches bounds what a pattern with many alternatives can find at one root.
const maxMatches = 256

// matching is the state of one search: what is bound and covered on the current path.
type matching struct {
	g    *Graph
	root NodeID
	// bound are the pattern values met so far and the nodes they stand for.
	bound []binding
	// covered are the covered nodes in the order in which they were met.
	covered []NodeID
	named   []nameBinding
}

type binding struct {
	p  Pattern
	id NodeID
}

type nameBinding struct {
	name string
	id   NodeID
}

// once runs step if pattern p is not bound yet, with p bound to id; where it is bound, it goes straight on if
// that is to the same node and backs out if not.
func (s *matching) once(p Pattern, id NodeID, found func() bool, step func(found func() bool) bool) bool {
	for i := range s.bound {
		if s.bound[i].p == p {
			if s.bound[i].id == id {
				return found()
			}
			return true
		}
	}
	n := len(s.bound)
	s.bound = append(s.bound, binding{p, id})
	more := step(found)
	s.bound = s.bound[:n]
	return more
}

// cover runs step with id covered, unless that can never become a legal match.
func (s *matching) cover(id NodeID, step func() bool) bool {
	if slices.Contains(s.covered, id) {
		return step()
	}
	if id != s.root {
		if s.g.Nodes[id].Scope != s.g.Nodes[s.root].Scope || s.g.ScopeRoot(id) {
			return true
		}
		if uses := s.g.consumers[id]; uses[len(uses)-1] > s.root {
			return true // used behind the root
		}
	}
	n := len(s.covered)
	s.covered = append(s.covered, id)
	more := step()
	s.covered = s.covered[:n]
	return more
}

// arguments matches a list of patterns to a list of nodes, left to right.
func (s *matching) arguments(patterns []Pattern, ids []NodeID, found func() bool) bool {
	if len(patterns) == 0 {
		return found()
	}
	return patterns[0].try(s, ids[0], func() bool {
		return s.arguments(patterns[1:], ids[1:], found)
	})
}

func (p *opPattern) try(s *matching, id NodeID, found func() bool) bool {
	n := &s.g.Nodes[id]
	if n.Kind != KindCall || n.Op == "" || !slices.Contains(p.names, n.Op) {
		return true
	}
	if len(p.args) != 0 && len(p.args) != len(n.Inputs) {
		return true
	}
	return s.once(p, id, found, func(found func() bool) bool {
		return s.cover(id, func() bool {
			if len(p.args) == 0 {
				return found()
			}
			if !s.arguments(p.args, n.Inputs, found) {
				return false
			}
			if len(p.args) != 2 || !commutative[n.Op] || n.Inputs[0] == n.Inputs[1] {
				return true
			}
			return s.arguments(p.args, []NodeID{n.Inputs[1], n.Inputs[0]}, found)
		})
	})
}

func (p *wildcardPattern) try(s *matching, id NodeID, found func() bool) bool {
	return s.once(p, id, found, func(found func() bool) bool { return found() })
}

func (p *kindPattern) try(s *matching, id NodeID, found func() bool) bool {
	if s.g.Nodes[id].Kind != p.kind {
		return true
	}
	return s.once(p, id, found, func(found func() bool) bool { return found() })
}

func (p *orPattern) try(s *matching, id NodeID, found func() bool) bool {
	return s.once(p, id, found, func(found func() bool) bool {
		for _, a := range p.alternatives {
			if !a.try(s, id, found) {
				return false
			}
		}
		return true
	})
}

func (p *wherePattern) try(s *matching, id NodeID, found func() bool) bool {
	if !p.keep(s.g, id) {
		return true
	}
	return p.p.try(s, id, found)
}

func (p *tuplePattern) try(s *matching, id NodeID, found func() bool) bool {
	n := &s.g.Nodes[id]
	if n.Kind != KindTuple || len(n.Inputs) != len(p.fields) {
		return true
	}
	return s.once(p, id, found, func(found func() bool) bool {
		return s.cover(id, func() bool { return s.arguments(p.fields, n.Inputs, found) })
	})
}

func (p *getPattern) try(s *matching, id NodeID, found func() bool) bool {
	n := &s.g.Nodes[id]
	if n.Kind != KindTupleGetItem || p.index >= 0 && n.Index != p.index {
		return true
	}
	return s.once(p, id, found, func(found func() bool) bool {
		return s.cover(id, func() bool { return p.tuple.try(s, n.Inputs[0], found) })
	})
}

func (p *namedPattern) try(s *matching, id NodeID, found func() bool) bool {
	return p.p.try(s, id, func() bool {
		n := len(s.named)
		s.named = append(s.named, nameBinding{p.name, id})
		more := found()
		s.named = s.named[:n]
		return more
	})
}

// legal makes a Match of the current state; nil if a covered value other than the root's is used outside.
func (s *matching) legal() *Match {
	if !slices.Contains(s.covered, s.root) {
		return nil
	}
	m := &Match{Root: s.root, Nodes: slices.Clone(s.covered)}
	slices.Sort(m.Nodes)
	if m.Nodes[len(m.Nodes)-1] != s.root {
		return nil
	}
	for _, id := range m.Nodes[:len(m.Nodes)-1] {
		for _, c := range s.g.consumers[id] {
			if !m.Covers(c) {
				return nil
			}
		}
	}
	m.Inputs, m.Constants = s.g.Boundary(m.Nodes)
	m.Named = make(map[string]NodeID, len(s.named))
	for _, b := range s.named {
		m.Named[b.name] = b.id
	}
	return m
}

func (m *Match) same(o *Match) bool {
	if !slices.Equal(m.Nodes, o.Nodes) || len(m.Named) != len(o.Named) {
		return false
	}
	for name, id := range m.Named {
		if other, ok := o.Named[name]; !ok || other != id {
			return false
		}
	}
	return true
}

// Boundary returns what a group of nodes (ascending) reads of the outside, each once, in the order of first use:
// inputs and constants apart. What the group's own nested scopes read counts as read by the nodes that open
// them; the literals that calls of the group call belong to the group.
func (g *Graph) Boundary(nodes []NodeID) (inputs, constants []NodeID) {
	seen := map[NodeID]bool{}
	for _, id := range nodes {
		seen[id] = true
	}
	var visit func(id NodeID)
	visit = func(id NodeID) {
		for _, v := range g.reads[id] {
			if seen[v] {
				continue
			}
			seen[v] = true
			switch {
			case g.Nodes[v].Kind == KindConstant:
				constants = append(constants, v)
			case !g.placeable[v] && g.Nodes[v].Kind != KindVar:
				visit(v) // a called literal, a constructor, a global variable: part of the call
			default:
				inputs = append(inputs, v)
			}
		}
	}
	for _, id := range nodes {
		visit(id)
	}
	return inputs, constants
}

// OneExit says that a group of nodes (ascending, of one scope) is what a match may be: no value of it but the
// last one's is used outside.
func (g *Graph) OneExit(nodes []NodeID) bool {
	if len(nodes) == 0 {
		return false
	}
	scope := g.Nodes[nodes[0]].Scope
	for i, id := range nodes {
		if g.Nodes[id].Scope != scope {
			return false
		}
		if i == len(nodes)-1 {
			return true
		}
		if g.ScopeRoot(id) {
			return false
		}
		if !g.usedWithin(id, nodes) {
			return false
		}
	}
	return true
}

// Exits are those nodes of a group (ascending, of one scope) whose values are used outside of it, ascending.
func (g *Graph) Exits(nodes []NodeID) []NodeID {
	var exits []NodeID
	for _, id := range nodes {
		if g.ScopeRoot(id) || !g.usedWithin(id, nodes) {
			exits = append(exits, id)
		}
	}
	return exits
}

// usedWithin says that all consumers of id are among nodes (ascending); a called literal that captures the value
// counts as its calls.
func (g *Graph) usedWithin(id NodeID, nodes []NodeID) bool {
	for _, c := range g.consumers[id] {
		if _, ok := slices.BinarySearch(nodes, c); !ok && (g.placeable[c] || !g.usedWithin(c, nodes)) {
			return false
		}
	}
	return true
}
