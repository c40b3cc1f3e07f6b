// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// ByKind lets a group whose hardest kind is at most From be joined with a reader whose hardest kind is at most To.
type ByKind struct{ From, To OpPattern }

// Rules say which groups are combined.
type Rules struct {
	ByKind []ByKind
	// TupleArguments joins the producers of a tuple's fields, the tuple and the tuple's reader, all injective.
	TupleArguments bool
	// Projections joins a group with the projections of its result.
	Projections bool
	// Constants joins a group with the constants that it reads.
	Constants bool
	// MaxDepth bounds the depths of what ByKind joins, added up.
	MaxDepth int
	// Complete tries each pair. TVM's prototype never joins a group that it has looked at with one that came later
	// downstream of it, so it misses groups into which two producers flow; that is the meaning of false.
	Complete bool
	// Limit ends the combining when there are that many groups; 0 for none.
	Limit int
}

// FuseOpsRules are the pairs that TVM's FuseOps fuses.
func FuseOpsRules() []ByKind {
	return []ByKind{{OutEWiseFusable, Broadcast}, {Broadcast, CommReduce}, {Injective, Injective}}
}

// StyleRules gives the rules of a style for a backend with patterns or operators of its own.
func StyleRules(s byoc.Style, maxDepth int) Rules {
	r := Rules{MaxDepth: maxDepth}
	switch s {
	case byoc.TVMFusion:
		r.ByKind = FuseOpsRules()
	case byoc.ArbitraryFusion:
		r.ByKind = []ByKind{{OutEWiseFusable, OutEWiseFusable}}
	}
	return r
}

// NativeRules are the rules for TVM itself.
func NativeRules(maxDepth int) Rules {
	return Rules{ByKind: FuseOpsRules(), TupleArguments: true, Projections: true, MaxDepth: maxDepth}
}

// Singles are the groups of one operator that can be fused with others (TVM's prototype: OpCallByKindPartitionRule).
func (f *Flow) Singles() []*Group {
	var groups []*Group
	for i := range f.Graph.Nodes {
		if IsOperator(&f.Graph.Nodes[i]) && f.kinds[i] <= OutEWiseFusable {
			groups = append(groups, f.Single(relay.NodeID(i), f.labels[i]))
		}
	}
	return groups
}

// combiner grows a set of groups, round by round.
type combiner struct {
	f     *Flow
	rules Rules
	// groups are those of former rounds up to first, and the ones that are new in this round.
	groups []*Group
	first  int
	next   []*Group
	seen   map[string]bool
	full   bool
}

// Combine gives the groups and all that the rules make of them, legal or not. complete is false where Limit cut it
// short.
func (f *Flow) Combine(groups []*Group, rules Rules) (all []*Group, complete bool) {
	c := &combiner{f: f, rules: rules, next: groups, seen: map[string]bool{}}
	for _, g := range groups {
		c.seen[g.identity()] = true
	}
	if len(rules.ByKind) == 0 && !rules.TupleArguments && !rules.Projections && !rules.Constants {
		return groups, true
	}
	for len(c.next) > 0 && !c.full {
		c.first = len(c.groups)
		c.groups = append(c.groups, c.next...)
		c.next = nil
		c.byKind()
		if rules.TupleArguments {
			c.tupleArguments()
		}
		if rules.Projections {
			c.projections()
		}
		if rules.Constants {
			c.constants()
		}
	}
	return append(c.groups, c.next...), !c.full
}

func (c *combiner) add(g *Group) {
	id := g.identity()
	if c.seen[id] || c.full {
		return
	}
	c.seen[id] = true
	c.next = append(c.next, g)
	c.full = c.rules.Limit > 0 && len(c.groups)+len(c.next) >= c.rules.Limit
}

// skip says that the pair need not be tried: it was in a former round, or TVM's prototype forgets it.
func (c *combiner) skip(i, j int) bool {
	if c.rules.Complete {
		return i < c.first && j < c.first
	}
	return i < c.first
}

func (c *combiner) byKind() {
	if len(c.rules.ByKind) == 0 {
		return
	}
	at := make([][]int, len(c.f.Graph.Nodes)) // the groups that a node is an entry of
	for i, g := range c.groups {
		for _, v := range g.entries.Nodes() {
			at[v] = append(at[v], i)
		}
	}
	var behind []int
	for i, up := range c.groups {
		behind = behind[:0]
		for _, v := range up.readers.Nodes() {
			behind = append(behind, at[v]...)
		}
		slices.Sort(behind)
		for _, j := range slices.Compact(behind) {
			down := c.groups[j]
			if i == j || c.skip(i, j) || up.Depth+down.Depth > c.rules.MaxDepth ||
				!slices.ContainsFunc(c.rules.ByKind,
					func(r ByKind) bool { return up.Kind <= r.From && down.Kind <= r.To }) ||
				!c.f.Touch(up, down) {
				continue
			}
			c.add(c.f.Union(up, down))
			if c.full {
				return
			}
		}
	}
}

// tupleArguments joins I -> tuple -> I in one step: a tuple by itself is no group.
func (c *combiner) tupleArguments() {
	producers := make([][]int, len(c.f.Graph.Nodes)) // the injective groups that a node is an exit of
	for i, g := range c.groups {
		if g.Kind <= Injective {
			for _, v := range g.exits.Nodes() {
				producers[v] = append(producers[v], i)
			}
		}
	}
	for i, reader := range c.groups {
		if reader.Kind > Injective {
			continue
		}
		for _, tuple := range reader.sources.Nodes() {
			if c.f.Graph.Nodes[tuple].Kind != relay.KindTuple {
				continue
			}
			set := NewNodeSet(len(c.f.Graph.Nodes))
			set.Add(tuple)
			single := c.f.Group(set, Injective, "tuple", "", nil)
			unions := []*Group{c.f.Union(reader, single)}
			fresh := []bool{i >= c.first}
			for _, field := range c.f.inputs[tuple] {
				var longer []*Group
				var news []bool
				for _, j := range producers[field] {
					if i == j || !c.rules.Complete && c.skip(i, j) {
						continue
					}
					for k, u := range unions {
						switch p := c.groups[j]; {
						case p.Nodes.SubsetOf(u.Nodes): // a value that stands in two fields
							longer, news = append(longer, u), append(news, fresh[k])
						case !p.Nodes.Intersects(u.Nodes):
							longer, news = append(longer, c.f.Union(u, p)), append(news, fresh[k] || j >= c.first)
						}
					}
					if c.rules.Limit > 0 && len(longer) > c.rules.Limit {
						c.full = true
						return
					}
				}
				unions, fresh = longer, news
			}
			if len(c.f.inputs[tuple]) == 0 {
				continue
			}
			for k, u := range unions {
				if fresh[k] {
					c.add(u)
				}
			}
		}
	}
}

func (c *combiner) projections() {
	for _, base := range c.groups[c.first:] {
		for _, v := range base.readers.Nodes() {
			if c.f.Graph.Nodes[v].Kind == relay.KindTupleGetItem {
				set := NewNodeSet(len(c.f.Graph.Nodes))
				set.Add(v)
				c.add(c.f.Union(base, c.f.Group(set, Injective, "proj", "", nil)))
			}
		}
	}
}

func (c *combiner) constants() {
	for _, base := range c.groups[c.first:] {
		set := NewNodeSet(len(c.f.Graph.Nodes))
		for _, v := range base.sources.Nodes() {
			if c.f.Graph.Nodes[v].Kind == relay.KindConstant {
				set.Add(v)
			}
		}
		if set.Len() > 0 {
			c.add(c.f.Union(base, c.f.Group(set, ElemWise, "const", "", nil)))
		}
	}
}
