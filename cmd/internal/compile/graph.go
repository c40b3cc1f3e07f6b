// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/cmd/internal/progress"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
)

// Level says how far the search goes.
type Level string

const (
	// OperatorLevel places by the costs of parts that are measured alone.
	OperatorLevel Level = "operator"
	// GraphLevel goes on from there with whole networks.
	GraphLevel Level = "graph"
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
	// step is what is being shown, since when, and doing is what is being done in it.
	step    *progress.Step
	started time.Time
	doing   string
}

// tick shows that time goes by: building a network takes a while.
func (g *graph) tick() {
	if g.step != nil {
		g.step.At(int(time.Since(g.started)/time.Second), g.doing)
	}
}

// searchesGraph says that there is something for the graph level to do: operators can go to TVM and elsewhere.
func (c *compilation) searchesGraph() bool {
	return c.Level != OperatorLevel && len(c.Backends) > 1 && slices.Contains(c.Backends, "tvm")
}

// searchGraph decides the operator level's placement, searches on from there among whole networks, and makes finalists
// of the best, of every backend alone, and of plain TVM. All of them are built.
func (c *compilation) searchGraph() error {
	config, step := c.placementConfig()
	network, err := pass.Explore(c.module, config)
	if err != nil {
		return err
	}
	c.target = network.Target()
	first, err := network.Plan(network.Placed, nil)
	if err != nil {
		return err
	}
	c.donePlacing(step(), first)
	if err := c.ctx.Err(); err != nil {
		return err
	}
	c.graph = &graph{network: network, result: &graphlevel.Result{}}
	c.graph.lane, err = pass.NewLane(network, pass.LaneOptions{Folder: c.Temporary, Extension: extension(c.Output), Python: c.Python,
		Poll: func() error { c.graph.tick(); return c.poll() }, Progress: func(what string) { c.graph.doing = what }})
	if err != nil {
		return err
	}
	seeds := c.seeds()
	if distinct(seeds) > 1 {
		if err := c.evolve(seeds); err != nil {
			return err
		}
	}
	return c.graphFinalists(seeds)
}

// seeds are what the graph level begins with: plain TVM and every backend alone, where they may be chosen, once as its users
// would have it and once with the cheapest of its own candidates, backends that share regions together with the cheapest
// of theirs, the operator level's placement and its runners-up.
func (c *compilation) seeds() []graphlevel.Seed {
	network := c.graph.network
	var seeds []graphlevel.Seed
	families := network.Families()
	if slices.Contains(c.Backends, "tvm") && !c.constrained() {
		seeds = append(seeds, graphlevel.Seed{Name: "tvm", Placement: c.graph.lane.Plain()})
	}
	seeds = append(seeds, graphlevel.Seed{Name: operatorLevelName, Placement: network.Placed})
	for _, b := range network.Backends() {
		name := b.Name()
		switch {
		case c.constrained():
			name = "mostly " + name // as far as what was asked for lets it
		case b.TakesAnything():
			continue
		}
		if p := network.Single(b.Name()); p != nil {
			seeds = append(seeds, graphlevel.Seed{Name: name, Placement: p})
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

// evolve runs the search. Its own time limit does not stop it in the middle of a network.
func (c *compilation) evolve(seeds []graphlevel.Seed) error {
	network := c.graph.network
	store, err := cost.OpenStore(c.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	limit := c.SearchTime
	if limit <= 0 {
		limit = graphlevel.DefaultTime
	}
	step := c.Progress.Start("searching among whole networks (seconds)", int(limit/time.Second))
	c.graph.step, c.graph.started = step, time.Now()
	defer func() { c.graph.step = nil }()
	c.graph.result, err = graphlevel.Search(c.ctx, network.Space, seeds, c.graph.lane, graphlevel.Options{
		Seed: c.Seed, Time: limit, Trials: c.Trials, Store: store, Key: network.Key(), Overhead: network.Overhead(), Bounded: network.Bounded(),
		MemoryLimit: c.ExecutableMemory, RetryFailures: c.RetryFailures,
		Progress: c.tellTrial,
	})
	if err != nil {
		c.Progress.Stop()
		return c.laneError(err)
	}
	best := c.graph.result.Best()
	if len(best) == 0 {
		step.Done("none of %d networks runs", len(c.graph.result.Trials))
		return nil
	}
	at := &c.graph.result.Trials[best[0]]
	if passed := c.graph.result.PassedOver; len(passed) > 0 {
		c.Progress.Note("  not built, since others are expected to take much less: %s", strings.Join(passed, ", "))
	}
	step.Done("%d networks; the best is %s, %.3g of plain TVM's time; %s", len(c.graph.result.Trials), at.Name, at.Score, c.graph.result.Why)
	return nil
}

func (c *compilation) tellTrial(e graphlevel.Event) {
	t := e.Trial
	switch {
	case t.Cost.Failed():
		c.Progress.Note("  %s: %s", t.Name, oneLine(errors.New(t.Cost.Failure.String())))
	default:
		mark := ""
		if e.Best == t {
			mark = ", the best so far"
		}
		c.Progress.Note("  %s: %.4g ms, %.3g of plain TVM's time, %s outside of it (%s, %.0f s)%s", t.Name, t.Cost.Estimate(), t.Score,
			regionText(t.Placement.Outlined()), t.Cost.Origin, e.Spent.Seconds(), mark)
	}
}

// laneError makes a full disk that a worker met one that Go knows, and an interrupt the context's.
func (c *compilation) laneError(err error) error {
	var full *measure.DiskFullError
	if errors.As(err, &full) {
		return &fullDisk{full.Error()}
	}
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	return err
}

// graphFinalists makes the finalists of what was found.
func (c *compilation) graphFinalists(seeds []graphlevel.Seed) error {
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
			if i < 0 {
				continue
			}
			if err := c.addFinalist(b, seeds[i].Placement, true); err != nil {
				return err
			}
		}
	}
	if err := c.addFinalist(operatorLevelName, c.graph.network.Placed, true); err != nil {
		return err
	}
	c.finalists[len(c.finalists)-1].origin = "the operator level's"
	number := 0
	for _, i := range c.graph.result.Best() {
		t := &c.graph.result.Trials[i]
		if number == bestFew {
			break
		}
		if slices.ContainsFunc(c.all(), func(f *finalist) bool { return f.placement.Key == t.Placement.Key }) {
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
	return c.buildGraph()
}

func (c *compilation) addFinalist(name string, p *genome.Placement, eligible bool) error {
	written, err := c.graph.network.Plan(p, c.graph.result.Tables)
	if err != nil {
		return err
	}
	written.Module.Name = c.Model
	f := &finalist{name: name, placement: p, plan: written, eligible: eligible}
	for _, earlier := range c.all() {
		if earlier != nil && earlier.placement.Key == p.Key {
			f.sameAs = earlier.built()
			break
		}
	}
	c.finalists = append(c.finalists, f)
	return nil
}

// buildGraph builds the finalists that the search has not built in this run, and measures what they take of memory.
func (c *compilation) buildGraph() error {
	var list []*genome.Placement
	for _, f := range c.all() {
		if f.sameAs == nil {
			list = append(list, f.placement)
		}
	}
	c.graph.lane.Rest()
	c.graph.lane.Forget(list...)
	step := c.Progress.Start(fmt.Sprintf("building %d finalists", len(list)), 0)
	if err := c.graph.lane.Build(c.ctx, list); err != nil {
		c.Progress.Stop()
		return c.laneError(err)
	}
	step.Done("done")
	for _, f := range c.all() {
		if f.sameAs != nil {
			if f.eligible {
				c.notes = append(c.notes, sameNote(f))
			}
			continue
		}
		e, err := c.graph.lane.Executable(c.ctx, f.placement)
		if err != nil {
			return c.laneError(err)
		}
		f.path, f.bytes, f.failure = e.Path, e.Bytes, e.Failure
		if f.failure != nil {
			if f == c.reference {
				return fmt.Errorf("TVM cannot build %s: %s", c.Model, f.failure.Detail)
			}
			continue
		}
		if err := c.weigh(f, e); err != nil {
			return c.laneError(err)
		}
	}
	return nil
}

// weigh measures what a finalist takes of memory. One that takes more than it may has lost, but for the reference, which
// outputs are held against.
func (c *compilation) weigh(f *finalist, e *pass.Executable) error {
	print, err := c.graph.lane.Footprint(c.ctx, e)
	if err != nil {
		return err
	}
	f.resident, f.peak = print.Resident, print.Peak
	if limit := c.ExecutableMemory; limit > 0 && print.Resident > limit {
		if f == c.reference {
			f.eligible = false
			c.finalists = slices.DeleteFunc(c.finalists, func(other *finalist) bool { return other == f })
			c.notes = append(c.notes, fmt.Sprintf("TVM alone takes %.1f MB of memory, more than the limit of %.1f MB.", float64(print.Resident)/1e6,
				float64(limit)/1e6))
			return nil
		}
		f.failure = &cost.Failure{Phase: "run", Kind: cost.KindOutOfMemory, Detail: fmt.Sprintf("it takes %.1f MB, the limit is %.1f MB",
			float64(print.Resident)/1e6, float64(limit)/1e6)}
	}
	return nil
}

// graphRecord is what the plan says of the search.
func (c *compilation) graphRecord() *plan.GraphLevel {
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

// extension is that of the executables that are built on the way: the one of the executable at the end.
func extension(output string) string {
	if strings.HasSuffix(output, ".tar") {
		return ".tar"
	}
	return ".so"
}
