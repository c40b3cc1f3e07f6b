// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/measure"
)

const (
	// mostTurns is how many times the rounds are run at most, where it is not clear who is the fastest.
	mostTurns = 3
	// roundsToDoubt: who asks for fewer rounds has no more time.
	roundsToDoubt = 10
)

// undecided says that noise alone ties the fastest finalist with one that seems to be slower.
func (c *decision) undecided() bool {
	running := c.contending()
	if len(running) < 2 {
		return false
	}
	fastest := slices.MinFunc(running, byEstimate)
	return slices.ContainsFunc(running, func(f *finalist) bool {
		return f != fastest && equal(f.cost.Samples, fastest.cost.Samples) &&
			medianRatio(f.cost.Samples, fastest.cost.Samples) > 1+tieMargin
	})
}

// contending are the finalists that run in all rounds and may be chosen.
func (c *decision) contending() []*finalist {
	var some []*finalist
	for _, f := range c.distinct() {
		if f.eligible && f.rounds == 0 {
			some = append(some, f)
		}
	}
	return some
}

const (
	// leastRounds is how often finalists are run at least where time is short.
	leastRounds = 5
	// hopelessRounds is how often at least those are run that the search found to be hopeless.
	hopelessRounds = 3
)

// curtail has those run in a few rounds alone that the search found to be hopeless: what is worth knowing of them is
// about how much slower they are. None of them takes longer in all than the best one does, as far as that goes.
func (c *decision) curtail(rounds int) {
	if c.graph == nil {
		if rounds > leastRounds {
			c.curtailExpected()
		}
		return
	}
	if rounds <= hopelessRounds {
		return
	}
	for _, f := range c.distinct() {
		if best := c.hopelessBeside(f); best != nil {
			longest := float64(rounds) * best.Estimate() / c.trialOf(f.placement).Cost.Estimate()
			f.rounds = min(leastRounds, max(hopelessRounds, int(longest)))
		}
	}
}

// hopelessBeside is what the best network of the search costs, beside which this finalist is hopeless; nil where it is
// not.
func (c *decision) hopelessBeside(f *finalist) *cost.Cost {
	t, order := c.trialOf(f.placement), c.graph.result.Best()
	if t == nil || len(order) == 0 {
		return nil
	}
	if best := &c.graph.result.Trials[order[0]].Cost; graphlevel.Hopeless(t.Cost, *best) {
		return best
	}
	return nil
}

// surprised are the finalists that the search found to be hopeless, and that keep up with the fastest in the rounds
// that both ran in: the search was wrong about one of the two.
func (c *decision) surprised() []*finalist {
	contending := c.contending()
	if len(contending) == 0 {
		return nil
	}
	fastest := slices.MinFunc(contending, byEstimate)
	var some []*finalist
	for _, f := range c.distinct() {
		if f.eligible && f.rounds > 0 && medianRatio(f.cost.Samples, fastest.cost.Samples) <= 1+tieMargin {
			some = append(some, f)
		}
	}
	return some
}

// affordableRounds is how many rounds there is time for, by what the search found, when the models are loaded.
func (c *decision) affordableRounds() int {
	if c.graph == nil {
		return c.expectedRounds()
	}
	round, finalists := 0.0, c.distinct()
	left := float64(c.budget.Left()-c.budget.Writing()-c.budget.Loading(len(finalists))) / float64(time.Millisecond)
	for _, f := range finalists {
		switch t := c.trialOf(f.placement); {
		case t == nil || t.Cost.Failed():
		case c.hopelessBeside(f) != nil: // it runs in few of the rounds
			left -= hopelessRounds * t.Cost.Estimate()
		default:
			round += t.Cost.Estimate()
		}
	}
	if round <= 0 || float64(c.Rounds)*round <= left {
		return c.Rounds
	}
	return min(c.Rounds, max(leastRounds, int(left/round)))
}

// writing is what is kept for writing the best; nothing where there is no time to keep to.
func (c *decision) writing() time.Duration {
	if c.graph == nil {
		return 0
	}
	return c.budget.Writing()
}

// compare runs the finalists in turn and checks their outputs against the reference's.
func (c *decision) compare() error {
	if c.settled || len(c.distinct()) == 0 { // choose says why there is none
		return nil
	}
	pool, err := c.newRunner()
	if err != nil {
		return err
	}
	defer pool.Close()
	running, done := c.untilLeft(c.writing())
	defer done()
	rounds, began := c.affordableRounds(), time.Now()
	c.curtail(rounds)
	comparison, err := c.compareIn(running, pool, c.distinct(), rounds)
	if err != nil && running.Err() == nil {
		if err := c.runsOnMachine(running, pool); err != nil {
			return err
		}
		// One of them took the worker with it. Find out which, and leave it out.
		if err := c.findCulprits(running, pool, err); err != nil && running.Err() == nil {
			return err
		}
		comparison, err = c.compareIn(running, pool, c.distinct(), rounds)
	}
	switch {
	case err == nil:
	case c.ctx.Err() != nil:
		return c.ctx.Err()
	case running.Err() != nil && c.keepBest():
		return nil
	default:
		return err
	}
	turnTook := time.Since(began)
	c.points = comparison.Points
	for turn := 1; ; turn++ {
		for _, f := range c.distinct() {
			if turn > 1 && f.rounds > 0 {
				continue // the others' rounds of the first turn are those that its own stand beside
			}
			f.cost.Origin = cost.Measured
			f.cost.Samples = append(f.cost.Samples, comparison.Costs[f.name].Samples...)
		}
		if turn == mostTurns || rounds < roundsToDoubt || c.noTimeFor(turnTook) {
			break
		}
		surprised := c.surprised()
		if len(surprised) == 0 && !c.undecided() {
			break
		}
		if len(surprised) > 0 {
			c.Progress.Note("  the search found %s to be hopeless, which is not so; they run again",
				joinNames(titles(surprised)))
		} else {
			c.Progress.Note("  which one is the fastest is not clear; they run again")
		}
		again, err := c.runAgain(running, pool, surprised, rounds)
		if err != nil {
			if running.Err() != nil && c.ctx.Err() == nil {
				break // the turns before decide
			}
			return err
		}
		comparison = again
	}
	for _, f := range c.distinct() {
		if f == c.reference {
			continue
		}
		check, ran := comparison.Outputs[f.name]
		if !ran {
			continue // what may not be kept is not run
		}
		f.maxError = check.MaxError
		if !check.OK {
			f.failure = &cost.Failure{Phase: "check", Kind: cost.KindWrongResult,
				Detail: fmt.Sprintf("its outputs differ from TVM's by up to %.3g", check.MaxError)}
		} else if exceeds := c.Precision.Limit().Exceeded(check.Errors); exceeds != "" {
			f.failure = &cost.Failure{Phase: "check", Kind: cost.KindOverBudget, Detail: exceeds}
		}
	}
	return nil
}

// runAgain runs the finalists in turn once more, and those that were surprising from now on in all rounds. As they did
// not run in all of them before, everybody's count from the beginning then.
func (c *decision) runAgain(ctx context.Context, pool runner, surprised []*finalist, rounds int) (*measure.Comparison,
	error) {
	before := make([]int, len(surprised))
	for i, f := range surprised {
		before[i], f.rounds = f.rounds, 0
	}
	comparison, err := c.compareIn(ctx, pool, c.distinct(), rounds)
	if err != nil {
		for i, f := range surprised {
			f.rounds = before[i]
		}
		return nil, err
	}
	if len(surprised) > 0 {
		for _, f := range c.distinct() {
			if f.rounds == 0 {
				f.cost.Samples = nil
			}
		}
	}
	return comparison, nil
}

// runContext is under which finalists are run.
func (c *decision) runContext() context.Context {
	if c.searching != nil {
		return c.searching
	}
	return c.ctx
}

func (c *decision) compareIn(ctx context.Context, pool runner, finalists []*finalist, rounds int) (*measure.Comparison,
	error) {
	names := make([]string, len(finalists))
	models := make([]measure.Model, len(finalists))
	for i, f := range finalists {
		names[i], models[i] = f.title(), measure.Model{Name: f.name, Path: f.path, Rounds: f.rounds,
			Narrow: c.narrow(f)}
	}
	title := "running " + joinNames(names) + " in turn"
	if len(names) == 1 {
		title = "running " + names[0]
	}
	step := c.Progress.Start(title, rounds)
	comparison, err := pool.Compare(ctx, models, measure.CompareOptions{Rounds: rounds, HeldOut: c.unsearched(),
		Doubt:    c.plainDoubt,
		Measure:  c.ownMeasure(),
		Progress: func(done, _ int) { step.At(done, "") }})
	if err != nil {
		c.Progress.Stop()
		return nil, err
	}
	step.Done("%d rounds", rounds)
	return comparison, nil
}

// noTimeFor says that there is no time for something that takes so long, before the best is written.
func (c *decision) noTimeFor(took time.Duration) bool {
	return c.budget != nil && (c.graph != nil || c.machine != nil) && c.budget.Left()-c.budget.Writing() < took
}

// runsOnMachine runs the reference alone where TVM's virtual machine runs the network: not every size at which open
// dimensions are tried is one that the network takes. The error is a *placing.NotWholeError where it does not run.
func (c *decision) runsOnMachine(ctx context.Context, pool runner) error {
	if c.machine == nil || c.reference == nil {
		return nil
	}
	_, err := c.compareIn(ctx, pool, []*finalist{c.reference}, 1)
	switch {
	case err == nil, ctx.Err() != nil:
		return nil
	case errors.Is(err, bridge.ErrInterrupted):
		return err
	}
	return c.notOnMachine("run it on", err)
}

// findCulprits runs each finalist beside the reference alone. The error is the one that is given back if none of
// them is at fault.
func (c *decision) findCulprits(ctx context.Context, pool runner, original error) error {
	found := false
	for _, f := range c.distinct() {
		if f == c.reference {
			continue
		}
		_, err := c.compareIn(ctx, pool, []*finalist{c.reference, f}, 1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f.failure = &cost.Failure{Phase: "run", Kind: cost.KindCrash, Detail: oneLine(err)}
			found = true
		}
	}
	if !found {
		return original
	}
	return nil
}
