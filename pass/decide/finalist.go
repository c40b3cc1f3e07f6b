// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
)

// finalist is one way to build the whole network.
type finalist struct {
	// name is a backend's for that backend alone, plan.PlacementName for the placement.
	name   string
	module *bridge.Object
	// plan is nil where nothing was placed: for TVM alone where it may not be chosen.
	plan *plan.Plan
	// eligible says that it may be chosen.
	eligible bool
	// placement is set where the graph level was searched, and then module is nil. origin is what the search called it.
	placement *genome.Placement
	origin    string

	// sameAs is the finalist that has the same module; this one is then not built.
	sameAs *finalist
	// path is the built model.
	path  string
	bytes int64
	cost  cost.Cost
	// maxError is the greatest difference from TVM's outputs.
	maxError float64
	// resident and peak are what running it takes of memory, in bytes; 0 where that was not measured.
	resident, peak int64
	failure        *cost.Failure
	// settled says that it was chosen without a comparison.
	settled bool
}

// referenceName is that of plain TVM where it is built to compare outputs with and for nothing else.
const referenceName = "reference"

// title is how the finalist is called in sentences.
func (f *finalist) title() string {
	switch {
	case f.name == plan.PlacementName:
		return "the placement"
	case f.name == operatorLevelName:
		return "the operator level's placement"
	case strings.HasPrefix(f.name, graphLevelName):
		return "the graph level's placement" + strings.TrimPrefix(f.name, graphLevelName)
	}
	if f.name == referenceName {
		return "TVM alone, to compare with"
	}
	return f.name + " alone"
}

// regions counts the regions that were given to other backends than TVM.
func (f *finalist) regions() int {
	if f.plan == nil {
		return 0
	}
	return f.plan.Outlined()
}

// compilers are the Compiler attributes of its regions.
func (f *finalist) compilers() []string {
	names := map[string]bool{}
	if f.plan != nil {
		for i := range f.plan.Regions {
			if f.plan.Regions[i].Symbol != "" {
				names[backendCompiler(f.plan.Regions[i].Backends()[0])] = true
			}
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// built is the finalist that was built in its place.
func (f *finalist) built() *finalist {
	if f.sameAs != nil {
		return f.sameAs
	}
	return f
}

// all are the finalists, the reference first.
func (c *decision) all() []*finalist {
	var all []*finalist
	if c.reference != nil {
		all = append(all, c.reference)
	}
	for _, f := range c.finalists {
		if f != c.reference {
			all = append(all, f)
		}
	}
	return all
}

// distinct are the finalists that were built and have not failed, the reference first.
func (c *decision) distinct() []*finalist {
	var some []*finalist
	for _, f := range c.all() {
		if f.sameAs == nil && f.failure == nil {
			some = append(some, f)
		}
	}
	return some
}

// build builds every finalist. One that TVM cannot build has lost, with the reason; only the reference must be
// built.
func (c *decision) build() error {
	all := c.all()
	for i, f := range all {
		for _, earlier := range all[:i] {
			same, err := sameModule(earlier.module, f.module)
			if err != nil {
				return err
			}
			if same {
				f.sameAs = earlier.built()
				break
			}
		}
		if f.sameAs != nil {
			if f.eligible {
				c.notes = append(c.notes, sameNote(f))
			}
			continue
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		err := c.buildOne(f)
		switch {
		case err == nil:
		case errors.Is(err, bridge.ErrInterrupted), c.ctx.Err() != nil, atomicfile.IsDiskFull(err):
			return err
		case f == c.reference:
			return fmt.Errorf("TVM cannot build %s: %w", c.Name, err)
		default:
			f.failure = &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: oneLine(err)}
		}
	}
	return nil
}

func sameNote(f *finalist) string {
	if f.name == plan.PlacementName || f.name == operatorLevelName {
		return fmt.Sprintf("%s is the same network as %s; it was built and measured once.", capital(f.title()), f.sameAs.title())
	}
	if f.sameAs.name == "tvm" {
		return fmt.Sprintf("%s can take nothing of this network, so by itself it is the same as TVM alone.", f.name)
	}
	return fmt.Sprintf("%s alone is the same network as %s.", f.name, f.sameAs.title())
}

// buildOne has TVM build a finalist into the temporary folder.
func (c *decision) buildOne(f *finalist) error {
	step := c.Progress.Start("building "+f.title(), 0)
	f.path = filepath.Join(c.Temporary, f.name+c.Extension)
	err := c.Build(f.module, Build{Target: c.target, OptLevel: c.OptLevel, DisabledPasses: pass.BuildWithout(c.disabledPasses()),
		TuningLog: c.TuningLog, Out: f.path, Plugins: pluginPaths(f.compilers()), Threads: c.Threads})
	if err != nil {
		c.Progress.Stop()
		return err
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return fmt.Errorf("the Python host did not write what it built: %w", err)
	}
	f.bytes = info.Size()
	step.Done("%d regions outside of TVM, %.1f MB", f.regions(), float64(f.bytes)/1e6)
	return nil
}

const (
	// mostTurns is how many times the rounds are run at most, where it is not clear who is the fastest.
	mostTurns = 3
	// roundsToDoubt: who asks for fewer rounds has no more time.
	roundsToDoubt = 10
)

// undecided says that noise alone ties the fastest finalist with one that seems to be slower.
func (c *decision) undecided() bool {
	var running []*finalist
	for _, f := range c.distinct() {
		if f.eligible {
			running = append(running, f)
		}
	}
	if len(running) < 2 {
		return false
	}
	fastest := slices.MinFunc(running, byEstimate)
	return slices.ContainsFunc(running, func(f *finalist) bool {
		return f != fastest && equal(f.cost.Samples, fastest.cost.Samples) && medianRatio(f.cost.Samples, fastest.cost.Samples) > 1+tieMargin
	})
}

// leastRounds is how often finalists are run at least where time is short.
const leastRounds = 5

// roundsOf is in how many rounds a finalist runs, 0 for all: one that the search found to be hopeless is there to be told of.
func (c *decision) roundsOf(f *finalist) int {
	if c.graph == nil {
		return 0
	}
	t, best := c.trialOf(f.placement), c.graph.result.Best()
	if t == nil || len(best) == 0 || !graphlevel.Hopeless(t.Cost, c.graph.result.Trials[best[0]].Cost) {
		return 0
	}
	return leastRounds
}

// affordableRounds is how many rounds there is time for, by what the search found, when the models are loaded.
func (c *decision) affordableRounds() int {
	if c.graph == nil {
		return c.Rounds
	}
	round := 0.0
	finalists := c.distinct()
	for _, f := range finalists {
		if t := c.trialOf(f.placement); t != nil && !t.Cost.Failed() {
			round += t.Cost.Estimate()
		}
	}
	left := float64(c.budget.Left()-c.budget.Writing()-c.budget.Loading(len(finalists))) / float64(time.Millisecond)
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
	if c.settled {
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
	comparison, err := c.compareIn(running, pool, c.distinct(), rounds)
	if err != nil && running.Err() == nil {
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
	for turn := 1; ; turn++ {
		for _, f := range c.distinct() {
			if turn > 1 && c.roundsOf(f) > 0 {
				continue // the others' rounds of the first turn are those that its own stand beside
			}
			f.cost.Origin = cost.Measured
			f.cost.Samples = append(f.cost.Samples, comparison.Costs[f.name].Samples...)
		}
		if turn == mostTurns || rounds < roundsToDoubt || c.graph != nil && c.budget.Left()-c.writing() < turnTook || !c.undecided() {
			break
		}
		c.Progress.Note("  which one is the fastest is not clear; they run again")
		again, err := c.compareIn(running, pool, c.distinct(), rounds)
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
		check := comparison.Outputs[f.name]
		f.maxError = check.MaxError
		if !check.OK {
			f.failure = &cost.Failure{Phase: "check", Kind: cost.KindWrongResult,
				Detail: fmt.Sprintf("its outputs differ from TVM's by up to %.3g", check.MaxError)}
		}
	}
	return nil
}

// runContext is under which finalists are run.
func (c *decision) runContext() context.Context {
	if c.searching != nil {
		return c.searching
	}
	return c.ctx
}

func (c *decision) compareIn(ctx context.Context, pool runner, finalists []*finalist, rounds int) (*measure.Comparison, error) {
	names := make([]string, len(finalists))
	models := make([]measure.Model, len(finalists))
	for i, f := range finalists {
		names[i], models[i] = f.title(), measure.Model{Name: f.name, Path: f.path, Rounds: c.roundsOf(f)}
	}
	title := "running " + joinNames(names) + " in turn"
	if len(names) == 1 {
		title = "running " + names[0]
	}
	step := c.Progress.Start(title, rounds)
	comparison, err := pool.Compare(ctx, models, measure.CompareOptions{Rounds: rounds, Progress: func(done, _ int) {
		step.At(done, "")
	}})
	if err != nil {
		c.Progress.Stop()
		return nil, err
	}
	step.Done("%d rounds", rounds)
	return comparison, nil
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
