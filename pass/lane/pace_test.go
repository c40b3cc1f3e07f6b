// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
)

// turns runs networks in turn whose times are known, in parts of plain TVM's, with noise of some per cent.
type turns struct {
	random *rand.Rand
	noise  float64
	times  map[*Executable]float64
	runs   int
}

func (n *turns) run(e *Executable, beside pace) cost.Cost {
	n.runs++
	against := 1.0
	if beside.executable != nil {
		against = n.times[beside.executable]
	}
	c := cost.Cost{Origin: cost.Measured, Network: &cost.Network{Pace: beside.score}}
	for range DefaultNetworkRounds {
		sample := func(mean float64) float64 { return 20 * mean * math.Exp(n.noise*n.random.NormFloat64()) }
		c.Samples = append(c.Samples, sample(n.times[e]))
		c.Network.Against = append(c.Network.Against, sample(against))
	}
	return c
}

// follow measures a network as a Lane does.
func (n *turns) follow(t *testing.T, p *pace, e *Executable, share float64) {
	n.times[e] = share
	_, err := p.follow(context.Background(), e, n.run(e, *p), false, func(context.Context) (cost.Cost, error) {
		return n.run(e, *p), nil
	})
	require.NoError(t, err)
}

// Of many networks that are equally fast some look faster, and what they run in turn with is one of them: scores stay
// what they are, in the mean of many searches and, all but some, in each.
func TestScoresDoNotSinkWhereNothingIsFaster(t *testing.T) {
	const searches, networks = 300, 40
	sum, off, runs := 0.0, 0, 0
	for seed := range uint64(searches) {
		n := &turns{rand.New(rand.NewPCG(seed, 7)), 0.04, map[*Executable]float64{}, 0}
		var p pace
		first := &Executable{}
		n.follow(t, &p, first, 0.4)
		began := p.score // what it is off by all have in common
		for range networks {
			n.follow(t, &p, &Executable{}, 0.4)
		}
		sum += p.score / began
		if math.Abs(p.score/began-1) > 0.05 {
			off++
		}
		runs += n.runs - networks - 1
	}
	assert.InDelta(t, 1, sum/searches, 0.015)
	assert.Less(t, off, searches/10)
	assert.Less(t, runs, searches*networks/8, "few run again")
}

func TestTheFasterOneSetsThePace(t *testing.T) {
	n := &turns{rand.New(rand.NewPCG(1, 2)), 0.02, map[*Executable]float64{}, 0}
	var p pace
	slow, first, slower, faster := &Executable{}, &Executable{}, &Executable{}, &Executable{}
	n.follow(t, &p, slow, 1.5)
	assert.Nil(t, p.executable, "slower than plain TVM")
	n.follow(t, &p, first, 0.5)
	assert.Same(t, first, p.executable)
	n.follow(t, &p, slower, 0.6)
	assert.Same(t, first, p.executable)
	n.follow(t, &p, faster, 0.4)
	assert.Same(t, faster, p.executable)
	assert.InEpsilon(t, 0.4, p.score, 0.05)
}

func TestWhatIsFasterOnceDoesNotSetThePace(t *testing.T) {
	rounds := func(sample float64) cost.Cost {
		return cost.Cost{Samples: []float64{sample, sample, sample},
			Network: &cost.Network{Against: []float64{10, 10, 10}, Pace: 0.5}}
	}
	is, lucky := &Executable{}, &Executable{}
	for name, c := range map[string]struct {
		seen, fresh cost.Cost
		fails       error
		follows     bool
		score       float64
	}{
		"faster again":     {seen: rounds(8), fresh: rounds(9), follows: true, score: 0.45},
		"slower then":      {seen: rounds(8), fresh: rounds(11), score: 0.5},
		"cannot run again": {seen: rounds(8), fresh: cost.FromFailure(cost.Failure{Phase: "run"}, time.Now()), score: 0.5},
		"interrupted":      {seen: rounds(8), fails: context.Canceled, score: 0.5},
		"slower":           {seen: rounds(12), fails: errors.New("not run again"), score: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			p := pace{is, 0.5}
			got, err := p.follow(context.Background(), lucky, c.seen, false, func(context.Context) (cost.Cost, error) {
				return c.fresh, c.fails
			})
			if errors.Is(c.fails, context.Canceled) {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, c.follows, p.executable == lucky)
			assert.InDelta(t, c.score, p.score, 1e-9)
			assert.Equal(t, c.fails == nil && !c.fresh.Failed(), got.Known(), "what was run is given back")
			assert.Equal(t, c.fresh.Failed(), got.Failed(), "and that it failed")
		})
	}
}

func TestTheFirstFollowerRunsAgainWhereASearchGoesOn(t *testing.T) {
	n := &turns{rand.New(rand.NewPCG(3, 4)), 0.02, map[*Executable]float64{}, 0}
	for _, goesOn := range []bool{false, true} {
		var p pace
		e := &Executable{}
		n.times[e], n.runs = 0.5, 0
		_, err := p.follow(context.Background(), e, n.run(e, p), goesOn, func(context.Context) (cost.Cost, error) {
			return n.run(e, p), nil
		})
		require.NoError(t, err)
		assert.Same(t, e, p.executable)
		assert.Equal(t, goesOn, n.runs == 2)
	}
}

func TestAheadIsMoreThanChance(t *testing.T) {
	of := func(won, lost int) cost.Cost {
		c := cost.Cost{Network: &cost.Network{}}
		for i := range won + lost {
			c.Samples, c.Network.Against = append(c.Samples, 1), append(c.Network.Against, 1.1)
			if i >= won {
				c.Network.Against[i] = 0.9
			}
		}
		return c
	}
	assert.True(t, ahead(of(9, 0)))
	assert.True(t, ahead(of(8, 1)))
	assert.False(t, ahead(of(7, 2)))
	assert.False(t, ahead(of(1, 8)))
	assert.True(t, ahead(of(1, 0)), "whoever asks for one round wants an answer")
	assert.False(t, ahead(cost.Cost{}))
}

func TestFarAhead(t *testing.T) {
	c := cost.Cost{Samples: []float64{10, 11, 12}, Network: &cost.Network{Against: []float64{50, 51, 52}}}
	assert.True(t, farAhead(c))
	c.Samples[1] = 13
	assert.False(t, farAhead(c), "in one of its rounds it took more than a quarter")
	assert.False(t, farAhead(cost.Cost{}))
}
