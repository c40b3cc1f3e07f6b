// SPDX-License-Identifier: Apache-2.0

// Package oracle finds the cheapest placement in another way: by Dijkstra's algorithm over sets of covered nodes, as
// TVM's own CollagePartition does. Tests and benchmarks hold the solver against it; nothing else uses it.
//
// What comes in: the options and the tree of package place, of which it uses only which nodes need cover. What goes
// out: the chosen options and their cost. It shares no code with the solver.
package oracle

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// ErrNoCover says that no choice of options covers each node exactly once.
var ErrNoCover = errors.New("oracle: no choice of options covers each node exactly once")

// LimitError says that more states were met than allowed.
type LimitError struct{ States int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("oracle: more than %d sets of covered nodes", e.States)
}

// Result is what was found.
type Result struct {
	// Chosen are indices into the options, by their last nodes.
	Chosen []int
	// Picoseconds is their cost; Ranks the sum of their ranks, the least among placements of that cost.
	Picoseconds, Ranks int64
	// States is how many sets of covered nodes were met: the work that was done.
	States int
}

// Dijkstra finds the cheapest cover; among those of equal cost the one whose ranks (at least 0) have the least sum.
// From a set of covered nodes it goes on with the options that hold the first node that is not covered. Costs are taken
// in whole picoseconds, as the solver's. It gives up with a *LimitError when it has met more than limit sets.
func Dijkstra(options []place.Option, tree *place.Tree, limit int) (*Result, error) {
	words := (len(tree.Needs) + 63) / 64
	full := make([]uint64, words)
	for v, needs := range tree.Needs {
		if needs {
			full[v/64] |= 1 << (v % 64)
		}
	}
	with := make([][]int, len(tree.Needs))
	for i, o := range options {
		if !math.IsInf(o.Cost, 1) {
			// The first node that is not covered is the first one of whatever covers it.
			with[o.Nodes[0]] = append(with[o.Nodes[0]], i)
		}
	}

	states := []state{{covered: make([]uint64, words), before: -1, option: -1}}
	known := map[string]int{string(appendKey(nil, states[0].covered)): 0}
	next, bytes := make([]uint64, words), make([]byte, 0, 8*words)
	q := &queue{}
	heap.Push(q, entry{0, 0, 0})
	for q.Len() > 0 {
		e := heap.Pop(q).(entry)
		s := &states[e.state]
		if s.settled || e.cost != s.cost || e.rank != s.rank {
			continue
		}
		s.settled = true
		first := firstMissing(s.covered, full)
		if first < 0 {
			return finish(states, e.state, options), nil
		}
		for _, i := range with[first] {
			o := &options[i]
			copy(next, states[e.state].covered)
			if !cover(next, o.Nodes) {
				continue
			}
			cost, rank := e.cost+int64(math.Round(o.Cost*1e9)), e.rank+int64(o.Rank)
			bytes = appendKey(bytes[:0], next)
			at, met := known[string(bytes)]
			if !met {
				if len(states) == limit {
					return nil, &LimitError{limit}
				}
				at = len(states)
				known[string(bytes)] = at
				states = append(states, state{covered: slices.Clone(next), cost: math.MaxInt64})
			}
			t := &states[at]
			if !t.settled && (cost < t.cost || cost == t.cost && rank < t.rank) {
				t.cost, t.rank, t.before, t.option = cost, rank, e.state, i
				heap.Push(q, entry{cost, rank, at})
			}
		}
	}
	return nil, ErrNoCover
}

// state is a set of covered nodes and the cheapest way to it.
type state struct {
	covered    []uint64
	cost, rank int64
	before     int
	option     int
	settled    bool
}

func finish(states []state, at int, options []place.Option) *Result {
	r := &Result{Picoseconds: states[at].cost, Ranks: states[at].rank, States: len(states)}
	for ; states[at].before >= 0; at = states[at].before {
		r.Chosen = append(r.Chosen, states[at].option)
	}
	last := func(i int) relay.NodeID { return options[i].Nodes[len(options[i].Nodes)-1] }
	slices.SortFunc(r.Chosen, func(a, b int) int { return int(last(a) - last(b)) })
	return r
}

func appendKey(bytes []byte, set []uint64) []byte {
	for _, w := range set {
		bytes = binary.LittleEndian.AppendUint64(bytes, w)
	}
	return bytes
}

func firstMissing(covered, full []uint64) int {
	for w := range full {
		if missing := full[w] &^ covered[w]; missing != 0 {
			return 64*w + bits.TrailingZeros64(missing)
		}
	}
	return -1
}

// cover adds nodes to a set; it says whether none was there.
func cover(set []uint64, nodes []relay.NodeID) bool {
	for _, v := range nodes {
		if set[v/64]>>(v%64)&1 == 1 {
			return false
		}
		set[v/64] |= 1 << (v % 64)
	}
	return true
}

type entry struct {
	cost, rank int64
	state      int
}

type queue struct{ entries []entry }

func (q *queue) Len() int { return len(q.entries) }

func (q *queue) Less(i, j int) bool {
	a, b := q.entries[i], q.entries[j]
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.state < b.state
}

func (q *queue) Swap(i, j int) { q.entries[i], q.entries[j] = q.entries[j], q.entries[i] }

func (q *queue) Push(e any) { q.entries = append(q.entries, e.(entry)) }

func (q *queue) Pop() any {
	e := q.entries[len(q.entries)-1]
	q.entries = q.entries[:len(q.entries)-1]
	return e
}
