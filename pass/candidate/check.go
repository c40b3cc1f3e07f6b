// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Check says why nodes cannot be a candidate; nil where they can. A candidate is a group of placeable nodes of one
// scope, ascending, whose last node is its only exit: every other one is used, and used inside the group only.
// Such a group is a connected subtree of the post-dominator tree; that is checked as well, since placement relies
// on it.
func Check(g *relay.Graph, nodes []relay.NodeID) error {
	if err := checkNodes(g, nodes); err != nil {
		return err
	}
	within := func(v relay.NodeID) bool {
		_, ok := slices.BinarySearch(nodes, v)
		return ok
	}
	tree := g.PostDominators()
	for _, v := range nodes[:len(nodes)-1] {
		if g.ScopeRoot(v) {
			return fmt.Errorf("%%%d escapes: it is the value of its scope", v)
		}
		uses := g.Consumers(v)
		if len(uses) == 0 {
			return fmt.Errorf("%%%d is dead: nothing uses it", v)
		}
		for _, use := range uses {
			if !within(use) {
				return fmt.Errorf("%%%d escapes: %%%d uses it outside", v, use)
			}
		}
		if !within(tree.Parent(v)) {
			return fmt.Errorf("%%%d is not connected: its immediate post-dominator %%%d is outside", v, tree.Parent(v))
		}
	}
	return nil
}

// CheckSeveral says why nodes cannot be a candidate that may have several exits; nil where they can. It is a group of
// placeable nodes of one scope, ascending, all of them used, that is convex: no value of it comes back to it from
// outside, so that it can be run as one. What is used outside are tensors. That two such groups do not need each
// other's results is for who chooses them (place.QuotientAcyclic).
func CheckSeveral(g *relay.Graph, nodes []relay.NodeID) error {
	if err := checkNodes(g, nodes); err != nil {
		return err
	}
	for _, v := range nodes {
		if len(g.Consumers(v)) == 0 && !g.ScopeRoot(v) {
			return fmt.Errorf("%%%d is dead: nothing uses it", v)
		}
	}
	within := func(v relay.NodeID) bool {
		_, ok := slices.BinarySearch(nodes, v)
		return ok
	}
	last := nodes[len(nodes)-1]
	behind := map[relay.NodeID]relay.NodeID{} // what stands outside and depends on the group, and on which node of it
	var open []relay.NodeID
	for _, exit := range g.Exits(nodes) {
		if t := g.Nodes[exit].Type; t == nil || t.Kind != relay.TypeTensor {
			return fmt.Errorf("the exit %%%d is no tensor", exit)
		}
		for _, use := range g.Consumers(exit) {
			if _, seen := behind[use]; !within(use) && use < last && !seen {
				behind[use] = exit
				open = append(open, use)
			}
		}
	}
	for i := 0; i < len(open); i++ {
		for _, use := range g.Consumers(open[i]) {
			if within(use) {
				return fmt.Errorf("%%%d comes back from outside: %%%d needs it", behind[open[i]], use)
			}
			if _, seen := behind[use]; use < last && !seen {
				behind[use] = behind[open[i]]
				open = append(open, use)
			}
		}
	}
	return nil
}

// CheckEither is Check, or CheckSeveral where the nodes may have several exits.
func CheckEither(g *relay.Graph, nodes []relay.NodeID, several bool) error {
	err := Check(g, nodes)
	if err != nil && several {
		return CheckSeveral(g, nodes)
	}
	return err
}

// checkNodes says what is wrong with nodes one by one.
func checkNodes(g *relay.Graph, nodes []relay.NodeID) error {
	if len(nodes) == 0 {
		return fmt.Errorf("a candidate covers at least one node")
	}
	for i, v := range nodes {
		if v < 0 || int(v) >= len(g.Nodes) {
			return fmt.Errorf("%%%d is no node of the graph", v)
		}
		if i > 0 && v <= nodes[i-1] {
			return fmt.Errorf("the nodes %v are not ascending", nodes)
		}
	}
	root := nodes[len(nodes)-1]
	for _, v := range nodes {
		if !g.Placeable(v) {
			return fmt.Errorf("%%%d (%s) is not placeable", v, OperatorName(&g.Nodes[v]))
		}
		if g.Nodes[v].Scope != g.Nodes[root].Scope {
			return fmt.Errorf("%%%d belongs to another scope than the exit %%%d", v, root)
		}
	}
	return nil
}
