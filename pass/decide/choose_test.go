// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

// made is a finalist that takes base times a slow pattern of noise, with so many regions outside of TVM.
func made(name string, base float64, regions int, noise ...float64) *finalist {
	f := &finalist{name: name, eligible: true, plan: &plan.Plan{}, cost: cost.Cost{Origin: cost.Measured}}
	for range regions {
		f.plan.Regions = append(f.plan.Regions, plan.Region{Symbol: "s", Backend: "dnnl"})
	}
	for i := range 20 {
		factor := 1.0
		if len(noise) > 0 {
			factor = noise[i%len(noise)]
		}
		f.cost.Samples = append(f.cost.Samples, base*factor)
	}
	return f
}

func choose(t *testing.T, finalists ...*finalist) (string, string) {
	t.Helper()
	c := &decision{finalists: finalists, reference: finalists[0]}
	chosen, why, err := c.choose()
	require.NoError(t, err)
	return chosen.name, why
}

func TestTheFastestIsKept(t *testing.T) {
	name, why := choose(t, made("tvm", 10, 0), made("dnnl", 8, 5), made(plan.PlacementName, 7, 9))
	assert.Equal(t, plan.PlacementName, name)
	assert.Equal(t, "The placement is kept: it is the fastest; the next, dnnl alone, takes 1.14 times as long.", why)

	name, why = choose(t, made("tvm", 10, 0), made("dnnl", 8, 5), made(plan.PlacementName, 9, 9))
	assert.Equal(t, "dnnl", name)
	assert.Equal(t, "dnnl alone is kept: it is the fastest; the next, the placement, takes 1.12 times as long.", why)
}

func TestTiesGoToTheSimplest(t *testing.T) {
	name, why := choose(t, made("tvm", 10, 0), made("dnnl", 8.05, 5), made(plan.PlacementName, 8, 9))
	assert.Equal(t, "dnnl", name)
	assert.Equal(t, "dnnl alone is kept: by its time it cannot be told from the placement (9 regions), and with 5 "+
		"regions outside "+
		"of TVM it is the simplest.", why)

	name, why = choose(t, made("dnnl", 8.05, 5), made("native", 8.02, 5), made(plan.PlacementName, 8, 5))
	assert.Equal(t, plan.PlacementName, name, "of those that are equally simple the faster one")
	assert.Equal(t, "The placement is kept: by its time it cannot be told from dnnl alone (5 regions) and native alone "+
		"(5 regions), and with 5 regions outside of TVM none is simpler.", why)

	// A noisy machine: one is slower by a third in the median, but in as many rounds it is faster.
	name, _ = choose(t, made("tvm", 10, 0, 1, 2, 1, 2), made(plan.PlacementName, 10, 3, 1.9, 1, 1.9, 1))
	assert.Equal(t, "tvm", name)
}

func TestWhatFailedOrWasNotOfferedIsNotChosen(t *testing.T) {
	wrong := made("dnnl", 1, 5)
	wrong.failure = &cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: "by 3"}
	name, _ := choose(t, made("tvm", 10, 0), wrong, made(plan.PlacementName, 7, 9))
	assert.Equal(t, plan.PlacementName, name)

	c := &decision{finalists: []*finalist{wrong}}
	_, _, err := c.choose()
	assert.EqualError(t, err, "no network that may be chosen can be run: dnnl alone (wrong-result in check: by 3)")

	// The same network twice counts once.
	tvm := made("tvm", 10, 0)
	same := made(plan.PlacementName, 0, 0)
	same.sameAs = tvm
	name, why := choose(t, tvm, same)
	assert.Equal(t, "tvm", name)
	assert.Equal(t, "tvm alone is kept: there is nothing else to choose.", why)

	// Unless it is the same as TVM alone, which was not offered.
	tvm.eligible = false
	c = &decision{finalists: []*finalist{same}, reference: tvm}
	chosen, _, err := c.choose()
	require.NoError(t, err)
	assert.Same(t, same, chosen)
}

func TestEqual(t *testing.T) {
	assert.False(t, equal(nil, []float64{1}))
	assert.True(t, equal([]float64{1, 1.005}, []float64{1, 1}))
	assert.False(t, equal(made("a", 1, 0).cost.Samples, made("b", 1.02, 0).cost.Samples))
}

// rounds is a finalist that took these times.
func rounds(name string, regions int, times ...float64) *finalist {
	f := made(name, 1, regions)
	f.cost.Samples = times
	return f
}

func TestOneRoundTellsTwoApart(t *testing.T) {
	for n := 1; n <= 4; n++ {
		tvm, dnnl := rounds("tvm", 0), rounds("dnnl", 5)
		for range n {
			tvm.cost.Samples, dnnl.cost.Samples = append(tvm.cost.Samples, 40), append(dnnl.cost.Samples, 10)
		}
		name, _ := choose(t, tvm, dnnl)
		assert.Equal(t, "dnnl", name, "after %d rounds", n)
	}
	// Rounds that do not agree with each other are noise, however few.
	name, _ := choose(t, rounds("tvm", 0, 12, 9, 12), rounds("dnnl", 5, 10, 10, 10))
	assert.Equal(t, "tvm", name)
}

func TestNoiseIsNoDecision(t *testing.T) {
	undecided := func(finalists ...*finalist) bool {
		return (&decision{finalists: finalists, reference: finalists[0]}).undecided()
	}
	assert.False(t, undecided(made("tvm", 10, 0)))
	assert.False(t, undecided(made("tvm", 10, 0), made("dnnl", 8, 5)), "clear")
	assert.False(t, undecided(made("tvm", 8.01, 0), made("dnnl", 8, 5)), "as good as equal")
	assert.True(t, undecided(made("tvm", 10, 0), made("dnnl", 10, 3, 0.7, 0.7, 0.7, 1.3, 1.3)),
		"faster in most rounds, and not in all")
}
