// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"cmp"
	"fmt"
	"slices"
)

// mostComputations is how many of the dearest computations of the best are tried elsewhere and in other ways. Half and
// twice as many find what is as fast within a hundredth (TestHowManyComputationsAreTriedAtHalfAndTwice).
const mostComputations = 16

// refine does otherwise with one computation of the best at a time, the one first that looks best, and places again by
// what that shows, until nothing improves, or there is nothing left to be tried. It finds what no network before could
// show: what a way to compute takes in place that no placement has had, and all of it where networks cannot be
// profiled. To draw changes by chance, and to cross the best, found nothing more on ten networks (RATIONALE.md).
func (s *search) refine() error {
	for {
		if s.ended() {
			return nil
		}
		if s.idle >= s.options.Patience {
			s.result.Why = fmt.Sprintf("the last %d networks were no improvement", s.idle)
			return nil
		}
		best := s.result.Best()
		if len(best) == 0 {
			s.result.Why = "none of the networks runs"
			return nil
		}
		list, err := s.neighbours(&s.result.Trials[best[0]])
		if err != nil {
			return err
		}
		if len(list) == 0 {
			s.result.Why = "every change that could be made to the best was tried"
			return nil
		}
		batch := min(len(list), s.options.Batch)
		if s.options.Trials > 0 {
			batch = min(batch, s.options.Trials-len(s.result.Trials))
		}
		list = s.inRoom(list[:batch])
		if len(list) == 0 {
			s.result.Why = whyLate
			return nil
		}
		if err := s.measure(list); err != nil {
			return err
		}
		s.believe()
	}
}

// neighbours are the placements next to a trial's that were not tried: the operator level's answer to what was learnt,
// then those that do otherwise with one computation, the one first that looks best.
func (s *search) neighbours(of *Trial) ([]pending, error) {
	var list []pending
	if s.main >= 0 && s.options.FeedbackSteps >= 0 {
		p, _, err := s.again()
		if err != nil {
			return nil, err
		}
		if _, done := s.tried[p.Key]; !done {
			list = append(list, pending{"placed again", p})
		}
	}
	others, err := s.alternatives(of)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if len(list) == 0 || list[0].placement.Key != other.placement.Key {
			list = append(list, pending{"with " + other.name, other.placement})
		}
	}
	return list, nil
}

// alternative is a placement that does otherwise with one computation; expected is what it takes by the costs in
// context, in milliseconds.
type alternative struct {
	pending
	expected float64
}

// alternatives are the placements that do otherwise with one computation of a trial's and are not tried, the one first
// that looks best.
func (s *search) alternatives(of *Trial) ([]alternative, error) {
	var list []alternative
	for _, a := range s.space.Alternatives(of.Placement, s.options.computations) {
		p, err := s.space.Decode(a.Genome)
		if err != nil {
			return nil, err
		}
		if _, done := s.tried[p.Key]; done || s.sensitivity.exceeds(p) ||
			slices.ContainsFunc(list, func(b alternative) bool { return b.placement.Key == p.Key }) {
			continue
		}
		list = append(list, alternative{pending{a.Name, p}, s.space.Predict(p)})
	}
	slices.SortStableFunc(list, func(a, b alternative) int { return cmp.Compare(a.expected, b.expected) })
	return list, nil
}

// promising is the alternative to the best that looks best, where it looks better than it; except is the key of a
// placement that is being measured already.
func (s *search) promising(except string) ([]pending, error) {
	if s.best < 0 {
		return nil, nil
	}
	best := &s.result.Trials[s.best]
	list, err := s.alternatives(best)
	if err != nil {
		return nil, err
	}
	least := s.space.Predict(best.Placement) * (1 - improvement)
	for _, other := range list {
		if other.expected < least && other.placement.Key != except {
			return []pending{{"with " + other.name, other.placement}}, nil
		}
	}
	return nil, nil
}
