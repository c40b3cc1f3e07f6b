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
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
)

// bestFew is how many of the graph level's placements become finalists.
const bestFew = 3

// The names of finalists before one of them is the placement.
const (
	operatorLevelName = "operator level"
	graphLevelName    = "graph level"
)

// graph has the graph level at work.
type graph struct {
	network *pass.Network
	lane    *pass.Lane
	result  *graphlevel.Result
	// told are the networks, by key, that were shown.
	told map[string]bool
	// step is what is being shown, since when, and doing is what is being done in it.
	step    *progress.Step
	started time.Time
	doing   string
}

// isBuilt says that a placement was built in this run.
func (g *graph) isBuilt(p *genome.Placement) bool { return g.lane != nil && g.lane.Built(p) }

// tick shows that time goes by: building a network takes a while.
func (g *graph) tick() {
	if g.step != nil {
		g.step.At(int(time.Since(g.started)/time.Second), g.doing)
	}
}

// searchesGraph says that there is something for the graph level to do: operators can go to TVM and elsewhere.
func (c *decision) searchesGraph() bool {
	return c.Level != pass.OperatorLevel && len(c.Backends) > 1 && slices.Contains(c.Backends, "tvm")
}

// searchGraph searches among whole networks, and makes finalists of the best, of every backend alone, and of plain TVM. What is
// learnt fastest comes first: every backend alone, which is an executable that may be kept and says what each part takes in
// place; then candidates alone, those that may gain most, as long as there is slack and time; then placements by what was
// learnt. All of it keeps to the time of the whole.
func (c *decision) searchGraph() error {
	c.opening = true // what the store knows is no news
	network, err := pass.Open(c.module, c.placementConfig())
	c.opening = false
	if err != nil {
		return err
	}
	c.target = network.Target()
	c.graph = &graph{network: network, result: &graphlevel.Result{}, told: map[string]bool{}}
	c.graph.lane, err = pass.NewLane(network, pass.LaneOptions{Folder: c.Temporary, Extension: c.Extension, Python: c.Python,
		Poll: func() error { c.graph.tick(); return c.poll() }, Progress: func(what string) { c.graph.doing = what }, Ran: c.budget.Ran})
	if err != nil {
		return err
	}
	seeds := c.alone()
	if distinct(seeds) > 1 {
		err = c.evolve(seeds, true)
	} else {
		var only *plan.Plan
		if only, err = network.Plan(network.Placed, nil); err == nil {
			c.donePlacing(only)
		}
	}
	if err != nil {
		return err
	}
	if c.mayLearn() {
		if err := c.learn(); err != nil {
			return err
		}
		if seeds = c.seeds(); distinct(seeds) > 1 {
			if err := c.evolve(seeds, false); err != nil {
				return err
			}
		}
	}
	if r := c.graph.result; r.Why == "" && len(r.Trials) > 0 {
		r.Why = c.whyEnded()
	}
	return c.graphFinalists(seeds)
}

// whyEnded says why the search did not go on, where that was not its own decision.
func (c *decision) whyEnded() string {
	switch {
	case c.Ending.asked():
		return "it was interrupted"
	case c.Trials > 0 && len(c.graph.result.Trials) >= c.Trials:
		return fmt.Sprintf("%d networks were measured", len(c.graph.result.Trials))
	}
	return "there was no time for another network"
}

// wantedFinalists is for how many finalists time is kept: plain TVM and the best few.
const wantedFinalists = 1 + bestFew

// learnShare is how much of what is left after the backends alone goes to candidates alone at most.
const learnShare = 0.4

// mayLearn says that there is something to be learnt about candidates alone, and time for it.
func (c *decision) mayLearn() bool {
	r := c.graph.result
	return c.searching.Err() == nil && len(r.Trials) > 0 && len(r.Late) == 0 && (c.Trials <= 0 || len(r.Trials) < c.Trials) &&
		c.budget.Free(wantedFinalists) > 0
}

// learn measures candidates alone, as far as time goes, and shows what came of it.
func (c *decision) learn() error {
	free := time.Duration(learnShare * float64(c.budget.Free(wantedFinalists)))
	until, done := context.WithTimeout(c.searching, free)
	defer done()
	network := c.graph.network
	if err := network.Learn(until, c.graph.result.Tables); err != nil {
		return c.laneError(err)
	}
	// Candidates that backends proposed since have changed all indices.
	if err := c.graph.lane.Renew(); err != nil {
		return err
	}
	first, err := network.Plan(network.Placed, nil)
	if err != nil {
		return err
	}
	c.donePlacing(first)
	return c.ctx.Err()
}

// alone are the seeds that need no costs: plain TVM and every backend alone, as its users would have it.
func (c *decision) alone() []graphlevel.Seed {
	network := c.graph.network
	var seeds []graphlevel.Seed
	if slices.Contains(c.Backends, "tvm") && !c.constrained() {
		seeds = append(seeds, graphlevel.Seed{Name: "tvm", Placement: c.graph.lane.Plain()})
	}
	for _, b := range network.Backends() {
		name := b.Name()
		switch {
		case c.constrained():
			name = "mostly " + name // as far as what was asked for lets it
		case b.TakesAnything():
			continue
		}
		if p := network.Alone(b.Name()); p != nil {
			seeds = append(seeds, graphlevel.Seed{Name: name, Placement: p})
		}
	}
	return seeds
}

// seeds are what the graph level goes on with: those of alone, the operator level's placement, each backend with the cheapest of
// its own candidates, backends that share regions together with the cheapest of theirs, and with kernels that work in groups
// wherever those can be, and runners-up.
func (c *decision) seeds() []graphlevel.Seed {
	network := c.graph.network
	families := network.Families()
	seeds := append(c.alone(), graphlevel.Seed{Name: operatorLevelName, Placement: network.Placed})
	for _, b := range network.Backends() {
		name := b.Name()
		switch {
		case c.constrained():
			name = "mostly " + name
		case b.TakesAnything():
			continue
		}
		if p := network.Tuned(b.Name()); p != nil {
			// What a family can do together is hardly ever worse.
			optional := slices.ContainsFunc(families, func(family []string) bool { return slices.Contains(family, b.Name()) })
			seeds = append(seeds, graphlevel.Seed{Name: name + ", cheapest of its own", Placement: p, Optional: optional})
		}
	}
	for _, family := range families {
		if p := network.Tuned(family...); p != nil {
			seeds = append(seeds, graphlevel.Seed{Name: strings.Join(family, "+"), Placement: p})
		}
		if p := network.Grouped(family...); p != nil {
			seeds = append(seeds, graphlevel.Seed{Name: strings.Join(family, "+") + ", in groups", Placement: p})
		}
	}
	return append(seeds, network.RunnersUp()...)
}

func distinct(seeds []graphlevel.Seed) int {
	keys := map[string]bool{}
	for _, s := range seeds {
		keys[s.Placement.Key] = true
	}
	return len(keys)
}

// evolve runs the search, of the seeds alone or on from them. Where it is cut short, what stands in the store counts.
func (c *decision) evolve(seeds []graphlevel.Seed, alone bool) error {
	store, err := cost.OpenStore(c.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	step := c.Progress.Start("searching among whole networks (seconds)", int(c.budget.Total()/time.Second))
	c.graph.step, c.graph.started = step, time.Now().Add(-c.budget.Spent())
	defer func() { c.graph.step = nil }()
	searching := c.searching
	if free := c.budget.Free(wantedFinalists); !alone && free > 0 {
		// What takes longer than expected is given up: the best so far is there.
		var done context.CancelFunc
		searching, done = context.WithTimeout(searching, free)
		defer done()
	}
	options := graphlevel.Options{
		Seed: c.Seed, Time: c.budget.Total(), Left: func() time.Duration { return c.budget.Free(wantedFinalists) }, Trials: c.Trials,
		SeedsOnly: alone, Store: store, Key: c.graph.network.Key(), Overhead: c.graph.network.Overhead(), Bounded: c.graph.network.Bounded(),
		MemoryLimit: c.ExecutableMemory, RetryFailures: c.RetryFailures && alone, Progress: c.tellTrial,
	}
	network := c.graph.network
	result, err := graphlevel.Search(searching, network.Space, seeds, c.graph.lane, options)
	if err != nil && searching.Err() != nil && c.ctx.Err() == nil {
		why := c.whyEnded()
		options.StoredOnly, options.RetryFailures = true, false
		network.Renew()
		result, err = graphlevel.Search(c.ctx, network.Space, seeds, c.graph.lane, options)
		result.Why = why
	}
	if err != nil {
		c.Progress.Stop()
		return c.laneError(err)
	}
	c.graph.result = result
	best := result.Best()
	if len(best) == 0 {
		step.Done("none of %d networks runs", len(result.Trials))
		return nil
	}
	at := &result.Trials[best[0]]
	if len(result.PassedOver) > 0 {
		c.Progress.Note("  not built, since others are expected to take much less: %s", strings.Join(result.PassedOver, ", "))
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

func (c *decision) tellTrial(e graphlevel.Event) {
	t := e.Trial
	for _, note := range e.Notes {
		c.Progress.Note("  %s", note)
	}
	if c.graph.told[t.Placement.Key] {
		return
	}
	c.graph.told[t.Placement.Key] = true
	switch {
	case t.Cost.Failed():
		c.Progress.Note("  %s: %s", t.Name, oneLine(errors.New(t.Cost.Failure.String())))
	default:
		if c.graph.isBuilt(t.Placement) {
			c.Ending.ready(true)
		}
		mark := ""
		if e.Best == t {
			mark = ", the best so far"
		}
		c.Progress.Note("  %s: %.4g ms, %.3g of plain TVM's time, %s outside of it (%s, %.0f s)%s", t.Name, t.Cost.Estimate(), t.Score,
			regionText(t.Placement.Outlined()), t.Cost.Origin, c.budget.Spent().Seconds(), mark)
	}
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
	record := &plan.GraphLevel{Seconds: float64(r.Spent.Round(time.Millisecond)) / float64(time.Second), Why: r.Why, Seed: c.Seed, Steps: r.Steps}
	for i := range r.Trials {
		t := &r.Trials[i]
		n := plan.Network{Name: t.Name, Placement: t.Placement.Key, Regions: t.Placement.Outlined()}
		if t.Cost.Failed() {
			n.Failure = t.Cost.Failure.String()
		} else {
			n.Ratio, n.Milliseconds, n.Rounds = t.Score, t.Cost.Estimate(), len(t.Cost.Samples)
		}
		record.Networks = append(record.Networks, n)
	}
	return record
}

// close ends the workers of the graph level.
func (g *graph) close() {
	if g != nil && g.lane != nil {
		g.lane.Close()
	}
}
