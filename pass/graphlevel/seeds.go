// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

// hopelessSeed is how many times as long as the best so far a seed must be expected to take for not being measured.
// What is expected before a network ran is a sum of parts that were seen elsewhere, and no time: at half of this, what
// looks better than the best would be passed over; at twice, builds go to what looks three times as slow.
const hopelessSeed = 1.5

const (
	// mostFaster is how many times as fast as the fastest network so far a seed is expected to be at most.
	mostFaster = 2
	// farOffMix and farOffAlone are how many times as far off as is allowed a seed must be believed to be for not being
	// measured: a placement of this search's own, and a backend alone, which may round otherwise than those that
	// were seen. What was believed of some twenty of MobileNetV2's placements, and what they were off by, lay within a
	// half of each other.
	farOffMix, farOffAlone = 1.5, 3
)

// sow measures the seeds: the first few as they stand, or, where parts may be narrow, the first one and the most
// promising of the others, then, by what is learnt on the way, the most promising first. Those that can be done without
// and look hopeless by then are passed over, those that are believed to be much further off than is allowed, and all
// that are left when the budget ends, which it says.
func (s *search) sow(seeds []Seed) (ended bool, err error) {
	rest := slices.Clone(seeds)
	if s.sensitivity != nil && len(rest) > 0 {
		s.byPromise(rest[1:]) // which may be all that there is time for
	}
	for first := true; len(rest) > 0 || s.standIn(seeds, rest) != nil; first = false {
		if wide := s.standIn(seeds, rest); wide != nil && !first {
			s.regardless = true
			err := s.measure(pendingOf([]Seed{*wide}))
			if s.regardless = false; err != nil {
				return false, err
			}
			s.believe()
			continue
		}
		if !first {
			s.byPromise(rest)
			rest = slices.DeleteFunc(rest, func(seed Seed) bool {
				// What the store has costs nothing and says something.
				known := s.stored([]pending{{seed.Name, seed.Placement}})
				switch {
				case known:
					return false
				case (seed.Optional || seed.Alone) && s.hopeless(&seed):
					s.result.PassedOver = append(s.result.PassedOver, seed.Name)
				case s.farOff(&seed):
					s.result.FarOff = append(s.result.FarOff, seed.Name)
				default:
					return false
				}
				return true
			})
		}
		rest = s.fresh(rest)
		n := min(len(rest), s.options.Batch)
		if !first {
			if s.ended() {
				n = 0
			} else if n = len(s.inRoom(pendingOf(rest[:n]))); n == 0 && len(rest) > 0 {
				s.result.Why = whyLate
			}
			if n == 0 {
				rest = s.free(rest)
				n = min(len(rest), s.options.Batch)
			}
			if s.options.Trials > 0 {
				n = min(n, s.options.Trials-len(s.result.Trials))
			}
		}
		if n <= 0 {
			break
		}
		batch := pendingOf(rest[:n])
		rest = rest[n:]
		if first {
			s.ahead(rest, batch)
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

// byPromise puts those first that are expected to take the least. What is believed to be so many times further off than
// is allowed counts as so many times as slow: it may well not be kept, and what is nearer to the limit comes first, from
// which it is learnt how far off the others are. Of an engine whose layers nobody has seen it is believed that they take
// nothing: no network counts as much faster than the fastest that ran.
func (s *search) byPromise(seeds []Seed) {
	least := math.Inf(1)
	for i := range s.result.Trials {
		if t := &s.result.Trials[i]; t.Cost.Known() {
			least = min(least, t.Cost.Estimate()/mostFaster)
		}
	}
	if math.IsInf(least, 1) {
		least = 0
	}
	type promise struct{ expected, alone float64 }
	of := map[string]promise{}
	for _, seed := range seeds {
		p := seed.Placement
		alone := s.space.Predict(p)
		of[p.Key] = promise{max(least, alone) * max(1, s.sensitivity.excess(p)), alone}
	}
	slices.SortStableFunc(seeds, func(a, b Seed) int {
		one, other := of[a.Placement.Key], of[b.Placement.Key]
		return cmp.Or(cmp.Compare(one.expected, other.expected), cmp.Compare(one.alone, other.alone))
	})
}

// standIn is what is to be measured next in the place of a seed that may not be kept; nil for nothing.
func (s *search) standIn(seeds, rest []Seed) *Seed {
	kept := func(t Trial) bool { return t.MayBeKept() && t.Placement.Outlined() > 0 }
	if s.options.Trials > 0 && len(s.result.Trials) >= s.options.Trials || slices.ContainsFunc(s.result.Trials, kept) {
		return nil
	}
	for _, seed := range seeds {
		_, tried := s.tried[seed.Placement.Key]
		if seed.Wide == nil || !tried {
			continue
		}
		wide := pendingOf([]Seed{*seed.Wide})
		if len(s.untried(wide)) == 0 || s.options.StoredOnly && !s.stored(wide) {
			continue
		}
		if rest = s.fresh(slices.Clone(rest)); len(rest) > 0 {
			if !s.late(append(wide, pendingOf(rest[:1])...)) || s.betterThan(&rest[0], &seed) {
				return nil // there is time for both, or the next one is worth more
			}
		}
		return seed.Wide
	}
	return nil
}

// betterThan says that a seed is believed to be no further off than is aimed at, and to be faster than another one was
// that may not be kept: so it is faster than what stands in for that, which computes the same in a wider type.
func (s *search) betterThan(seed, tried *Seed) bool {
	n := s.sensitivity
	if n == nil || n.sum(n.covered(seed.Placement.Chosen)) > n.aimed(margin) {
		return false
	}
	took := s.result.Trials[s.tried[tried.Placement.Key]].Cost
	return took.Known() && s.space.Predict(seed.Placement) < took.Estimate()
}

func pendingOf(seeds []Seed) []pending {
	list := make([]pending, len(seeds))
	for i, seed := range seeds {
		list[i] = pending{seed.Name, seed.Placement}
	}
	return list
}

// fresh are the seeds that were not measured yet.
func (s *search) fresh(seeds []Seed) []Seed {
	return slices.DeleteFunc(seeds, func(seed Seed) bool {
		_, done := s.tried[seed.Placement.Key]
		return done
	})
}

// ahead tells the estimator which seeds come after the first batch, as far as they are to be measured: plain TVM, which
// is in the first, takes longest to be built.
func (s *search) ahead(rest []Seed, batch []pending) {
	estimator, can := s.estimator.(Ahead)
	if !can || s.stored(batch) {
		return
	}
	var next []*genome.Placement
	for _, seed := range rest {
		if seed.Optional || s.options.Trials > 0 && len(batch)+len(next) >= s.options.Trials {
			break
		}
		if !s.stored([]pending{{seed.Name, seed.Placement}}) {
			next = append(next, seed.Placement)
		}
	}
	estimator.Ahead(next)
}

// free are the seeds that cost no time, since the store has them; those that it has not are late. None is free where so
// many networks were measured as may be.
func (s *search) free(seeds []Seed) []Seed {
	var free []Seed
	for _, seed := range s.fresh(seeds) {
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
	var expected float64
	if seed.Alone {
		var err error
		if expected, err = s.space.PredictFree(seed.Placement); err != nil {
			return false // not everything can be left to TVM
		}
	} else {
		expected = s.space.Predict(seed.Placement)
	}
	return hopelessWith(expected, before, hopelessSeed)
}

// farOff says that the outputs of a seed are believed to be off by many times what is allowed, by those of its narrow
// operators alone that compute in a type that was seen in a network.
func (s *search) farOff(seed *Seed) bool {
	most := float64(farOffMix)
	if seed.Alone {
		most = farOffAlone
	}
	return s.sensitivity.seenExcess(seed.Placement) > most
}

func hopelessWith(expected, best, times float64) bool {
	return best > 0 && !math.IsInf(expected, 1) && expected > times*best
}
