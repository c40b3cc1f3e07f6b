// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// hopelessSeed is how many times as long as the best so far a seed must be expected to take for not being measured.
const hopelessSeed = 1.5

// sow measures the seeds: the first few as they stand, then, by what is learnt on the way, the most promising first. Those
// that can be done without and look hopeless by then are passed over, and all that are left when the budget ends, which it
// says.
func (s *search) sow(seeds []Seed) (ended bool, err error) {
	rest := slices.Clone(seeds)
	for first := true; len(rest) > 0; first = false {
		if !first {
			slices.SortStableFunc(rest, func(a, b Seed) int {
				return cmp.Compare(s.space.Predict(a.Placement), s.space.Predict(b.Placement))
			})
			rest = slices.DeleteFunc(rest, func(seed Seed) bool {
				_, known := s.tried[seed.Placement.Key]
				pass := seed.Optional && !known && s.hopeless(&seed)
				if pass {
					s.result.PassedOver = append(s.result.PassedOver, seed.Name)
				}
				return pass
			})
			if s.over() {
				if rest = s.free(rest); len(rest) == 0 {
					break
				}
			}
		}
		var batch []pending
		most := s.options.Batch
		if !first {
			most = s.room()
		}
		for len(rest) > 0 && len(batch) < most {
			batch = s.untried(append(batch, pending{rest[0].Name, rest[0].Placement}))
			rest = rest[1:]
		}
		if s.options.Trials > 0 && !first {
			batch = batch[:min(len(batch), s.options.Trials-len(s.result.Trials))]
		}
		if err := s.measure(batch); errors.Is(err, errLate) {
			for _, p := range s.untried(batch) {
				s.result.Late = append(s.result.Late, p.name)
			}
			rest = s.free(rest)
		} else if err != nil {
			return false, err
		}
		s.believe()
	}
	return s.ended() || len(s.result.Late) > 0, nil
}

// free are the seeds that cost no time, since the store has them; those that it has not are late. None is free where so many
// networks were measured as may be.
func (s *search) free(seeds []Seed) []Seed {
	var free []Seed
	for _, seed := range seeds {
		if _, tried := s.tried[seed.Placement.Key]; tried {
			continue
		}
		_, stored := s.options.Store.Lookup(s.key(seed.Placement))
		if stored && (s.options.Trials <= 0 || len(s.result.Trials) < s.options.Trials) {
			free = append(free, seed)
		} else if !slices.Contains(s.result.Late, seed.Name) {
			s.result.Late = append(s.result.Late, seed.Name)
		}
	}
	return free
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
