// Package place chooses: each operator is covered by exactly one candidate so that the sum of the
// candidates' costs is least.
//
// What comes in: the post-dominator tree, candidates and their costs as plain numbers. What goes out: the
// chosen candidates, and prices (the dual solution) that prove that no other choice is cheaper.
package place

import "github.com/collage-tvm/collage/relay"

// Option is a candidate as the solver sees it.
type Option struct {
	// Nodes are the covered nodes, ascending, the root last: a connected subtree of the post-dominator tree.
	Nodes []relay.NodeID
	// Cost is in milliseconds; +Inf for one that must not be taken.
	Cost float64
	// Rank breaks ties: among options of equal cost the lower rank wins, then the one that stands first.
	Rank int
}

// Placement is a solution.
type Placement struct {
	// Chosen are indices into the options, in ascending order of their roots.
	Chosen []int
	// Cost is the sum of the chosen options' costs, in milliseconds.
	Cost float64
	// Prices[v] is what node v costs in this placement (the dual variable y(v)); 0 for nodes that need no
	// cover. Their sum is Cost; over the nodes of any option it is at most the option's cost.
	Prices []float64
}
