// SPDX-License-Identifier: Apache-2.0

package plan

import "fmt"

// checkPostDominators holds the post-dominators that a function's nodes name against what the nodes read: that of a
// node is where all ways from it to the result meet first. The proof rests on them. Functions with scopes in scopes are
// left out, since values reach into those on ways that the plan does not have; so are older plans, which do not say
// what is read.
func (p *Plan) checkPostDominators(f Function) error {
	nodes := make([]*Node, f.Nodes)
	results, reads := 0, false
	for i := range p.Regions {
		if p.Regions[i].Function != f.Name {
			continue
		}
		for k := range p.Regions[i].Candidates {
			list := p.Regions[i].Candidates[k].Nodes
			for j := range list {
				nodes[list[j].Index] = &list[j]
				if list[j].Result {
					results++
				}
				reads = reads || len(list[j].Reads) > 0
			}
		}
	}
	if results != 1 || !reads {
		return nil
	}
	const none = -1
	parent := make([]int, f.Nodes)
	met := make([]bool, f.Nodes) // a reader was seen
	for v := f.Nodes - 1; v >= 0; v-- {
		n := nodes[v]
		if n == nil {
			continue
		}
		if n.Result {
			parent[v] = none
		} else if !met[v] {
			return fmt.Errorf("plan: function %s: nothing reads %%%d, and it is no result", f.Name, v)
		}
		if n.PostDominator != parent[v] {
			return fmt.Errorf("plan: function %s: what reads %%%d meets at %%%d, not at %%%d", f.Name, v, parent[v],
				n.PostDominator)
		}
		for _, u := range n.Reads {
			if nodes[u] == nil { // what callers give; that u stands before v is known (borders.go)
				continue
			}
			if !met[u] {
				parent[u], met[u] = v, true
				continue
			}
			a, b := parent[u], v
			for a != b && a != none && b != none { // the smaller one is further from the result
				if a < b {
					a = parent[a]
				} else {
					b = parent[b]
				}
			}
			if a != b {
				a = none
			}
			parent[u] = a
		}
	}
	return nil
}
