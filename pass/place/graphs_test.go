// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

// network is a random graph with options that are legal by the graph alone, found without looking at its tree.
type network struct {
	graph     *relay.Graph
	tree      *Tree
	reads     [][]relay.NodeID
	consumers [][]relay.NodeID
	needs     []relay.NodeID
	uses      [][]relay.NodeID // the values that each node uses, constants left out
}

// randomNetwork has branches, skips, tuples, projections, a conditional with scopes of its own now and then, and one or
// several outputs.
func randomNetwork(r *rand.Rand, operators int) *network {
	m := relay.NewGraph("main")
	kind := relay.Tensor("float32", 1, 8)
	input := m.Var([]int64{1, 8}, "float32")
	condition := m.Var(nil, "bool")
	values := []relay.NodeID{input}
	unused := map[relay.NodeID]bool{}
	reach := 1 + r.IntN(5)
	take := func() relay.NodeID {
		v := values[len(values)-1-r.IntN(min(len(values), 1+r.IntN(reach)))]
		delete(unused, v)
		return v
	}
	scopes := r.IntN(5) == 0
	for range operators {
		var v relay.NodeID
		switch r.IntN(9) {
		case 0, 1, 2:
			v = m.Call("nn.relu", kind, nil, take())
		case 3, 4, 5:
			v = m.Call("add", kind, nil, take(), take())
		case 6:
			v = m.Tuple(take(), take())
			v = m.Call("concatenate", kind, nil, v)
		case 7:
			s := m.Call("split", relay.TupleOf(kind, kind), nil, take())
			v = m.Get(s, 0)
			if r.IntN(2) == 0 {
				v = m.Call("multiply", kind, nil, v, m.Get(s, 1))
			}
		case 8:
			if !scopes {
				v = m.Call("multiply", kind, nil, take(), m.Const([]int64{8}, "float32"))
				break
			}
			v = m.If(condition, m.Call("exp", kind, nil, take()), take(), kind)
		}
		values = append(values, v)
		unused[v] = true
	}
	var outputs []relay.NodeID
	for _, v := range values {
		if unused[v] || v != input && r.IntN(20) == 0 {
			outputs = append(outputs, v)
		}
	}
	root := outputs[0]
	if len(outputs) > 1 || r.IntN(4) == 0 {
		root = m.Tuple(outputs...)
	}
	return of(m.Finish(root))
}

func of(g *relay.Graph) *network {
	n := &network{graph: g, tree: TreeOf(g), reads: ReadsOf(g), consumers: make([][]relay.NodeID, len(g.Nodes))}
	for w := range n.reads {
		for _, u := range n.reads[w] {
			n.consumers[u] = append(n.consumers[u], relay.NodeID(w))
		}
	}
	n.uses = make([][]relay.NodeID, len(g.Nodes))
	for v, needs := range n.tree.Needs {
		if needs {
			n.needs = append(n.needs, relay.NodeID(v))
			n.uses[v], _ = g.Boundary([]relay.NodeID{relay.NodeID(v)})
		}
	}
	return n
}

// options are single nodes for nearly everything, and random sets of nodes that nothing but their last node leaves.
func (n *network) options(r *rand.Rand, states int) []Option {
	var options []Option
	add := func(set []relay.NodeID, cost float64) {
		options = append(options, Option{Nodes: set, Cost: cost, Rank: r.IntN(3), State: State(r.IntN(states) * 10)})
	}
	cost := func(size int) float64 {
		switch r.IntN(12) {
		case 0:
			return math.Inf(1)
		case 1, 2, 3:
			return float64(r.IntN(3*size + 1))
		default:
			return r.Float64() * float64(size) * 2.5
		}
	}
	gaps := r.IntN(4) == 0
	for _, v := range n.needs {
		for range 1 + r.IntN(states) {
			if !gaps || r.IntN(4) > 0 {
				add(nodes(v), r.Float64()*3)
			}
		}
		for range r.IntN(3) {
			set := nodes(v)
			for u := v - 1; u >= 0; u-- {
				inside := func(c relay.NodeID) bool { return slices.Contains(set, c) }
				if len(n.consumers[u]) > 0 &&
					!slices.ContainsFunc(n.consumers[u], func(c relay.NodeID) bool { return !inside(c) }) &&
					n.tree.Needs[u] && r.IntN(4) > 0 {
					set = append(set, u)
				}
			}
			slices.Sort(set)
			add(set, cost(len(set)))
		}
	}
	r.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
	return options
}

// convex gives up to count options that are random convex sets, most of them with several exits.
func (n *network) convex(r *rand.Rand, count, states int) []Option {
	var options []Option
	for range count {
		v := n.needs[r.IntN(len(n.needs))]
		scope := n.graph.Nodes[v].Scope
		set := nodes(v)
		for range 1 + r.IntN(5) {
			near := n.needs[max(0, min(len(n.needs)-1, slices.Index(n.needs, set[r.IntN(len(set))])+r.IntN(7)-3))]
			if n.graph.Nodes[near].Scope != scope || slices.Contains(set, near) {
				continue
			}
			grown := append(slices.Clone(set), near)
			slices.Sort(grown)
			if n.convexSet(grown) {
				set = grown
			}
		}
		options = append(options, Option{Nodes: set, Cost: r.Float64() * float64(len(set)),
			State: State(r.IntN(states) * 10)})
	}
	return options
}

// convexSet says, by the definition, that no way leads out of a set and back.
func (n *network) convexSet(set []relay.NodeID) bool {
	var back func(v relay.NodeID, left bool) bool
	back = func(v relay.NodeID, left bool) bool {
		for _, c := range n.consumers[v] {
			inside := slices.Contains(set, c)
			if left && inside || back(c, left || !inside) {
				return true
			}
		}
		return false
	}
	return !slices.ContainsFunc(set, func(v relay.NodeID) bool { return back(v, false) })
}

// ordered says, by the definition, that the groups of nodes can be run one after the other.
func (n *network) ordered(groups [][]relay.NodeID) bool {
	group := map[relay.NodeID]int{}
	for i, g := range groups {
		for _, v := range g {
			group[v] = i
		}
	}
	done := make([]bool, len(groups))
	for range groups {
		progress := false
		for i, g := range groups {
			if done[i] {
				continue
			}
			ready := true
			for _, v := range g {
				for _, u := range n.reads[v] {
					ready = ready && (group[u] == i || done[group[u]])
				}
			}
			if ready {
				done[i], progress = true, true
			}
		}
		if !progress {
			return !slices.Contains(done, false)
		}
	}
	return true
}

// cheapest is brute in milliseconds.
func (n *network) cheapest(p *Problem, allowed func(i int) bool) (least float64, ok bool) {
	ps, ok := n.brute(p, allowed)
	return milliseconds(ps), ok
}

// brute tries all exact covers that can be run, with what is paid between their regions, in picoseconds; it knows
// nothing of trees.
func (n *network) brute(p *Problem, allowed func(i int) bool) (least int64, ok bool) {
	least = math.MaxInt64
	by := make([]int, len(p.Tree.Needs))
	for v := range by {
		by[v] = -1
	}
	with := make([][]int, len(by))
	several := false
	for i, o := range p.Options {
		if !math.IsInf(o.Cost, 1) && (allowed == nil || allowed(i)) {
			for _, v := range o.Nodes {
				with[v] = append(with[v], i)
			}
			exits := 0
			for _, v := range o.Nodes {
				if len(n.consumers[v]) == 0 ||
					slices.ContainsFunc(n.consumers[v],
						func(c relay.NodeID) bool { return !slices.Contains(o.Nodes, c) }) {
					exits++
				}
			}
			several = several || exits > 1
		}
	}
	var tryAll func(at int, sum int64)
	tryAll = func(at int, sum int64) {
		for at < len(n.needs) && by[n.needs[at]] >= 0 {
			at++
		}
		if sum >= least {
			return
		}
		if at == len(n.needs) {
			if several {
				var groups [][]relay.NodeID
				seen := map[int]bool{}
				for _, v := range n.needs {
					if !seen[by[v]] {
						seen[by[v]] = true
						groups = append(groups, p.Options[by[v]].Nodes)
					}
				}
				if !n.ordered(groups) {
					return
				}
			}
			if p.Borders != nil {
				var chosen []int
				for _, v := range n.needs {
					if !slices.Contains(chosen, by[v]) {
						chosen = append(chosen, by[v])
					}
				}
				sum += n.paid(p.Borders.Regions(chosen), p.Borders.Ends)
			}
			if sum < least {
				least, ok = sum, true
			}
			return
		}
		for _, i := range with[n.needs[at]] {
			o := p.Options[i]
			if slices.ContainsFunc(o.Nodes, func(v relay.NodeID) bool { return by[v] >= 0 }) {
				continue
			}
			for _, v := range o.Nodes {
				by[v] = i
			}
			tryAll(at, sum+picoseconds(o.Cost))
			for _, v := range o.Nodes {
				by[v] = -1
			}
		}
	}
	tryAll(0, 0)
	return least, ok
}

// paid is what is paid between regions by the definition, region by region: it shares no code with package border.
func (n *network) paid(r *border.Regions, ends border.Ends) int64 {
	sum := int64(0)
	for k, side := range r.Sides {
		here := func(v relay.NodeID) bool { return n.tree.Needs[v] && r.Of[v] == int32(k) }
		var entering, leaving []relay.NodeID
		for _, w := range n.needs {
			for _, v := range n.uses[w] {
				if here(w) && !here(v) && (k > 0 || n.tree.Needs[v]) && !slices.Contains(entering, v) {
					entering = append(entering, v)
				}
				if here(v) && !here(w) && !slices.Contains(leaving, v) {
					leaving = append(leaving, v)
				}
			}
			if k > 0 && here(w) && n.graph.ScopeRoot(w) && !slices.Contains(leaving, w) {
				leaving = append(leaving, w)
			}
		}
		for _, v := range entering {
			in, _ := ends(v, side)
			sum += in
		}
		for _, v := range leaving {
			_, out := ends(v, side)
			sum += out
		}
	}
	return sum
}

// borders are random costs by value and side. State 0 stays inline; of the other states the neighbours are joined, as
// long as no two regions need each other and, now and then, a pair of them keeps apart; or, where apart says so, no
// neighbours are.
func (n *network) borders(r *rand.Rand, options []Option, apart bool) *Borders {
	return n.joining(r, options, apart, r.IntN(2)*4)
}

// willing are borders where all neighbours are joined that can be; or, where apart says so, none.
func (n *network) willing(r *rand.Rand, options []Option, apart bool) *Borders {
	return n.joining(r, options, apart, 0)
}

// joining are borders where one in so many pairs of neighbours keeps apart; 0 for none.
func (n *network) joining(r *rand.Rand, options []Option, apart bool, shy int) *Borders {
	seed, scale := r.Uint64(), r.Float64()*2
	b := &Borders{Flow: border.FlowOf(n.graph), Apart: func(State) bool { return apart }}
	known := map[[2]int][2]int64{}
	draw := border.Rounded(func(v relay.NodeID, s border.Side) (in, out float64) {
		q := rand.New(rand.NewPCG(seed, uint64(v)<<10|uint64(s)))
		if s == 0 && seed%2 == 0 || q.IntN(4) == 0 {
			return 0, 0
		}
		return q.Float64() * scale, q.Float64() * scale
	})
	b.Ends = func(v relay.NodeID, s border.Side) (in, out int64) {
		e, ok := known[[2]int{int(v), int(s)}]
		if !ok {
			e[0], e[1] = draw(v, s)
			known[[2]int{int(v), int(s)}] = e
		}
		return e[0], e[1]
	}
	b.Regions = func(chosen []int) *border.Regions {
		groups := make([][]relay.NodeID, len(chosen))
		of := make([]int, len(n.tree.Needs))
		for k, i := range chosen {
			groups[k] = options[i].Nodes
			for _, v := range options[i].Nodes {
				of[v] = k
			}
		}
		state := func(v relay.NodeID) State { return options[chosen[of[v]]].State }
		for u := range n.consumers {
			for _, w := range n.consumers[u] {
				u := relay.NodeID(u)
				keep := shy > 0 && (uint64(u)*31+uint64(w)*17+seed)%uint64(shy) == 0
				if apart || keep || of[u] == of[w] || state(u) != state(w) || state(u) == 0 {
					continue
				}
				joined := slices.Clone(groups)
				joined[of[u]] = append(slices.Clone(groups[of[u]]), groups[of[w]]...)
				joined[of[w]] = nil
				if !n.ordered(joined) {
					continue
				}
				groups = joined
				// An option's state is that of each node of its region, so of may name any option of it.
				from, to := of[w], of[u]
				for v := range of {
					if of[v] == from && n.tree.Needs[v] {
						of[v] = to
					}
				}
			}
		}
		regions := &border.Regions{Of: make([]int32, len(n.tree.Needs)), Sides: []border.Side{0}}
		number := map[int]int32{}
		for _, v := range n.needs {
			if state(v) == 0 {
				continue
			}
			if number[of[v]] == 0 {
				number[of[v]] = int32(len(regions.Sides))
				regions.Sides = append(regions.Sides, border.Side(state(v)))
			}
			regions.Of[v] = number[of[v]]
		}
		return regions
	}
	return b
}

// RandomProblem is for the tests outside of the package, which may use the oracle: options, their tree, and brute
// force.
func RandomProblem(r *rand.Rand, operators int) ([]Option, *Tree, func() (float64, bool)) {
	n := randomNetwork(r, operators)
	options := n.options(r, 1)
	return options, n.tree, func() (float64, bool) {
		return n.cheapest(&Problem{Tree: n.tree, Options: options, Reads: n.reads}, nil)
	}
}
