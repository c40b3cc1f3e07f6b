// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// placeAtSize has the network with fixed sizes, those that it is tried at, searched as any other one, and places as what
// was the fastest there does: the graph executor tells what parts take in place, which nothing does of open sizes. None
// come back where the network cannot be had with fixed sizes, and, with a warning, where it cannot be searched with them.
func (c *decision) placeAtSize() ([]*finalist, error) {
	shapes := map[string][]int64{}
	for name, sizes := range c.Tried {
		shapes[name] = sizes.Shape
	}
	fixed, nodes, err := symbolic.FixModule(c.module, shapes)
	if symbolic.IsNotFixed(err) {
		c.Progress.Detail("%v", err)
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer fixed.Release()
	if part := (*placing.NotWholeError)(nil); errors.As(placing.Whole(fixed), &part) {
		c.Progress.Detail("with fixed sizes: %v", part)
		return nil, nil
	}
	c.Progress.Note("searching at %s, where sizes are open", c.triedText())
	searched := &decision{Options: c.Options, module: fixed, ctx: c.ctx, quit: c.quit, searching: c.searching}
	searched.Witness, searched.Tried, searched.Rehearse, searched.Settle = nil, nil, nil, true
	searched.Prices, searched.Corners = false, false
	searched.Temporary = filepath.Join(c.Temporary, "fixed")
	if err := os.MkdirAll(searched.Temporary, 0o755); err != nil {
		return nil, fmt.Errorf("making a folder for what is built on the way: %w", err)
	}
	searched.budget = budget.New(partsTime(c.budget.Left()-c.budget.Writing(), machineShare), nil)
	searched.Budget = searched.budget
	defer searched.graph.close()
	err = searched.search()
	if searched.stopped != nil {
		c.stopped = searched.stopped
	}
	if err != nil && c.ctx.Err() == nil && !errors.Is(err, bridge.ErrInterrupted) {
		c.warn("It could not be searched with fixed sizes: %s.", oneLine(err))
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, warning := range searched.warnings {
		if !slices.Contains(searched.hurried, warning) { // its time is not that of the whole
			c.warn("With fixed sizes: %s", warning)
		}
	}
	found, err := searched.bestMixes()
	if err != nil {
		return nil, err
	}
	placed, err := c.placedAs(found, nodes)
	c.noteExpected(searched, placed, found)
	if len(placed) > 0 {
		c.note("It was placed as what was the fastest where its sizes are fixed, at %s.", c.triedText())
	}
	return placed, err
}

// triedText is "ids [1, 256]" of the inputs with open dimensions.
func (c *decision) triedText() string {
	var names []string
	for name := range c.Tried {
		names = append(names, name)
	}
	slices.Sort(names)
	text := ""
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += name + " " + relay.ShapeText(c.Tried[name].Shape)
	}
	return text
}

// mix is a network of the search at fixed sizes, with its plan.
type mix struct {
	placement *genome.Placement
	plan      *plan.Plan
	origin    string // what the search called it
}

// bestMixes are the plans of the fastest networks of a search, the fastest first, each of other backends than those before
// it: what is the fastest at one size need not be so at all, and the next few of a search are much like the first. Of
// networks of the same backends that are about as fast (alikeAtSize) it is the one that leaves the least to TVM, whose
// kernels for open sizes are slow. Backends alone are not among them.
func (c *decision) bestMixes() ([]mix, error) {
	seen := map[string]bool{"": true}
	for _, b := range c.Backends {
		seen[b] = !c.constrained() // what is pinned may leave one
	}
	var found []mix
	take := func(p *genome.Placement, origin string) error {
		written, err := c.graph.network.Plan(p, c.graph.result)
		if err != nil {
			return err
		}
		if of := strings.Join(backendsOf(written), " "); !seen[of] {
			seen[of] = true
			found = append(found, mix{p, written, origin})
		}
		return nil
	}
	for _, i := range c.graph.result.Best() {
		t := &c.graph.result.Trials[i]
		if len(found) == bestFew || !c.mayBeKept(t) {
			break
		}
		t = c.leastLeft(t)
		if err := take(t.Placement, t.Name); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 || c.Level == settings.OperatorLevel {
		p, origin := c.placedInContext()
		if err := take(p, origin); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// alikeAtSize is up to how many times as long as the fastest a network may take at fixed sizes for which it counts that
// it leaves less to TVM: a part of a tenth of the time takes many times as long there where sizes are open.
const alikeAtSize = 1.1

// leastLeft is, among the trials of the same backends that are about as fast as one, the one that leaves the least to
// TVM, the fastest of these.
func (c *decision) leastLeft(of *graphlevel.Trial) *graphlevel.Trial {
	network, least := c.graph.network, of
	for _, i := range c.graph.result.Best() {
		t := &c.graph.result.Trials[i]
		if t.Score > alikeAtSize*of.Score || !c.mayBeKept(t) {
			continue
		}
		if network.Left(t.Placement) < network.Left(least.Placement) &&
			slices.Equal(network.BackendsOf(t.Placement), network.BackendsOf(of.Placement)) {
			least = t
		}
	}
	return least
}

// noteExpected notes what the finalists took in the search at fixed sizes.
func (c *decision) noteExpected(searched *decision, placed []*finalist, found []mix) {
	c.expected = map[string]cost.Cost{}
	for _, f := range searched.finalists {
		if t := searched.trialOf(f.built().placement); t != nil && slices.Contains(c.Backends, f.name) {
			c.expected[f.name] = t.Cost
		}
	}
	for i, f := range placed {
		if t := searched.trialOf(found[i].placement); t != nil {
			c.expected[f.name] = t.Cost
		}
	}
}

// curtailExpected is curtail by what finalists took where sizes are fixed.
func (c *decision) curtailExpected() {
	best := cost.Cost{}
	for _, one := range c.expected {
		if !one.Failed() && (!best.Known() || graphlevel.Score(one) < graphlevel.Score(best)) {
			best = one
		}
	}
	for _, f := range c.distinct() {
		if known, ok := c.expected[f.name]; ok && graphlevel.Hopeless(known, best) {
			f.rounds = leastRounds
		}
	}
}

// expectedRounds is how many rounds there is time for where finalists take what they took at fixed sizes, at each size at
// which they are run; one that is curtailed is not counted.
func (c *decision) expectedRounds() int {
	c.curtailExpected()
	round := 0.0
	for _, f := range c.contending() {
		if known, ok := c.expected[f.name]; ok {
			round += known.Estimate()
		}
	}
	if len(c.opened()) > 0 {
		round *= mostPoints
	}
	if c.budget == nil {
		return c.Rounds
	}
	switch left := float64(c.budget.Left()-c.budget.Writing()) / float64(time.Millisecond); {
	case round > 0:
		return min(c.Rounds, max(leastRounds, int(left/round)))
	case c.machine != nil && left <= 0:
		return min(c.Rounds, leastRounds) // building took all the time
	}
	return c.Rounds
}

// leastBuilt is how many finalists are built however short the time is: plain TVM, the backend alone of which the most is
// expected, and what was placed.
const leastBuilt = 3

// byExpected are finalists in the order in which they are built: those of leastBuilt, then what else was placed, then the
// other backends, what was the fastest at fixed sizes first. Where nothing was run at such, the backend that takes the
// most operators is the first. As they are where the graph executor runs them.
func (c *decision) byExpected(finalists []*finalist) []*finalist {
	if c.expected == nil && c.machine == nil {
		return finalists
	}
	rank := func(f *finalist) (class int, score float64) {
		known, ok := c.expected[f.name]
		if score = math.Inf(1); ok {
			score = graphlevel.Score(known)
		} else if c.expected == nil {
			score = -float64(f.takes())
		}
		switch {
		case f == c.reference:
			return 0, 0
		case !slices.Contains(c.Backends, f.name):
			return 1, score
		}
		return 2, score
	}
	sorted := slices.Clone(finalists)
	slices.SortStableFunc(sorted, func(a, b *finalist) int {
		x, p := rank(a)
		y, q := rank(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(p, q))
	})
	alone := slices.IndexFunc(sorted, func(f *finalist) bool { class, _ := rank(f); return class == 2 })
	if alone > 1 {
		best := sorted[alone]
		sorted = slices.Insert(slices.Delete(sorted, alone, alone+1), 1, best)
	}
	return sorted
}

// tooLate says that there is no time to build one more finalist and to run them then, or that nobody wants to wait.
func (c *decision) tooLate() bool {
	if c.expected == nil && c.machine == nil || c.budget == nil {
		return false
	}
	if c.Ending.asked() {
		return true
	}
	runs := 0.0 // how long they take is not known where nothing is expected
	for _, known := range c.expected {
		if !known.Failed() {
			runs += leastRounds * known.Estimate()
		}
	}
	if len(c.opened()) > 0 {
		runs *= mostPoints
	}
	return c.budget.Left()-c.budget.Writing() < c.budget.Build()+time.Duration(runs*float64(time.Millisecond))
}

// leaveOut takes finalists out that there was no time to build.
func (c *decision) leaveOut(late []*finalist) {
	if len(late) == 0 {
		return
	}
	c.finalists = slices.DeleteFunc(c.finalists, func(f *finalist) bool { return slices.Contains(late, f) })
	if c.expected == nil {
		c.warn("%s", c.hurry(fmt.Sprintf("There was no time to build %s.", joinNames(titles(late)))))
		return
	}
	c.note("%s", c.hurry(fmt.Sprintf("There was no time to build %s: at fixed sizes that was no better.",
		joinNames(titles(late)))))
}

// mostPoints is at how many sizes of a domain networks are run at most (python/collage/open_dimensions.py).
const mostPoints = 3

// backendsOf are the backends that a plan has beside TVM, sorted.
func backendsOf(p *plan.Plan) []string {
	var names []string
	for i := range p.Regions {
		for _, name := range p.Regions[i].Backends() {
			if name != "tvm" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// placedAs are finalists that place as plans do that were made at fixed sizes.
func (c *decision) placedAs(found []mix, nodes []relay.NodeID) ([]*finalist, error) {
	var placed []*finalist
	for i, like := range found {
		module, p, err := network.PlaceLike(c.module, c.placementConfig(), like.plan, nodes, "")
		if err != nil {
			return nil, err
		}
		p.Module.Name = c.Name
		c.target = p.Environment.Target
		name := graphLevelName
		switch {
		case i > 0:
			name = fmt.Sprintf("%s %d", name, i+1)
		case len(found) == 1 && (c.Level == settings.OperatorLevel || c.constrained()):
			name = plan.PlacementName
		}
		placed = append(placed, &finalist{name: name, module: module, plan: p, eligible: true, origin: like.origin})
	}
	return placed, nil
}
