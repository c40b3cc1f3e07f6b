// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

// lanes stands for networks that were run: each candidate took so much in place, and each region of the family so much
// at its border.
type lanes struct{ n *Network }

func (l lanes) Measure(_ context.Context, placements []*genome.Placement, _ *cost.Cost,
	taken func(int, cost.Cost) error) error {
	for i, p := range placements {
		profile, set := &feedback.Profile{}, l.n.Placing.Functions[0].Set
		for _, k := range p.Chosen[0] {
			if c := &set.Candidates[k]; !c.Free {
				ms := map[string]float64{"tvm": 3, "host": 2, "guest": 1}[c.Backend] * float64(c.Operators(set.Graph))
				profile.Parts = append(profile.Parts, feedback.Part{Nodes: c.Nodes, Milliseconds: ms})
			}
		}
		b := feedback.Border{Backend: "host"}
		for _, r := range p.Regions[0] {
			b.Calls, b.CallMilliseconds = b.Calls+1, b.CallMilliseconds+0.5
			for range r.Inputs {
				b.Ins, b.InBytes, b.In = b.Ins+1, b.InBytes+512, b.In+0.25
			}
			for range r.Outputs {
				b.Outs, b.OutBytes, b.Out = b.Outs+1, b.OutBytes+512, b.Out+0.125
			}
		}
		if b.Calls > 0 {
			profile.Borders = append(profile.Borders, b)
		}
		c := cost.Cost{Origin: cost.Measured, Network: &cost.Network{Seconds: 1}}
		for range 3 {
			c.Samples, c.Network.Against = append(c.Samples, profile.Total()), append(c.Network.Against, 20)
		}
		graphlevel.RecordProfile(profile, c.Network)
		if err := taken(i, c); err != nil {
			return err
		}
	}
	return nil
}

// What a search among whole networks believes at its end stands in the plan of each placement, and the file proves it.
func TestWhatTheGraphLevelBelievesIsCheckedFromTheFile(t *testing.T) {
	rig.WithFamily(t, nil)
	n, err := Explore(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host", "guest"},
		Target:    "llvm",
		Estimator: &rig.Costs{Rule: rig.FamilyCosts}}, nil)
	require.NoError(t, err)
	seeds := []graphlevel.Seed{{Name: "tvm", Placement: n.Plain()}, {Name: "operator level", Placement: n.Placed},
		{Name: "guest", Placement: n.Single("guest")}, {Name: "host", Placement: n.Single("host")}}
	result, err := graphlevel.Search(context.Background(), n.Space, seeds, lanes{n}, graphlevel.Options{Trials: 8})
	require.NoError(t, err)
	least, crossed := 1e9, 0
	for i := range result.Trials {
		p := result.Trials[i].Placement
		written, err := n.Plan(p, result)
		require.NoError(t, err)
		believed := written.GraphLevel.Believed
		require.NotNil(t, believed)
		assert.InDelta(t, believed.Milliseconds-believed.Bound, believed.Gap, 1e-9)
		assert.LessOrEqual(t, believed.Proven, believed.Bound+1e-9)
		least, crossed = min(least, believed.Milliseconds), crossed+len(believed.Payments)
		text, err := written.Encode()
		require.NoError(t, err)
		read, err := plan.Decode(text)
		require.NoError(t, err)
		proof, err := read.Prove()
		require.NoError(t, err)
		require.NotNil(t, proof.Believed)
		assert.Equal(t, believed.Milliseconds, proof.Believed.Milliseconds)
		assert.InDelta(t, believed.Proven, proof.Believed.Bound, 1e-9)
		if len(believed.Payments) == 0 {
			continue
		}
		for what, tamper := range map[string]func(p *plan.Plan, b *plan.Believed){
			"a lower total":  func(_ *plan.Plan, b *plan.Believed) { b.Milliseconds -= 0.1 },
			"a smaller gap":  func(_ *plan.Plan, b *plan.Believed) { b.Gap /= 2; b.Gap -= 0.01 },
			"a higher bound": func(_ *plan.Plan, b *plan.Believed) { b.Bound = b.Milliseconds + 1 },
			"a dearer price": func(p *plan.Plan,
				b *plan.Believed) {
				p.Regions[0].Candidates[0].Nodes[0].Believed += 9
				b.Proven += 9
			},
			"a lost payment":  func(_ *plan.Plan, b *plan.Believed) { drop(b, 0) },
			"a payment twice": func(_ *plan.Plan, b *plan.Believed) { b.Payments = append(b.Payments, b.Payments[0]) },
			"another region": func(_ *plan.Plan, b *plan.Believed) {
				b.Payments[0].Region++
			},
			"a cheaper loser": func(p *plan.Plan, _ *plan.Believed) {
				for i := range p.Candidates.Rejected {
					p.Candidates.Rejected[i].Believed /= 100
				}
			},
			"a lost loser": func(p *plan.Plan,
				_ *plan.Believed) {
				p.Candidates.Rejected = p.Candidates.Rejected[1:]
			},
			"a lost reader":    loseReader,
			"nobody's payment": func(_ *plan.Plan, b *plan.Believed) { b.Payments[0].Value = 9999 },
		} {
			changed, err := plan.Decode(text)
			require.NoError(t, err)
			tamper(changed, changed.GraphLevel.Believed)
			_, err = changed.Prove()
			assert.Error(t, err, what)
		}
	}
	assert.Positive(t, crossed)
	best, err := n.Plan(result.Trials[result.Best()[0]].Placement, result)
	require.NoError(t, err)
	assert.InDelta(t, least, best.GraphLevel.Believed.Milliseconds, 1e-6, "what is fastest is believed to be")
	assert.LessOrEqual(t, best.GraphLevel.Believed.Bound, least+1e-9)

	// What was closest to being taken is told with its borders, and what is told is what its plan believes of it.
	named := 0
	for i := range result.Trials {
		p := n.Space.Place(result.Trials[i].Placement.Chosen) // all that may be joined is
		written, err := n.Plan(p, result)
		require.NoError(t, err)
		rivals, err := written.Closest(5)
		require.NoError(t, err)
		// Where its operators alone do not show that it is cheapest, its costs in place may: the file's own bound says so.
		if b := written.GraphLevel.Believed; !written.Estimate.Optimal {
			assert.Equal(t, b.Milliseconds-b.Transfers-b.Proven < 1e-5, len(rivals) > 0)
		}
		n.Exchange(p, result, written)
		require.NoError(t, written.Verify())
		rivals, err = written.Closest(1000)
		require.NoError(t, err)
		require.NotEmpty(t, rivals)
		for _, r := range rivals {
			k := slices.IndexFunc(n.Space.Functions[0].Set.Candidates, func(c candidate.Candidate) bool {
				return plan.RejectedID(c.Backend, c.Composite, c.Nodes) == plan.RejectedID(r.Backend, r.Composite, r.Nodes)
			})
			at := slices.IndexFunc(p.Chosen[0], func(chosen int) bool {
				return slices.Equal(n.Space.Functions[0].Set.Candidates[chosen].Nodes, n.Space.Functions[0].Set.Candidates[k].Nodes)
			})
			if at < 0 {
				continue // more than one goes for it
			}
			instead := slices.Clone(p.Chosen[0])
			instead[at] = k
			then, err := n.Plan(n.Space.Place([][]int{instead}), result)
			require.NoError(t, err)
			assert.InDelta(t, then.GraphLevel.Believed.Milliseconds-written.GraphLevel.Believed.Milliseconds, *r.Exchange, 1e-8)
			named++
		}
	}
	assert.Greater(t, named, 10)
}

// drop takes a payment out, and what it says was paid.
func drop(b *plan.Believed, i int) {
	ms := b.Payments[i].Milliseconds
	b.Payments = append(b.Payments[:i:i], b.Payments[i+1:]...)
	b.Transfers -= ms
	b.Milliseconds -= ms
	b.Gap -= ms
}

// loseReader takes a value that is paid for out of what the nodes of the region read.
func loseReader(p *plan.Plan, b *plan.Believed) {
	i := slices.IndexFunc(b.Payments, func(one plan.Payment) bool { return !one.Out && one.Region >= 0 })
	r := &p.Regions[b.Payments[i].Region]
	for k := range r.Candidates {
		for j := range r.Candidates[k].Nodes {
			n := &r.Candidates[k].Nodes[j]
			n.Reads = slices.DeleteFunc(n.Reads, func(u int) bool { return u == b.Payments[i].Value })
		}
	}
}
