// SPDX-License-Identifier: Apache-2.0

// Package place chooses: each operator is covered by exactly one candidate so that the sum of the
// candidates' costs is least.
//
// What comes in: the post-dominator tree (Tree), candidates and their costs as plain numbers (Option). What goes
// out: the chosen candidates, and prices (the dual solution) that prove that no other choice is cheaper
// (Solution). Verify checks such a proof and shares no code with the solver that found it.
//
// Solve is exact, in linear time, where costs add up and each candidate has one exit, or those with several exits are
// not cheaper than the prices of what they hold. Problem adds what is paid between regions (package border) and
// candidates with several exits that are, and states how far from the cheapest its answer can be. Constraints pin and
// forbid; Regret and Threshold say what it would have taken for a loser to win; SolveInterval places under uncertain
// costs; Overhead keeps noise from cutting.
package place

import (
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// Option is a candidate as the solver sees it.
type Option struct {
	// Nodes are the covered nodes, ascending, the root last: a connected subtree of the post-dominator tree, or a
	// convex set with several exits, where Tree has Reads.
	Nodes []relay.NodeID
	// Cost is in milliseconds, at least 0; +Inf for one that must not be taken.
	Cost float64
	// Rank breaks ties: among placements of equal cost the one whose ranks have the least sum wins, then, from
	// the last node to the first, the one whose option stands first. (So among options of equal cost for the
	// same nodes the lower rank wins, then the one that stands first.)
	Rank int
	// State says on what device, or in what layout, the option reads and leaves its values. Solve does not look at it;
	// Problem and Constraints do.
	State State
}

// State numbers a backend, a device or a layout: whatever a value has to be carried over between, and whatever an
// operator may be pinned to. The numbers are the caller's.
type State int32

// Solution is a solution.
type Solution struct {
	// Chosen are indices into the options, in ascending order of their roots.
	Chosen []int
	// Cost is the sum of the chosen options' costs, in milliseconds.
	Cost float64
	// Prices[v] is what node v costs in this placement (the dual variable y(v)), in milliseconds; 0 for nodes
	// that need no cover. Their sum is Cost; over the nodes of any option it is at most the option's cost. All
	// three hold exactly when every number is taken in whole picoseconds (see Verify).
	//
	// Where something is paid between regions, or options have several exits (Problem), the prices sum to the bound
	// that was found before anything was tried out, which is at most LowerBound, and carry shares of what is paid.
	Prices []float64
	// LowerBound is what every placement costs at least, in milliseconds: Cost where this one is proven to be the
	// cheapest.
	LowerBound float64
	// Gap is Cost less LowerBound: 0 where proven.
	Gap float64
}

// Slack is an option's cost less the prices of its nodes, in milliseconds: 0 for the chosen ones, +Inf for one that
// must not be taken. An option that becomes cheaper by less than its slack changes nothing. That is a lower bound:
// there is more than one set of prices, so an option with slack 0 need not be as good as what was chosen.
func (p *Solution) Slack(o Option) float64 {
	slack := o.Cost
	for _, v := range o.Nodes {
		slack -= p.Prices[v]
	}
	// What is left of a chosen option is the rounding of its cost to picoseconds and of the sum.
	if slack < 1e-9 && slack > -1e-9 {
		return 0
	}
	return slack
}

// Tree is what a solver needs to know of a graph: the post-dominator forest, one tree for each scope, and, for
// options with several exits, who reads what.
type Tree struct {
	// Parent[v] is the immediate post-dominator of node v, always behind v; NoNode for the root of a tree and
	// for nodes that need no cover.
	Parent []relay.NodeID
	// Needs[v] says that node v must be covered exactly once.
	Needs []bool
	// Reads[v] are the values that node v reads, those that need cover, ascending (ReadsOf). nil where no option has
	// several exits.
	Reads [][]relay.NodeID
}

// TreeOf gives the tree of a graph.
func TreeOf(g *relay.Graph) *Tree {
	dominators := g.PostDominators()
	t := &Tree{Parent: make([]relay.NodeID, len(g.Nodes)), Needs: make([]bool, len(g.Nodes)), Reads: ReadsOf(g)}
	for v := range g.Nodes {
		id := relay.NodeID(v)
		t.Parent[v] = relay.NoNode
		if g.Placeable(id) {
			t.Needs[v] = true
			t.Parent[v] = dominators.Parent(id)
		}
	}
	return t
}

// Solver finds a placement. Solvers are deterministic: the same tree and options give the same placement.
type Solver interface {
	// Solve gives a placement of least cost. Errors: *UncoveredError where no set of options covers each node
	// that needs it exactly once; *OptionError for an option that breaks Option's rules; a plain error for a
	// malformed tree.
	Solve(options []Option, tree *Tree) (*Solution, error)
}

// Solve places with the exact solver for trees, and where options with several exits may be cheaper with Problem's
// branch and bound: the answer is then the cheapest if its Gap is 0. Errors: as Solver's, and as Problem's.
func Solve(options []Option, tree *Tree) (*Solution, error) {
	return SolveWithin(options, tree, DefaultEffort)
}

// SolveWithin is Solve with another Effort than DefaultEffort (Problem.Effort).
func SolveWithin(options []Option, tree *Tree, effort int64) (*Solution, error) {
	if apart := severalExits(options, tree); apart != nil {
		p, _, err := solveSeveral(options, apart, tree, effort)
		return p, err
	}
	return TreeSolver{}.Solve(options, tree)
}

// UncoveredError says that the options cannot cover the graph.
type UncoveredError struct {
	// Nodes are left over when as many nodes as possible are covered, ascending.
	Nodes []relay.NodeID
	// Without are those of Nodes that no option with a finite cost covers; the others are in options which
	// overlap options that other nodes need.
	Without []relay.NodeID
}

func (e *UncoveredError) Error() string {
	text := make([]string, 0, 8)
	for i, v := range e.Nodes {
		if i == 8 {
			text = append(text, "...")
			break
		}
		text = append(text, fmt.Sprintf("%%%d", v))
	}
	return fmt.Sprintf("the candidates leave %d nodes uncovered: %s", len(e.Nodes), strings.Join(text, ", "))
}

// OptionError says that an option is malformed.
type OptionError struct {
	// Option is its index.
	Option int
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("placement option %d: %s", e.Option, e.Reason)
}
