// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// TreeSolver is the exact solver: a dynamic program over the post-dominator tree, one pass in post-order, in time
// and memory proportional to the sum of the options' sizes.
//
// With f(v) the least cost of covering everything below and including v by options topped at v and below,
//
//	f(v) = min over options S topped at v of  c(S) + sum { f(u) : parent(u) in S, u not in S }
//
// and with y(v) = f(v) - sum { f(u) : parent(u) = v } the sums telescope:
//
//	y(v) = min over options S topped at v of  c(S) - sum { y(w) : w in S, w not v }
//
// so the prices alone are the recursion, and their sum is the optimum.
type TreeSolver struct{}

// perMillisecond is the number of the solver's units, picoseconds, in a millisecond. Costs are whole picoseconds, so
// that sums are exact, equal costs are equal in whatever order they were added, and a certificate needs no
// tolerance.
const perMillisecond = 1e9

// greatestSum bounds what may be added up, in picoseconds: 53 days, a factor of two below the end of int64.
const greatestSum = 1 << 62

// GreatestSum is what the costs of all options that may be taken may add up to, in milliseconds: 13 days. Solve and
// Problem refuse more.
const GreatestSum = greatestSum / 4 / perMillisecond

// value is a number that the solver compares: first how many nodes are left open (uncovered), then cost, then rank.
// Leaving a node open is the option {open: 1}, which every node tops. So a node that can be covered only inside an
// option topped further up is no special case: that option's root then has a price with open -1.
type value struct {
	open int64
	cost int64
	rank int64
}

func (a value) plus(b value) value { return value{a.open + b.open, a.cost + b.cost, a.rank + b.rank} }

func (a value) minus(b value) value { return value{a.open - b.open, a.cost - b.cost, a.rank - b.rank} }

func (a value) less(b value) bool {
	if a.open != b.open {
		return a.open < b.open
	}
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	return a.rank < b.rank
}

// none marks a node that no option tops, in best.
const none int32 = -1

// Solve implements Solver.
func (TreeSolver) Solve(options []Option, tree *Tree) (*Solution, error) {
	if err := checkTree(tree); err != nil {
		return nil, err
	}
	roots, err := checkOptions(options, tree)
	if err != nil {
		return nil, err
	}
	n := len(tree.Parent)
	byRoot, start := groupByRoot(roots, n)

	price := make([]value, n)
	best := make([]int32, n)
	for v := range n {
		best[v] = none
		if !tree.Needs[v] {
			continue
		}
		price[v] = value{open: 1} // left open, unless an option is better
		for _, i := range byRoot[start[v]:start[v+1]] {
			o := &options[i]
			c := value{cost: picoseconds(o.Cost), rank: int64(o.Rank)}
			for _, w := range o.Nodes[:len(o.Nodes)-1] {
				c = c.minus(price[w])
			}
			if c.less(price[v]) {
				price[v], best[v] = c, i
			}
		}
	}

	chosen, open := trace(options, tree, best)
	if len(open) > 0 {
		return nil, uncovered(options, open)
	}
	p := &Solution{Chosen: chosen, Prices: make([]float64, n)}
	total := int64(0)
	for _, i := range chosen {
		total += picoseconds(options[i].Cost)
	}
	p.Cost = milliseconds(total)
	p.LowerBound = p.Cost
	big, err := openPrice(options, price)
	if err != nil {
		return nil, err
	}
	for v := range n {
		p.Prices[v] = milliseconds(price[v].open*big + price[v].cost)
	}
	return p, nil
}

// groupByRoot sorts the options that may be taken by their roots, keeping their order: those topped at v are
// byRoot[start[v]:start[v+1]].
func groupByRoot(roots []relay.NodeID, n int) (byRoot, start []int32) {
	start = make([]int32, n+2)
	for _, r := range roots {
		if r != relay.NoNode {
			start[r+2]++
		}
	}
	for v := range n {
		start[v+2] += start[v+1]
	}
	byRoot = make([]int32, start[n+1])
	for i, r := range roots {
		if r != relay.NoNode {
			byRoot[start[r+1]] = int32(i)
			start[r+1]++
		}
	}
	return byRoot, start[:n+1]
}

func root(o *Option) relay.NodeID { return o.Nodes[len(o.Nodes)-1] }

// trace walks from the last node to the first: a node that nothing behind it has covered tops an option.
func trace(options []Option, tree *Tree, best []int32) (chosen []int, open []relay.NodeID) {
	covered := make([]bool, len(best))
	for v := len(best) - 1; v >= 0; v-- {
		if covered[v] || !tree.Needs[v] {
			continue
		}
		if best[v] == none {
			open = append(open, relay.NodeID(v))
			continue
		}
		chosen = append(chosen, int(best[v]))
		for _, w := range options[best[v]].Nodes {
			covered[w] = true
		}
	}
	reverse(chosen)
	reverse(open)
	return chosen, open
}

func reverse[T any](s []T) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

func uncovered(options []Option, open []relay.NodeID) *UncoveredError {
	has := map[relay.NodeID]bool{}
	for _, v := range open {
		has[v] = false
	}
	for i := range options {
		if math.IsInf(options[i].Cost, 1) {
			continue
		}
		for _, v := range options[i].Nodes {
			if _, ok := has[v]; ok {
				has[v] = true
			}
		}
	}
	e := &UncoveredError{Nodes: open}
	for _, v := range open {
		if !has[v] {
			e.Without = append(e.Without, v)
		}
	}
	return e
}

// openPrice gives the least price, in picoseconds, of leaving a node open with which the prices satisfy every
// option: where the cover is complete, any price from there on does.
func openPrice(options []Option, price []value) (int64, error) {
	if !slices.ContainsFunc(price, func(y value) bool { return y.open != 0 }) {
		return 0, nil
	}
	big, depth := int64(0), int64(1)
	for i := range options {
		if math.IsInf(options[i].Cost, 1) {
			continue
		}
		sum := value{}
		for _, v := range options[i].Nodes {
			sum = sum.plus(price[v])
			depth = max(depth, price[v].open, -price[v].open)
		}
		if sum.open < 0 {
			over := sum.cost - picoseconds(options[i].Cost)
			// Rounded up: open nodes must be dear enough.
			big = max(big, (over-sum.open-1)/-sum.open)
		}
	}
	if float64(big)*float64(depth) > greatestSum {
		return 0, fmt.Errorf("placement: the costs are too far apart to be priced exactly")
	}
	return big, nil
}

func picoseconds(ms float64) int64 { return int64(math.Round(ms * perMillisecond)) }

func milliseconds(ps int64) float64 { return float64(ps) / perMillisecond }

func checkTree(tree *Tree) error {
	if len(tree.Parent) != len(tree.Needs) {
		return fmt.Errorf("placement: the tree has %d parents for %d nodes", len(tree.Parent), len(tree.Needs))
	}
	for v, p := range tree.Parent {
		if p == relay.NoNode {
			continue
		}
		if int(p) <= v || int(p) >= len(tree.Parent) {
			return fmt.Errorf("placement: node %%%d has the post-dominator %%%d, which does not stand behind it", v, p)
		}
		if !tree.Needs[v] || !tree.Needs[p] {
			return fmt.Errorf("placement: node %%%d or its post-dominator %%%d needs no cover", v, p)
		}
	}
	return nil
}

// checkOptions refuses what would make the recursion wrong, and gives the options' roots; NoNode for an option that
// must not be taken. It is one pass over the options' nodes.
func checkOptions(options []Option, tree *Tree) ([]relay.NodeID, error) {
	roots := make([]relay.NodeID, len(options))
	inside := make([]int32, len(tree.Parent)) // 1 + the last option that a node was seen in
	worst := make([]float64, len(tree.Parent))
	for i := range options {
		o := &options[i]
		if len(o.Nodes) == 0 {
			return nil, &OptionError{i, "it covers nothing"}
		}
		if math.IsNaN(o.Cost) || o.Cost < 0 {
			return nil, &OptionError{i, fmt.Sprintf("its cost is %v ms", o.Cost)}
		}
		last := relay.NoNode
		for _, v := range o.Nodes {
			if v <= last || int(v) >= len(tree.Parent) {
				return nil, &OptionError{i, fmt.Sprintf("its nodes %v are not ascending nodes of the graph", o.Nodes)}
			}
			if !tree.Needs[v] {
				return nil, &OptionError{i, fmt.Sprintf("node %%%d needs no cover", v)}
			}
			inside[v] = int32(i) + 1
			last = v
		}
		for _, v := range o.Nodes[:len(o.Nodes)-1] {
			if p := tree.Parent[v]; p == relay.NoNode || inside[p] != int32(i)+1 {
				return nil, &OptionError{i, fmt.Sprintf(
					"node %%%d is not its root %%%d, but its immediate post-dominator %%%d is outside", v, last, p)}
			}
		}
		roots[i] = relay.NoNode
		if !math.IsInf(o.Cost, 1) {
			roots[i] = last
			worst[last] = max(worst[last], o.Cost)
		}
	}
	// No sum that the solver forms exceeds the sum of the dearest option at each root.
	sum := 0.0
	for _, w := range worst {
		sum += w
	}
	if sum*perMillisecond >= greatestSum {
		return nil, fmt.Errorf("placement: the costs add up to more than %.0f hours", greatestSum/perMillisecond/3600e3)
	}
	return roots, nil
}
