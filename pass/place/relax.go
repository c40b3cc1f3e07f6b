// SPDX-License-Identifier: Apache-2.0

package place

import (
	"github.com/collage-tvm/collage/relay"
)

// relaxation is the recursion over (node, state): TreeSolver's with a state for what tops a node. With g(v, s) the
// least cost of everything below v if a piece of state s tops it,
//
//	g(v, s) = min over pieces S of state s topped at v of
//	          share(S) + what leaves S for good + what v's edges pay in s + sum over the nodes u just below S of the least of
//	              min over s' of g(u, s')                             if S does not read u
//	              min over s' of g(u, s') + pay(u, s', s) - edges(s')  if S reads u
//	          + sum over the values u from elsewhere that S reads of
//	              min over s' of pay(u, s', s) - edges(s')
//
// pay is the share of S in what is paid for u: nothing where s' is s. Two things are not exact. The last line takes
// each such u to be in whatever state is best for S, whatever state u is in; a multiplier moves cost between the two.
// And what is paid once for a value is shared among its readers in advance, whoever of them turns out to pay. Where
// nothing is read from elsewhere and every value has one reader, or the states taken to be are those that are, those
// who pay have all shares, regions are as few as there can be, and an option's pieces are taken all or none, the result
// is a placement and its cost the bound.
type relaxation struct {
	m *model
	l *multipliers
	// disabled options must not be taken.
	disabled []bool
	// assume, where not nil, is the state (index) that each value from elsewhere is in, instead of the best one.
	assume []int32

	least []value // g, at v*K+s
	best  []int32 // the piece of it; none
	down  []value // f(v): min over s of least, or leaving v open
	state []int32 // the s of it; none where open is better
	price []value // f(v) - sum of f below
	below []value // sum of f below
	pays  []int64 // what v's edges pay in s, at v*K+s

	// The trace: taken pieces in order of their roots, and the states in which they took the values that they read.
	taken []int32
	took  []taking
	want  []int32
	in    []int32 // the taken piece that covers each node; none where that needs no cover
}

// taking is a value that a taken piece reads, the piece's own state, and the state that it took the value to be in;
// none for what no option makes.
type taking struct {
	read      *read
	to, state int32
}

// missing is the g of a state that no piece gives: more open nodes than there can be.
var missing = value{open: 1 << 40}

func (m *model) relaxation() *relaxation {
	n, k := len(m.parent), len(m.states)
	return &relaxation{m: m, disabled: make([]bool, len(m.of)),
		least: make([]value, n*k), best: make([]int32, n*k), down: make([]value, n), state: make([]int32, n),
		price: make([]value, n), below: make([]value, n), pays: make([]int64, n*k), want: make([]int32, n),
		in: make([]int32, n)}
}

// bound runs the recursion and traces it. It returns the bound, in picoseconds, and whether every node could be
// covered; where not, no placement is possible without the disabled options.
func (x *relaxation) bound(l *multipliers) (int64, bool) {
	x.l = l
	m, k := x.m, len(x.m.states)
	n := len(m.parent)
	clear(x.below)
	total := value{}
	for v := range n {
		if !m.problem.Tree.Needs[v] {
			continue
		}
		least, best := x.least[v*k:(v+1)*k], x.best[v*k:(v+1)*k]
		pays := x.pays[v*k : (v+1)*k]
		clear(pays)
		for s := range k {
			least[s], best[s] = missing, none
		}
		for _, e := range m.outgoing[v] {
			for s := range k {
				pays[s] += l.edge[int(e)*k+s]
			}
		}
		for _, i := range m.byRoot[m.start[v]:m.start[v+1]] {
			p := &m.pieces[i]
			if x.disabled[p.option] {
				continue
			}
			c := value{cost: l.share[i] + p.leaves + pays[p.state]}
			if i == m.of[p.option][0] {
				c.rank = int64(m.problem.Options[p.option].Rank)
			}
			c = c.plus(x.below[v])
			for _, w := range p.nodes[:len(p.nodes)-1] {
				c = c.minus(x.price[w])
			}
			for r := range p.reads {
				q := &p.reads[r]
				if q.below {
					c = c.minus(x.down[q.value]) // it is in below: what follows puts it at its state
				}
				d, _ := x.read(q, p.state)
				c = c.plus(d)
			}
			if c.less(least[p.state]) {
				least[p.state], best[p.state] = c, i
			}
		}
		down := x.below[v]
		down.open++ // left open
		x.state[v] = none
		for s := range k {
			if least[s].less(down) {
				down, x.state[v] = least[s], int32(s)
			}
		}
		x.down[v] = down
		x.price[v] = down.minus(x.below[v])
		if p := m.parent[v]; p != relay.NoNode {
			x.below[p] = x.below[p].plus(down)
		} else {
			total = total.plus(down)
		}
	}
	if total.open > 0 {
		return 0, false
	}
	x.trace()
	return total.cost, true
}

// read is what reading a value costs a piece of state to, and the state that the value is best in; none where that is
// to be left open, and for what no option makes.
func (x *relaxation) read(q *read, to int32) (value, int32) {
	k := len(x.m.states)
	u := int(q.value)
	if q.within {
		return value{cost: -x.edges(q, to)}, to
	}
	in := x.entering(q, to)
	if !q.made {
		return value{cost: in}, none
	}
	least, state := value{}, none
	if q.below && x.state[u] == none {
		least = x.down[u]
	} else {
		least = missing
	}
	for s := range int32(k) {
		if x.best[u*k+int(s)] == none || !q.below && x.assume != nil && x.assume[u] != s {
			continue
		}
		c := value{cost: -x.edges(q, s)}
		if x.m.pays(s, to) {
			c.cost += in + x.leaving(q, s)
		}
		if q.below {
			c = c.plus(x.least[u*k+int(s)])
		}
		if c.less(least) {
			least, state = c, s
		}
	}
	if !q.below && state == none {
		return missing, none // nothing tops u, so no placement has this piece
	}
	return least, state
}

// pays says that a value of state s that an option of state to reads crosses a border, however few regions there are.
func (m *model) pays(s, to int32) bool { return s != to || m.apart[to] }

// entering is the share of a read in what it costs to bring the value to a state, leaving in what it costs to bring it
// away from one.
func (x *relaxation) entering(q *read, to int32) int64 {
	k := len(x.m.states)
	if x.m.apart[to] {
		if q.charged {
			return x.m.in[int(q.value)*k+int(to)]
		}
		return 0
	}
	sum := int64(0)
	for _, e := range q.edges {
		sum += x.l.in[int(e)*k+int(to)]
	}
	return sum
}

func (x *relaxation) leaving(q *read, s int32) int64 {
	sum := int64(0)
	for _, e := range q.edges {
		sum += x.l.out[int(e)*len(x.m.states)+int(s)]
	}
	return sum
}

// edges is what the reads of a value get back where it is in state s.
func (x *relaxation) edges(q *read, s int32) int64 {
	sum := int64(0)
	for _, e := range q.edges {
		sum += x.l.edge[int(e)*len(x.m.states)+int(s)]
	}
	return sum
}

// trace walks from the last node to the first, as TreeSolver's.
func (x *relaxation) trace() {
	k := len(x.m.states)
	x.taken, x.took = x.taken[:0], x.took[:0]
	for v := range x.want {
		x.want[v], x.in[v] = none, none
	}
	for v := len(x.in) - 1; v >= 0; v-- {
		if x.in[v] != none || !x.m.problem.Tree.Needs[v] {
			continue
		}
		s := x.want[v]
		if s == none {
			s = x.state[v]
		}
		i := x.best[v*k+int(s)]
		x.taken = append(x.taken, i)
		p := &x.m.pieces[i]
		for _, w := range p.nodes {
			x.in[w] = i
		}
		for r := range p.reads {
			if !p.reads[r].made {
				x.took = append(x.took, taking{&p.reads[r], p.state, none})
				continue
			}
			_, from := x.read(&p.reads[r], p.state)
			if p.reads[r].below {
				x.want[p.reads[r].value] = from
			}
			x.took = append(x.took, taking{&p.reads[r], p.state, from})
		}
	}
	reverse(x.taken)
}

// options are those that the taken pieces belong to, each once, in the order of their last pieces. whole says that no
// option was taken in part.
func (x *relaxation) options() (chosen []int, whole bool) {
	whole = true
	if x.m.split == 0 {
		for _, i := range x.taken {
			chosen = append(chosen, int(x.m.pieces[i].option))
		}
		return chosen, true
	}
	count := map[int32]int{}
	for _, i := range x.taken {
		o := x.m.pieces[i].option
		count[o]++
		if count[o] == len(x.m.of[o]) {
			chosen = append(chosen, int(o))
		}
	}
	for o, c := range count {
		whole = whole && c == len(x.m.of[o])
	}
	return chosen, whole
}
