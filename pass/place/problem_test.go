// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

// checkProblem solves a problem with each of the efforts and holds it against brute force, to the last picosecond. The
// placements are nil where there is none.
func checkProblem(t *testing.T, n *network, p *Problem, name string, efforts ...int64) []*Solution {
	t.Helper()
	best, ok := n.brute(p, nil)
	placements := make([]*Solution, len(efforts))
	for i, effort := range efforts {
		p.Effort = effort
		placements[i] = checkAgainst(t, n, p, best, ok, name)
	}
	return placements
}

func checkAgainst(t *testing.T, n *network, p *Problem, best int64, ok bool, name string) *Solution {
	t.Helper()
	q, err := p.Solve()
	if !ok {
		require.Error(t, err, name)
		return nil
	}
	require.NoError(t, err, name)
	require.NoError(t, p.Verify(q), name)
	require.Equal(t, n.recount(p, q.Chosen), picoseconds(q.Cost), name)
	require.GreaterOrEqual(t, picoseconds(q.Cost), best, name)
	require.LessOrEqual(t, picoseconds(q.LowerBound), best, name)
	require.Equal(t, picoseconds(q.Cost)-picoseconds(q.LowerBound), picoseconds(q.Gap), name)
	if q.Gap == 0 {
		require.Equal(t, best, picoseconds(q.Cost), name)
	}
	again, err := p.Solve()
	require.NoError(t, err, name)
	require.Equal(t, q, again, name)
	return q
}

// recount is what chosen options cost with the regions that they form, counted by the definition.
func (n *network) recount(p *Problem, chosen []int) int64 {
	sum := int64(0)
	for _, i := range chosen {
		sum += picoseconds(p.Options[i].Cost)
	}
	if p.Borders != nil {
		sum += n.paid(p.Borders.Regions(chosen), p.Borders.Ends)
	}
	return sum
}

func TestBordersAgainstBruteForce(t *testing.T) {
	t.Parallel()
	solved, infeasible, proven, alone, open, several := 0, 0, 0, 0, 0, 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 11))
		n := randomNetwork(r, 1+r.IntN(7))
		p := &Problem{Tree: n.tree, Options: n.options(r, 2+r.IntN(2)), Reads: n.reads}
		p.Borders = n.borders(r, p.Options, r.IntN(4) == 0)
		both := checkProblem(t, n, p, fmt.Sprint("seed ", seed), 0, 1)
		q, hasty := both[0], both[1]
		if q == nil {
			infeasible++
			continue
		}
		solved++
		if q.Gap == 0 {
			proven++
		}
		m, err := p.compile()
		require.NoError(t, err)
		if m.transfers {
			exact, _ := m.cost(q.Chosen, false)
			few, _ := m.cost(q.Chosen, true)
			require.LessOrEqual(t, few, exact, "seed %d: more regions never cost less", seed)
			if few < exact {
				several++
			}
		}
		// With next to no effort the bounds still hold.
		if hasty.Gap > 0 {
			open++
		}
		// Borders only add: without them the tree's answer is a lower bound.
		plain, err := Solve(p.Options, p.Tree)
		require.NoError(t, err)
		require.LessOrEqual(t, plain.Cost, q.LowerBound+1e-9, "seed %d", seed)
		if plain.Cost < q.LowerBound {
			alone++
		}
	}
	t.Logf("%d solved, %d proven, %d without a placement, %d with more regions than could be, %d open in haste, %d "+
		"bounds raised",
		solved, proven, infeasible, several, open, alone)
	require.Equal(t, solved, proven)
	// A test that never sees a case shows nothing about it.
	require.Greater(t, infeasible, rounds.Of(20))
	require.Greater(t, open, rounds.Of(50))
	require.Greater(t, alone, rounds.Of(500))
	require.Greater(t, several, rounds.Of(50))
}

// A search that may end early ends within what is enough, and its bound holds.
func TestWhatIsEnoughEndsTheSearch(t *testing.T) {
	t.Parallel()
	solved, left := 0, 0
	for seed := range rounds.Seeds(300) {
		r := rand.New(rand.NewPCG(seed, 17))
		n := randomNetwork(r, 3+r.IntN(4))
		p := &Problem{Tree: n.tree, Options: n.options(r, 3), Reads: n.reads, Enough: 0.1}
		p.Borders = n.borders(r, p.Options, false)
		if q := checkProblem(t, n, p, fmt.Sprint("seed ", seed), 0)[0]; q != nil {
			solved++
			require.LessOrEqual(t, q.Gap, 0.1*q.Cost+1e-9, "seed %d", seed)
			if q.Gap > 0 {
				left++
			}
		}
	}
	require.Greater(t, solved, rounds.Of(200))
	require.Greater(t, left, rounds.Of(20))
}

// A value that two operators of one region read is paid for once, and once more for another region of the same backend.
func TestAValueIsPaidForOncePerRegion(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	kind := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	a := m.Call("exp", kind, nil, x)
	b, c := m.Call("tanh", kind, nil, a), m.Call("sqrt", kind, nil, a)
	d := m.Call("add", kind, nil, b, c)
	n := of(m.Finish(d))
	for _, apart := range []bool{false, true} {
		p := &Problem{Tree: n.tree, Reads: n.reads, Options: []Option{
			{Nodes: nodes(a), Cost: 1}, {Nodes: nodes(b), Cost: 1, State: 10}, {Nodes: nodes(c), Cost: 1, State: 10},
			{Nodes: nodes(d), Cost: 1, State: 10}}}
		p.Borders = &Borders{Flow: border.FlowOf(n.graph),
			Ends: border.Rounded(func(_ relay.NodeID, s border.Side) (in, out float64) {
				if s == 0 {
					return 0, 0.5
				}
				return 16, 4
			}), Apart: func(State) bool { return apart }, Regions: func([]int) *border.Regions {
				r := &border.Regions{Of: make([]int32, len(n.tree.Needs)), Sides: []border.Side{0, 10}}
				r.Of[b], r.Of[c], r.Of[d] = 1, 1, 1
				if apart {
					r.Of[c], r.Of[d] = 2, 3
					r.Sides = []border.Side{0, 10, 10, 10}
				}
				return r
			}}
		q, err := p.Solve()
		require.NoError(t, err)
		require.NoError(t, p.Verify(q))
		// a leaves once and comes in once, d leaves as the result; x is read inline. Apart, b and c bring a in each,
		// and d both of theirs.
		want := 4 + 0.5 + 16 + 4.0
		if apart {
			want += 16 + 2*(4+16)
		}
		require.Equal(t, want, q.Cost)
		require.Zero(t, q.Gap)
	}
}

func TestOptionsWithSeveralExitsAgainstBruteForce(t *testing.T) {
	t.Parallel()
	solved, infeasible, several, proven := 0, 0, 0, 0
	for seed := range rounds.Seeds(1500) {
		r := rand.New(rand.NewPCG(seed, 12))
		n := randomNetwork(r, 1+r.IntN(7))
		p := &Problem{Tree: n.tree, Reads: n.reads}
		states := 1 + r.IntN(3)
		p.Options = append(n.options(r, states), n.convex(r, 1+r.IntN(8), states)...)
		if states > 1 {
			p.Borders = n.borders(r, p.Options, r.IntN(4) == 0)
		}
		q := checkProblem(t, n, p, fmt.Sprint("seed ", seed), 0)[0]
		if q == nil {
			infeasible++
			continue
		}
		solved++
		m, err := p.compile()
		require.NoError(t, err)
		for _, i := range q.Chosen {
			if len(m.of[i]) > 1 {
				several++
			}
		}
		if q.Gap == 0 {
			proven++
		}
	}
	require.Equal(t, solved, proven)
	require.Greater(t, infeasible, rounds.Of(10))
	require.Greater(t, several, rounds.Of(300))
}

// TestBordersOnTreesAreExactAtOnce: where each value is read by its post-dominator only, and neighbours are one region
// or never are, one pass is a proof.
func TestBordersOnTreesAreExactAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range rounds.Seeds(500) {
		r := rand.New(rand.NewPCG(seed, 13))
		size := 2 + r.IntN(7)
		m := relay.NewGraph("main")
		kind := relay.Tensor("float32", 8)
		var loose []relay.NodeID
		for range size {
			in := []relay.NodeID{m.Var([]int64{8}, "float32")}
			for len(loose) > 0 && r.IntN(3) > 0 {
				in, loose = append(in, loose[len(loose)-1]), loose[:len(loose)-1]
			}
			loose = append(loose, m.Call("add", kind, nil, in...))
		}
		n := of(m.Finish(m.Tuple(loose...)))
		p := &Problem{Tree: n.tree, Options: n.options(r, 3), Reads: n.reads}
		p.Borders = n.willing(r, p.Options, r.IntN(2) == 0)
		if q := checkProblem(t, n, p, fmt.Sprint("tree of seed ", seed), 1)[0]; q != nil {
			require.Zero(t, q.Gap, "seed %d", seed)
		}
	}
}

// diamonds are two operators that read one value, and two sums of them: 0 -> {1, 2}, {1, 2} -> 3, 4, tuple 5.
func diamonds() *network {
	m := relay.NewGraph("main")
	kind := relay.Tensor("float32", 8)
	x := m.Var([]int64{8}, "float32")
	a, b := m.Call("exp", kind, nil, x), m.Call("tanh", kind, nil, x)
	c, d := m.Call("exp", kind, nil, a), m.Call("tanh", kind, nil, b)
	return of(m.Finish(m.Tuple(c, d)))
}

func TestConvexOptionsThatNeedEachOther(t *testing.T) {
	t.Parallel()
	// Two chains, 1 -> 3 and 2 -> 4. Each of {1, 4} and {2, 3} is convex; together they feed each other.
	n := diamonds()
	cross := [][]relay.NodeID{nodes(1, 4), nodes(2, 3)}
	for _, set := range cross {
		require.True(t, n.convexSet(set))
		require.NoError(t, QuotientAcyclic(n.reads, [][]relay.NodeID{set}))
	}
	err := QuotientAcyclic(n.reads, cross)
	var cycle *CycleError
	require.ErrorAs(t, err, &cycle)
	require.ElementsMatch(t, []int{0, 1}, cycle.Regions)
	require.ElementsMatch(t, nodes(1, 2, 3, 4), cycle.Path)

	p := &Problem{Tree: n.tree, Reads: n.reads, Options: []Option{
		{Nodes: cross[0], Cost: 1}, {Nodes: cross[1], Cost: 1.5}, {Nodes: nodes(5), Cost: 0},
		{Nodes: nodes(1), Cost: 2}, {Nodes: nodes(2), Cost: 2}, {Nodes: nodes(3), Cost: 2}, {Nodes: nodes(4), Cost: 2},
	}}
	q, err := p.Solve()
	require.NoError(t, err)
	require.Equal(t, []int{4, 5, 0, 2}, q.Chosen)
	require.Equal(t, 5.0, q.Cost)
	require.Zero(t, q.Gap)
	_, err = p.Cost([]int{0, 1, 2})
	require.ErrorAs(t, err, &cycle)

	p.Options = p.Options[:3]
	_, err = p.Solve()
	require.ErrorContains(t, err, "need each other's results")
}

func TestQuotientAgainstItsDefinition(t *testing.T) {
	t.Parallel()
	cyclic, free := 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 14))
		n := randomNetwork(r, 3+r.IntN(10))
		var regions [][]relay.NodeID
		used := map[relay.NodeID]bool{}
		for _, o := range n.convex(r, 3+r.IntN(5), 1) {
			if !slices.ContainsFunc(o.Nodes, func(v relay.NodeID) bool { return used[v] }) {
				regions = append(regions, o.Nodes)
				for _, v := range o.Nodes {
					used[v] = true
				}
			}
		}
		all := slices.Clone(regions)
		for _, v := range n.needs {
			if !used[v] {
				all = append(all, nodes(v))
			}
		}
		err := QuotientAcyclic(n.reads, regions)
		require.Equal(t, n.ordered(all), err == nil, "seed %d", seed)
		if err == nil {
			free++
			continue
		}
		cyclic++
		var cycle *CycleError
		require.ErrorAs(t, err, &cycle)
		require.Greater(t, len(cycle.Regions), 1, "each region is convex")
		only := [][]relay.NodeID{}
		for _, i := range cycle.Regions {
			only = append(only, regions[i])
		}
		require.Error(t, QuotientAcyclic(n.reads, only), "seed %d: the regions named are on a cycle", seed)
	}
	require.Greater(t, cyclic, 10)
	require.Greater(t, free, 500)
}

func TestMalformedProblemsAreRefused(t *testing.T) {
	t.Parallel()
	n := diamonds()
	single := []Option{{Nodes: nodes(1)}, {Nodes: nodes(2)}, {Nodes: nodes(3)}, {Nodes: nodes(4)}, {Nodes: nodes(5)}}
	with := func(o Option) error {
		p := &Problem{Tree: n.tree, Reads: n.reads, Options: append(slices.Clone(single), o)}
		_, err := p.Solve()
		return err
	}
	for name, o := range map[string]Option{
		"empty": {}, "descending": {Nodes: nodes(2, 1)}, "no such node": {Nodes: nodes(9)},
		"needs no cover": {Nodes: nodes(0)},
		"negative":       {Nodes: nodes(1), Cost: -1}, "not convex": {Nodes: nodes(1, 5)},
	} {
		var bad *OptionError
		require.ErrorAs(t, with(o), &bad, name)
		require.Equal(t, 5, bad.Option)
	}
	require.ErrorContains(t, with(Option{Nodes: nodes(1, 5)}),
		"not convex: %5 reads, from outside, what comes of its node %1")
	require.ErrorContains(t, with(Option{Nodes: nodes(1, 2), Cost: 1e13}), "hours")

	single[0].State = 1
	flow := border.FlowOf(n.graph)
	for what, b := range map[string]*Borders{
		"bringing the value of %0 to state 0": {Flow: flow,
			Ends: func(relay.NodeID, border.Side) (in, out int64) { return -1, 0 }},
		"and away from it": {Flow: flow,
			Ends: func(relay.NodeID, border.Side) (in, out int64) { return 0, math.MaxInt64 }},
		"hours": {Flow: flow,
			Ends: func(relay.NodeID, border.Side) (in, out int64) { return greatestSum, 0 }},
		"readers of 0": {Flow: &border.Flow{}},
	} {
		p := &Problem{Tree: n.tree, Reads: n.reads, Options: single, Borders: b}
		_, err := p.Solve()
		require.ErrorContains(t, err, what)
	}
	// Regions that are not made of the options.
	single[1].State = 1
	right := n.willing(rand.New(rand.NewPCG(1, 1)), single, false)
	p := &Problem{Tree: n.tree, Reads: n.reads, Options: single, Borders: right}
	_, err := p.Cost([]int{0, 1, 2, 3, 4})
	require.NoError(t, err)
	for what, spoil := range map[string]func(r *border.Regions){
		"another graph":      func(r *border.Regions) { r.Of = r.Of[1:] },
		"another side":       func(r *border.Regions) { r.Sides[0] = 7 },
		"no region of its":   func(r *border.Regions) { r.Of[1] = 0 },
		"in no region":       func(r *border.Regions) { r.Of[3] = 1 },
		"is in no region of": func(r *border.Regions) { r.Sides[1] = 3 },
	} {
		wrong := *right
		wrong.Regions = func(chosen []int) *border.Regions {
			r := right.Regions(chosen)
			spoil(r)
			return r
		}
		p.Borders = &wrong
		_, err := p.Cost([]int{0, 1, 2, 3, 4})
		require.ErrorContains(t, err, what)
	}
	together := *right
	together.Apart = func(State) bool { return true }
	together.Regions = func([]int) *border.Regions {
		return &border.Regions{Of: []int32{0, 1, 1, 0, 0, 0}, Sides: []border.Side{0, 1}}
	}
	p.Borders = &together
	_, err = p.Cost([]int{0, 1, 2, 3, 4})
	require.ErrorContains(t, err, "share a region")

	var open *UncoveredError
	p = &Problem{Tree: n.tree, Reads: n.reads, Options: append(slices.Clone(single[2:]), Option{Nodes: nodes(1, 4)})}
	_, err = p.Solve()
	require.ErrorAs(t, err, &open)
	require.Equal(t, nodes(2), open.Nodes)
}

func TestTamperedPlacementsOfProblemsAreRefused(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range rounds.Seeds(600) {
		r := rand.New(rand.NewPCG(seed, 15))
		n := randomNetwork(r, 2+r.IntN(8))
		p := &Problem{Tree: n.tree, Reads: n.reads, Effort: 1 + int64(r.IntN(2))*DefaultEffort}
		p.Options = append(n.options(r, 3), n.convex(r, 4, 3)...)
		p.Borders = n.borders(r, p.Options, false)
		q, err := p.Solve()
		if err != nil {
			continue
		}
		require.NoError(t, p.Verify(q))
		bad := *q
		bad.Chosen = slices.Clone(q.Chosen)
		i := r.IntN(len(bad.Chosen))
		switch r.IntN(6) {
		case 0:
			bad.Cost -= 2e-9
		case 1:
			bad.LowerBound += 2e-9
		case 2:
			bad.Gap -= 2e-9
		case 3:
			bad.Chosen = slices.Delete(bad.Chosen, i, i+1)
		case 4:
			bad.Chosen[i] = bad.Chosen[(i+1)%len(bad.Chosen)]
			if len(bad.Chosen) == 1 {
				continue
			}
		case 5:
			bad.Chosen[i] = len(p.Options)
		}
		require.Error(t, p.Verify(&bad), "seed %d", seed)
		refused++
	}
	require.Greater(t, refused, rounds.Of(300))
}
