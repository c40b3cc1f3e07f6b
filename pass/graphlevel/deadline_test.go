// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

// slow is a network of which each placement takes a time of its own to build and measure, by a clock of the test's.
type slow struct {
	network
	clock *time.Time
	// took is what the next placement takes; the last one is for all that follow.
	took []time.Duration
	// begun is when each batch was begun, ended when it was done.
	begun, ended []time.Time
}

func (n *slow) Measure(ctx context.Context, placements []*genome.Placement, best *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	n.begun = append(n.begun, *n.clock)
	for range placements {
		*n.clock = n.clock.Add(n.took[0])
		if len(n.took) > 1 {
			n.took = n.took[1:]
		}
	}
	n.ended = append(n.ended, *n.clock)
	return n.network.Measure(ctx, placements, best, taken)
}

// foreseeing is slow that is told what comes next.
type foreseeing struct {
	slow
	told [][]*genome.Placement
}

func (n *foreseeing) Ahead(placements []*genome.Placement) { n.told = append(n.told, placements) }

// What comes after the first batch is told once, before it: not what the store has, and no more than may be measured.
func TestWhatComesNextIsTold(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	seeds := seedsOf(t, s)
	require.Greater(t, len(seeds), 2)
	for _, of := range []struct{ trials, want int }{{0, len(seeds) - 1}, {2, 1}, {1, 0}} {
		n := &foreseeing{slow: slow{took: []time.Duration{time.Second}}}
		n.network = network{profile: true, space: s, measured: map[string]int{}}
		now := time.Unix(0, 0)
		n.clock = &now
		store := cost.NewMemoryStore()
		search := func() {
			_, err := Search(context.Background(), s, seeds, n,
				Options{Time: time.Hour, Batch: 1, Store: store, SeedsOnly: true, Trials: of.trials,
					Now: func() time.Time { return now }})
			require.NoError(t, err)
		}
		search()
		require.Len(t, n.told, 1)
		require.Len(t, n.told[0], of.want)
		for i, p := range n.told[0] {
			assert.Equal(t, seeds[i+1].Placement.Key, p.Key)
		}
		search()
		assert.Len(t, n.told, 1, "the store has everything")
	}
}

// timed searches with so much time by the test's clock, of which the end needs reserve.
func timed(t *testing.T, n *slow, total, reserve time.Duration, store *cost.Store) (*Result, time.Time) {
	t.Helper()
	s := chain(t, ten...)
	n.network = network{profile: true, space: s, measured: map[string]int{}}
	now := time.Unix(0, 0)
	n.clock = &now
	end := now.Add(total - reserve)
	r, err := Search(context.Background(), s, seedsOf(t, s), n,
		Options{Time: time.Hour, Patience: 1000, Batch: 1, Store: store,
			Now: func() time.Time { return now }, Left: func() time.Duration { return end.Sub(now) }})
	require.NoError(t, err)
	return r, end
}

func TestNoNetworkIsBegunThatThereIsNoTimeFor(t *testing.T) {
	t.Parallel()
	for _, took := range [][]time.Duration{{time.Second}, {3 * time.Second, time.Second},
		{time.Second, 2 * time.Second, 5 * time.Second}} {
		n := &slow{took: took}
		r, end := timed(t, n, 15*time.Second, 7*time.Second, nil)
		assert.Equal(t, "there was no time for another network", r.Why)
		longest := time.Duration(0)
		for i := range n.begun {
			if i > 0 {
				assert.False(t, n.begun[i].Add(longest).After(end),
					"%v: the one begun at %v could not be expected to end in time", took, n.begun[i])
			}
			longest = max(longest, n.ended[i].Sub(n.begun[i]))
		}
		last := n.ended[len(n.ended)-1]
		assert.False(t, last.After(end), "what is kept for the end is not touched")
		assert.Less(t, end.Sub(last), 2*longest, "and the rest is used")
	}
}

func TestTheFirstNetworkIsMeasuredHoweverShortTheTimeIs(t *testing.T) {
	t.Parallel()
	n := &slow{took: []time.Duration{time.Minute}}
	r, _ := timed(t, n, time.Second, 7*time.Second, nil)
	require.Len(t, r.Trials, 1)
	assert.Equal(t, "tvm", r.Trials[0].Name)
	assert.Equal(t, []string{"operator level", "shy", "vain"}, slices.Sorted(slices.Values(r.Late)),
		"what was not reached is named")
	assert.Len(t, r.Best(), 1)
}

// patient is a network of which the placement that is measured last takes for ever, on the clock of a bubble.
type patient struct {
	network
	quick, begun int
}

func (n *patient) Measure(ctx context.Context, placements []*genome.Placement, best *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	for i, p := range placements {
		took := time.Second
		if n.begun++; n.begun > n.quick {
			took = time.Hour
		}
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return ctx.Err()
		}
		err := n.network.Measure(ctx, []*genome.Placement{p}, best,
			func(_ int, c cost.Cost) error { return taken(i, c) })
		if err != nil {
			return err
		}
	}
	return nil
}

// A network that takes longer than there is time is given up, whatever it was expected to take: among the seeds, which
// are named then, and later. What was finished in its batch counts.
func TestWhatTakesTooLongIsGivenUp(t *testing.T) {
	t.Parallel()
	for quick := 2; quick < 9; quick++ {
		synctest.Test(t, func(t *testing.T) {
			s := chain(t, ten...)
			n := &patient{quick: quick, network: network{profile: true, space: s, measured: map[string]int{}}}
			end := time.Now().Add(time.Minute)
			r, err := Search(t.Context(), s, seedsOf(t, s), n,
				Options{Time: time.Hour, Patience: 1000, Left: func() time.Duration { return time.Until(end) },
					Expect: func(list []*genome.Placement) time.Duration {
						return time.Duration(
							len(list)) * time.Second
					}})
			require.NoError(t, err)
			assert.Equal(t, whyLate, r.Why)
			assert.Len(t, r.Trials, quick)
			assert.Zero(t, time.Until(end), "it ends then, and not before")
			assert.Equal(t, quick == 2, slices.Contains(r.Late, "shy"), r.Late)
		})
	}
}

// Where there is no time for two side by side, one is built.
func TestOneAtATimeWhereTimeIsShort(t *testing.T) {
	t.Parallel()
	left := 10 * time.Second
	s := &search{options: Options{Store: cost.NewMemoryStore(), Left: func() time.Duration { return left },
		Expect: func(list []*genome.Placement) time.Duration { return time.Duration(len(list)+2) * time.Second }},
		result: &Result{}}
	list := []pending{{"a", &genome.Placement{Key: "a"}}, {"b", &genome.Placement{Key: "b"}},
		{"c", &genome.Placement{Key: "c"}}}
	for seconds, want := range map[int]int{10: 3, 5: 2, 4: 1, 3: 0} {
		left = time.Duration(seconds) * time.Second
		assert.Equal(t, list[:want], s.inRoom(list), seconds)
	}
}

// What the store has costs no time, so it is known also where there is none.
func TestWhatTheStoreHasIsKnownWithoutTime(t *testing.T) {
	t.Parallel()
	store := cost.NewMemoryStore()
	first, _ := timed(t, &slow{took: []time.Duration{time.Second}}, 13*time.Second, 7*time.Second, store)
	require.GreaterOrEqual(t, len(first.Trials), 5)
	n := &slow{took: []time.Duration{time.Second}}
	again, _ := timed(t, n, 0, time.Second, store)
	assert.Empty(t, n.begun)
	assert.Empty(t, again.Late)
	assert.Equal(t, names(first), names(again))
}

func TestSeedsAlone(t *testing.T) {
	t.Parallel()
	s := chain(t, ten...)
	n := &network{space: s, profile: true, measured: map[string]int{}}
	r, err := Search(context.Background(), s, seedsOf(t, s), n, Options{SeedsOnly: true})
	require.NoError(t, err)
	assert.Len(t, r.Trials, 3, "the operator level's is the same network as vain's")
	assert.Len(t, r.Steps, 3)
	s = chain(t, ten...)
	r, err = Search(context.Background(), s, seedsOf(t, s), n, Options{SeedsOnly: true, Trials: 2})
	require.NoError(t, err)
	assert.Len(t, r.Trials, 2)
	assert.Equal(t, []string{"shy"}, r.Late)
}

// After a search was cut short, what it had measured is found again without measuring.
func TestWhatStandsInTheStoreAlone(t *testing.T) {
	t.Parallel()
	store := cost.NewMemoryStore()
	s := chain(t, ten...)
	n := &network{space: s, profile: true, measured: map[string]int{}, dieAt: 2}
	_, err := Search(context.Background(), s, seedsOf(t, s), n, Options{Store: store, Batch: 1})
	require.Error(t, err)
	s = chain(t, ten...)
	again := &network{space: s, profile: true, measured: map[string]int{}}
	r, err := Search(context.Background(), s, seedsOf(t, s), again, Options{Store: store, Batch: 1, StoredOnly: true})
	require.NoError(t, err)
	assert.Empty(t, again.measured)
	assert.Len(t, r.Trials, 2)
	assert.Equal(t, []string{"shy"}, r.Late)

	r, err = Search(context.Background(), s, seedsOf(t, s), again, Options{StoredOnly: true})
	require.NoError(t, err)
	assert.Empty(t, r.Trials)
	assert.Empty(t, again.measured)
}

// With time left a search goes on, however long what the store has took once; one that counts that ends where it ended.
func TestWhatTheStoreHasMayCount(t *testing.T) {
	t.Parallel()
	for _, counts := range []bool{false, true} {
		s := chain(t, ten...)
		store := cost.NewMemoryStore()
		measured := []int{}
		for range 2 {
			n := &network{profile: true, space: s, measured: map[string]int{}}
			_, err := Search(context.Background(), s, seedsOf(t, s), n,
				Options{Time: 4 * time.Second, Patience: 1000, Batch: 1, Store: store,
					Trials: 20, CountStored: counts, Left: func() time.Duration { return time.Hour },
					Expect: func([]*genome.Placement) time.Duration { return time.Second }})
			require.NoError(t, err)
			measured = append(measured, len(n.measured))
		}
		assert.Equal(t, counts, measured[0] < 7, measured)
		assert.Zero(t, measured[1], "all that there is to try, or 4 s of it, is in the store")
	}
}
