// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"

	"github.com/collage-tvm/collage/relay"
)

// outcome is what the ascent found about a branch.
type outcome int

const (
	// undecided: the bound holds, and what is known is dearer.
	undecided outcome = iota
	// closed: the bound is no better than what is known, or by so little that it is enough.
	closed
	// infeasible: there is no placement.
	infeasible
	// cyclic: the relaxation agrees with itself, but its options need each other's results.
	cyclic
)

// ascend raises the bound by moving the multipliers along the disagreements of the relaxation (a subgradient), with
// steps in Polyak's way: as long as would close what is open between the bound and the best known placement.
// Multipliers are whole picoseconds, so the bound stays exact. It leaves the last relaxation's trace in s.x, and the
// multipliers of the best bound in l.
func (s *branchAndBound) ascend(l *multipliers, passes int) (int64, outcome) {
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
			cycle := s.m.cycle(chosen)
			if cycle == nil {
				s.offer(chosen)
			}
			if len(apart) == 0 {
				best, kept = bound, l.clone()
				switch {
				case cycle != nil:
					return best, cyclic
				case s.enough(best):
					return best, closed
				}
				return best, undecided // what regions cost more than as few as there can be is left to branches
			}
		} else if pass == 0 {
			s.repair(l)
		}
		if s.enough(best) {
			return best, closed
		}
		if s.spent > s.effort || pace < 1e-3 || pass == passes-1 {
			break
		}
		s.step(l, apart, pace, bound, k)
	}
	return best, undecided
}

// enough says that nothing above a bound is worth looking for.
func (s *branchAndBound) enough(bound int64) bool {
	return s.chosen != nil && s.cost-bound <= int64(s.m.problem.Enough*float64(s.cost))
}

// force is one component of the subgradient: a multiplier and which way it must go.
type force struct {
	at    int // index into multipliers.edge; behind those into in, out and share
	count float64
}

// disagreement is the subgradient, without its zeroes, in a fixed order. It is empty where the relaxation agrees with
// itself.
func (s *branchAndBound) disagreement(whole bool) []force {
	m, x, k := s.m, s.x, len(s.m.states)
	touch := func(at int, by int32) {
		if s.count[at] == 0 {
			s.touched = append(s.touched, at)
		}
		s.count[at] += by
	}
	s.touched = s.touched[:0]
	edges := m.edges * k
	for _, t := range x.took {
		if t.read.made {
			actual := m.pieces[x.in[t.read.value]].state
			if t.state != actual {
				for _, e := range t.read.edges {
					touch(int(e)*k+int(actual), 1)
					touch(int(e)*k+int(t.state), -1)
				}
			}
		}
		if t.read.within || t.read.made && !m.pays(t.state, t.to) {
			continue
		}
		for _, e := range t.read.edges {
			if !m.apart[t.to] {
				touch(edges+int(e)*k+int(t.to), 1)
			}
			if t.read.made && m.paysOut(t.read.value, t.state) {
				touch(2*edges+int(e)*k+int(t.state), 1)
			}
		}
	}
	var apart []force
	for _, at := range s.touched {
		c := s.count[at]
		if c == 0 {
			continue // one that was touched, became 0 and was touched again stands here twice
		}
		s.count[at] = 0
		if at < edges {
			apart = append(apart, force{at, float64(c)})
			continue
		}
		// Shares go from the edges that do not pay to those that do; where they have all, or there is but one, they
		// stay.
		shares, i := x.l.shared(m, at-edges)
		idle := int64(0)
		s.paying = append(s.paying[:0], at)
		for _, e := range m.outgoing[s.valueOf[i/k]] {
			switch other := at - i + int(e)*k + i%k; {
			case other == at:
			case s.count[other] != 0:
				s.count[other] = 0
				s.paying = append(s.paying, other)
			default:
				idle += shares[int(e)*k+i%k]
			}
		}
		if idle > 0 {
			for _, other := range s.paying {
				apart = append(apart, force{other, 1})
			}
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
	for _, i := range x.taken { // in the order of the trace; each option at its first piece
		o := m.pieces[i].option
		count, pieces := taken[o], m.of[o]
		if count == 0 || count == len(pieces) {
			continue
		}
		taken[o] = 0
		for _, j := range pieces {
			f := force{at: 3*edges + int(j), count: -float64(count) / float64(len(pieces))}
			if isTaken[j] {
				f.count++
			}
			apart = append(apart, f)
		}
	}
	return apart
}

// step moves the multipliers.
func (s *branchAndBound) step(l *multipliers, apart []force, pace float64, bound int64, k int) {
	// Shares are brought back to their sum afterwards, so how many of them move says nothing about how far a step goes.
	norm, shares := 0.0, s.m.edges*k
	for _, f := range apart {
		if f.at < shares || f.at >= 3*shares {
			norm += float64(f.count * f.count)
		}
	}
	norm = max(norm, 1)
	target := float64(s.cost)
	if s.chosen == nil {
		target = float64(bound) + 0.05*math.Abs(float64(bound)) + 1e6
	}
	length := pace * (target - float64(bound)) / norm
	edges := s.m.edges * k
	over := map[int32]int64{}
	s.touched = s.touched[:0]
	for _, f := range apart {
		by := int64(math.Round(float64(length * f.count)))
		if by == 0 {
			by = int64(math.Copysign(1, f.count))
		}
		switch {
		case f.at < edges:
			l.edge[f.at] += by
		case f.at < 3*edges:
			l.raise(s.m, f.at-edges, by)
			s.touched = append(s.touched, f.at-edges)
		default:
			i := int32(f.at - 3*edges)
			l.share[i] += by
			over[s.m.pieces[i].option] += by
		}
	}
	for o, by := range over { // rounding: the shares of an option must sum to its cost
		l.share[s.m.of[o][0]] -= by
	}
	for _, at := range s.touched {
		l.level(s.m, at, s.valueOf[at%edges/k])
	}
}

// shared gives the shares that an index belongs to: in, and behind it out.
func (l *multipliers) shared(m *model, at int) (shares []int64, i int) {
	if edges := m.edges * len(m.states); at >= edges {
		return l.out, at - edges
	}
	return l.in, at
}

func (l *multipliers) raise(m *model, at int, by int64) {
	shares, i := l.shared(m, at)
	shares[i] += max(0, by)
}

// level makes a value's shares sum to what is paid for it again: what is too much is taken off all, in proportion.
func (l *multipliers) level(m *model, at int, u relay.NodeID) {
	shares, i := l.shared(m, at)
	k := len(m.states)
	s := i % k
	all := m.in[int(u)*k+s]
	if at != i {
		all = m.out[int(u)*k+s]
	}
	sum := 0.0
	for _, e := range m.outgoing[u] {
		sum += float64(shares[int(e)*k+s])
	}
	if sum == 0 || float64(all) == sum {
		return
	}
	left, last := all, -1
	for _, e := range m.outgoing[u] {
		at := int(e)*k + s
		share := min(left, int64(float64(all)/sum*float64(shares[at])))
		if share > 0 || last < 0 {
			last = at
		}
		shares[at] = share
		left -= share
	}
	shares[last] += left
}

// cycle gives those chosen options on a cycle that have several exits; nil where there is no cycle. Options with one
// exit add no way through the graph: whatever enters one reaches its root.
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
