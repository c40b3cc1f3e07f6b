// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"math"
	"slices"
)

// hopelessSeed is how many times as long as the best so far a seed must be expected to take for not being measured.
const hopelessSeed = 1.5

// sow measures the seeds: the first few as they stand, then, by what is learnt on the way, the most promising first. Those
// that can be done without and look hopeless by then are passed over.
func (s *search) sow(seeds []Seed) error {
	rest := slices.Clone(seeds)
	for first := true; len(rest) > 0; first = false {
		if !first {
			slices.SortStableFunc(rest, func(a, b Seed) int {
				x, y := s.space.Predict(a.Placement), s.space.Predict(b.Placement)
				switch {
				case x < y:
					return -1
				case x > y:
					return 1
				}
				return 0
			})
			rest = slices.DeleteFunc(rest, func(seed Seed) bool {
				_, known := s.tried[seed.Placement.Key]
				pass := seed.Optional && !known && s.hopeless(&seed)
				if pass {
					s.result.PassedOver = append(s.result.PassedOver, seed.Name)
				}
				return pass
			})
		}
		var batch []pending
		for len(rest) > 0 && len(batch) < s.options.Batch {
			batch = s.untried(append(batch, pending{rest[0].Name, rest[0].Placement}))
			rest = rest[1:]
		}
		if err := s.measure(batch); err != nil {
			return err
		}
		s.believe()
	}
	return nil
}

// hopeless says that a seed is expected to take much longer than the best so far.
func (s *search) hopeless(seed *Seed) bool {
	if s.best < 0 {
		return false
	}
	best := &s.result.Trials[s.best]
	before := s.space.Predict(best.Placement)
	expected := s.space.Predict(seed.Placement)
	return before > 0 && !math.IsInf(expected, 1) && expected > hopelessSeed*before
}
