// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Regret is, for each option, by how many milliseconds it would have had to be cheaper so that some cheapest placement
// takes it: 0 for those that some does, +Inf for one that no cover of the graph can hold, and for one that must not be
// taken. It is exact where Slack is a lower bound. Errors: as Solver's.
//
// Where options have several exits, everything else is placed again around each option of which the prices do not say
// it. Otherwise it takes one pass up the tree and one down: time and memory are proportional to the sum of the
// options' sizes, but for a logarithm where many options hold a node and share its children.
func Regret(options []Option, tree *Tree) ([]float64, error) {
	if apart := severalExits(options, tree); apart != nil {
		return regretSeveral(options, apart, tree)
	}
	threshold, err := Threshold(options, tree)
	if err != nil {
		return nil, err
	}
	for i := range options {
		switch {
		case math.IsInf(options[i].Cost, 1):
			threshold[i] = math.Inf(1)
		default:
			threshold[i] = milliseconds(picoseconds(options[i].Cost)) - threshold[i]
			if threshold[i] < 0.5/perMillisecond {
				threshold[i] = 0 // rounding of the difference
			}
		}
	}
	return threshold, nil
}

// Threshold is, for each option, all of which have one exit, the cost in milliseconds up to which some cheapest
// placement takes it; for one that is taken now, its cost. It is negative for an option that could not win if it cost
// nothing, and -Inf for one that no cover of the graph can hold. An option of cost +Inf (one that is not measured
// yet) has a threshold like any other, with everything else at the costs given. That is for one option at a time: two
// that are not measured may win together where neither does alone. To leave options unmeasured without risk, hold
// their lower bounds against the prices of one placement (Slack of each at its bound at least 0), or use
// SolveInterval.
func Threshold(options []Option, tree *Tree) ([]float64, error) {
	if err := checkTree(tree); err != nil {
		return nil, err
	}
	roots, err := checkOptions(options, tree)
	if err != nil {
		return nil, err
	}
	d := &descent{options: options, tree: tree}
	d.byRoot, d.start = groupByRoot(roots, len(tree.Parent))
	if err := d.up(); err != nil {
		return nil, err
	}
	d.down()
	threshold := make([]float64, len(options))
	for i := range options {
		o := &options[i]
		r := root(o)
		// What everything else costs at least if the option is taken.
		rest := d.outside[r].plus(d.least[r]).minus(d.price[r])
		for _, w := range o.Nodes[:len(o.Nodes)-1] {
			rest = rest.minus(d.price[w])
		}
		if rest.open > 0 {
			threshold[i] = math.Inf(-1)
			continue
		}
		threshold[i] = milliseconds(d.total.cost - rest.cost)
	}
	return threshold, nil
}

// descent is the recursion up the tree, which knows what is below each node, and the one down, which knows what is
// around it.
type descent struct {
	options []Option
	tree    *Tree
	byRoot  []int32
	start   []int32
	price   []value // y(v), as TreeSolver's
	least   []value // f(v): the least cost of everything below and including v
	outside []value // the least cost of everything else, given that v tops an option
	total   value
}

func (d *descent) up() error {
	n := len(d.tree.Parent)
	d.price, d.least, d.outside = make([]value, n), make([]value, n), make([]value, n)
	best := make([]int32, n)
	for v := range n {
		best[v] = none
		if !d.tree.Needs[v] {
			continue
		}
		price := value{open: 1}
		for _, i := range d.byRoot[d.start[v]:d.start[v+1]] {
			if c := d.priced(i); c.less(price) {
				price, best[v] = c, i
			}
		}
		d.price[v] = price
		d.least[v] = d.least[v].plus(price) // what is below was added by the children
		if p := d.tree.Parent[v]; p != relay.NoNode {
			d.least[p] = d.least[p].plus(d.least[v])
		} else {
			d.total = d.total.plus(d.least[v])
		}
	}
	if d.total.open > 0 {
		_, open := trace(d.options, d.tree, best)
		return uncovered(d.options, open)
	}
	return nil
}

// priced is an option's cost less the prices of its nodes but the root's.
func (d *descent) priced(i int32) value {
	o := &d.options[i]
	c := value{cost: picoseconds(o.Cost)}
	for _, w := range o.Nodes[:len(o.Nodes)-1] {
		c = c.minus(d.price[w])
	}
	return c
}

// holder is an option that holds some node, with the least cost of a cover that has it.
type holder struct {
	cost   value
	option int32
}

// down goes from the last node to the first. The parent p of a node u that tops an option is covered by an option that
// holds p and not u; the cheapest cover with such an option, less f(u), is what is around u. Taking the options that
// hold p by the cost of their cheapest covers, those children that the first does not hold are settled by it; of the
// rest, those that the second does not hold by that, and so on: each option is looked at only as long as children are
// left that every one before it holds, so that there are no more of them than it has nodes.
func (d *descent) down() {
	n := len(d.tree.Parent)
	firstChild, nextChild := make([]relay.NodeID, n), make([]relay.NodeID, n)
	for v := range n {
		firstChild[v], nextChild[v] = relay.NoNode, relay.NoNode
	}
	for v := range n {
		if p := d.tree.Parent[v]; p != relay.NoNode {
			nextChild[v], firstChild[p] = firstChild[p], relay.NodeID(v)
		}
	}
	// The options that hold each node, as slices of one array; they are filled in from their roots down.
	begin := make([]int, n+1)
	for i := range d.options {
		if !math.IsInf(d.options[i].Cost, 1) {
			for _, w := range d.options[i].Nodes {
				begin[w+1]++
			}
		}
	}
	for v := range n {
		begin[v+1] += begin[v]
	}
	holders := make([]holder, begin[n])
	filled := make([]int, n)

	var left []relay.NodeID
	for v := n - 1; v >= 0; v-- {
		if !d.tree.Needs[v] {
			continue
		}
		if d.tree.Parent[v] == relay.NoNode {
			d.outside[v] = d.total.minus(d.least[v])
		}
		around := d.outside[v].plus(d.least[v]).minus(d.price[v])
		for _, i := range d.byRoot[d.start[v]:d.start[v+1]] {
			h := holder{around.plus(d.priced(i)), i}
			for _, w := range d.options[i].Nodes {
				holders[begin[w]+filled[w]] = h
				filled[w]++
			}
		}
		with := queue(holders[begin[v] : begin[v]+filled[v]])
		left = left[:0]
		for u := firstChild[v]; u != relay.NoNode; u = nextChild[u] {
			left = append(left, u)
		}
		with.build()
		for len(left) > 0 && len(with) > 0 {
			h := with.pop()
			still := left[:0]
			for _, u := range left {
				if d.holds(h.option, u) {
					still = append(still, u)
				} else {
					d.outside[u] = h.cost.minus(d.least[u])
				}
			}
			left = still
		}
		for _, u := range left { // whatever covers v covers u, too: u tops an option only if v is left open
			d.outside[u] = around.plus(value{open: 1}).minus(d.least[u])
		}
	}
}

func (d *descent) holds(option int32, v relay.NodeID) bool {
	_, ok := slices.BinarySearch(d.options[option].Nodes, v)
	return ok
}

// queue is a heap of holders, the cheapest first, then by number.
type queue []holder

func (q queue) less(i, j int) bool {
	if q[i].cost != q[j].cost {
		return q[i].cost.less(q[j].cost)
	}
	return q[i].option < q[j].option
}

func (q queue) build() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
}

func (q queue) sink(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(q); c++ {
			if q.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}

func (q *queue) pop() holder {
	old := *q
	top := old[0]
	old[0] = old[len(old)-1]
	*q = old[:len(old)-1]
	q.sink(0)
	return top
}
