// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// severalExits says of each option whether it has several exits, which is whether it falls into several subtrees of
// the post-dominator tree; nil where none has, or the tree does not say who reads what. What breaks Option's rules in
// another way counts as having one: the solver says so.
func severalExits(options []Option, tree *Tree) []bool {
	if tree.Reads == nil {
		return nil
	}
	var apart []bool
	in := make([]int32, len(tree.Parent)) // 1 + the last option that a node was seen in
	for i := range options {
		nodes := options[i].Nodes
		last := relay.NoNode
		for _, v := range nodes {
			if v <= last || int(v) >= len(in) {
				break
			}
			in[v], last = int32(i)+1, v
		}
		if len(nodes) == 0 || last != nodes[len(nodes)-1] {
			continue
		}
		for _, v := range nodes[:len(nodes)-1] {
			if p := tree.Parent[v]; p == relay.NoNode || in[p] != int32(i)+1 {
				if apart == nil {
					apart = make([]bool, len(options))
				}
				apart[i] = true
				break
			}
		}
	}
	return apart
}

// solveSeveral places where the options that apart names have several exits. The others are placed first, exactly.
// Where the prices of that placement, over the nodes of each option with several exits, sum to no more than it costs,
// they prove the placement to be the cheapest of all (weak duality), and nothing is searched.
func solveSeveral(options []Option, apart []bool, tree *Tree, effort int64) (
	p *Solution, searched bool, err error) {
	var index []int
	var one []Option
	for i := range options {
		if !apart[i] {
			index, one = append(index, i), append(one, options[i])
		}
	}
	p, err = TreeSolver{}.Solve(one, tree)
	var malformed *OptionError
	if errors.As(err, &malformed) {
		return nil, false, &OptionError{index[malformed.Option], malformed.Reason}
	}
	var uncovered *UncoveredError
	if err != nil && !errors.As(err, &uncovered) {
		return nil, false, err
	}
	if err == nil {
		for k, i := range p.Chosen {
			p.Chosen[k] = index[i]
		}
		gains := false
		for i := range options {
			gains = gains || apart[i] && cheaper(&options[i], p.Prices)
		}
		if !gains {
			return p, false, nil
		}
	}
	problem := &Problem{Tree: tree, Options: options, Reads: tree.Reads}
	m, e := problem.compile()
	if e != nil {
		return nil, false, e
	}
	if err != nil {
		p = nil // what has one exit alone does not cover everything
	}
	p, err = m.branchAndBound(effort, p)
	return p, true, err
}

// cheaper says that an option costs less than the prices of its nodes.
func cheaper(o *Option, prices []float64) bool {
	if math.IsInf(o.Cost, 1) {
		return false
	}
	sum := int64(0)
	for _, v := range o.Nodes {
		sum += picoseconds(prices[v])
	}
	return picoseconds(o.Cost) < sum
}

// regretEffort bounds what is searched for one option's regret: some 20 ms; all together have DefaultEffort.
const regretEffort = DefaultEffort / 100

// regretSeveral is Regret where the options that apart names have several exits. What the solver for trees says of the
// others among themselves is at least their regret, and what they cost beyond the prices of the whole at most. Where
// the two differ, and for options with several exits, everything else is placed again around the option, the closest
// ones first; when the effort is used up, the rest have what the prices say, which is no more than the truth.
func regretSeveral(options []Option, apart []bool, tree *Tree) ([]float64, error) {
	best, err := Solve(options, tree)
	if err != nil {
		return nil, err
	}
	most, err := regretOfOne(options, apart, tree, best)
	if err != nil {
		return nil, err
	}
	unproven := best.Cost // what the prices do not prove
	for _, price := range best.Prices {
		unproven -= price
	}
	size := int64(0)
	regret := make([]float64, len(options))
	var unsettled []int
	for i := range options {
		size += int64(len(options[i].Nodes))
		if math.IsInf(options[i].Cost, 1) {
			regret[i] = math.Inf(1)
			continue
		}
		regret[i] = max(0, best.Slack(options[i])-max(0, unproven))
		if best.Gap != 0 || most[i]-regret[i] >= 0.5/perMillisecond {
			unsettled = append(unsettled, i)
		}
	}
	slices.SortStableFunc(unsettled, func(a, b int) int { return cmp.Compare(regret[a], regret[b]) })
	left := int64(DefaultEffort)
	for _, i := range unsettled {
		if left <= 0 {
			break
		}
		around, searched, err := solveAround(options, i, tree)
		if left -= size; searched {
			left -= regretEffort
		}
		if err != nil {
			regret[i] = math.Inf(1)
			continue
		}
		if regret[i] = max(regret[i], around.LowerBound-best.Cost); regret[i] < 0.5/perMillisecond {
			regret[i] = 0
		}
	}
	return regret, nil
}

// regretOfOne is, for each option with one exit, how much dearer than the best of all the cheapest placement with it is
// that has nothing with several exits; +Inf where there is none, and for options with several exits.
func regretOfOne(options []Option, apart []bool, tree *Tree, best *Solution) ([]float64, error) {
	var index []int
	var one []Option
	for i := range options {
		if !apart[i] {
			index, one = append(index, i), append(one, options[i])
		}
	}
	most := slices.Repeat([]float64{math.Inf(1)}, len(options))
	alone, err := TreeSolver{}.Solve(one, tree)
	if err != nil {
		return most, nil
	}
	among, err := Regret(one, &Tree{Parent: tree.Parent, Needs: tree.Needs})
	if err != nil {
		return nil, err
	}
	for k, i := range index {
		most[i] = among[k] + alone.Cost - best.Cost
	}
	return most, nil
}

// solveAround places with option i taken; searched says that it took a branch and bound.
func solveAround(options []Option, i int, tree *Tree) (p *Solution, searched bool, err error) {
	taken := make([]bool, len(tree.Parent))
	for _, v := range options[i].Nodes {
		taken[v] = true
	}
	rest := []Option{options[i]}
	for k := range options {
		if k != i && !slices.ContainsFunc(options[k].Nodes, func(v relay.NodeID) bool { return taken[v] }) {
			rest = append(rest, options[k])
		}
	}
	apart := severalExits(rest, tree)
	if apart == nil {
		p, err = TreeSolver{}.Solve(rest, tree)
		return p, false, err
	}
	return solveSeveral(rest, apart, tree, regretEffort)
}
