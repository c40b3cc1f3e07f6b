// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// chain is a function of operators one after the other, of which each is a computation of its own on each backend that
// takes at least 1 ms; what stands so far takes 10 ms an operator.
type chain struct {
	slack    *Slack
	module   *Module
	all      *Computations
	problem  *lazy.Problem
	backends []string
}

func newChain(backends []string, operators ...string) *chain {
	m := relay.NewGraph("main")
	v := m.Var([]int64{8}, "float32")
	for _, op := range operators {
		v = m.Call(op, relay.Tensor("float32", 8), nil, v)
	}
	g := m.Finish(v)
	f := &Function{Set: &candidate.Set{Graph: g}}
	c := &chain{module: &Module{Config: &settings.Config{Overhead: new(float64), Context: context.Background()}},
		all: &Computations{Of: [][]int{nil}}, problem: &lazy.Problem{}, backends: backends,
		slack: &Slack{Until: context.Background(), Seen: map[cost.Key][]float64{}, Covers: [][]Cover{nil}}}
	for id := range g.Nodes {
		node := relay.NodeID(id)
		if !g.Placeable(node) {
			continue
		}
		c.slack.Covers[0] = append(c.slack.Covers[0], Cover{Nodes: []relay.NodeID{node}, Milliseconds: 10})
		for _, backend := range backends {
			f.Set.Candidates = append(f.Set.Candidates, candidate.Candidate{Backend: backend,
				Nodes: []relay.NodeID{node}, Root: node})
			at := len(c.all.requests)
			c.all.Of[0] = append(c.all.Of[0], at)
			c.all.requests = append(c.all.requests, cost.Request{Key: cost.Key{Backend: backend,
				Structure: fmt.Sprint(g.Nodes[id].Op, " ", len(c.slack.Covers[0]))}})
			c.all.Bounds = append(c.all.Bounds, 1)
		}
	}
	c.module.Functions = []*Function{f}
	c.problem.Known = make([]cost.Cost, len(c.all.requests))
	c.problem.Bounds = c.all.Bounds
	return c
}

// at is the computation of operator i on a backend.
func (c *chain) at(i int, backend string) int {
	for k, name := range c.backends {
		if name == backend {
			return i*len(c.backends) + k
		}
	}
	panic(backend)
}

// saw has a computation seen in place.
func (c *chain) saw(i int, backend string, ms float64) {
	c.slack.Seen[c.all.requests[c.at(i, backend)].Key] = []float64{ms}
}

// alone has a computation measured by itself.
func (c *chain) alone(i int, backend string, ms float64) {
	c.problem.Known[c.at(i, backend)] = cost.FromMilliseconds(ms)
}

// wanted are operators and backends, in the order in which they are to be measured.
func (c *chain) wanted() (names []string) {
	for _, at := range c.slack.wanted(c.module, c.all, c.problem) {
		names = append(names, fmt.Sprint(at/len(c.backends), " ", c.backends[at%len(c.backends)]))
	}
	return names
}

// Two multiplications on lib took 20 and 12 times their bounds, so that a third one is not expected to take less than
// the 10 ms that its operator takes; nothing is known of lib's exponentials, and of tvm one multiplication alone.
func TestWhatItsKindSpeaksAgainstComesLast(t *testing.T) {
	c := newChain([]string{"tvm", "lib"}, "multiply", "multiply", "multiply", "exp")
	c.saw(0, "lib", 20)
	c.alone(1, "lib", 12)
	c.saw(0, "tvm", 10)
	assert.Equal(t, []string{"1 tvm", "2 tvm", "3 tvm", "3 lib", "2 lib"}, c.wanted())
	c.slack.LikelyOnly = true
	assert.Equal(t, []string{"1 tvm", "2 tvm", "3 tvm", "3 lib"}, c.wanted())
	c.module.Config.Exhaustive = true
	assert.Contains(t, c.wanted(), "2 lib", "whoever wants everything gets it")
}

// The best of its kind speaks for it: 6 times the bound gains 4 ms, which is less than what the bounds of others promise.
func TestTheBestOfItsKindIsExpected(t *testing.T) {
	c := newChain([]string{"lib"}, "multiply", "multiply", "multiply", "exp")
	c.slack.LikelyOnly = true
	c.saw(0, "lib", 6)
	c.alone(1, "lib", 20)
	assert.Equal(t, []string{"3 lib", "2 lib"}, c.wanted())
}

// Of what nothing is known the bound is expected: where that is above what stands so far, there is nothing to gain.
func TestTheBoundIsExpectedOfWhatNothingIsKnown(t *testing.T) {
	c := newChain([]string{"lib"}, "multiply", "exp")
	c.slack.LikelyOnly = true
	c.all.Bounds[c.at(1, "lib")] = 11
	assert.Equal(t, []string{"0 lib"}, c.wanted())
}

// One computation speaks once, however often it stands in the network.
func TestOneComputationSpeaksOnceForItsKind(t *testing.T) {
	c := newChain([]string{"lib"}, "multiply", "multiply", "multiply")
	c.slack.LikelyOnly = true
	c.all.Of[0][1] = c.all.Of[0][0]
	c.saw(0, "lib", 20)
	assert.Contains(t, c.wanted(), "2 lib")
}

// What is fused is of the kind of its dearest operator, wherever that stands in it.
func TestTheDearestOperatorNamesTheKind(t *testing.T) {
	c := newChain([]string{"lib"}, "multiply", "exp", "exp")
	f := c.module.Functions[0]
	weights := singly(f, 0, c.all)
	first, last := f.Set.Candidates[0].Root, f.Set.Candidates[1].Root
	f.Set.Candidates = append(f.Set.Candidates, candidate.Candidate{Backend: "lib", Root: last,
		Nodes: []relay.NodeID{first, last}})
	weights[first], weights[last] = 2, 1
	assert.Equal(t, kind{"lib", "", "multiply"}, kindOf(f, 3, weights))
	weights[last] = 3
	assert.Equal(t, kind{"lib", "", "exp"}, kindOf(f, 3, weights))
}

// A kernel is a kind of its own, whatever its backend's others take.
func TestAnotherKernelIsAnotherKind(t *testing.T) {
	c := newChain([]string{"lib"}, "multiply", "multiply", "multiply")
	c.slack.LikelyOnly = true
	c.saw(0, "lib", 20)
	c.saw(1, "lib", 20)
	assert.Empty(t, c.wanted())
	c.module.Functions[0].Set.Candidates[c.at(2, "lib")].Kernel = "winograd"
	assert.Equal(t, []string{"2 lib"}, c.wanted())
}

// How many of a kind must be known before they speak for others, at half, as it is, and at twice: at half one that was
// disturbed would, at twice a network with two convolutions would learn nothing from them.
func TestHowManySpeakForAKindAtHalfAndTwice(t *testing.T) {
	for known, asked := range map[int]bool{enoughOfAKind / 2: true, enoughOfAKind: false, 2 * enoughOfAKind: false} {
		operators := make([]string, known+1)
		for i := range operators {
			operators[i] = "multiply"
		}
		c := newChain([]string{"lib"}, operators...)
		c.slack.LikelyOnly = true
		for i := range known {
			c.saw(i, "lib", 20)
		}
		assert.Equal(t, asked, len(c.wanted()) > 0, "%d known", known)
	}
}

// asked is an estimator that notes what it is asked for, and answers by a rule.
type asked struct {
	keys []cost.Key
	rule func(k cost.Key) cost.Cost
}

func (a *asked) Estimate(_ context.Context, requests []cost.Request) ([]cost.Cost, error) {
	costs := make([]cost.Cost, len(requests))
	for i, r := range requests {
		a.keys = append(a.keys, r.Key)
		costs[i] = a.rule(r.Key)
	}
	return costs, nil
}

// What the first batch shows decides about the next one: the rest of its kind is not asked for any more.
func TestWhatWasMeasuredSpeaksForTheRestOfItsKind(t *testing.T) {
	operators := make([]string, batch+8)
	for i := range operators {
		operators[i] = "multiply"
	}
	for ms, measured := range map[float64]int{20: batch, 2: len(operators)} {
		c := newChain([]string{"lib"}, operators...)
		c.slack.LikelyOnly = true
		e := &asked{rule: func(cost.Key) cost.Cost { return cost.FromMilliseconds(ms) }}
		require.NoError(t, c.slack.measure(c.module, e, c.all, c.problem))
		assert.Len(t, e.keys, measured, "%v ms each", ms)
	}
}

// What an estimator gives no answer to is asked for once.
func TestWhatGetsNoAnswerIsAskedForOnce(t *testing.T) {
	c := newChain([]string{"lib"}, "multiply", "exp")
	e := &asked{rule: func(cost.Key) cost.Cost { return cost.Cost{} }}
	require.NoError(t, c.slack.measure(c.module, e, c.all, c.problem))
	assert.Len(t, e.keys, 2)
}

// Of another device no bound is known, and that says nothing of how much of a whole an operator is.
func TestWhatHasNoBoundWeighsNothing(t *testing.T) {
	t.Parallel()
	c := newChain([]string{"tvm", "distant"}, "dear", "cheap")
	c.all.Bounds[c.at(0, "tvm")], c.all.Bounds[c.at(1, "tvm")] = 8, 2
	c.all.Bounds[c.at(0, "distant")], c.all.Bounds[c.at(1, "distant")] = 0, 0
	f := c.module.Functions[0]
	whole := f.Set.Graph.Root()
	require.Equal(t, []float64{8, 2}, singly(f, 0, c.all)[whole-1:whole+1])
	// 100 ms for both are 80 and 20.
	c.slack.Covers[0] = []Cover{{Nodes: []relay.NodeID{whole - 1, whole}, Milliseconds: 100}}
	assert.InDelta(t, 80, c.slack.shares(0, singly(f, 0, c.all))[whole-1], 1e-9)
}
