// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/lane"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// graphFinalists makes the finalists of what was found, as many as there is time for.
func (c *decision) graphFinalists(seeds []graphlevel.Seed) error {
	plain := c.graph.lane.Plain()
	eligible := len(seeds) > 0 && seeds[0].Name == "tvm"
	if err := c.addFinalist("tvm", plain, eligible); err != nil {
		return err
	}
	c.reference = c.finalists[0]
	if !eligible {
		c.finalists = nil
	}
	if eligible {
		for _, b := range c.Backends {
			i := slices.IndexFunc(seeds, func(s graphlevel.Seed) bool { return s.Name == b && b != "tvm" })
			if i < 0 || slices.Contains(c.graph.result.PassedOver, b) || slices.Contains(c.graph.result.FarOff, b) {
				continue
			}
			if err := c.addFinalist(b, seeds[i].Placement, true); err != nil {
				return err
			}
		}
	}
	if err := c.addOperatorLevel(seeds); err != nil {
		return err
	}
	number := 0
	for _, i := range c.graph.result.Best() {
		t := &c.graph.result.Trials[i]
		if number == bestFew || c.Level == settings.OperatorLevel {
			break
		}
		if !c.mayBeKept(t) ||
			slices.ContainsFunc(c.all(), func(f *finalist) bool { return f.placement.Key == t.Placement.Key }) {
			continue
		}
		number++
		name := graphLevelName
		if number > 1 {
			name = fmt.Sprintf("%s %d", graphLevelName, number)
		}
		if err := c.addFinalist(name, t.Placement, true); err != nil {
			return err
		}
		c.finalists[len(c.finalists)-1].origin = t.Name
	}
	if c.Settle {
		c.settle()
		return nil
	}
	if c.Ending.asked() || !c.afford() {
		if c.keepBest() {
			return nil
		}
	}
	return c.buildGraph()
}

// addOperatorLevel adds what the operator level found: at that level it is the placement, and told as such.
func (c *decision) addOperatorLevel(seeds []graphlevel.Seed) error {
	placed := c.graph.network.placed()
	if c.Level == settings.OperatorLevel {
		p, origin := c.placedInContext()
		if err := c.addFinalist(plan.PlacementName, p, true); err != nil {
			return err
		}
		c.finalists[len(c.finalists)-1].origin = origin
		return nil
	}
	if len(c.graph.result.Trials) > 0 && !slices.ContainsFunc(seeds,
		func(s graphlevel.Seed) bool { return s.Name == operatorLevelName }) ||
		slices.Contains(c.graph.result.FarOff, operatorLevelName) {
		return nil
	}
	if err := c.addFinalist(operatorLevelName, placed, true); err != nil {
		return err
	}
	c.finalists[len(c.finalists)-1].origin = "the operator level's"
	return nil
}

// placedInContext is the operator level's placement: what it placed by costs in place, or one on several backends that
// was run on the way to these, where that proved to be faster or there was no time to run the other one; origin is then
// what the search calls it. Where nothing could be seen in place it is what costs alone give.
func (c *decision) placedInContext() (p *genome.Placement, origin string) {
	p = c.graph.result.Placed
	if p == nil {
		p = c.graph.network.placed()
	}
	t := c.trialOf(p)
	for _, i := range c.graph.result.Best() {
		other := &c.graph.result.Trials[i]
		switch {
		case t != nil && c.mayBeKept(t) && t.Score <= other.Score:
			return p, ""
		case c.mayBeKept(other) && !slices.ContainsFunc(c.all(),
			func(f *finalist) bool { return f.placement.Key == other.Placement.Key }):
			return other.Placement, other.Name
		}
	}
	return p, ""
}

// afford leaves out finalists that there is no time to run again, the slowest by what the search found first, and says
// whether there is time for any beside plain TVM, or none to be run. Plain TVM, which outputs are held against, and the
// best one are never left out; the best single backend is the last of the others that is: nothing slower than it is to
// be kept, and what disturbed its few rounds in the search had others look better.
func (c *decision) afford() bool {
	order := slices.DeleteFunc(c.all(), func(f *finalist) bool {
		return f == c.reference || f.sameAs != nil || f.failure != nil // which is only told of
	})
	slices.SortStableFunc(order, func(a, b *finalist) int { return cmp.Compare(c.scoreOf(a), c.scoreOf(b)) })
	if alone := slices.IndexFunc(order, func(f *finalist) bool { return slices.Contains(c.Backends, f.name) }); alone > 1 {
		best := order[alone]
		order = slices.Insert(slices.Delete(order, alone, alone+1), 1, best)
	}
	left := c.budget.Left() - c.building(c.reference)
	count := 1
	var late, missed []string
	for i, f := range order {
		if takes := c.building(f); c.budget.Need(count+1)+takes <= left && len(late)+len(missed) == 0 {
			count, left = count+1, left-takes
		} else if i > 0 {
			if c.trialOf(f.placement) != nil {
				late = append(late, f.title())
			} else {
				missed = append(missed, f.title())
			}
			c.finalists = slices.DeleteFunc(c.finalists,
				func(other *finalist) bool { return other == f || other.sameAs == f })
		}
	}
	if len(late) > 0 {
		c.note("%s", c.hurry(fmt.Sprintf("There was no time to run %s again: in the search that was no better.",
			joinNames(late))))
	}
	if len(missed) > 0 {
		c.warn("%s", c.hurry(fmt.Sprintf("There was no time to build %s.", joinNames(missed))))
	}
	return count > 1 || len(order) == 0
}

// building is what it takes to build a finalist that was not built in this run: by what it took when it was, else by
// the others.
func (c *decision) building(f *finalist) time.Duration {
	switch took := c.took(f.placement); {
	case c.graph.isBuilt(f.placement):
		return 0
	case took > 0:
		return took
	}
	return c.budget.Build()
}

// took is how long it took to build and measure a placement, in this run or another; 0 where that was not done.
func (c *decision) took(p *genome.Placement) time.Duration {
	if t := c.trialOf(p); t != nil && t.Cost.Network != nil {
		return time.Duration(t.Cost.Network.Seconds * float64(time.Second))
	}
	return 0
}

// trialOf is what the search found of a placement; nil where it did not measure it.
func (c *decision) trialOf(p *genome.Placement) *graphlevel.Trial {
	for i := range c.graph.result.Trials {
		if t := &c.graph.result.Trials[i]; t.Placement.Key == p.Key {
			return t
		}
	}
	return nil
}

// scoreOf is a finalist's score in the search; a bad one where it has none.
func (c *decision) scoreOf(f *finalist) float64 {
	if t := c.trialOf(f.placement); t != nil {
		return t.Score
	}
	return graphlevel.Score(cost.Cost{})
}

// settle has the finalists stand with the samples that the search took, and the one with the best score be kept. Their
// outputs were compared with plain TVM's then.
func (c *decision) settle() {
	c.settled = true
	for _, f := range c.all() {
		f.settled = true
		t := c.trialOf(f.placement)
		if t == nil && len(c.graph.result.Trials) == 0 {
			continue // all are the same network
		}
		if t == nil {
			f.failure = &cost.Failure{Phase: "run", Kind: cost.KindError, Detail: "the search did not run it"}
			continue
		}
		f.adopt(t)
		c.holdToBudget(f)
	}
}

// adopt has a finalist stand with what the search found of it.
func (f *finalist) adopt(t *graphlevel.Trial) {
	f.cost, f.maxError, f.failure = t.Cost, t.Cost.MaxError, t.Cost.Failure
	f.cost.Network = nil
	if t.Cost.Network != nil {
		f.resident = t.Cost.Network.Resident
	}
}

// keepBest makes the best network of the search the only finalist, with the samples that the search took: there is no
// time for more, or nobody wants to wait. Its outputs were compared with plain TVM's then. What the store told of is
// built now, be there time for it or not, or something slower would be kept; but not where nobody wants to wait. One
// that cannot be built any more is told of, and the next is taken. false where there is none.
func (c *decision) keepBest() bool {
	var best *finalist
	var e *lane.Executable
	for {
		if best = c.bestFound(c.Ending.asked()); best == nil {
			return false
		}
		c.graph.rebuilt = !c.graph.isBuilt(best.placement)
		var err error
		if e, err = c.graph.lane.Executable(c.ctx, best.placement); err != nil {
			c.warn("%s could not be built at the end: %v.", best.name, err)
			return false
		}
		if e.Failure == nil {
			break
		}
		c.trialOf(best.placement).Cost.Failure = e.Failure
		c.warn("%s was the fastest of the search, but could not be built at the end: %s.",
			best.name, e.Failure.Detail)
	}
	best.path, best.bytes = e.Path, e.Bytes
	best.adopt(c.trialOf(best.placement))
	c.finalists, c.settled, best.settled = []*finalist{best}, true, true
	why := "there was no time to run the best networks again"
	if c.Ending.asked() {
		why = "the search was interrupted"
	}
	c.warn("%s", c.hurry(fmt.Sprintf("It was chosen by the search's own samples: %s.", why)))
	return true
}

// bestFound is the finalist that the search found to be the fastest, of all or of those that were built in this run;
// nil where it measured none.
func (c *decision) bestFound(builtOnly bool) *finalist {
	var best *finalist
	for _, f := range c.finalists {
		if t := c.trialOf(f.placement); t == nil || !c.mayBeKept(t) || builtOnly && !c.graph.isBuilt(f.placement) {
			continue
		}
		if f.sameAs == nil && f.eligible && (best == nil || c.scoreOf(f) < c.scoreOf(best)) {
			best = f
		}
	}
	return best
}

// tooLarge takes a finalist out that takes too much memory, and all that are the same network.
func (c *decision) tooLarge(f *finalist) {
	c.finalists = slices.DeleteFunc(c.finalists, func(other *finalist) bool { return other == f || other.sameAs == f })
}

func (c *decision) addFinalist(name string, p *genome.Placement, eligible bool) error {
	learnt := c.graph.result
	// The store may know all about it, so that nothing was built. What there was no time to measure is not looked at.
	if !slices.Contains(learnt.Late, name) {
		if err := c.graph.lane.Know(c.ctx, p); err != nil {
			return c.laneError(err)
		}
	}
	written, err := c.graph.network.Plan(p, learnt)
	if err != nil {
		return err
	}
	written.Module.Name = c.Name
	f := &finalist{name: name, placement: p, plan: written, eligible: eligible}
	for _, earlier := range c.all() {
		if earlier != nil && earlier.placement.Key == p.Key {
			f.sameAs = earlier.built()
			c.warnWhereNothingWorks(f)
			break
		}
	}
	c.holdToBudget(f)
	c.finalists = append(c.finalists, f)
	return nil
}

// buildGraph builds the finalists that the search has not built in this run, and measures what they take of memory.
func (c *decision) buildGraph() error {
	var list []*genome.Placement
	for _, f := range c.all() {
		if f.sameAs == nil && f.failure == nil {
			list = append(list, f.placement)
		}
	}
	c.graph.lane.Rest()
	c.graph.lane.Forget(list...)
	step := c.Progress.Start(fmt.Sprintf("building %d finalists", len(list)), 0)
	building, done := c.untilLeft(c.budget.Need(2))
	defer done()
	if err := c.graph.lane.Build(building, list); err != nil {
		c.Progress.Stop()
		if building.Err() != nil && c.ctx.Err() == nil && c.keepBest() {
			return nil
		}
		return c.laneError(err)
	}
	step.Done("done")
	defer c.Trace.Phase("measuring what finalists take of memory").End(nil)
	for _, f := range c.all() {
		if f.sameAs != nil {
			if f.eligible {
				c.note("%s", sameNote(f))
			}
			continue
		}
		if f.failure != nil {
			continue
		}
		e, err := c.graph.lane.Executable(c.ctx, f.placement)
		if err != nil {
			return c.laneError(err)
		}
		f.path, f.bytes, f.failure = e.Path, e.Bytes, e.Failure
		if f.failure != nil {
			if f == c.reference {
				return fmt.Errorf("TVM cannot build %s: %s", c.Name, f.failure.Detail)
			}
			continue
		}
		if err := c.weigh(f, e, len(list)); err != nil {
			return c.laneError(err)
		}
	}
	return nil
}

// untilLeft is a context for what may be done without, since there is a network that was built and measured: it ends
// when no more than so much of the time is left, or the search is to end. Where there is no such network only the
// latter ends it.
func (c *decision) untilLeft(rest time.Duration) (context.Context, context.CancelFunc) {
	if c.graph == nil || c.bestFound(true) == nil {
		return context.WithCancel(c.runContext())
	}
	return context.WithTimeout(c.runContext(), c.budget.Left()-rest)
}

// weigh measures what a finalist takes of memory, where there is a limit or time for it. One that takes more than it
// may has lost, but for the reference, which outputs are held against.
func (c *decision) weigh(f *finalist, e *lane.Executable, finalists int) error {
	if c.ExecutableMemory <= 0 && (c.Level == settings.OperatorLevel ||
		c.budget.Left()-c.budget.Need(finalists) < c.budget.Start()) {
		if t := c.trialOf(f.placement); t != nil && t.Cost.Network != nil {
			f.resident = t.Cost.Network.Resident
		}
		return nil
	}
	print, err := c.graph.lane.Footprint(c.ctx, e)
	if err != nil {
		return err
	}
	f.resident, f.peak = print.Resident, print.Peak
	if limit := c.ExecutableMemory; limit > 0 && print.Resident > limit {
		if f == c.reference {
			f.eligible = false
			c.tooLarge(f)
			c.note("TVM alone takes %.1f MB of memory, more than the limit of %.1f MB.",
				float64(print.Resident)/1e6,
				float64(limit)/1e6)
			return nil
		}
		f.failure = &cost.Failure{Phase: "run", Kind: cost.KindOutOfMemory,
			Detail: fmt.Sprintf("it takes %.1f MB, the limit is %.1f MB",
				float64(print.Resident)/1e6, float64(limit)/1e6)}
	}
	return nil
}
