// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// CycleError says that regions need each other's results: none of them can be run first.
type CycleError struct {
	// Regions are indices of the regions on the cycle, in the order in which they feed each other. Where a single
	// region is not convex (a value leaves it and comes back) it is the only one.
	Regions []int
	// Path are the nodes on the cycle: each reads, or is in one region with a node that reads, what stands before it.
	Path []relay.NodeID
}

func (e *CycleError) Error() string {
	path := make([]string, 0, len(e.Path))
	for i, v := range e.Path {
		if i == 12 {
			path = append(path, "...")
			break
		}
		path = append(path, fmt.Sprintf("%%%d", v))
	}
	if len(e.Regions) == 1 {
		return fmt.Sprintf("placement: region %d needs its own results through %s", e.Regions[0],
			strings.Join(path, " -> "))
	}
	return fmt.Sprintf("placement: the regions %v need each other's results through %s", e.Regions,
		strings.Join(path, " -> "))
}

// QuotientAcyclic checks that the graph stays free of cycles when each region becomes a single node. reads[v] are the
// values that node v reads. Regions must not overlap; nodes that no region holds stay by themselves. That each region
// is convex is not enough: two of them can feed each other. It takes time linear in the size of the graph.
//
// Errors: *CycleError with a cycle; a plain error where regions overlap or hold unknown nodes.
func QuotientAcyclic(reads [][]relay.NodeID, regions [][]relay.NodeID) error {
	n := len(reads)
	of := make([]int, n) // the group of each node: a region, or behind the regions the node itself
	for v := range of {
		of[v] = len(regions) + v
	}
	for i, region := range regions {
		for _, v := range region {
			if v < 0 || int(v) >= n {
				return fmt.Errorf("placement: region %d holds %%%d, which is no node of the graph", i, v)
			}
			if of[v] < len(regions) {
				return fmt.Errorf("placement: node %%%d is in the regions %d and %d", v, of[v], i)
			}
			of[v] = i
		}
	}
	members := func(group int) []relay.NodeID {
		if group < len(regions) {
			return regions[group]
		}
		return []relay.NodeID{relay.NodeID(group - len(regions))}
	}

	// A walk in depth against the edges, without recursion: graphs are deep.
	const (
		fresh = iota
		open
		done
	)
	type frame struct {
		group       int
		node, input int             // where the walk stands among the group's members and their reads
		through     [2]relay.NodeID // the read that led here: reader in the group before, value in this one
	}
	state := make([]uint8, len(regions)+n)
	var stack []frame
	for v := range n {
		if state[of[v]] != fresh {
			continue
		}
		state[of[v]] = open
		stack = append(stack[:0], frame{group: of[v]})
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			nodes := members(top.group)
			if top.node == len(nodes) {
				state[top.group] = done
				stack = stack[:len(stack)-1]
				continue
			}
			reader := nodes[top.node]
			if top.input == len(reads[reader]) {
				top.node, top.input = top.node+1, 0
				continue
			}
			value := reads[reader][top.input]
			top.input++
			group := of[value]
			switch {
			case group == top.group || state[group] == done:
			case state[group] == fresh:
				state[group] = open
				stack = append(stack, frame{group: group, through: [2]relay.NodeID{reader, value}})
			default:
				e := &CycleError{Path: []relay.NodeID{value, reader}}
				for i := len(stack) - 1; ; i-- {
					if stack[i].group < len(regions) {
						e.Regions = append(e.Regions, stack[i].group)
					}
					if stack[i].group == group {
						break
					}
					e.Path = append(e.Path, stack[i].through[1], stack[i].through[0])
				}
				e.Path = slices.Compact(e.Path)
				return e
			}
		}
	}
	return nil
}

// ReadsOf gives, for each node of a graph that needs cover, those nodes of its scope that it reads and that need cover,
// ascending, each once. What stands between them without computing anything (a function literal that is called) is
// looked through.
func ReadsOf(g *relay.Graph) [][]relay.NodeID {
	reads := make([][]relay.NodeID, len(g.Nodes))
	for v := range g.Nodes {
		through := make([]relay.NodeID, 0, len(g.Reads(relay.NodeID(v))))
		for _, u := range g.Reads(relay.NodeID(v)) {
			switch {
			case g.Nodes[u].Scope != g.Nodes[v].Scope:
			case g.Placeable(u):
				through = append(through, u)
			default:
				through = append(through, reads[u]...)
			}
		}
		slices.Sort(through)
		reads[v] = slices.Compact(through)
	}
	return reads
}
