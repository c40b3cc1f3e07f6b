// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"math"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/plan"
)

// Network is one that is run.
type Network struct {
	// Name is short and different for each ("resnext50_32x4d"); Model is what collage compile takes, from any folder;
	// Given is what reports call it, as the user named it: "" is Model.
	Name, Model, Given string
	// Params, Format and InputShapes are as of compile.Options.
	Params, Format string
	InputShapes    map[string][]int64
	// Executable is what Collage made of it; Chosen and Shares say what that is, where it is known: the finalist that
	// was kept, and how many operators each backend has.
	Executable string
	Chosen     string
	Shares     map[string]int
	// Budgeted says that its plan holds it to a budget of errors, as one that comes quantised is: engines that round
	// otherwise are not wrong.
	Budgeted bool
	// BestSingle is the fastest single backend when it was compiled, and ToBestSingle that one's time to what was kept,
	// in the rounds of the compilation; only where a placement was kept.
	BestSingle   string
	ToBestSingle statistics.Ratio
	// Borders is what no network takes less than to what none would take less than were nothing paid between regions,
	// both as the search believed at its end: what could be gained at borders is not much more. 0 where nothing was
	// learnt.
	Borders float64
	// SearchSeconds is how long it took to find it; 0 where that is not known.
	SearchSeconds float64
	// Alone are the executables that have all that a backend can take on that backend, by its name.
	Alone map[string]Alone
	// Others are its executables for the columns of NetworkOptions.Others, by their names.
	Others map[string]Alone
}

func (n *Network) given() string { return cmp.Or(n.Given, n.Model) }

// Alone is a network on one backend and, where that takes nothing, on TVM.
type Alone struct {
	// Executable is "" where it could not be built; Failure says why.
	Executable, Failure string
	// Operators and Regions are what the backend was given.
	Operators, Regions int
	// Kept and SearchSeconds say what a search kept, and how long it took; "" and 0 where there was none.
	Kept          string
	SearchSeconds float64
}

// Found takes from the plan of a compilation what was kept.
func (a *Alone) Found(p *plan.Plan) {
	n := Network{}
	n.Describe(p)
	a.Kept, a.SearchSeconds = n.Chosen, n.SearchSeconds
}

// Describe takes from the plan of a compilation what was kept, which backends have how many operators in it, and by how
// much it beat the best single backend. A single backend that was kept has no shares: the plan is the placement's.
func (n *Network) Describe(p *plan.Plan) {
	var chosen, single *plan.Finalist
	least := math.Inf(1)
	for i := range p.Finalists {
		f := &p.Finalists[i]
		if f.Chosen {
			chosen = f
		}
		if isBackend(f.Name) && len(f.Samples) > 0 && statistics.Median(f.Samples) < least {
			single, least = f, statistics.Median(f.Samples)
		}
	}
	n.Budgeted = p.Precision != nil
	if p.Timeline != nil {
		n.SearchSeconds = p.Timeline.Taken
	}
	if p.GraphLevel != nil && p.GraphLevel.Believed != nil && p.GraphLevel.Believed.Proven > 0 {
		n.Borders = p.GraphLevel.Believed.Bound / p.GraphLevel.Believed.Proven
	}
	if chosen == nil {
		return
	}
	if n.Chosen = chosen.Name; chosen == single || isBackend(chosen.Name) {
		return
	}
	n.Shares = map[string]int{}
	for _, b := range p.Backends {
		if b.Operators > 0 {
			n.Shares[b.Name] = b.Operators
		}
	}
	if single != nil && len(chosen.Samples) > 0 {
		n.BestSingle, n.ToBestSingle = single.Name, statistics.PairedRatio(single.Samples, chosen.Samples)
	}
}

func isBackend(name string) bool {
	_, err := byoc.Lookup(name)
	return err == nil
}
