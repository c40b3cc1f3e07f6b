// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

const (
	// parents is how many of the best have children.
	parents = 12
	// tournament is how many of them are drawn for each parent; the best of these is taken.
	tournament = 3
	// brood is how many different children are made by chance for each batch; those that look best by their costs in
	// context are measured, and some others.
	brood = 24
	// attempts is how many children in a row may have been tried before until the space counts as searched.
	attempts = 400
	// crossings is how many of the children have two parents.
	crossings = 0.25
	// classes is how many of the dearest computations of the best are tried elsewhere and in other ways, each as a
	// child.
	classes = 16
	// beyond is how much worse than its parent a child may look that is drawn by chance, while there are others.
	beyond = 1.25
)

// child is a placement that was bred.
type child struct {
	pending
	// expected is its parent's score, changed as the costs in context say.
	expected float64
	// parent is its parent's.
	parent float64
}

// evolve breeds until the budget ends, nothing improves, or nothing new can be bred.
func (s *search) evolve() error {
	for generation := 0; ; generation++ {
		if s.ended() {
			return nil
		}
		if s.idle >= s.options.Patience {
			s.result.Why = fmt.Sprintf("the last %d networks were no improvement", s.idle)
			return nil
		}
		population := s.result.Best()
		if len(population) == 0 {
			s.result.Why = "none of the networks runs"
			return nil
		}
		population = population[:min(len(population), parents)]
		r := s.random(generation)
		children, err := s.breed(population, r)
		if err != nil {
			return err
		}
		if len(children) == 0 {
			s.result.Why = "every change that could be made to the best was tried"
			return nil
		}
		batch := s.options.Batch
		if s.options.Trials > 0 {
			batch = min(batch, s.options.Trials-len(s.result.Trials))
		}
		picked := s.inRoom(s.pick(children, batch, r))
		if len(picked) == 0 {
			s.result.Why = whyLate
			return nil
		}
		if err := s.measure(picked); err != nil {
			return err
		}
		s.believe()
	}
}

// random are the random numbers of a generation. They depend on nothing that came before, so that they are the same in
// a search that finds its trials in the store.
func (s *search) random(generation int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, s.options.Key.Structure, generation)
	return rand.New(rand.NewPCG(s.options.Seed, h.Sum64()))
}

// breed makes children that were not tried yet, all different. The operator level's answer to what was learnt is among
// them where it is new, and what comes of doing otherwise with one computation of the best; the others are drawn by
// chance.
func (s *search) breed(population []int, r *rand.Rand) ([]child, error) {
	var children []child
	seen := map[string]bool{}
	add := func(name string, p *genome.Placement, parent *Trial) bool {
		if _, done := s.tried[p.Key]; done || seen[p.Key] {
			return false
		}
		if seen[p.Key] = true; s.sensitivity.exceeds(p) {
			return false
		}
		expected := parent.Score
		if before := s.space.Predict(parent.Placement); before > 0 {
			expected *= s.space.Predict(p) / before
		}
		children = append(children, child{pending{name, p}, expected, parent.Score})
		return true
	}
	if s.main >= 0 && s.options.FeedbackSteps >= 0 {
		p, _, err := s.again()
		if err != nil {
			return nil, err
		}
		add("placed again", p, &s.result.Trials[population[0]])
	}
	alternatives, err := s.alternatives(&s.result.Trials[population[0]])
	if err != nil {
		return nil, err
	}
	for _, a := range alternatives {
		add(a.name, a.placement, &s.result.Trials[population[0]])
	}
	limit := len(children) + brood
	for failed := 0; len(children) < limit && failed < attempts; {
		parent := &s.result.Trials[s.draw(population, r)]
		name, g := s.vary(parent, population, r)
		if g == nil {
			failed++
			continue
		}
		p, err := s.space.Decode(g)
		if err != nil {
			return nil, err
		}
		if !add(name, p, parent) {
			failed++
			continue
		}
		failed = 0
	}
	return children, nil
}

// alternatives are the placements that do otherwise with one computation of a trial's and are not tried.
func (s *search) alternatives(of *Trial) ([]pending, error) {
	var list []pending
	for _, a := range s.space.Alternatives(of.Placement, classes) {
		p, err := s.space.Decode(a.Genome)
		if err != nil {
			return nil, err
		}
		if _, done := s.tried[p.Key]; !done && !s.sensitivity.exceeds(p) {
			list = append(list, pending{a.Name, p})
		}
	}
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
	var found []pending
	for _, p := range list {
		if expected := s.space.Predict(p.placement); expected < least && p.placement.Key != except {
			least, found = expected, []pending{{"with " + p.name, p.placement}}
		}
	}
	return found, nil
}

// draw picks a parent: the best of a few that are drawn at random.
func (s *search) draw(population []int, r *rand.Rand) int {
	at := len(population)
	for range tournament {
		at = min(at, r.IntN(len(population)))
	}
	return population[at]
}

// vary makes a child of a parent: by a crossing with another one, by a move, or by several.
func (s *search) vary(parent *Trial, population []int, r *rand.Rand) (string, genome.Genome) {
	if len(population) > 1 && r.Float64() < crossings {
		other := &s.result.Trials[population[r.IntN(len(population))]]
		if other.Placement.Key == parent.Placement.Key {
			return "", nil
		}
		return "crossing", s.space.Cross(parent.Placement, other.Placement, r)
	}
	move := genome.Moves[r.IntN(len(genome.Moves))]
	g := s.space.Mutate(parent.Placement, move, r)
	name := string(move)
	for g != nil && r.IntN(3) == 0 {
		p, err := s.space.Decode(g)
		if err != nil {
			return "", nil
		}
		further := genome.Moves[r.IntN(len(genome.Moves))]
		next := s.space.Mutate(p, further, r)
		if next == nil {
			break
		}
		g, name = next, name+", "+string(further)
	}
	return name, g
}

// fair are the children, those first that look best, but for those at the end that look more than beyond times as slow
// as what they were made of; n of them at least.
func fair(order []child, n int, beyond float64) []child {
	last := len(order)
	for last > n && order[last-1].expected > beyond*order[last-1].parent {
		last--
	}
	return order[:last]
}

// pick takes those that are measured: in turn the one that looks best and another one, of those that are not much worse
// than what they were made of.
func (s *search) pick(children []child, n int, r *rand.Rand) []pending {
	order := slices.Clone(children)
	slices.SortStableFunc(order, func(a, b child) int {
		switch {
		case a.expected < b.expected || math.IsNaN(b.expected):
			return -1
		case a.expected > b.expected:
			return 1
		}
		return 0
	})
	order = fair(order, n, beyond)
	var picked []pending
	for i := 0; i < n && len(order) > 0; i++ {
		at := 0
		if i%2 == 1 {
			at = r.IntN(len(order))
			if r.IntN(2) == 0 {
				at = min(at, r.IntN(len(order)), r.IntN(len(order)))
			}
		}
		c := order[at].pending
		c.name = fmt.Sprintf("evolved %d (%s)", len(s.result.Trials)+len(picked), c.name)
		picked = append(picked, c)
		order = slices.Delete(order, at, at+1)
	}
	return picked
}
