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
	if len(nodes) == 0 {
		return fmt.Errorf("a candidate covers at least one node")
	}
	root := nodes[len(nodes)-1]
	within := func(v relay.NodeID) bool {
		_, ok := slices.BinarySearch(nodes, v)
		return ok
	}
	for i, v := range nodes {
		if v < 0 || int(v) >= len(g.Nodes) {
			return fmt.Errorf("%%%d is no node of the graph", v)
		}
		if i > 0 && v <= nodes[i-1] {
			return fmt.Errorf("the nodes %v are not ascending", nodes)
		}
	}
	tree := g.PostDominators()
	for _, v := range nodes {
		if !g.Placeable(v) {
			return fmt.Errorf("%%%d (%s) is not placeable", v, OperatorName(&g.Nodes[v]))
		}
		if g.Nodes[v].Scope != g.Nodes[root].Scope {
			return fmt.Errorf("%%%d belongs to another scope than the exit %%%d", v, root)
		}
		if v == root {
			continue
		}
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
