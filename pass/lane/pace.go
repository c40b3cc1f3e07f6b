// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"

	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
)

// pace is the network that others run in turn with: plain TVM's until another is known to be faster. What is measured
// beside it is told as a part of plain TVM's time by way of its score, so that an error of that is in all that follows.
type pace struct {
	executable *Executable // nil for plain TVM's
	// score is its time over plain TVM's.
	score float64
}

// chance is how likely chance alone must be for rounds to be explained by it (a sign test).
const chance = 0.1

// follow takes a network for the pace that was measured in turn with it, and is faster beyond doubt. Of networks that
// are equally fast the one with the luckiest rounds looks best; were its score believed, and the next lucky one held
// against it, scores would go down though nothing becomes faster, and what was measured early would look slow. So it
// runs once more (again), and what these rounds say, which nobody chose for being good, is its score as a pace. They
// are given back, or how it failed in them; nothing where it was not run again. Plain TVM's first follower is believed,
// since what its score is off by all have in common, unless others were measured before (goesOn). Errors are those of
// again.
func (p *pace) follow(ctx context.Context, e *Executable, c cost.Cost, goesOn bool,
	again func(context.Context) (cost.Cost, error)) (cost.Cost, error) {
	if p.executable == nil && !goesOn {
		if score := graphlevel.Score(c); score < 1 {
			*p = pace{e, score}
		}
		return cost.Cost{}, nil
	}
	if !ahead(c) {
		return cost.Cost{}, nil
	}
	fresh, err := again(ctx)
	if err != nil || fresh.Failed() {
		return fresh, err // what ran once and not again does not set the pace
	}
	if score := graphlevel.Score(fresh); score < p.score || p.executable == nil && score < 1 {
		*p = pace{e, score}
	}
	return fresh, nil
}

// farAheadRatio is so small a part of the time of what it runs in turn with that a network need not run on: it sets the
// pace from now on, and what its score is off by all that follow have in common. Plain TVM may take a second for what
// others do in forty milliseconds.
const farAheadRatio = 0.25

// farAhead says that in none of its rounds a network took more than a small part of what it ran in turn with took.
func farAhead(c cost.Cost) bool {
	if c.Network == nil || len(c.Samples) == 0 || len(c.Samples) != len(c.Network.Against) {
		return false
	}
	for i, took := range c.Samples {
		if took > farAheadRatio*c.Network.Against[i] {
			return false
		}
	}
	return true
}

// ahead says that a network was faster than what it ran in turn with, in more rounds than chance explains.
func ahead(c cost.Cost) bool { return aheadOf(c, chance) }

func aheadOf(c cost.Cost, chance float64) bool {
	if c.Network == nil || !c.Known() {
		return false
	}
	won, lost := statistics.Signs(c.Samples, c.Network.Against)
	return won > lost && (lost == 0 || statistics.SignTest(lost, won+lost) <= chance)
}
