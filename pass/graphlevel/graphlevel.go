// SPDX-License-Identifier: Apache-2.0

// Package graphlevel searches among whole networks, which is what the operator level cannot do: there costs add up, and
// what happens between kernels (layouts kept, caches, an engine's own scheduling, the crossing of borders) does not.
//
// What comes in: the space of placements (genome.Space), placements to begin with (Seed), and someone who builds, runs
// and profiles whole networks (Estimator). What goes out: all that was tried, each with its samples, and what is the
// best (Result).
//
// First the seeds are measured, as far as the time goes: the first few in any case. Then comes feedback from context:
// what each part took in place replaces what it took alone, what was spent at borders says what crossing one takes, the
// operator level places again with both, and so on until a placement repeats. Then what is done with one computation of
// the best is done otherwise, wherever it stands, the most promising by the costs in context first, none of it twice.
// Whatever is measured is a record in the cost store at once; a search that is begun again finds it there, takes the
// same decisions and goes on where the other one was ended. It depends on nothing but the store and the budget.
package graphlevel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
)

// Estimator builds and measures whole networks.
type Estimator interface {
	// Measure gives the costs of placements, in their order: samples of the whole network and, in cost.Network, those
	// of plain TVM from the same rounds, the time of each part, sizes, and the seconds that it took. A placement that
	// cannot be built or run, or answers wrongly, is a cost with a failure. best is the best cost so far, nil where
	// there is none: what is hopeless beside it need not be measured to the end (Hopeless). taken is called on the
	// caller's goroutine with each one that is finished, in any order; an error of it ends the call. Errors are for
	// what makes the search impossible.
	Measure(ctx context.Context, placements []*genome.Placement, best *cost.Cost,
		taken func(i int, c cost.Cost) error) error
}

// Ahead is an Estimator that can be told what comes next.
type Ahead interface {
	// Ahead names placements that will be measured after those of the next Measure, in their order: some of them can be
	// built while it waits for its own.
	Ahead(placements []*genome.Placement)
}

// Seed is a placement to begin with.
type Seed struct {
	// Name says what it is: "tvm", a backend's name for that backend alone, "operator level", "runner-up".
	Name      string
	Placement *genome.Placement
	// Optional says that it need not be measured where it looks hopeless by what others took.
	Optional bool
	// Alone says that it is a backend alone, and need not be measured where what it leaves to TVM takes much longer by
	// itself, as it was seen in place, than the best so far: what the backend's own share takes is not asked, since parts
	// that were measured by themselves say little of how long they take together.
	Alone bool
	// Wide is what computes the same in the network's own type; nil for nothing. It is measured in the place of seeds
	// that may not be kept where nothing but plain TVM may be: as long as there is time after all of them, else before
	// the others, and however short the time is.
	Wide *Seed
}

// Options say how long to search, and how.
type Options struct {
	// Time ends the search when building and measuring have taken so long, the seeds too. 0 for no such limit. What
	// stands in the store counts as long as it took, so that a search that is made again ends where it ended. Where
	// there is Left, that alone counts, so that it goes on, unless CountStored says that both do.
	Time        time.Duration
	CountStored bool
	// Left says how much time there is from now on for building and measuring: what is left of the time that the caller
	// has, less what it needs afterwards. No network is begun that is expected to take longer, and one that does is
	// given up; but for the first few. nil: only Time counts.
	Left func() time.Duration
	// Expect says how long these networks are expected to take, which are built side by side and then measured; nil: as
	// long as the slowest of this search.
	Expect func(placements []*genome.Placement) time.Duration
	// Now is the clock of the slowest; nil for time.Now.
	Now func() time.Time
	// Trials ends the search when so many networks were measured, seeds among them; 0 for no such limit. The first few
	// are measured whatever it is.
	Trials int
	// SeedsOnly ends it after the seeds, FeedbackOnly after the feedback. PlaceOnly has the operator level place once by
	// what the seeds have shown (Result.Placed), and ends it without measuring that.
	SeedsOnly, FeedbackOnly, PlaceOnly bool
	// StoredOnly takes what the store has, and measures nothing.
	StoredOnly bool
	// Patience ends it when so many networks in a row, after the seeds and the feedback, were no improvement; 0 for
	// DefaultPatience, or less in a small network.
	Patience int
	// FeedbackSteps is how often the operator level places again at most; 0 for DefaultFeedback, -1 for never.
	FeedbackSteps int
	// FeedbackBefore counts the steps of searches before this one, whose networks are among the seeds.
	FeedbackBefore int
	// Batch is how many networks are built side by side, as far as there is time for so many; 0 for 2.
	Batch int
	// Overhead is what the operator level adds to each candidate.
	Overhead place.Overhead
	// Bounded says of each function's candidates whose costs are lower bounds; nil: none are.
	Bounded [][]bool
	// MemoryLimit is how many bytes a network may take when it runs; 0 for no limit.
	MemoryLimit int64
	// Limit is how far a network's outputs may be off to be kept. What is further off stays in the store, for other
	// limits, and what its parts took in place is learnt all the same.
	Limit cost.Limit
	// Rests says on what a placement's record rests beside Key and the placement, in the words that its key has: the
	// scales of what it rounds; nil for nothing.
	Rests func(p *genome.Placement) string
	// Adds is what is believed of errors before they are measured, asked again with each that is; nil for nothing.
	Adds Adds
	// Store keeps what is measured, under Key with the placement's key as Composite.
	Store *cost.Store
	Key   cost.Key
	// RetryFailures measures networks again that the store knows as failed.
	RetryFailures bool
	// Progress is told of each network that was measured or found in the store. May be nil.
	Progress func(Event)
	// computations is how many are tried (refine); 0 for mostComputations, else tests' own.
	computations int
}

// The defaults of Options.
const (
	DefaultPatience = 10
	DefaultFeedback = 4
)

// Event is a piece of progress.
type Event struct {
	// Trial is what was found; Best is the best so far, nil where nothing has run yet.
	Trial, Best *Trial
	// Trials counts what was tried; Spent is what of the time was used up.
	Trials int
	Spent  time.Duration
	// Notes say what could not be learnt of it, and why; each thing once in a search.
	Notes []string
}

// Trial is a whole network that was measured.
type Trial struct {
	// Name says where it comes from: a seed's name, "feedback 2", "with 3 nn.conv2d to tvm".
	Name      string
	Placement *genome.Placement
	Cost      cost.Cost
	// Exceeds says by how much its outputs are further off than they may be (Options.Limit); "" where they are not.
	Exceeds string
	// Score is its time over plain TVM's, by the median of the rounds; +Inf where it failed.
	Score float64
	// Predicted is what the costs said before it was measured, in milliseconds.
	Predicted float64
}

// Result is what the search found.
type Result struct {
	// Trials are in the order in which they were tried.
	Trials []Trial
	// Steps are the turns of the feedback, Fed how many networks were measured for it.
	Steps []plan.Step
	Fed   int
	// PassedOver are the names of seeds that were not measured, since they looked hopeless.
	PassedOver []string
	// FarOff are the names of those that were not measured, since their outputs were believed to be off by many times
	// what is allowed.
	FarOff []string
	// Late are the names of those that the budget did not reach.
	Late []string
	// Spent is how long building and measuring took, in this run or another.
	Spent time.Duration
	// Why says what ended the search.
	Why string
	// Tables have, for each function, what its candidates took in place.
	Tables []*feedback.Table
	// Placed is what the operator level placed last by these and by the borders, whether there was time to measure it or
	// not; nil where it did not.
	Placed *genome.Placement
	// Lagrangian is what the last placement by the price of errors was worth; nil where none was made.
	Lagrangian *plan.Lagrangian

	belief *belief
}

// MayBeKept says that it ran, and that its outputs are no further off than they may be.
func (t *Trial) MayBeKept() bool { return !t.Cost.Failed() && t.Exceeds == "" }

// Best are the indices of the trials that may be kept, the best first.
func (r *Result) Best() []int {
	var order []int
	for i := range r.Trials {
		if r.Trials[i].MayBeKept() {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return r.Trials[a].compare(&r.Trials[b]) })
	return order
}

// compare orders trials by score; of equal ones the simpler one comes first.
func (t *Trial) compare(other *Trial) int {
	switch {
	case t.Score < other.Score:
		return -1
	case t.Score > other.Score:
		return 1
	}
	return t.Placement.Outlined() - other.Placement.Outlined()
}

// Search searches. On an error or an interrupt the result has what was found by then, and the store has it, too.
func Search(ctx context.Context, space *genome.Space, seeds []Seed, estimator Estimator, options Options) (*Result,
	error) {
	s := newSearch(ctx, space, estimator, options)
	err := s.run(seeds)
	s.result.Spent = s.spent
	s.result.belief = &belief{space: s.space, borders: s.borders, overhead: options.Overhead,
		sensitivity: s.sensitivity}
	return s.result, err
}

// Ratios are the rounds' times over plain TVM's, by way of the network that the rounds were run in turn with; where
// there was none, the times themselves.
func Ratios(c cost.Cost) []float64 {
	ratios := slices.Clone(c.Samples)
	if c.Network == nil {
		return ratios
	}
	pace := c.Network.Pace
	if pace == 0 {
		pace = 1
	}
	for i := range min(len(ratios), len(c.Network.Against)) {
		ratios[i] *= pace / c.Network.Against[i]
	}
	return ratios
}

// Score is the median of the ratios; +Inf for what failed.
func Score(c cost.Cost) float64 {
	if !c.Known() {
		return math.Inf(1)
	}
	return statistics.Quantile(Ratios(c), 0.5)
}

// hopelessRun is how much slower than the best, quartile against quartile, a network must be to be given up in the
// middle of its rounds: three are not enough to tell what touches apart, and more than this is not made good by more of
// them.
const hopelessRun = 1.03

// roundsToJudge is how many rounds are run before a network may be called hopeless.
const roundsToJudge = 3

// Hopeless says that a network need not be measured further: even its better rounds are worse than the worse rounds of
// the best one.
func Hopeless(c, best cost.Cost) bool { return hopelessBy(c, best, hopelessRun) }

func hopelessBy(c, best cost.Cost, times float64) bool {
	if !best.Known() {
		return false
	}
	worse := statistics.Quantile(Ratios(best), 0.75)
	if c.Network != nil && c.Network.Pace > 0 {
		worse = Score(best) // plain TVM's noise is in the best one's rounds, and not in these
	}
	return behind(c, times*worse)
}

// Behind is Hopeless beside a network of which no more is given than its score.
func Behind(c cost.Cost, score float64) bool { return behind(c, hopelessRun*score) }

// behind says that even the better rounds of a network are above a score.
func behind(c cost.Cost, score float64) bool {
	return len(c.Samples) >= roundsToJudge && statistics.Quantile(Ratios(c), 0.25) > score
}

// sizeText is a size for people.
func sizeText(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
