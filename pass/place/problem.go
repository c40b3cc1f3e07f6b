// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Problem is a placement with what Solve leaves out: costs between neighbours, and options with several exits.
//
// The cost of a placement is the sum of its options' costs and, for each option and each value that it reads of another
// one, Transfer of that value between the two options' states; a value that several nodes of one option read is
// carried over once. What the graph's inputs and outputs cost belongs into the costs of the options that touch them.
//
// An option may have several exits: a convex set of nodes, not a subtree of the post-dominator tree. Options that are
// convex one by one may still need each other's results; a placement where they do is no placement (QuotientAcyclic).
type Problem struct {
	Tree *Tree
	// Options may be no connected subtrees; their nodes are ascending all the same.
	Options []Option
	// Reads[v] are the values that node v reads, those that need cover, ascending (ReadsOf).
	Reads [][]relay.NodeID
	// Transfer is what it costs, in milliseconds, to bring the value of u from an option of one state to an option of
	// another: at least 0, and 0 between equal states. nil: nothing.
	Transfer func(u relay.NodeID, from, to State) float64
	// Effort bounds the work of Solve, in looked-at nodes of options (some 10 ns each); 0 is DefaultEffort. It is no
	// time limit, so that the answer is the same on every machine.
	Effort int64
}

// DefaultEffort is some two seconds on one core.
const DefaultEffort = 200_000_000

// Solve places. Where all costs add up over connected subtrees the answer is TreeSolver's. Otherwise it searches, with
// lower bounds from TreeSolver's recursion over (node, state): the answer is a valid placement whose Gap is 0 where it
// is proven to be the cheapest. It is proven without search where each value is only read by the option that holds its
// post-dominator (chains and trees); within the Effort it nearly always is elsewhere. Deterministic; but ranks do not
// decide among placements of equal cost as they do in TreeSolver's.
//
// Errors: as Solver's; *OptionError for an option that is not convex; a plain error where Transfer breaks its rules, or
// where no placement was found within the effort.
func (p *Problem) Solve() (*Placement, error) {
	m, err := p.compile()
	if err != nil {
		return nil, err
	}
	if m.split == 0 && !m.transfers {
		return Solve(p.Options, p.Tree)
	}
	return m.search(p.Effort, nil)
}

// Verify checks a placement from the problem alone: that it covers each node once, that no options need each other's
// results, that its cost is what it says, transfers included, and that its bound is not above it. It does not prove the
// bound.
func (p *Problem) Verify(q *Placement) error {
	cost, err := p.Cost(q.Chosen)
	if err != nil {
		return err
	}
	switch {
	case picoseconds(q.Cost) != cost:
		return fmt.Errorf("placement: the chosen options cost %v ms, not %v ms", milliseconds(cost), q.Cost)
	case q.LowerBound > q.Cost || picoseconds(q.Cost-q.LowerBound) != picoseconds(q.Gap):
		return fmt.Errorf("placement: the cost %v ms less the lower bound %v ms is not the gap %v ms", q.Cost, q.LowerBound, q.Gap)
	}
	return nil
}

// Cost is what a choice of options costs, in whole picoseconds, transfers included. Errors: a node that is not covered
// or covered twice; *CycleError where options need each other's results.
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
	if p.Transfer == nil {
		return total, nil
	}
	carried := map[[2]int]bool{}
	for w, values := range p.Reads {
		for _, u := range values {
			pair := [2]int{int(u), by[w]}
			if by[u] == by[w] || by[u] < 0 || by[w] < 0 || carried[pair] {
				continue
			}
			carried[pair] = true
			total += picoseconds(p.Transfer(u, p.Options[by[u]].State, p.Options[by[w]].State))
		}
	}
	return total, nil
}

// model is a Problem made ready for the recursion. An option with several exits falls into pieces, the connected subtrees
// that it consists of; an option with one exit is a piece by itself. The recursion takes pieces; that those of an option
// are taken together is left to prices (multipliers) and to the search.
type model struct {
	problem   *Problem
	parent    []relay.NodeID
	pieces    []piece
	byRoot    []int32 // pieces topped at v: byRoot[start[v]:start[v+1]]
	start     []int32
	of        [][]int32 // pieces of each option; nil for one that must not be taken
	split     int       // number of options with several pieces
	transfers bool
	states    []State // the distinct ones, ascending; pieces and multipliers name them by index
	// An edge is a value with one of its readers. Edges of value u are outgoing[u]; each has a multiplier for each state.
	edges    int
	outgoing [][]int32
	carry    []int64 // carry[(u*K+from)*K+to] in picoseconds, K = len(states)
	size     int64   // work of one pass of the recursion
}

// piece is a connected subtree of the post-dominator tree that belongs to an option.
type piece struct {
	option int32
	state  int32
	nodes  []relay.NodeID
	reads  []read
}

// read is a value from outside of a piece.
type read struct {
	value relay.NodeID
	edges []int32
	// below: the piece holds the value's post-dominator, so the recursion knows the value's state. within: the value comes
	// from another piece of the same option. charged: this piece pays for bringing the value into its option.
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
	if err := m.carries(consumers); err != nil {
		return nil, err
	}
	if !m.transfers && len(m.states) > 0 {
		m.states = m.states[:1] // they make no difference
	}
	edgeOf := make([][]int32, n) // edge of each of a node's reads
	if m.transfers {
		for w, values := range p.Reads {
			for _, u := range values {
				edgeOf[w] = append(edgeOf[w], int32(m.edges))
				m.outgoing[u] = append(m.outgoing[u], int32(m.edges))
				m.edges++
			}
		}
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
			m.addReads(i, in, edgeOf)
		}
	}
	if sum*perMillisecond >= greatestSum/4 {
		return nil, fmt.Errorf("placement: the costs add up to more than %.0f hours", greatestSum/4/perMillisecond/3600e3)
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
				return nil, fmt.Errorf("placement: the reads %v of node %%%d are not ascending nodes before it that need cover",
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
				return nil, &OptionError{i, fmt.Sprintf("node %%%d has all its uses inside, but its immediate post-dominator "+
					"%%%d is outside: the tree is not that of the reads", v, parent)}
			}
		}
		return [][]relay.NodeID{o.Nodes}, nil
	}
	if v, w, ok := p.reenters(o.Nodes, in, mark, consumers); ok {
		return nil, &OptionError{i, fmt.Sprintf("it is not convex: %%%d reads, from outside, what comes of its node %%%d", w, v)}
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
func (p *Problem) reenters(nodes []relay.NodeID, in []int32, mark int32, consumers [][]relay.NodeID) (v, w relay.NodeID, ok bool) {
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
