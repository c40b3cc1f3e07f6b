// SPDX-License-Identifier: Apache-2.0

package decide

import "fmt"

// Reach is how far the search among whole networks goes. Users have all of it; benchmarks show what its parts are
// worth.
type Reach int

const (
	// ReachAll is all of it: what is next to the best, too.
	ReachAll Reach = iota
	// ReachParts is the operator level alone: candidates are measured by themselves for as long as there is time, and
	// the placement by these costs runs beside plain TVM.
	ReachParts
	// ReachSeeds has every backend alone built first, candidates measured where they might gain, and runs the
	// placements of that.
	ReachSeeds
	// ReachFeedback places again by what was seen in place, too.
	ReachFeedback
)

// Reaches are those that are less than all, the least first.
var Reaches = []Reach{ReachParts, ReachSeeds, ReachFeedback}

func (r Reach) String() string {
	switch r {
	case ReachAll:
		return "all"
	case ReachParts:
		return "operator level"
	case ReachSeeds:
		return "backends first"
	case ReachFeedback:
		return "with feedback"
	}
	return fmt.Sprintf("reach %d", int(r))
}
