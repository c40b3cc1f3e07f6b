// SPDX-License-Identifier: Apache-2.0

package place

import (
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

const (
	rootPasses   = 300 // passes of the recursion before anything is tried out
	branchPasses = 25
	regionEffort = 20 // what forming regions takes for a node, in the units of Problem.Effort
)

// branchAndBound goes over the relaxation: where it disagrees with itself, one of the two sides is ruled out
// and then the other.
type branchAndBound struct {
	m      *model
	x      *relaxation
	effort int64
	spent  int64

	// The best placement so far.
	chosen     []int
	cost, rank int64

	with    [][]int32      // options that cover each node
	valueOf []relay.NodeID // of each edge
	count   []int32        // scratch of disagreement
	touched []int
	paying  []int
}

// branch is a part of it that is still open.
type branch struct {
	decided *decision
	bound   int64
	order   int
	l       *multipliers // shared by siblings
}

// decision is a link in the chain of decisions that make a branch.
type decision struct {
	before *decision
	// option, where at least 0, is taken, or else not taken.
	option int
	// Otherwise node must be covered in this state, or else in any other.
	node  relay.NodeID
	state State
	yes   bool
}

// branchAndBound solves the model. start, where not nil, is a placement of options with one exit and what proves it the
// cheapest of those.
func (m *model) branchAndBound(effort int64, start *Solution) (*Solution, error) {
	if effort <= 0 {
		effort = DefaultEffort
	}
	s := &branchAndBound{m: m, x: m.relaxation(), effort: effort, cost: math.MaxInt64}
	s.count = make([]int32, 3*m.edges*len(m.states))
	s.valueOf = make([]relay.NodeID, m.edges)
	for u, edges := range m.outgoing {
		for _, e := range edges {
			s.valueOf[e] = relay.NodeID(u)
		}
	}
	s.with = make([][]int32, len(m.parent))
	for o := range m.of {
		if len(m.of[o]) > 0 {
			for _, v := range m.problem.Options[o].Nodes {
				s.with[v] = append(s.with[v], int32(o))
			}
		}
	}
	l := m.multipliers()
	if start != nil {
		m.apportion(l, start.Prices)
		s.offer(start.Chosen)
	}
	if _, ok := s.bound(l); !ok {
		return nil, m.uncovered()
	}
	s.seed(l)
	bound, what := s.ascend(l, rootPasses)
	prices, err := s.prices(l)
	if err != nil {
		return nil, err
	}
	p := &Solution{Prices: prices}
	if what == undecided {
		s.improve()
	}
	if what == undecided || what == cyclic {
		bound = s.branches(l, bound, what)
	}
	if s.chosen == nil {
		if bound == math.MaxInt64 {
			return nil, fmt.Errorf("placement: every choice of options that covers all nodes has some that need each " +
				"other's results")
		}
		return nil, fmt.Errorf("placement: no placement was found within an effort of %d", effort)
	}
	p.Chosen = s.chosen
	slices.SortFunc(p.Chosen, func(a, b int) int {
		return int(
			root(&m.problem.Options[a]) - root(&m.problem.Options[b]))
	})
	if s.cost == 0 {
		clear(p.Prices) // no option costs less than nothing; the root's prices may be off by what was rounded
	}
	bound = min(bound, s.cost)
	p.Cost, p.LowerBound, p.Gap = milliseconds(s.cost), milliseconds(bound), milliseconds(s.cost-bound)
	return p, nil
}

// bound counts the work.
func (s *branchAndBound) bound(l *multipliers) (int64, bool) {
	s.spent += s.m.size
	return s.x.bound(l)
}

// offer takes whole options that cover each node once and do not need each other's results, if they are better than
// what is known; it says whether they are. Regions are formed only where they could be.
func (s *branchAndBound) offer(chosen []int) bool {
	s.spent += int64(len(s.m.parent))
	cost, rank := s.m.cost(chosen, true)
	if cost > s.cost || cost == s.cost && rank >= s.rank {
		return false
	}
	if s.m.transfers {
		s.spent += regionEffort * int64(len(s.m.parent))
		cost, rank = s.m.cost(chosen, false)
	}
	if cost > s.cost || cost == s.cost && rank >= s.rank {
		return false
	}
	s.chosen, s.cost, s.rank = slices.Clone(chosen), cost, rank
	return true
}

// prices are those of the relaxation with these multipliers, with nothing disabled. Without transfers no option costs
// less than the prices of its nodes.
func (s *branchAndBound) prices(l *multipliers) ([]float64, error) {
	s.bound(l)
	dear := int64(0)
	if !s.m.transfers {
		pieces := make([]Option, len(s.m.pieces))
		for i := range pieces {
			pieces[i] = Option{Nodes: s.m.pieces[i].nodes, Cost: milliseconds(l.share[i])}
		}
		var err error
		if dear, err = openPrice(pieces, s.x.price); err != nil {
			return nil, err
		}
	}
	prices := make([]float64, len(s.x.price))
	for v := range prices {
		if s.m.problem.Tree.Needs[v] {
			prices[v] = milliseconds(s.x.price[v].open*dear + s.x.price[v].cost)
		}
	}
	return prices, nil
}

// uncovered says what the pieces leave open when each is free to be taken.
func (m *model) uncovered() error {
	options := make([]Option, len(m.pieces))
	for i := range m.pieces {
		options[i] = Option{Nodes: m.pieces[i].nodes}
	}
	if _, err := Solve(options, m.problem.Tree); err != nil {
		return err
	}
	return fmt.Errorf("placement: every choice of options that covers all nodes has some of which only a part is taken")
}

// restrict disables the options with several pieces except those given, and what overlaps with these.
func (s *branchAndBound) restrict(several []int) {
	for o := range s.m.of {
		s.x.disabled[o] = s.x.disabled[o] || len(s.m.of[o]) > 1
	}
	for _, o := range several {
		s.x.disabled[o] = false
		s.take(o)
	}
}

// take disables whatever overlaps with an option, so that it is taken.
func (s *branchAndBound) take(o int) {
	for _, v := range s.m.problem.Options[o].Nodes {
		for _, other := range s.with[v] {
			if int(other) != o {
				s.x.disabled[other] = true
			}
		}
	}
}

// several are those of the options that have several pieces, as far as they do not need each other's results.
func (s *branchAndBound) several(chosen []int) []int {
	var several []int
	for _, o := range chosen {
		if len(s.m.of[o]) > 1 {
			if several = append(several, o); s.m.cycle(several) != nil {
				several = several[:len(several)-1]
			}
		}
	}
	return several
}

// repair makes a placement of a relaxation that takes options in part, or some that need each other's results: it keeps
// what is whole and covers the rest with options of one exit. The trace that was there is there again afterwards.
func (s *branchAndBound) repair(l *multipliers) {
	chosen, _ := s.x.options()
	s.aside(func() {
		s.restrict(s.several(chosen))
		if _, ok := s.bound(l); ok {
			chosen, _ := s.x.options()
			s.offer(chosen)
		}
	})
}

// aside runs f on a relaxation of its own.
func (s *branchAndBound) aside(f func()) {
	kept := s.x
	s.x = s.m.relaxation()
	copy(s.x.disabled, kept.disabled)
	f()
	s.x = kept
}

// seed looks for placements that stay in one state as far as they can.
func (s *branchAndBound) seed(l *multipliers) {
	if !s.m.transfers {
		return
	}
	n := len(s.m.parent)
	for _, state := range s.m.states {
		has := make([]bool, n)
		for o := range s.m.of {
			if len(s.m.of[o]) > 0 && s.m.problem.Options[o].State == state {
				for _, v := range s.m.problem.Options[o].Nodes {
					has[v] = true
				}
			}
		}
		s.aside(func() {
			s.restrict(nil)
			for o := range s.m.of {
				for _, v := range s.m.problem.Options[o].Nodes {
					if has[v] && s.m.problem.Options[o].State != state {
						s.x.disabled[o] = true
					}
				}
			}
			if _, ok := s.bound(l); ok {
				chosen, _ := s.x.options()
				s.offer(chosen)
			}
		})
	}
}

// improve places again and again with each value taken to be in the state in which the best placement has it, as long
// as that makes it cheaper.
func (s *branchAndBound) improve() {
	if !s.m.transfers || s.chosen == nil {
		return
	}
	l := s.m.multipliers()
	s.aside(func() {
		base := slices.Clone(s.x.disabled)
		s.x.assume = make([]int32, len(s.m.parent))
		for range 10 {
			copy(s.x.disabled, base)
			s.restrict(s.several(s.chosen))
			for _, o := range s.chosen {
				for _, i := range s.m.of[o] {
					for _, v := range s.m.pieces[i].nodes {
						s.x.assume[v] = s.m.pieces[i].state
					}
				}
			}
			if _, ok := s.bound(l); !ok {
				return
			}
			chosen, _ := s.x.options()
			if !s.offer(chosen) {
				return
			}
		}
	})
}

// branches tries out, most promising part first, until nothing is left that could be better, or the effort is spent. It
// returns the least cost that a placement can have.
func (s *branchAndBound) branches(l *multipliers, bound int64, what outcome) int64 {
	open := &branchHeap{}
	order := 0
	split := func(b *branch, what outcome) {
		for _, d := range s.divide(b, what) {
			order++
			heap.Push(open, &branch{decided: d, bound: b.bound, order: order, l: b.l})
		}
	}
	split(&branch{bound: bound, l: l}, what)
	least := int64(math.MaxInt64) // of the branches that were left since their bounds were enough
	for open.Len() > 0 {
		if next := (*open)[0].bound; s.enough(next) || s.spent > s.effort {
			return min(least, next, s.cost)
		}
		b := heap.Pop(open).(*branch)
		s.decide(b.decided)
		b.l = b.l.clone()
		known := s.cost
		bound, what := s.ascend(b.l, branchPasses)
		b.bound = max(b.bound, bound)
		switch {
		case what == closed:
			least = min(least, b.bound)
		case (what == undecided || what == cyclic) && b.bound < s.cost:
			split(b, what)
		}
		if s.cost < known {
			s.improve()
		}
	}
	return min(least, s.cost)
}

// decide disables what a chain of decisions rules out.
func (s *branchAndBound) decide(d *decision) {
	clear(s.x.disabled)
	for ; d != nil; d = d.before {
		switch {
		case d.option >= 0 && d.yes:
			s.take(d.option)
		case d.option >= 0:
			s.x.disabled[d.option] = true
		default:
			for _, o := range s.with[d.node] {
				if (s.m.problem.Options[o].State == d.state) != d.yes {
					s.x.disabled[o] = true
				}
			}
		}
	}
}

// divide gives two decisions, one of which holds for every placement of the branch that is better than the best known.
// The trace is that of the branch's last relaxation.
func (s *branchAndBound) divide(b *branch, what outcome) []*decision {
	both := func(d decision) []*decision {
		d.before = b.decided
		no := d
		d.yes = true
		return []*decision{&d, &no}
	}
	chosen, whole := s.x.options()
	if !whole {
		in := map[int]bool{}
		for _, o := range chosen {
			in[o] = true
		}
		for _, i := range s.x.taken {
			if o := int(s.m.pieces[i].option); !in[o] {
				return both(decision{option: o})
			}
		}
	}
	if what == cyclic {
		for _, o := range s.m.cycle(chosen) {
			taken := false
			for d := b.decided; d != nil; d = d.before {
				taken = taken || d.option == o && d.yes
			}
			if !taken {
				return both(decision{option: o})
			}
		}
		return nil // all on the cycle were decided to be taken
	}
	k := len(s.m.states)
	worst, at := int64(-1), relay.NoNode
	for _, t := range s.x.took {
		u := t.read.value
		if !t.read.made {
			continue
		}
		if actual := s.m.pieces[s.x.in[u]].state; actual != t.state {
			if c := s.m.out[int(u)*k+int(actual)] + s.m.in[int(u)*k+int(t.to)]; c > worst {
				worst, at = c, u
			}
		}
	}
	if at != relay.NoNode {
		return both(decision{option: -1, node: at, state: s.m.states[s.m.pieces[s.x.in[at]].state]})
	}
	// All agrees but what regions cost: take an option, or do without it, those first that pay more than they would in
	// a region with all others of their state.
	taken := map[int]bool{}
	for d := b.decided; d != nil; d = d.before {
		if d.option >= 0 && d.yes {
			taken[d.option] = true
		}
	}
	for _, o := range append(s.dear(chosen), chosen...) {
		if !taken[o] && len(s.m.of[o]) > 0 {
			return both(decision{option: o})
		}
	}
	return nil // it holds this one placement, which was looked at
}

// dear are those of the chosen options at whose regions something is paid for that as few regions as there can be would
// not pay for.
func (s *branchAndBound) dear(chosen []int) []int {
	if !s.m.transfers || s.m.cycle(chosen) != nil {
		return nil
	}
	b := s.m.problem.Borders
	type paid struct {
		value relay.NodeID
		side  border.Side
		out   bool
	}
	few, regions := s.m.least(chosen), b.Regions(chosen)
	left := map[paid]int{}
	b.Flow.Each(few, func(p border.Payment) { left[paid{p.Value, few.Sides[p.Region], p.Out}]++ })
	more := map[int32]bool{}
	b.Flow.Each(regions, func(p border.Payment) {
		what := paid{p.Value, regions.Sides[p.Region], p.Out}
		if left[what]--; left[what] < 0 {
			more[p.Region] = true
		}
	})
	return slices.DeleteFunc(slices.Clone(chosen),
		func(o int) bool { return !more[regions.Of[root(&s.m.problem.Options[o])]] })
}

// branchHeap has the branch of the least bound first.
type branchHeap []*branch

func (h branchHeap) Len() int { return len(h) }
func (h branchHeap) Less(i, j int) bool {
	return h[i].bound < h[j].bound || h[i].bound == h[j].bound && h[i].order < h[j].order
}
func (h branchHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *branchHeap) Push(b any)   { *h = append(*h, b.(*branch)) }
func (h *branchHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	*h = old[:len(old)-1]
	return b
}
