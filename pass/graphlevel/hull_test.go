// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// point is a placement's time, and the square of what it is off by.
type point struct{ time, off float64 }

// lowerHull are the corners of all points' lower hull, from the most exact to the fastest (Andrew 1979).
func lowerHull(points []point) []point {
	slices.SortFunc(points, func(a, b point) int {
		if a.off != b.off {
			return map[bool]int{true: -1, false: 1}[a.off < b.off]
		}
		return map[bool]int{true: -1, false: 1}[a.time < b.time]
	})
	var hull []point
	for _, p := range points {
		if len(hull) > 0 && p.time >= hull[len(hull)-1].time {
			continue
		}
		for len(hull) > 1 {
			a, b := hull[len(hull)-2], hull[len(hull)-1]
			if (b.off-a.off)*(p.time-a.time) > (p.off-a.off)*(b.time-a.time) {
				break
			}
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, p)
	}
	return hull
}

// sweptSpace is a random chain whose operators add random shares, and all of its placements.
func sweptSpace(t *testing.T, r *rand.Rand) (*genome.Space, *sensitivity, []point) {
	s := narrowable(t, r, 6)
	n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2}, nil)
	for v := range n.share[0] {
		n.share[0][v] *= 20 * r.Float64()
	}
	var all []point
	for _, p := range placements(&s.Functions[0]) {
		all = append(all, pointOf(n, p))
	}
	return s, n, all
}

// pointOf is a placement of the one function's.
func pointOf(n *sensitivity, p []int) point {
	return point{milliseconds(&n.space.Functions[0], p), n.sum(n.covered([][]int{p}))}
}

// The corners are those that brute force finds, of each of which it is proven that there are none between it and the
// next; and no placement between two is faster than the gap says, in which there mostly are some.
func TestTheCornersOfTimeAgainstError(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	count, within := 0, 0
	for range 200 {
		s, n, all := sweptSpace(t, r)
		corners, err := n.corners(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
		require.NoError(t, err)
		hull := lowerHull(all)
		require.Len(t, corners, len(hull))
		for i, c := range corners {
			require.InDelta(t, hull[i].time, c.Milliseconds, 1e-8)
			require.InDelta(t, math.Sqrt(hull[i].off), c.Error, 1e-9)
			require.Zero(t, c.Unproven)
			require.Equal(t, 6, c.Operators["f32"]+c.Operators["bf16"])
			if i == len(hull)-1 {
				require.Zero(t, c.Price+c.Gap)
				continue
			}
			require.InEpsilon(t, (hull[i].time-hull[i+1].time)/(hull[i+1].off-hull[i].off), c.Price, 1e-6)
			for _, p := range all {
				if p.off >= hull[i].off && p.off < hull[i+1].off*(1-1e-9) {
					require.GreaterOrEqual(t, p.time, c.Milliseconds-c.Gap-1e-8)
					if p.time < c.Milliseconds-1e-8 {
						within++
					}
				}
			}
		}
		require.Zero(t, corners[0].Error)
		count += len(corners)
	}
	assert.Greater(t, count, 600, "there is something to find")
	assert.Greater(t, within, 200, "gaps are no empty words")
}

// Where operators must be computed narrowly the most exact corner is not exact, and found all the same.
func TestCornersWhereNothingIsExact(t *testing.T) {
	t.Parallel()
	s, n, _ := sweptSpace(t, rand.New(rand.NewPCG(13, 14)))
	f := &s.Functions[0]
	pinned := f.Set.Candidates[0].Root
	allowed := func(k int) bool {
		c := &f.Set.Candidates[k]
		return c.Backend != "tvm" || !slices.Contains(c.Nodes, pinned)
	}
	var all []point
	for _, p := range placements(f) {
		if !slices.ContainsFunc(p, func(k int) bool { return !allowed(k) }) {
			all = append(all, point{milliseconds(f, p), n.sum(n.covered([][]int{p}))})
		}
	}
	corners, err := n.corners(func(i int) []place.Option {
		options := believed(s, i, place.Overhead{})
		for k := range options {
			if !allowed(k) {
				options[k].Cost = math.Inf(1)
			}
		}
		return options
	})
	require.NoError(t, err)
	hull := lowerHull(all)
	require.Len(t, corners, len(hull))
	assert.Positive(t, corners[0].Error)
	for i := range hull {
		assert.InDelta(t, hull[i].time, corners[i].Milliseconds, 1e-8)
	}
}

// A network nothing of which is quicker narrowly has one corner.
func TestOneCorner(t *testing.T) {
	t.Parallel()
	s, n, _ := sweptSpace(t, rand.New(rand.NewPCG(15, 16)))
	f := &s.Functions[0]
	for k := range f.Costs {
		f.Costs[k] = map[string]float64{"tvm": 1, "slim": 2}[f.Set.Candidates[k].Backend]
	}
	corners, err := n.corners(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
	require.NoError(t, err)
	assert.Equal(t, []plan.Corner{{Milliseconds: 6, Operators: map[string]int{"f32": 6}}}, corners)

	for k := range f.Costs {
		f.Costs[k] = float64(len(f.Set.Candidates[k].Nodes)) // all cost the same, so the exact ones are as fast
	}
	corners, err = n.corners(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
	require.NoError(t, err)
	require.Len(t, corners, 1)
	assert.Zero(t, corners[0].Error)
}

// Where the fastest was not found, what is faster takes its place, and no price is paid for being further off.
func TestCornersOfASolverThatDoesNotFindTheFastest(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 22))
	dropped := 0
	for range 50 {
		s, n, all := sweptSpace(t, r)
		f := &s.Functions[0]
		slowest := slices.MaxFunc(placements(f), func(a, b []int) int {
			return cmp.Compare(n.sum(n.covered([][]int{a})), n.sum(n.covered([][]int{b})))
		})
		solves := 0
		n.solve = func(options []place.Option, tree *place.Tree) (*place.Solution, error) {
			for k := range options {
				require.GreaterOrEqual(t, options[k].Cost, f.Costs[k]-1e-12, "errors are paid for")
			}
			placed, err := place.Solve(options, tree)
			if solves++; err == nil && solves == 1 {
				placed = &place.Solution{Chosen: slowest, LowerBound: placed.LowerBound}
			}
			return placed, err
		}
		corners, err := n.corners(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
		require.NoError(t, err)
		for i := 1; i < len(corners); i++ {
			require.Less(t, corners[i].Milliseconds, corners[i-1].Milliseconds)
			require.Greater(t, corners[i].Error, corners[i-1].Error)
		}
		hull := lowerHull(all)
		require.InDelta(t, hull[0].time, corners[0].Milliseconds, 1e-8)
		if milliseconds(f, slowest) > corners[len(corners)-1].Milliseconds+1e-6 {
			dropped++
		}
	}
	assert.Greater(t, dropped, 10)
}

// A corner that the solver should not have given is none where a later one is better in both.
func TestACornerThatIsNone(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(23, 24))
	given := 0
	for range 100 {
		s, n, _ := sweptSpace(t, r)
		f := &s.Functions[0]
		all := placements(f)
		at := func(p []int) point { return pointOf(n, p) }
		slim := slices.IndexFunc(f.Set.Candidates, func(c candidate.Candidate) bool { return c.Backend == "slim" })
		share := n.share[0][n.parts(0, slim)[0]]
		var ends [2]point
		solves := 0
		n.solve = func(options []place.Option, tree *place.Tree) (*place.Solution, error) {
			placed, err := place.Solve(options, tree)
			require.NoError(t, err)
			if solves++; solves < 3 {
				ends[solves-1] = at(placed.Chosen)
				return placed, nil
			}
			price := (options[slim].Cost - f.Costs[slim]) / share
			for _, p := range all {
				one := at(p)
				within := one.off > ends[1].off && one.off < ends[0].off
				if solves == 3 && within && one.time+price*one.off < ends[1].time+price*ends[1].off-1e-3 &&
					slices.ContainsFunc(all, func(q []int) bool {
						return at(q).time < one.time && at(q).off < one.off
					}) {
					given++
					return &place.Solution{Chosen: p, Cost: one.time + price*one.off, LowerBound: placed.LowerBound}, nil
				}
			}
			return placed, nil
		}
		corners, err := n.corners(func(i int) []place.Option { return believed(s, i, place.Overhead{}) })
		require.NoError(t, err)
		for i := 1; i < len(corners); i++ {
			require.Less(t, corners[i].Milliseconds, corners[i-1].Milliseconds)
			require.Greater(t, corners[i].Error, corners[i-1].Error)
			require.Positive(t, corners[i-1].Gap)
			for _, p := range all { // what lies between two of them is slower than the gap says
				if one := at(p); one.off < n.squared(corners[i].Error)*(1-1e-9) {
					require.Greater(t, one.time, corners[i-1].Milliseconds-corners[i-1].Gap-1e-6)
				}
			}
		}
	}
	assert.Greater(t, given, 20)
}

// What a solver that is not exact leaves open between two corners is told.
func TestCornersOfASolverThatIsNotExact(t *testing.T) {
	t.Parallel()
	s, n, _ := sweptSpace(t, rand.New(rand.NewPCG(17, 18)))
	options := func(i int) []place.Option { return believed(s, i, place.Overhead{}) }
	exact, err := n.corners(options)
	require.NoError(t, err)
	n.solve = func(options []place.Option, tree *place.Tree) (*place.Solution, error) {
		placed, err := place.Solve(options, tree)
		if err == nil {
			placed.LowerBound = placed.Cost - 0.25
		}
		return placed, err
	}
	corners, err := n.corners(options)
	require.NoError(t, err)
	require.Len(t, corners, len(exact))
	for i := range corners[:len(corners)-1] {
		assert.InDelta(t, 0.25, corners[i].Unproven, 1e-6)
		assert.InDelta(t, exact[i].Gap+0.25, corners[i].Gap, 1e-6)
	}
}

// What stands in a region of bytes without multiplying is computed in the network's own type, and counted so.
func TestBytesThatDoNotMultiply(t *testing.T) {
	t.Parallel()
	s, n, all := inTwoPrecisions(t, 0.01, nil)
	g := s.Functions[0].Set.Graph
	sums := 0
	for v := range g.Nodes {
		if g.Placeable(relay.NodeID(v)) && sums < 2 {
			g.Nodes[v].Op = "nn.relu"
			sums++
		}
	}
	bytes := n.corner(&atPrice{chosen: [][]int{all("slimmer")}})
	assert.Equal(t, map[string]int{"f32": 2, "int8": 4}, bytes.Operators)
	assert.Equal(t, map[string]int{"bf16": 6}, n.corner(&atPrice{chosen: [][]int{all("slim")}}).Operators)
	assert.Equal(t, map[string]int{"f32": 6}, n.corner(&atPrice{chosen: [][]int{all("tvm")}}).Operators)
}
