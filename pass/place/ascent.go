// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"

	"github.com/collage-tvm/collage/relay"
)

// outcome is what the ascent found about a part of the search.
type outcome int

const (
	// undecided: the relaxation does not agree with itself; the bound holds.
	undecided outcome = iota
	// closed: the relaxation is a placement, so its cost is the least; or the bound is no better than what is known.
	closed
	// infeasible: there is no placement.
	infeasible
	// cyclic: the relaxation agrees with itself, but its options need each other's results.
	cyclic
)

// ascend raises the bound by moving the multipliers along the disagreements of the relaxation (a subgradient), with steps
// in Polyak's way: as long as would close what is open between the bound and the best known placement. Multipliers are
// whole picoseconds, so the bound stays exact. It leaves the last relaxation's trace in s.x, and the multipliers of the
// best bound in l.
func (s *search) ascend(l *multipliers, passes int) (int64, outcome) {
	k := len(s.m.states)
	best, kept := int64(math.MinInt64), l.clone()
	defer func() { *l = *kept }()
	pace, stale := 1.0, 0
	for pass := range passes {
		bound, ok := s.bound(l)
		if !ok {
			return 0, infeasible
		}
		if bound > best {
			best, stale = bound, 0
			*kept = *l.clone()
		} else if stale++; stale == 5 {
			pace, stale = pace/2, 0
		}
		chosen, whole := s.x.options()
		apart := s.disagreement(whole)
		if whole {
			cost, rank := s.m.cost(chosen)
			cycle := s.m.cycle(chosen)
			if cycle == nil {
				s.keep(chosen, cost, rank)
			}
			if len(apart) == 0 {
				best, kept = bound, l.clone()
				if cycle != nil {
					return best, cyclic
				}
				return best, closed
			}
		} else if pass == 0 {
			s.repair(l)
		}
		if best >= s.cost {
			return best, closed
		}
		if s.spent > s.effort || pace < 1e-3 || pass == passes-1 {
			break
		}
		s.step(l, apart, pace, bound, k)
	}
	return best, undecided
}

// force is one component of the subgradient: a multiplier and which way it must go.
type force struct {
	at    int // index into multipliers.edge; behind those, into multipliers.share
	count float64
}

// disagreement is the subgradient, without its zeroes, in a fixed order. It is empty where the relaxation agrees with
// itself.
func (s *search) disagreement(whole bool) []force {
	m, x, k := s.m, s.x, len(s.m.states)
	touch := func(at int, by int32) {
		if s.count[at] == 0 {
			s.touched = append(s.touched, at)
		}
		s.count[at] += by
	}
	s.touched = s.touched[:0]
	for _, t := range x.took {
		actual := m.pieces[x.in[t.read.value]].state
		if t.state == actual {
			continue
		}
		for _, e := range t.read.edges {
			touch(int(e)*k+int(actual), 1)
			touch(int(e)*k+int(t.state), -1)
		}
	}
	var apart []force
	for _, at := range s.touched {
		if c := s.count[at]; c != 0 { // one that was touched, became 0 and was touched again stands here twice
			apart = append(apart, force{at, float64(c)})
			s.count[at] = 0
		}
	}
	if whole {
		return apart
	}
	taken := map[int32]int{}
	isTaken := map[int32]bool{}
	for _, i := range x.taken {
		taken[m.pieces[i].option]++
		isTaken[i] = true
	}
	edges := m.edges * k
	for _, i := range x.taken { // in the order of the trace; each option at its first piece
		o := m.pieces[i].option
		count, pieces := taken[o], m.of[o]
		if count == 0 || count == len(pieces) {
			continue
		}
		taken[o] = 0
		for _, j := range pieces {
			f := force{at: edges + int(j), count: -float64(count) / float64(len(pieces))}
			if isTaken[j] {
				f.count++
			}
			apart = append(apart, f)
		}
	}
	return apart
}

// step moves the multipliers.
func (s *search) step(l *multipliers, apart []force, pace float64, bound int64, k int) {
	norm := 0.0
	for _, f := range apart {
		norm += float64(f.count * f.count)
	}
	target := float64(s.cost)
	if s.chosen == nil {
		target = float64(bound) + 0.05*math.Abs(float64(bound)) + 1e6
	}
	length := pace * (target - float64(bound)) / norm
	edges := s.m.edges * k
	over := map[int32]int64{}
	for _, f := range apart {
		by := int64(math.Round(float64(length * f.count)))
		if by == 0 {
			by = int64(math.Copysign(1, f.count))
		}
		if f.at < edges {
			l.edge[f.at] += by
			continue
		}
		i := int32(f.at - edges)
		l.share[i] += by
		over[s.m.pieces[i].option] += by
	}
	for o, by := range over { // rounding: the shares of an option must sum to its cost
		l.share[s.m.of[o][0]] -= by
	}
}

// cost is what whole options that cover each node once cost, and the sum of their ranks.
func (m *model) cost(chosen []int) (cost, rank int64) {
	k := len(m.states)
	var state []int32
	if m.transfers {
		state = make([]int32, len(m.parent))
		for _, o := range chosen {
			for _, i := range m.of[o] {
				for _, v := range m.pieces[i].nodes {
					state[v] = m.pieces[i].state
				}
			}
		}
	}
	for _, o := range chosen {
		cost += picoseconds(m.problem.Options[o].Cost)
		rank += int64(m.problem.Options[o].Rank)
		for _, i := range m.of[o] {
			p := &m.pieces[i]
			for r := range p.reads {
				if q := &p.reads[r]; q.charged {
					cost += m.carry[(int(q.value)*k+int(state[q.value]))*k+int(p.state)]
				}
			}
		}
	}
	return cost, rank
}

// cycle gives those chosen options on a cycle that have several exits; nil where there is no cycle. Options with one exit
// add no way through the graph: whatever enters one reaches its root.
func (m *model) cycle(chosen []int) []int {
	var several []int
	var regions [][]relay.NodeID
	for _, o := range chosen {
		if len(m.of[o]) > 1 {
			several = append(several, o)
			regions = append(regions, m.problem.Options[o].Nodes)
		}
	}
	if len(several) < 2 {
		return nil
	}
	err := QuotientAcyclic(m.problem.Reads, regions)
	if err == nil {
		return nil
	}
	var on []int
	for _, r := range err.(*CycleError).Regions {
		on = append(on, several[r])
	}
	return on
}
