// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// prune keeps the options that the prototype searches over: those that no other one of the same target contains; and
// where such ones overlap, again those among what is left without them, until nothing comes in. It is a heuristic.
func prune(options []*option) []*option {
	ids := make([]string, len(options))
	for i, o := range options {
		ids[i] = o.identity()
	}
	kept := map[string]int{}
	left := make([]int, len(options))
	for i := range left {
		left[i] = i
	}
	for {
		grown := false
		for _, i := range maximal(options, left) {
			if _, ok := kept[ids[i]]; !ok {
				kept[ids[i]] = i
				grown = true
			}
		}
		if !grown {
			break
		}
		drop := map[string]bool{}
		for id, i := range kept {
			for _, j := range kept {
				a, b := options[i].group.Nodes, options[j].group.Nodes
				if a.Intersects(b) && !slices.Equal(a, b) {
					drop[id] = true
					break
				}
			}
		}
		left = slices.DeleteFunc(slices.Clone(left), func(i int) bool { return drop[ids[i]] })
	}
	result := make([]*option, 0, len(kept))
	for _, i := range kept {
		result = append(result, options[i])
	}
	slices.SortFunc(result, func(a, b *option) int {
		if c := cmp.Compare(a.group.Nodes.First(), b.group.Nodes.First()); c != 0 {
			return c
		}
		if a.group.Nodes.Less(b.group.Nodes) {
			return -1
		}
		if b.group.Nodes.Less(a.group.Nodes) {
			return 1
		}
		return cmp.Compare(a.rule, b.rule)
	})
	return result
}

// maximal are the options among those at the indices that no other one of the same target contains.
func maximal(options []*option, indices []int) []int {
	byNode := map[relay.NodeID][]int{}
	for _, i := range indices {
		first := options[i].group.Nodes
		for _, v := range first.Nodes() {
			byNode[v] = append(byNode[v], i)
		}
	}
	var result []int
	for _, i := range indices {
		o := options[i]
		// Whatever contains all nodes holds the first one.
		contained := slices.ContainsFunc(byNode[o.group.Nodes.First()], func(j int) bool {
			return i != j && options[j].target == o.target && o.group.Nodes.SubsetOf(options[j].group.Nodes)
		})
		if !contained {
			result = append(result, i)
		}
	}
	return result
}

// walkLimit bounds the states of walk; the prototype's own search is exponential in the width of the graph.
const walkLimit = 20_000

// walk is the prototype's search: Dijkstra's over the sets of covered nodes, always going on from the first node that
// is not covered. Its answer is not used for its cost, which the exact placement beats or equals, but for its ties.
// Options are given in the prototype's order; nil is returned where they cannot cover the function, or after too many
// states.
func (s *partitioning) walk(f *function, options []*option) ([]*option, error) {
	places, at := places(f.graph)
	byFirst := make([][]*option, len(places))
	for _, o := range options {
		i := at[o.group.Nodes.First()]
		byFirst[i] = append(byFirst[i], o)
	}
	covers := map[*option]candidate.NodeSet{}
	w := &walker{states: map[string]*state{}}
	start := w.state(candidate.NewNodeSet(len(places)))
	start.cost = 0
	heap.Push(&w.queue, queued{start, 0})
	for w.queue.Len() > 0 {
		q := heap.Pop(&w.queue).(queued)
		here := q.state
		if q.cost != here.cost || here.done {
			continue // an entry from before the state became cheaper
		}
		here.done = true
		next := firstOutside(here.covered, len(places))
		if next == len(places) {
			return here.path(), nil
		}
		if len(w.states) > walkLimit {
			return nil, nil
		}
		if places[next] == relay.NoNode {
			w.relax(here, with(here.covered, next), nil, 0)
			continue
		}
		for _, o := range byFirst[next] {
			set, ok := covers[o]
			if !ok {
				set = candidate.NewNodeSet(len(places))
				for _, v := range o.group.Nodes.Nodes() {
					set.Add(relay.NodeID(at[v]))
				}
				covers[o] = set
			}
			if set.Intersects(here.covered) {
				continue
			}
			if err := s.learn(f, o); err != nil {
				return nil, err
			}
			if !math.IsInf(o.seconds, 1) {
				w.relax(here, here.covered.Or(set), o, o.seconds)
			}
		}
	}
	return nil, nil
}

// places lists what the prototype counts, in its order: the nodes, and as NoNode the operators before the first call of
// each and the function itself, which nobody chooses anything for. at is a node's place.
func places(g *relay.Graph) (list []relay.NodeID, at []int) {
	at = make([]int, len(g.Nodes))
	listed := make([]bool, len(g.Nodes))
	operators := map[string]bool{}
	type step struct {
		v    relay.NodeID
		left bool
	}
	visit := func(root relay.NodeID) {
		stack := []step{{v: root}}
		for len(stack) > 0 {
			s := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			n := &g.Nodes[s.v]
			switch {
			case listed[s.v]:
			case s.left:
				listed[s.v] = true
				at[s.v] = len(list)
				list = append(list, s.v)
			default:
				if n.Op != "" && !operators[n.Op] {
					operators[n.Op] = true
					list = append(list, relay.NoNode)
				}
				stack = append(stack, step{s.v, true})
				for _, in := range slices.Backward(g.Reads(s.v)) {
					stack = append(stack, step{v: in})
				}
			}
		}
	}
	for _, p := range g.Params {
		visit(p)
	}
	for v := range g.Nodes {
		if g.Nodes[v].Scope != 0 {
			visit(relay.NodeID(v)) // the bodies of nested scopes, in the order in which they were read
		}
	}
	visit(g.Root())
	for v := range g.Nodes {
		visit(relay.NodeID(v))
	}
	return append(list, relay.NoNode), at
}

type state struct {
	covered candidate.NodeSet
	cost    float64
	from    *state
	by      *option
	done    bool
}

// path lists the options that lead to the state, the last one first.
func (s *state) path() []*option {
	var path []*option
	for ; s.from != nil; s = s.from {
		if s.by != nil {
			path = append(path, s.by)
		}
	}
	return path
}

type walker struct {
	states map[string]*state
	queue  queue
}

func (w *walker) state(covered candidate.NodeSet) *state {
	key := make([]byte, 0, 8*len(covered))
	for _, word := range covered {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	s := w.states[string(key)]
	if s == nil {
		s = &state{covered: covered, cost: math.Inf(1)}
		w.states[string(key)] = s
	}
	return s
}

func (w *walker) relax(from *state, covered candidate.NodeSet, by *option, seconds float64) {
	to := w.state(covered)
	if cost := seconds + from.cost; cost < to.cost {
		to.cost, to.from, to.by = cost, from, by
		heap.Push(&w.queue, queued{to, cost})
	}
}

func with(covered candidate.NodeSet, i int) candidate.NodeSet {
	more := slices.Clone(covered)
	more.Add(relay.NodeID(i))
	return more
}

func firstOutside(covered candidate.NodeSet, n int) int {
	for i := range n {
		if !covered.Has(relay.NodeID(i)) {
			return i
		}
	}
	return n
}

// queue orders states by cost, then the one that covers the first node in which they differ.
type queue []queued

type queued struct {
	state *state
	cost  float64
}

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].cost != q[j].cost {
		return q[i].cost < q[j].cost
	}
	return q[i].state.covered.Less(q[j].state.covered)
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(queued)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
