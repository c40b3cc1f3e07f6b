// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/relay"
)

// rounding runs networks whose parts take what they are said to, and whose operators on slim add so much to the square
// of the error.
type rounding struct {
	space *genome.Space
	adds  func(v relay.NodeID) float64
}

func (r *rounding) Measure(_ context.Context, placements []*genome.Placement, _ *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	f := &r.space.Functions[0]
	for i, p := range placements {
		total, square := 0.0, 0.0
		var parts []feedback.Part
		for _, k := range p.Chosen[0] {
			total += f.Costs[k]
			parts = append(parts, feedback.Part{Nodes: f.Set.Candidates[k].Nodes, Milliseconds: f.Costs[k]})
			if f.Set.Candidates[k].Backend == "slim" {
				for _, v := range f.Set.Candidates[k].Nodes {
					square += r.adds(v)
				}
			}
		}
		c := cost.Cost{Origin: cost.Measured, Samples: []float64{total, total, total}, Network: &cost.Network{Seconds: 1,
			Against: []float64{20, 20, 20}, Errors: &cost.Errors{L2: math.Sqrt(square)}}}
		RecordProfile(&feedback.Profile{Parts: parts}, c.Network)
		if err := taken(i, c); err != nil {
			return err
		}
	}
	return nil
}

// singles are the candidates of a backend that have one operator, of the operators of which it is said.
func singles(s *genome.Space, backend func(at int) string) *genome.Placement {
	var chosen []int
	f := &s.Functions[0]
	at := map[relay.NodeID]int{}
	for k := range f.Set.Candidates {
		c := &f.Set.Candidates[k]
		if _, known := at[c.Root]; !known {
			at[c.Root] = len(at)
		}
		if len(c.Nodes) == 1 && c.Backend == backend(at[c.Root]) {
			chosen = append(chosen, k)
		}
	}
	return s.Place([][]int{chosen})
}

func seen(p *genome.Placement, off float64) *Trial {
	return &Trial{Placement: p, Cost: cost.Cost{Samples: []float64{1},
		Network: &cost.Network{Errors: &cost.Errors{L2: off}}}}
}

// What networks are off by beyond the sum of their shares, as far as chance explains it, is blamed on no operator: those
// that no network had yet would look the better for it. Less is aimed at instead.
func TestWhatChanceExplainsIsBlamedOnNobody(t *testing.T) {
	t.Parallel()
	s := narrowable(t, rand.New(rand.NewPCG(5, 6)), 6)
	n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2}, nil)
	all := singles(s, func(int) string { return "slim" })
	half := singles(s, func(at int) string { return []string{"slim", "tvm"}[at%2] })
	n.observe(seen(all, 0.02))
	require.InDelta(t, 1, n.caution, 1e-9)
	before := n.aimed(margin)
	n.observe(seen(half, 0.02*math.Sqrt(0.5)*1.08))
	var shares []float64
	for _, of := range n.covered(all.Chosen)[0] {
		shares = append(shares, n.share[0][of])
	}
	require.Len(t, shares, 6)
	for _, share := range shares {
		assert.InEpsilon(t, shares[0], share, 1e-6)
	}
	assert.Less(t, n.aimed(margin), before)
	assert.InEpsilon(t, n.squared(0.02), n.sum(n.covered(all.Chosen)), 0.1)

	// One that is off by twice as much has other operators.
	n.observe(seen(half, 0.02*math.Sqrt(0.5)*2))
	on, off := n.sum(n.covered(half.Chosen)), n.sum(n.covered(all.Chosen))
	assert.Greater(t, on, 0.6*off)
}

// Operators of which noise says that they add nothing say nothing of how far others are off.
func TestWhatAddsNothingIsNoReasonForCaution(t *testing.T) {
	t.Parallel()
	s := narrowable(t, rand.New(rand.NewPCG(5, 6)), 6)
	n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2},
		func(int, relay.NodeID, byoc.Precision) (float64, bool) { return 0, true })
	all := singles(s, func(int) string { return "slim" })
	for _, off := range []float64{0, 0.001} {
		n.observe(seen(all, off))
		assert.InDelta(t, 1, n.caution, 0)
		assert.False(t, n.exceeds(all))
	}
}

// Once a precision was seen in a network, seeds that are believed to be off by many times what is allowed are not run.
func TestSeedsThatAreFarOffArePassedOver(t *testing.T) {
	t.Parallel()
	for off, want := range map[float64][2]bool{0.012: {false, false}, 0.02: {true, false}, 0.05: {true, true}} {
		s, n, all := inTwoPrecisions(t, 0.01, map[string]float64{"slim": off})
		search := &search{space: s, sensitivity: n, result: &Result{}}
		same := Seed{Placement: s.Place([][]int{all("slim")})}
		assert.Equal(t, want[0], search.farOff(&same), off)
		same.Alone = true
		assert.Equal(t, want[1], search.farOff(&same), "a backend alone may round otherwise")
		assert.False(t, search.farOff(&Seed{Placement: s.Place([][]int{all("slimmer")})}), "nobody has seen bytes yet")
		assert.False(t, search.farOff(&Seed{Placement: s.Place([][]int{all("tvm")})}))
	}

	s := narrowable(t, rand.New(rand.NewPCG(5, 6)), 6)
	seeds := []Seed{{Name: "tvm", Placement: singles(s, func(int) string { return "tvm" })},
		{Name: "slim", Placement: singles(s, func(int) string { return "slim" })},
		{Name: "most", Placement: singles(s, func(at int) string { return []string{"tvm", "slim"}[min(at, 1)] })}}
	r, err := Search(context.Background(), s, seeds, &rounding{s, func(relay.NodeID) float64 { return 1e-3 }},
		Options{Trials: 10, FeedbackSteps: -1, SeedsOnly: true, Batch: 2, Limit: cost.Limit{Most: 0.01, Measure: cost.L2}})
	require.NoError(t, err)
	assert.Equal(t, []string{"most"}, r.FarOff)
	assert.Empty(t, r.PassedOver)
	assert.Len(t, r.Trials, 2)
}

// Placements of a feedback whose outputs turn out to be too far off are followed by others, though one step was asked
// for.
func TestFeedbackGoesOnUntilOneMayBeKept(t *testing.T) {
	t.Parallel()
	repaired := 0
	for seed := range uint64(12) {
		s := narrowable(t, rand.New(rand.NewPCG(seed, 6)), 8)
		seeds := []Seed{{Name: "tvm", Placement: singles(s, func(int) string { return "tvm" })},
			{Name: "slim", Placement: singles(s, func(int) string { return "slim" })}}
		all := seeds[1].Placement.Chosen[0]
		heavy := s.Functions[0].Set.Candidates[all[len(all)-1]].Root
		r, err := Search(context.Background(), s, seeds, &rounding{s, func(v relay.NodeID) float64 {
			if v == heavy {
				return 1e-4
			}
			return 1e-6
		}}, Options{Trials: 20, FeedbackSteps: 1, FeedbackOnly: true, Batch: 1,
			Limit: cost.Limit{Most: 0.009, Measure: cost.L2}})
		require.NoError(t, err)
		require.LessOrEqual(t, r.Fed, 1+mostRepairs)
		for i := 2; i < len(r.Trials); i++ {
			assert.Equal(t, i < len(r.Trials)-1, r.Trials[i].Exceeds != "", "the first that may be kept is the last")
		}
		if r.Fed > 1 {
			repaired++
			assert.Positive(t, r.Best()[0], "something narrow is kept")
		}
	}
	assert.Positive(t, repaired)
}

// bordered has values rounded where they go from one to the other, too, which no operator's share says.
type bordered struct {
	rounding
	adds float64
}

func (b *bordered) Measure(ctx context.Context, placements []*genome.Placement, best *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	return b.rounding.Measure(ctx, placements, best, func(i int, c cost.Cost) error {
		f, on := &b.space.Functions[0], map[relay.NodeID]string{}
		for _, k := range placements[i].Chosen[0] {
			for _, v := range f.Set.Candidates[k].Nodes {
				on[v] = f.Set.Candidates[k].Backend
			}
		}
		square := c.Network.Errors.L2 * c.Network.Errors.L2
		for v := range on {
			if next, is := on[v+1]; is && next != on[v] {
				square += b.adds
			}
		}
		c.Network.Errors.L2 = math.Sqrt(square)
		return taken(i, c)
	})
}

// What is off by more than was believed is followed by what is believed to be off by as much less: where mixtures are
// further off than their operators explain, something narrow is kept all the same.
func TestSurprisesAreHeeded(t *testing.T) {
	t.Parallel()
	const searches = 40
	nothing := 0
	for seed := range uint64(searches) {
		s := narrowable(t, rand.New(rand.NewPCG(seed, 6)), 24)
		seeds := []Seed{{Name: "tvm", Placement: singles(s, func(int) string { return "tvm" })},
			{Name: "slim", Placement: singles(s, func(int) string { return "slim" })}}
		adds := func(relay.NodeID) float64 { return 1e-6 }
		r, err := Search(context.Background(), s, seeds, &bordered{rounding{s, adds}, 1e-6}, Options{Trials: 8, Batch: 1,
			Limit: cost.Limit{Most: 0.75 * math.Sqrt(24*1e-6), Measure: cost.L2}})
		require.NoError(t, err)
		if r.Trials[r.Best()[0]].Placement.Outlined() == 0 {
			nothing++
		}
	}
	assert.Less(t, nothing, searches/4, "kept nothing narrow; it would be 24 of them")
}

// What is believed to be allowed and faster than what may not be kept needs no stand-in before it.
func TestWhatIsBetterThanAStandIn(t *testing.T) {
	t.Parallel()
	s := narrowable(t, rand.New(rand.NewPCG(5, 6)), 6)
	for k := range s.Functions[0].Costs {
		s.Functions[0].Costs[k] = map[string]float64{"tvm": 1, "slim": 0.25}[s.Functions[0].Set.Candidates[k].Backend]
	}
	all := Seed{Placement: singles(s, func(int) string { return "slim" })}
	first := func(count int) *Seed {
		return &Seed{Placement: singles(s, func(at int) string {
			if at < count {
				return "slim"
			}
			return "tvm"
		})}
	}
	for took, want := range map[float64]bool{8: true, 4: false} {
		n := newSensitivity(s, cost.Limit{Most: 0.01, Measure: cost.L2}, nil)
		n.observe(seen(all.Placement, 0.02))
		search := &search{space: s, sensitivity: n, tried: map[string]int{all.Placement.Key: 0},
			result: &Result{Trials: []Trial{{Placement: all.Placement, Cost: cost.Cost{Samples: []float64{took}}}}}}
		assert.Equal(t, want, search.betterThan(first(1), &all), "believed to be off by 0.008, and to take 5.25 ms")
		assert.False(t, search.betterThan(first(2), &all), "believed to be off by 0.012")
	}
}
