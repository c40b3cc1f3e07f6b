// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/internal/tracefile"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/lane"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// bestFew is how many of the graph level's placements become finalists: nine rounds of a network in the search do not
// tell the best from the next best, and the finalists' rounds do. Each more takes the search a network's run.
const bestFew = 3

// The names of finalists before one of them is the placement.
const (
	operatorLevelName = "operator level"
	graphLevelName    = "graph level"
)

// graph has the graph level at work.
type graph struct {
	network someNetwork
	lane    someLane
	result  *graphlevel.Result
	// moments are when each network that was shown was known, by key; ready is when there was the first executable.
	moments map[string]plan.Moment
	ready   time.Duration
	// first are the networks that are measured however short the time is, and firstDone is when they were.
	first     []string
	firstDone time.Duration
	// steps are those of the feedback that came before candidates were measured alone.
	steps int
	// rebuilt says that the best was built without time, since the store told of it.
	rebuilt bool
	// unwritable is why what is kept cannot be written (Options.Rehearse).
	unwritable error
	// step is what is being shown, since when, and doing is what is being done in it.
	step    *progress.Step
	started time.Time
	doing   string
	// best is the fastest network so far, for the user: "best so far 4.21 ms".
	best string
}

// isBuilt says that a placement was built in this run.
func (g *graph) isBuilt(p *genome.Placement) bool { return g.lane != nil && g.lane.Built(p) }

// tick shows that time goes by: building a network takes a while.
func (g *graph) tick() {
	if g.step != nil {
		g.step.At(int(time.Since(g.started)/time.Second), g.shown())
	}
}

// shown is what is being done, behind the best so far.
func (g *graph) shown() string {
	switch {
	case g.best == "":
		return g.doing
	case g.doing == "":
		return g.best
	}
	return g.best + "; " + g.doing
}

// chooses says that there is something to choose between: operators can go to TVM and elsewhere.
func (o *Options) chooses() bool { return len(o.Backends) > 1 && slices.Contains(o.Backends, "tvm") }

// begin makes ready what networks are built and run with.
func (c *decision) begin(network *network.Network) error {
	if err := network.Whole(); err != nil {
		return err
	}
	c.target = network.Target()
	c.graph = &graph{network: opened{network}, result: &graphlevel.Result{}, moments: map[string]plan.Moment{}}
	lane, err := lane.New(network, lane.Options{Time: c.budget.Total(), Folder: c.Temporary,
		Extension: c.Extension, Python: c.Python,
		Poll: func() error { c.graph.tick(); return c.poll() }, Progress: c.doing,
		Built: c.budget.Built, Ran: c.budget.Ran, Quiet: c.quiet, Doubt: func() float64 { return c.plainDoubt },
		Inputs: c.inputs(), Data: c.data(), Store: c.Store,
		ScaleMethod: c.Precision.ScaleMethod(), ErrorMeasure: c.Precision.Limit().Measure, RetryFailures: c.RetryFailures})
	if err != nil {
		return err
	}
	c.graph.lane = lane
	return nil
}

// doing says what is being done with networks.
func (c *decision) doing(what string) {
	c.graph.doing = what
	c.Trace.Doing(what)
}

// search places by what whole networks show, and makes finalists of what came of it, of every backend alone, and of
// plain TVM. What is learnt fastest comes first: every backend alone, which is an executable that may be kept and says
// what each part takes in place; at the graph level what is placed by that, which is often close to the best already;
// then candidates alone, those that may gain most, as long as there is slack and time; then placements by what was
// learnt: one at the operator level, at the graph level as many as there is time for. All of it keeps to the time of
// the whole.
func (c *decision) search() error {
	if err := c.open(); err != nil {
		return err
	}
	return c.searchOpened()
}

// open proposes candidates, measures nothing, and makes ready what networks are built and run with.
func (c *decision) open() error {
	defer c.Trace.Phase("looking for candidates").End(nil)
	c.opening = true // what the store knows is no news
	network, err := network.Open(c.module, c.placementConfig())
	c.opening = false
	if err != nil {
		return err
	}
	return c.begin(network)
}

// searchOpened is search with the network and the lane there.
func (c *decision) searchOpened() error {
	seeds, err := c.learnPlaces()
	if err != nil {
		return err
	}
	return c.graphFinalists(seeds)
}

// learnPlaces is search as far as the finalists. It gives the seeds of its end.
func (c *decision) learnPlaces() (seeds []graphlevel.Seed, err error) {
	if c.Level == settings.OperatorLevel {
		c.Trials = 0 // how many networks the graph level measures: every backend alone is what costs in place come from
	}
	network := c.graph.network
	seeds = c.unmeasured()
	if distinct(seeds) > 1 || c.Reach == ReachParts || c.taken != nil || c.unchecked(seeds) {
		err = c.runNetworks(seeds, onlySeeds)
	} else {
		var only *plan.Plan
		if only, err = network.Plan(network.placed(), nil); err == nil {
			donePlacing(c.Progress, c.placing, only)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := c.examinePlain(); err != nil {
		return nil, err
	}
	if c.Level == settings.OperatorLevel {
		seeds, err = c.placeInContext(seeds)
	} else {
		seeds, err = c.goOn(seeds)
	}
	if err != nil {
		return nil, err
	}
	if r := c.graph.result; r.Why == "" && len(r.Trials) > 0 {
		r.Why = c.whyEnded()
	}
	return seeds, nil
}

// unchecked says that the operator level is to run the one network that there is: nothing else would tell whether it
// answers what plain TVM does, and what its parts take.
func (c *decision) unchecked(seeds []graphlevel.Seed) bool {
	return c.Level == settings.OperatorLevel && len(seeds) > 0 && seeds[0].Placement.Key != c.graph.lane.Plain().Key
}

// goOn is what the graph level does when every backend alone was measured. It gives the seeds of its end.
func (c *decision) goOn(seeds []graphlevel.Seed) ([]graphlevel.Seed, error) {
	if c.mayLearn() && (c.Reach == ReachAll || c.Reach == ReachFeedback) {
		c.graph.network.Renew()
		if err := c.runNetworks(seeds, oneStep); err != nil {
			return nil, err
		}
	}
	if c.mayLearn() {
		known := c.kept(seeds)
		if err := c.learn(); err != nil {
			return nil, err
		}
		if seeds = append(c.seeds(), known()...); distinct(seeds) > 1 {
			if err := c.runNetworks(seeds, all); err != nil {
				return nil, err
			}
		} else if c.graph.result.Why == "" {
			c.graph.result.Why = "there is no other network"
		}
	}
	return seeds, nil
}

// placeInContext is what the operator level does then: what is not known well enough is measured alone, and all is
// placed once, by what parts take in place and by what borders cost.
func (c *decision) placeInContext(seeds []graphlevel.Seed) ([]graphlevel.Seed, error) {
	if len(c.graph.result.Trials) == 0 {
		return seeds, nil // all of it is plain TVM, whatever was offered
	}
	if c.mayLearn() {
		if err := c.learn(); err != nil {
			return nil, err
		}
		seeds = c.unmeasured()
	} else {
		c.graph.network.Renew()
	}
	return seeds, c.runNetworks(seeds, all)
}

// whyEnded says why the search did not go on, where that was not its own decision.
func (c *decision) whyEnded() string {
	switch {
	case c.Ending.asked():
		return "it was interrupted"
	case c.Trials > 0 && len(c.graph.result.Trials) >= c.Trials:
		return fmt.Sprintf("%d networks were measured", len(c.graph.result.Trials))
	case c.Level == settings.OperatorLevel && c.graph.result.Placed != nil:
		return "the operator level places once"
	}
	return "there was no time for another network"
}

// firstFew are so many networks that are measured however short the time is: plain TVM and a backend alone.
const firstFew = 2

// expect is how long these networks are expected to take: those that were built ahead must only be run.
func (c *decision) expect(placements []*genome.Placement) time.Duration {
	unbuilt := 0
	for _, p := range placements {
		if !c.graph.isBuilt(p) {
			unbuilt++
		}
	}
	return c.budget.Expect(len(placements), unbuilt)
}

// mostFinalists is for how many finalists time is kept once another network was measured: there are no more than
// networks.
func (c *decision) mostFinalists() int { return min(wantedFinalists, len(c.graph.moments)+1) }

// wantedFinalists is for how many finalists time is kept: plain TVM and the best few.
const wantedFinalists = 1 + bestFew

// learnShare is how much of what is left after the backends alone goes to candidates alone at most: less than half,
// since what is learnt so has yet to be tried in whole networks, which decide. At twice of it networks would have a
// fifth of what is left.
const learnShare = 0.4

func partsTime(free time.Duration, share float64) time.Duration {
	return time.Duration(share * float64(free))
}

// mayLearn says that there is something to be learnt about candidates alone, and time for it.
func (c *decision) mayLearn() bool {
	r := c.graph.result
	return c.searching.Err() == nil && len(r.Trials) > 0 && len(r.Late) == 0 &&
		(c.Trials <= 0 || len(r.Trials) < c.Trials) &&
		c.budget.Free(wantedFinalists) > 0
}

// learn measures candidates alone, as far as time goes, and shows what came of it.
func (c *decision) learn() error {
	free := partsTime(c.budget.Free(wantedFinalists), learnShare)
	tables := c.graph.result.Tables
	if c.Reach == ReachParts || c.Level == settings.OperatorLevel {
		// All of the time but for building the one placement that comes of it: it has more to be built than plain TVM.
		free = c.budget.Free(wantedFinalists) - 3*c.took(c.graph.lane.Plain())/2
	}
	if c.Reach == ReachParts {
		tables = nil
	}
	until, done := context.WithTimeout(c.searching, free)
	defer done()
	network := c.graph.network
	// Networks tell more than candidates alone do; where one is placed only once, its proof rests on them.
	likelyOnly := c.Level != settings.OperatorLevel && c.Reach != ReachParts
	if err := network.Learn(until, tables, likelyOnly); err != nil {
		return c.laneError(err)
	}
	// Candidates that backends proposed since have changed all indices.
	if err := c.graph.lane.Renew(); err != nil {
		return err
	}
	first, err := network.Plan(network.placed(), nil)
	if err != nil {
		return err
	}
	donePlacing(c.Progress, c.placing, first)
	return c.ctx.Err()
}

// stage is how far runNetworks goes, as far as the reach lets it.
type stage int

const (
	// onlySeeds are measured; oneStep of feedback comes after them; all is what there is.
	onlySeeds stage = iota
	oneStep
	all
)

// runNetworks runs the search, of the seeds alone or on from them. Where it is interrupted, what stands in the store counts.
func (c *decision) runNetworks(seeds []graphlevel.Seed, until stage) error {
	store, err := cost.OpenStore(c.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	if until != onlySeeds { // what the store knows of these says nothing of what their parts add to errors
		for i := range seeds {
			if c.trialOf(seeds[i].Placement) == nil {
				continue
			}
			if err := c.graph.lane.Know(c.ctx, seeds[i].Placement); err != nil {
				return c.laneError(err)
			}
		}
	}
	title := "searching among whole networks"
	if c.Level == settings.OperatorLevel {
		title = "running whole networks"
	}
	step := c.Progress.StartTimed(title, int(c.budget.Total()/time.Second))
	c.graph.step, c.graph.started = step, time.Now().Add(-c.budget.Spent())
	defer func() { c.graph.step = nil }()
	options := graphlevel.Options{
		Time: c.budget.Total(), Trials: c.Trials,
		// The operator level's networks are always the same ones: what the store has of them takes no time.
		CountStored:  c.Settle && c.Level != settings.OperatorLevel,
		Left:         func() time.Duration { return c.budget.Free(c.mostFinalists()) },
		Expect:       c.expect,
		SeedsOnly:    until == onlySeeds || c.Reach == ReachParts || c.Reach == ReachSeeds,
		FeedbackOnly: until == oneStep || c.Reach == ReachFeedback || c.Level == settings.OperatorLevel,
		PlaceOnly:    c.placeOnly && until == all,
		Store:        store, Key: c.networkKey(), Overhead: c.graph.network.Overhead(),
		Bounded: c.graph.network.Bounded(),
		Limit:   c.Precision.Limit(), Adds: c.graph.network.Adds, Rests: c.graph.network.ScalesText,
		MemoryLimit: c.ExecutableMemory, RetryFailures: c.RetryFailures && until == onlySeeds,
		Progress: c.tellTrial,
	}
	switch {
	case c.Level == settings.OperatorLevel:
		options.FeedbackSteps, options.Batch = 1, 1 // there is no other network to be built beside it
	case until == oneStep:
		options.FeedbackSteps = 1
	default:
		options.FeedbackBefore = c.graph.steps
	}
	network := c.graph.network
	result, err := graphlevel.Search(c.searching, network.space(), seeds, c.graph.lane, options)
	if err != nil && c.searching.Err() != nil && c.ctx.Err() == nil {
		why := c.whyEnded()
		options.StoredOnly, options.RetryFailures = true, false
		network.Renew()
		result, err = graphlevel.Search(c.ctx, network.space(), seeds, c.graph.lane, options)
		result.Why = why
	}
	if err == nil {
		err = c.graph.unwritable
	}
	if err != nil {
		c.Progress.Stop()
		return c.laneError(err)
	}
	c.graph.keep(result)
	if until == oneStep {
		c.graph.steps = result.Fed
	}
	best := result.Best()
	if len(best) == 0 {
		step.Done("none of %d networks runs", len(result.Trials))
		return nil
	}
	at := &result.Trials[best[0]]
	if len(result.PassedOver) > 0 {
		c.Progress.Note("  not built, since others are expected to take much less: %s",
			strings.Join(result.PassedOver, ", "))
	}
	if len(result.FarOff) > 0 {
		c.Progress.Note("  not built, since their outputs are expected to be off by many times what is allowed: %s",
			strings.Join(result.FarOff, ", "))
	}
	if len(result.Late) > 0 {
		c.Progress.Note("  not built, since there was no time: %s", strings.Join(result.Late, ", "))
	}
	text := fmt.Sprintf("%d networks; the best is %s, %.3g of plain TVM's time", len(result.Trials), at.Name, at.Score)
	if result.Why != "" {
		text += "; " + result.Why
	}
	step.Done("%s", text)
	return nil
}

// keep has result in the place of what an earlier run of the search found, which it has run through again, but for what
// it ended too early to do again: to place by the price of errors.
func (g *graph) keep(result *graphlevel.Result) {
	if result.Lagrangian == nil && g.result != nil {
		result.Lagrangian = g.result.Lagrangian
	}
	g.result = result
}

// networkKey is the key of networks in the store: where errors are taken, those that have them are others.
func (c *decision) networkKey() cost.Key {
	key := c.graph.network.Key()
	if c.taken != nil {
		key.Options += " errors" + c.taken.Digest
		if own := c.ownMeasure(); own != nil {
			key.Options += " by " + own.Name + " " + own.Digest
		}
	}
	return key
}

func (c *decision) tellTrial(e graphlevel.Event) {
	t := e.Trial
	c.unlearnt(e.Notes)
	if _, told := c.graph.moments[t.Placement.Key]; told {
		return
	}
	c.recordTrial(e)
	spent := c.budget.Spent()
	if len(c.graph.moments) < firstFew {
		c.graph.first = append(c.graph.first, t.Name)
		c.graph.firstDone = spent
	}
	c.graph.moments[t.Placement.Key] = plan.Moment{Placement: t.Placement.Key, Seconds: seconds(spent),
		Stored: t.Cost.Origin == cost.Stored}
	switch {
	case t.Cost.Failed():
		c.Progress.Note("  %s: %s", t.Name, oneLine(errors.New(t.Cost.Failure.String())))
	case c.overBudget(t) != "":
		c.Progress.Note("  %s: %.4g ms, %.3g of plain TVM's time (%s, %.0f s); it is not kept: %s", t.Name,
			t.Cost.Estimate(), t.Score, t.Cost.Origin, spent.Seconds(), c.overBudget(t))
	default:
		built := c.graph.isBuilt(t.Placement)
		if built || c.Settle { // which writes no executable
			c.Ending.ready(true)
		}
		if built && c.graph.ready == 0 {
			c.graph.ready = spent
			c.rehearse(t.Placement)
		}
		mark := ""
		if e.Best == t {
			mark = ", the best so far"
			c.graph.best = fmt.Sprintf("best so far %.4g ms", t.Cost.Estimate())
		}
		c.Progress.Note("  %s: %.4g ms, %.3g of plain TVM's time, %s outside of it%s (%s, %.0f s)%s", t.Name,
			t.Cost.Estimate(), t.Score,
			regionText(t.Placement.Outlined()), c.errorText(t), t.Cost.Origin, spent.Seconds(), mark)
	}
}

// recordTrial puts a network that was measured into the recording, where it was no more than a key so far.
func (c *decision) recordTrial(e graphlevel.Event) {
	t := e.Trial
	c.Trace.Call(t.Placement.Key, t.Name)
	if t.Cost.Failed() {
		c.Trace.Command().Mark(t.Name+" failed", tracefile.Details{"failure": t.Cost.Failure.String()})
		return
	}
	c.Trace.Command().Mark(t.Name, tracefile.Details{"ms": t.Cost.Estimate(), "of_plain_tvm": t.Score,
		"regions": t.Placement.Outlined(), "origin": string(t.Cost.Origin)})
	if e.Best == t {
		c.Trace.Value("best so far (ms)", t.Cost.Estimate())
	}
}

// rehearse sees how long it takes to write an executable, of the first one that there is: that is kept for the end.
func (c *decision) rehearse(p *genome.Placement) {
	if c.Rehearse == nil || c.budget.Left() <= 0 {
		return
	}
	e, err := c.graph.lane.Executable(c.ctx, p) // it is built
	if err == nil {
		began := c.budget.Spent()
		err = c.Rehearse(e.Path)
		c.budget.Wrote(c.budget.Spent() - began)
	}
	c.graph.unwritable = err
}

// laneError makes a full disk that a worker met one that Go knows, and an interrupt the context's.
func (c *decision) laneError(err error) error {
	var full *measure.DiskFullError
	if errors.As(err, &full) {
		return &FullDisk{full.Error()}
	}
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	return err
}

// graphRecord is what the plan says of the search.
func (c *decision) graphRecord() *plan.GraphLevel {
	r := c.graph.result
	record := &plan.GraphLevel{Seconds: seconds(r.Spent), Why: r.Why, Steps: r.Steps}
	if c.plan.GraphLevel != nil {
		record.Believed = c.plan.GraphLevel.Believed
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		n := plan.Network{Name: t.Name, Placement: t.Placement.Key, Regions: t.Placement.Outlined()}
		if t.Cost.Failed() {
			n.Failure = t.Cost.Failure.String()
		} else {
			n.Ratio, n.Milliseconds, n.Rounds = t.Score, t.Cost.Estimate(), len(t.Cost.Samples)
			n.Exceeds = c.overBudget(t)
			n.Error = c.errorOf(t)
		}
		record.Networks = append(record.Networks, n)
	}
	return record
}

// overrun says that the whole takes longer than was asked for, and why; "" where it does not.
func (c *decision) overrun() string {
	total, spent := c.budget.Total(), c.budget.Spent()+c.budget.Writing()
	if spent <= total {
		return ""
	}
	why := "building and running networks took longer than before"
	switch {
	case c.graph.firstDone+c.budget.Need(1) > total && len(c.graph.first) > 0:
		why = fmt.Sprintf("%s, which are built and run however short the time is, were measured after %.1f s",
			joinNames(c.graph.first),
			c.graph.firstDone.Seconds())
	case len(c.graph.first) == 0:
		why = "what there is to choose from is built however short the time is"
	case c.graph.rebuilt:
		why = "the cost store told which network is the fastest, and it had to be built"
	}
	return fmt.Sprintf("It takes %.1f s where %.1f s were asked for: %s.", spent.Seconds(), total.Seconds(), why)
}

// timeline says when the search found what.
func (c *decision) timeline() *plan.Timeline {
	line := &plan.Timeline{Asked: seconds(c.budget.Total()), Taken: seconds(c.budget.Spent()),
		Ready: seconds(c.graph.ready), Networks: []plan.Moment{}}
	for i := range c.graph.result.Trials {
		if at, told := c.graph.moments[c.graph.result.Trials[i].Placement.Key]; told {
			line.Networks = append(line.Networks, at)
		}
	}
	return line
}

// seconds are those of a duration, to milliseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// close ends the workers of the graph level.
func (g *graph) close() {
	if g != nil && g.lane != nil {
		g.lane.Close()
	}
}
