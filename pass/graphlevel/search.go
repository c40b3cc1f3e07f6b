// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// search is one Search at work.
type search struct {
	ctx       context.Context
	space     *genome.Space
	estimator Estimator
	options   Options
	result    *Result
	// tried has the index of each placement that was measured, by key.
	tried map[string]int
	best  int // of the trials; -1 for none
	spent time.Duration
	// longest is what the slowest batch of networks took, of those that were built and measured in this run.
	longest time.Duration
	// regardless has networks measured however short the time is.
	regardless bool
	// idle counts the trials since the last improvement.
	idle int
	// main is the function that runs, and is profiled: normalise.Normalise puts the others in the place of their calls.
	// -1 for none.
	main int
	// borders are learnt with the tables. reference is what plain TVM's kernels take, by the first profile that there
	// was: all profiles are brought to it, since machines are not as fast at all times; 0 before that.
	borders *feedback.Borders
	noted   map[string]bool // what notes has said
	// sensitivity is what is believed of the outputs' errors; nil where they are not limited, or all is float32.
	sensitivity *sensitivity
	reference   float64
}

func newSearch(ctx context.Context, space *genome.Space, estimator Estimator, options Options) *search {
	if options.FeedbackSteps == 0 {
		options.FeedbackSteps = DefaultFeedback
	}
	if options.computations <= 0 {
		options.computations = mostComputations
	}
	if options.Batch <= 0 {
		options.Batch = 2
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Store == nil {
		options.Store = cost.NewMemoryStore()
	}
	if options.Key.Structure == "" {
		options.Key.Structure = "network"
	}
	if options.Key.Backend == "" {
		options.Key.Backend = "all"
	}
	options.Key.Kind = cost.NetworkKind
	s := &search{ctx: ctx, space: space, estimator: estimator, options: options, result: &Result{},
		tried: map[string]int{},
		noted: map[string]bool{}, best: -1,
		main: -1}
	traits := TraitsOf(space.Backends)
	s.borders = feedback.NewBorders(traits)
	for i, f := range space.Functions {
		if f.Set.Graph.Name == "main" {
			s.main = i
		}
		bounded := make([]bool, len(f.Costs))
		if options.Bounded != nil {
			bounded = options.Bounded[i]
		}
		s.result.Tables = append(s.result.Tables,
			feedback.NewTable(f.Set, append([]float64(nil), f.Costs...), bounded, traits))
	}
	s.sensitivity = newSensitivity(space, options.Limit, options.Adds)
	if s.options.Patience <= 0 {
		s.options.Patience = DefaultPatience
		operators := 0
		for _, f := range space.Functions {
			for v := range f.Tree.Needs {
				if n := &f.Set.Graph.Nodes[v]; f.Tree.Needs[v] && n.Kind == relay.KindCall {
					operators++
				}
			}
		}
		s.options.Patience = min(s.options.Patience, max(2, operators/4))
	}
	return s
}

// pending is a placement that is to be measured.
type pending struct {
	name      string
	placement *genome.Placement
}

func (s *search) run(seeds []Seed) error {
	s.believe()
	ended, err := s.sow(seeds)
	if err != nil {
		return err
	}
	// The seeds' own figures come first.
	if s.main >= 0 && s.options.FeedbackSteps >= 0 {
		for i := range s.result.Trials {
			s.step(i, false, 0)
		}
	}
	// To place once more takes no time that counts, whatever ended the seeds.
	if s.options.SeedsOnly || ended && !s.options.FeedbackOnly && !s.options.PlaceOnly {
		return nil
	}
	if err := s.feedback(); err != nil || s.options.FeedbackOnly || s.options.PlaceOnly {
		return inTime(err)
	}
	s.idle = 0
	return inTime(s.refine())
}

// inTime leaves out that a network was given up: the search ends with what it has.
func inTime(err error) error {
	if errors.Is(err, errLate) {
		return nil
	}
	return err
}

// measure has placements measured that were not yet, and takes in what was found, in their order.
func (s *search) measure(list []pending) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	list = s.untried(list)
	if s.options.StoredOnly {
		list = slices.DeleteFunc(list, func(p pending) bool { return !s.stored([]pending{p}) })
	}
	var missing []*genome.Placement
	var at []int
	found := make([]cost.Cost, len(list))
	known := make([]bool, len(list))
	for i, p := range list {
		if c, ok := s.options.Store.Lookup(s.key(p.placement)); ok &&
			!(c.Failed() && s.options.RetryFailures && c.Origin == cost.Stored) {
			found[i], known[i] = c, true
			continue
		}
		missing, at = append(missing, p.placement), append(at, i)
	}
	next := 0
	// settle takes in what is known, in the list's order: the first may be kept while the second is measured.
	settle := func() {
		for ; next < len(list) && known[next]; next++ {
			s.take(list[next], found[next])
		}
	}
	settle()
	if len(missing) > 0 {
		var best *cost.Cost
		if s.best >= 0 {
			fastest := s.result.Trials[s.best].Cost
			best = &fastest
		}
		began := s.options.Now()
		ctx, done := s.within()
		defer done()
		err := s.estimator.Measure(ctx, missing, best, func(k int, c cost.Cost) error {
			var err error
			if key := s.key(missing[k]); !c.Failed() || !c.Failure.Unkept {
				err = s.options.Store.Put(key, c)
				if kept, ok := s.options.Store.Lookup(key); ok {
					c = kept // with the digits that the next run will read
				}
			}
			found[at[k]], known[at[k]] = c, true
			settle()
			return err
		})
		s.longest = max(s.longest, s.options.Now().Sub(began))
		if err != nil {
			// What was finished before counts: it stands in the store, and may be the best that there is.
			for ; next < len(list); next++ {
				if known[next] {
					s.take(list[next], found[next])
				}
			}
			if ctx.Err() != nil && s.ctx.Err() == nil {
				s.result.Why = whyLate
				return errLate
			}
			return err
		}
	}
	if next < len(list) {
		return fmt.Errorf("graph-level search: %s was not measured, which is a defect of the estimator",
			list[next].name)
	}
	return nil
}

// errLate says that a network took longer than there was time, and was given up.
var errLate = errors.New("a network took longer than there was time")

// whyLate is why a search ends then, or before a network is begun.
const whyLate = "there was no time for another network"

// within is under which networks are measured: what takes longer than there is time is given up, but for the first few,
// and what stands in for them.
func (s *search) within() (context.Context, context.CancelFunc) {
	if s.options.Left == nil || len(s.result.Trials) == 0 || s.regardless {
		return context.WithCancel(s.ctx)
	}
	return context.WithTimeout(s.ctx, s.options.Left())
}

// untried leaves out what was measured, and what stands in the list a second time.
func (s *search) untried(list []pending) []pending {
	var left []pending
	for _, p := range list {
		_, done := s.tried[p.placement.Key]
		if !done && !slices.ContainsFunc(left, func(q pending) bool { return q.placement.Key == p.placement.Key }) {
			left = append(left, p)
		}
	}
	return left
}

func (s *search) key(p *genome.Placement) cost.Key {
	key := s.options.Key
	key.Composite = p.Key
	if key.Composite == "" {
		key.Composite = "none"
	}
	if s.options.Rests != nil {
		key.Options += s.options.Rests(p)
	}
	return key
}

// improvement is what a network must gain to count as better, and to keep the search going: less is noise, and of more
// several could be had in steps that each count for nothing.
const improvement = 0.005

func improves(score, best, by float64) bool { return score < best*(1-by) }

// take takes in what was found about a placement.
func (s *search) take(p pending, c cost.Cost) {
	if limit := s.options.MemoryLimit; limit > 0 && c.Known() && c.Network != nil && c.Network.Resident > limit {
		c.Failure = &cost.Failure{Phase: "run", Kind: cost.KindOutOfMemory,
			Detail: fmt.Sprintf("it takes %s, the limit is %s", sizeText(c.Network.Resident), sizeText(limit))}
	}
	s.tried[p.placement.Key] = len(s.result.Trials)
	s.result.Trials = append(s.result.Trials, Trial{Name: p.name, Placement: p.placement, Cost: c, Score: Score(c),
		Predicted: s.space.Predict(p.placement)})
	t := &s.result.Trials[len(s.result.Trials)-1]
	if c.Network != nil {
		t.Exceeds = s.options.Limit.Exceeded(c.Network.Errors)
		s.spent += time.Duration(c.Network.Seconds * float64(time.Second))
	}
	s.idle++
	switch {
	case !t.MayBeKept():
	case s.best < 0:
		s.best, s.idle = len(s.result.Trials)-1, 0
	default:
		best := &s.result.Trials[s.best]
		if improves(t.Score, best.Score, improvement) {
			s.idle = 0
		}
		if t.compare(best) < 0 {
			s.best = len(s.result.Trials) - 1
		}
	}
	s.observe(t)
	s.sensitivity.observe(t)
	if s.options.Progress != nil {
		e := Event{Trial: t, Trials: len(s.result.Trials), Spent: s.spent, Notes: s.notes(t.Cost)}
		if s.best >= 0 {
			e.Best = &s.result.Trials[s.best]
		}
		s.options.Progress(e)
	}
}

// notes says what a profile does not tell, where nothing was said of the same before: by backend, since the reason is
// the same for all regions of an engine.
func (s *search) notes(c cost.Cost) []string {
	var notes []string
	once := func(about, note string) {
		if !s.noted[about] {
			s.noted[about] = true
			notes = append(notes, note)
		}
	}
	if c.Network == nil {
		return nil
	}
	for _, w := range c.Network.Whole {
		if w.Symbol == "" {
			once("network", "what the network's kernels take each is not known: "+w.Why)
			continue
		}
		once("backend "+w.Backend, fmt.Sprintf(
			"what the operators on %s take inside a region is not known, a region counts as "+
				"one: %s: %s", w.Backend, w.Symbol, w.Why))
	}
	if p := profileOf(c); p != nil && unfound(p, mostRest) {
		once("rest", fmt.Sprintf("%.0f%% of the time is in kernels that belong to no operator of the network",
			100*p.Rest/p.Total()))
	}
	return notes
}

// mostRest is the share of a network's time that may be in kernels that nobody is found for without a word being said:
// as much as measurements of networks differ anyway.
const mostRest = 0.05

// unfound says that a word is due about kernels that nobody is found for.
func unfound(p *feedback.Profile, most float64) bool { return p.Rest > most*p.Total() }

// profileOf is what a record says about the parts of its network; nil where it says nothing.
func profileOf(c cost.Cost) *feedback.Profile {
	if c.Network == nil || len(c.Network.Parts) == 0 {
		return nil
	}
	p := &feedback.Profile{Rest: c.Network.Rest}
	for _, b := range c.Network.Borders {
		p.Borders = append(p.Borders, feedback.Border(b))
	}
	for _, w := range c.Network.Whole {
		p.Whole = append(p.Whole, feedback.Whole(w))
	}
	for _, part := range c.Network.Parts {
		nodes := make([]relay.NodeID, len(part.Nodes))
		for i, v := range part.Nodes {
			nodes[i] = relay.NodeID(v)
		}
		p.Parts = append(p.Parts, feedback.Part{Nodes: nodes, Milliseconds: part.Milliseconds, Border: part.Border,
			Crossing: part.Crossing})
	}
	return p
}

// RecordProfile is the other way round: what the store keeps of a profile.
func RecordProfile(p *feedback.Profile, into *cost.Network) {
	into.Rest = digits(p.Rest)
	into.Parts, into.Borders, into.Whole = nil, nil, nil
	for _, w := range p.Whole {
		into.Whole = append(into.Whole, cost.NetworkWhole(w))
	}
	for _, b := range p.Borders {
		b.CallMilliseconds, b.In, b.Out = digits(b.CallMilliseconds), digits(b.In), digits(b.Out)
		into.Borders = append(into.Borders, cost.NetworkBorder(b))
	}
	for _, part := range p.Parts {
		nodes := make([]int32, len(part.Nodes))
		for i, v := range part.Nodes {
			nodes[i] = int32(v)
		}
		into.Parts = append(into.Parts, cost.NetworkPart{Nodes: nodes, Milliseconds: digits(part.Milliseconds),
			Border:   digits(part.Border),
			Crossing: digits(part.Crossing)})
	}
}

// digits cuts a time to tenths of a microsecond, which is what a clock around a kernel can tell.
func digits(ms float64) float64 { return math.Round(ms*1e4) / 1e4 }

// late says that there is no time for these networks. Those that the store has take none.
func (s *search) late(next []pending) bool {
	var missing []*genome.Placement
	for _, p := range next {
		if !s.stored([]pending{p}) {
			missing = append(missing, p.placement)
		}
	}
	switch {
	case len(missing) == 0:
		return false
	case s.options.StoredOnly:
		return true
	case s.options.Left == nil:
		return false
	case s.options.Expect == nil:
		return s.options.Left() <= s.longest
	}
	return s.options.Left() <= s.options.Expect(missing)
}

// stored says that the store has all of a list, so that measuring it takes no time.
func (s *search) stored(list []pending) bool {
	return !slices.ContainsFunc(s.untried(list), func(p pending) bool {
		c, known := s.options.Store.Lookup(s.key(p.placement))
		return !known || c.Failed() && s.options.RetryFailures && c.Origin == cost.Stored
	})
}

// inRoom are the first so many of a list for which there is time, side by side; none where there is none for one.
func (s *search) inRoom(list []pending) []pending {
	for len(list) > 0 && s.late(list) {
		list = list[:len(list)-1]
	}
	return list
}

// ended says that the budget is used up, and why.
func (s *search) ended() bool {
	switch {
	case s.options.Trials > 0 && len(s.result.Trials) >= s.options.Trials:
		s.result.Why = fmt.Sprintf("%d networks were measured", len(s.result.Trials))
	case s.options.Time > 0 && s.spent >= s.options.Time && (s.options.Left == nil || s.options.CountStored):
		s.result.Why = fmt.Sprintf("its %v were used up", s.options.Time.Round(100*time.Millisecond))
	default:
		return false
	}
	return true
}

// mostRepairs is how many networks of a feedback need not count as steps since their outputs were off by more than is
// allowed. They take seconds; what comes behind them takes most of the time, and is quicker to end where a fast network
// may be kept.
const mostRepairs = 3

// feedback profiles, places again by what was seen in place, and so on until a placement repeats.
func (s *search) feedback() error {
	if s.main < 0 || s.options.FeedbackSteps < 0 {
		return nil
	}
	if len(s.result.Steps) == 0 {
		return nil // nothing could be profiled
	}
	steps := s.options.FeedbackSteps
	for n := 1; n <= steps && (n == 1 || !s.ended()); n++ {
		p, gap, err := s.again()
		if err != nil {
			return err
		}
		if s.result.Placed = p; s.options.PlaceOnly {
			return nil
		}
		if i, done := s.tried[p.Key]; done {
			s.step(i, true, gap)
			return nil
		}
		if s.ended() {
			return nil
		}
		list := []pending{{fmt.Sprintf("feedback %d", s.options.FeedbackBefore+n), p}}
		if s.options.Batch > 1 && (s.options.Trials <= 0 || len(s.result.Trials)+1 < s.options.Trials) {
			// Another one is built meanwhile.
			more, err := s.promising(p.Key)
			if err != nil {
				return err
			}
			list = append(list, more...)
		}
		if list = s.inRoom(list); len(list) == 0 {
			s.result.Why = whyLate
			return nil
		}
		at := len(s.result.Trials)
		err = s.measure(list)
		if len(s.result.Trials) > at { // it may have been another of the list that there was no time for
			s.step(at, false, gap)
			s.believe()
			s.result.Fed++
			if s.result.Trials[at].Exceeds != "" && steps < s.options.FeedbackSteps+mostRepairs {
				steps++ // what it was off by is known now, and the next may be nearer to what is allowed
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step writes a turn of the feedback down. gap is how far from the cheapest the placement was at most by what was
// believed when it was made; 0 for a seed, which was not searched for.
func (s *search) step(i int, repeats bool, gap float64) {
	t := &s.result.Trials[i]
	profile := profileOf(t.Cost)
	if profile == nil || t.Cost.Failed() {
		return
	}
	s.result.Steps = append(s.result.Steps, plan.Step{Name: t.Name, Placement: t.Placement.Key,
		Predicted: digits(t.Predicted),
		Kernels:   digits(profile.Total()), Border: digits(profile.Border()), Rest: digits(profile.Rest),
		Measured: digits(t.Cost.Estimate()),
		Regions:  t.Placement.Outlined(), Repeats: repeats, Gap: digits(gap)})
}
