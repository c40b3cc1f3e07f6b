// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

// Problem is a placement with what Solve leaves out: what is paid for values that go from one region to another, and
// options with several exits.
//
// The cost of a placement is the sum of its options' costs and what package border says of the regions that they form.
// Which they are is decided when all is chosen, so what branches are bounded by is the same sum with fewer
// regions: as few as there could be.
//
// An option may have several exits: a convex set of nodes, not a subtree of the post-dominator tree. Options that are
// convex one by one may still need each other's results; a placement where they do is no placement (QuotientAcyclic).
type Problem struct {
	Tree *Tree
	// Options may be no connected subtrees; their nodes are ascending all the same.
	Options []Option
	// Reads[v] are the values that node v reads, those that need cover, ascending (ReadsOf).
	Reads [][]relay.NodeID
	// Borders say what is paid between regions; nil: nothing.
	Borders *Borders
	// Effort bounds the work of Solve, in looked-at nodes of options (some 10 ns each); 0 is DefaultEffort. It is no
	// time limit, so that the answer is the same on every machine.
	Effort int64
	// Enough ends the branch and bound where the gap is at most so much of the cost; 0 where there is none.
	Enough float64
}

// Borders are what is paid between the regions of a placement.
type Borders struct {
	// Flow says who reads what. Between nodes that need cover, in one scope, it has what Problem.Reads has.
	Flow *border.Flow
	// Ends are at least 0. An option's State is the side of its region.
	Ends border.Ends
	// Inline is the state of what stays inline: all of its options are in region 0.
	Inline State
	// Apart says of the other states that each option is a region by itself; nil: of none. The options of one region
	// are all of one state.
	Apart func(s State) bool
	// Regions forms the regions of chosen options.
	Regions func(chosen []int) *border.Regions
}

// DefaultEffort is some two seconds on one core.
const DefaultEffort = 200_000_000

// Solve places. Where all costs add up over connected subtrees the answer is TreeSolver's. Otherwise it branches, with
// lower bounds from TreeSolver's recursion over (node, state): the answer is a valid placement whose Gap is 0 where it
// is proven to be the cheapest. It is proven without branches where each value is only read by the option that holds
// its post-dominator (chains and trees) and neighbours of one state are one region. Elsewhere the gap has in it, too,
// what regions of one state cost more than one region of theirs would. Deterministic; but ranks do not decide among
// placements of equal cost as they do in TreeSolver's.
//
// Errors: as Solver's; *OptionError for an option that is not convex; a plain error where Borders break their rules, or
// where no placement was found within the effort.
func (p *Problem) Solve() (*Solution, error) {
	m, err := p.compile()
	if err != nil {
		return nil, err
	}
	if m.split == 0 && !m.transfers {
		return Solve(p.Options, p.Tree)
	}
	return m.branchAndBound(p.Effort, nil)
}

// Verify checks a placement from the problem alone: that it covers each node once, that no options need each other's
// results, that its cost is what it says, borders included, and that its bound is not above it. It does not prove the
// bound.
func (p *Problem) Verify(q *Solution) error {
	cost, err := p.Cost(q.Chosen)
	if err != nil {
		return err
	}
	switch {
	case picoseconds(q.Cost) != cost:
		return fmt.Errorf("placement: the chosen options cost %v ms, not %v ms", milliseconds(cost), q.Cost)
	case q.LowerBound > q.Cost || picoseconds(q.Cost-q.LowerBound) != picoseconds(q.Gap):
		return fmt.Errorf("placement: the cost %v ms less the lower bound %v ms is not the gap %v ms", q.Cost,
			q.LowerBound, q.Gap)
	}
	return nil
}

// Cost is what a choice of options costs, in whole picoseconds, what is paid between its regions included. Errors: a
// node that is not covered or covered twice; *CycleError where options need each other's results; regions that are not
// made of the options.
func (p *Problem) Cost(chosen []int) (int64, error) {
	by := make([]int, len(p.Tree.Needs))
	for v := range by {
		by[v] = -1
	}
	total := int64(0)
	var several [][]relay.NodeID
	for _, i := range chosen {
		if i < 0 || i >= len(p.Options) || math.IsInf(p.Options[i].Cost, 1) {
			return 0, fmt.Errorf("placement: option %d is not there or must not be taken", i)
		}
		total += picoseconds(p.Options[i].Cost)
		for _, v := range p.Options[i].Nodes {
			if !p.Tree.Needs[v] || by[v] >= 0 {
				return 0, fmt.Errorf("placement: node %%%d of option %d needs no cover or is covered already", v, i)
			}
			by[v] = i
		}
		several = append(several, p.Options[i].Nodes)
	}
	for v, needs := range p.Tree.Needs {
		if needs && by[v] < 0 {
			return 0, fmt.Errorf("placement: node %%%d is not covered", v)
		}
	}
	if err := QuotientAcyclic(p.Reads, several); err != nil {
		return 0, err
	}
	if p.Borders == nil {
		return total, nil
	}
	regions := p.Borders.Regions(chosen)
	if err := p.checkRegions(chosen, regions); err != nil {
		return 0, err
	}
	return total + p.Borders.Flow.Sum(regions, p.Borders.Ends), nil
}

// checkRegions asks for what the bounds rest on: regions are made of whole options of one state, and what is inline is
// inline.
func (p *Problem) checkRegions(chosen []int, r *border.Regions) error {
	if len(r.Of) != len(p.Tree.Needs) || len(r.Sides) == 0 || r.Sides[0] != border.Side(p.Borders.Inline) {
		return fmt.Errorf("placement: the regions are those of another graph, or what is inline is on another side")
	}
	owner := map[int32]int{}
	for _, i := range chosen {
		o := &p.Options[i]
		region := r.Of[o.Nodes[0]]
		whole := !slices.ContainsFunc(o.Nodes, func(v relay.NodeID) bool { return r.Of[v] != region })
		if !whole || region < 0 || int(region) >= len(r.Sides) || (region == 0) != (o.State == p.Borders.Inline) ||
			r.Sides[region] != border.Side(o.State) {
			return fmt.Errorf("placement: option %d, of state %d, is in no region of its state, or in several", i,
				o.State)
		}
		if other, shared := owner[region]; shared && p.Borders.apart(o.State) {
			return fmt.Errorf("placement: the options %d and %d, of state %d, share a region", other, i, o.State)
		}
		owner[region] = i
	}
	return nil
}

func (b *Borders) apart(s State) bool { return s != b.Inline && b.Apart != nil && b.Apart(s) }

// model is a Problem made ready for the recursion. An option with several exits falls into pieces, the connected
// subtrees that it consists of; an option with one exit is a piece by itself. The recursion takes pieces; that those of
// an option are taken together is left to prices (multipliers) and to branches.
type model struct {
	problem *Problem
	parent  []relay.NodeID
	pieces  []piece
	byRoot  []int32 // pieces topped at v: byRoot[start[v]:start[v+1]]
	start   []int32
	of      [][]int32 // pieces of each option; nil for one that must not be taken
	split   int       // number of options with several pieces
	states  []State   // the distinct ones, ascending; pieces and multipliers name them by index

	// transfers says that something is paid between regions. What follows is there only then.
	transfers bool
	inline    int32  // the inline state; none where no option has it
	apart     []bool // states of which each option is a region
	// An edge is a value with one of its readers; it has a multiplier for each state. Edges of value u are outgoing[u];
	// reads are the values that each node reads, edgeOf the edges of these.
	edges    int
	outgoing [][]int32
	reads    [][]relay.NodeID
	edgeOf   [][]int32
	in, out  []int64 // in picoseconds, at u*K+s, K = len(states)
	size     int64   // work of one pass of the recursion
}

// piece is a connected subtree of the post-dominator tree that belongs to an option.
type piece struct {
	option int32
	state  int32
	nodes  []relay.NodeID
	reads  []read
	// leaves is what is paid for those of its values that are results of a scope.
	leaves int64
}

// read is a value from outside of a piece.
type read struct {
	value relay.NodeID
	edges []int32
	// made: an option makes the value, and not the caller of the function.
	made bool
	// below: the piece holds the value's post-dominator, so the recursion knows the value's state. within: the value
	// comes from another piece of the same option. charged: of the pieces of its option this one pays, where that is
	// not shared among edges.
	below, within, charged bool
}

// compile checks the problem and makes its model.
func (p *Problem) compile() (*model, error) {
	n := len(p.Tree.Parent)
	if err := checkTree(p.Tree); err != nil {
		return nil, err
	}
	if len(p.Reads) != n {
		return nil, fmt.Errorf("placement: the reads of %d nodes are given, the tree has %d", len(p.Reads), n)
	}
	m := &model{problem: p, parent: p.Tree.Parent, of: make([][]int32, len(p.Options)), outgoing: make([][]int32, n)}
	consumers, err := p.consumers()
	if err != nil {
		return nil, err
	}
	for i := range p.Options {
		if !math.IsInf(p.Options[i].Cost, 1) {
			m.states = append(m.states, p.Options[i].State)
		}
	}
	slices.Sort(m.states)
	m.states = slices.Compact(m.states)
	if err := m.borders(); err != nil {
		return nil, err
	}
	if !m.transfers && len(m.states) > 0 {
		m.states = m.states[:1] // they make no difference
	}
	sum := 0.0
	in := make([]int32, n) // 1 + the last option that a node was seen in
	for i := range p.Options {
		o := &p.Options[i]
		pieces, err := p.pieces(i, in, consumers)
		if err != nil {
			return nil, err
		}
		if math.IsInf(o.Cost, 1) {
			continue
		}
		sum += o.Cost
		state := 0
		if m.transfers {
			state, _ = slices.BinarySearch(m.states, o.State)
		}
		for _, nodes := range pieces {
			m.of[i] = append(m.of[i], int32(len(m.pieces)))
			m.pieces = append(m.pieces, piece{option: int32(i), state: int32(state), nodes: nodes})
		}
		if len(pieces) > 1 {
			m.split++
		}
		if m.transfers {
			m.addReads(i, in)
		}
	}
	if sum*perMillisecond >= greatestSum/4 {
		return nil, fmt.Errorf("placement: the costs add up to more than %.0f hours",
			greatestSum/4/perMillisecond/3600e3)
	}
	m.sortByRoot(n)
	return m, nil
}

func (p *Problem) consumers() ([][]relay.NodeID, error) {
	consumers := make([][]relay.NodeID, len(p.Reads))
	for w, values := range p.Reads {
		last := relay.NoNode
		for _, u := range values {
			if u <= last || int(u) >= w || !p.Tree.Needs[u] || !p.Tree.Needs[w] {
				return nil, fmt.Errorf("placement: the reads %v of node %%%d are not ascending nodes before it that "+
					"need cover",
					values, w)
			}
			last = u
			consumers[u] = append(consumers[u], relay.NodeID(w))
		}
	}
	return consumers, nil
}

// pieces gives the connected subtrees that option i consists of, each ascending. It refuses options that need their own
// results and marks the option's nodes in in.
func (p *Problem) pieces(i int, in []int32, consumers [][]relay.NodeID) ([][]relay.NodeID, error) {
	o := &p.Options[i]
	mark := int32(i) + 1
	if len(o.Nodes) == 0 {
		return nil, &OptionError{i, "it covers nothing"}
	}
	if math.IsNaN(o.Cost) || o.Cost < 0 {
		return nil, &OptionError{i, fmt.Sprintf("its cost is %v ms", o.Cost)}
	}
	last := relay.NoNode
	for _, v := range o.Nodes {
		if v <= last || int(v) >= len(in) {
			return nil, &OptionError{i, fmt.Sprintf("its nodes %v are not ascending nodes of the graph", o.Nodes)}
		}
		if !p.Tree.Needs[v] {
			return nil, &OptionError{i, fmt.Sprintf("node %%%d needs no cover", v)}
		}
		in[v] = mark
		last = v
	}
	exits := 0
	for _, v := range o.Nodes {
		outside := func(w relay.NodeID) bool { return in[w] != mark }
		if len(consumers[v]) == 0 || slices.ContainsFunc(consumers[v], outside) {
			exits++
		}
	}
	if exits == 1 {
		for _, v := range o.Nodes[:len(o.Nodes)-1] {
			if parent := p.Tree.Parent[v]; parent == relay.NoNode || in[parent] != mark {
				return nil, &OptionError{i, fmt.Sprintf(
					"node %%%d has all its uses inside, but its immediate post-dominator "+
						"%%%d is outside: the tree is not that of the reads", v, parent)}
			}
		}
		return [][]relay.NodeID{o.Nodes}, nil
	}
	if v, w, ok := p.reenters(o.Nodes, in, mark, consumers); ok {
		return nil, &OptionError{i, fmt.Sprintf(
			"it is not convex: %%%d reads, from outside, what comes of its node %%%d", w, v)}
	}
	var pieces [][]relay.NodeID
	at := map[relay.NodeID]int{}
	for k := len(o.Nodes) - 1; k >= 0; k-- {
		v := o.Nodes[k]
		if parent := p.Tree.Parent[v]; parent != relay.NoNode && in[parent] == mark {
			at[v] = at[parent]
		} else {
			at[v] = len(pieces)
			pieces = append(pieces, nil)
		}
		pieces[at[v]] = append(pieces[at[v]], v)
	}
	for _, nodes := range pieces {
		slices.Reverse(nodes)
	}
	slices.Reverse(pieces)
	return pieces, nil
}

// reenters looks for a way out of a set of nodes and back: from its node v through others to a reader w inside.
func (p *Problem) reenters(nodes []relay.NodeID, in []int32, mark int32, consumers [][]relay.NodeID) (v, w relay.NodeID,
	ok bool) {
	last := nodes[len(nodes)-1]
	from := map[relay.NodeID]relay.NodeID{} // nodes outside that depend on the set, with one that they depend on
	var behind []relay.NodeID
	visit := func(u, source relay.NodeID) {
		for _, c := range consumers[u] {
			if _, seen := from[c]; in[c] != mark && c < last && !seen {
				from[c] = source
				behind = append(behind, c)
			}
		}
	}
	for _, u := range nodes {
		visit(u, u)
	}
	for k := 0; k < len(behind); k++ {
		for _, c := range consumers[behind[k]] {
			if in[c] == mark {
				return from[behind[k]], c, true
			}
		}
		visit(behind[k], from[behind[k]])
	}
	return 0, 0, false
}
