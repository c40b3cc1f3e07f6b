// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
)

func withBuilders(n int) func(*Options) {
	return func(o *Options) { o.Builders, o.Samples = n, 2*turn }
}

// count says how many of the notes begin with each of the beginnings.
func count(notes []string, beginning string) int {
	n := 0
	for _, note := range notes {
		if strings.HasPrefix(note, beginning) {
			n++
		}
	}
	return n
}

// computationsBuilt says how many computations builders were asked for, by the notes.
func computationsBuilt(notes []string) int {
	built := 0
	for _, note := range notes {
		if list, ok := strings.CutPrefix(note, "build "); ok {
			built += len(strings.Split(list, "; "))
		}
	}
	return built
}

// Code is built once for all backends that compute the same, before anything is timed; candidates are timed in turn.
func TestBuildersWorkAhead(t *testing.T) {
	store := cost.NewMemoryStore()
	b := newBench(t, func(o *Options) { withBuilders(2)(o); o.Store = store })
	var requests []cost.Request
	for i := range 10 {
		requests = append(requests, b.request(fmt.Sprint(i), "dnnl", fmt.Sprintf("ok %d", i+1)),
			b.request(fmt.Sprint(i), "tvm", fmt.Sprintf("ok %d", i+21)))
	}
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	for i := range 10 {
		assert.Equal(t, float64(i+1), costs[2*i].Estimate())
		assert.Equal(t, float64(i+21), costs[2*i+1].Estimate())
		assert.Len(t, costs[2*i].Samples, 2*turn)
		assert.Equal(t, 1e-6, costs[2*i].MaxError)
	}
	assert.Equal(t, 20, store.Len())
	notes := b.logged(t)
	assert.Equal(t, 3, count(notes, "start"), "two builders and one that measures")
	assert.Equal(t, 10, computationsBuilt(notes), "each computation once")
	assert.Equal(t, count(notes, "build "), count(notes, "load "))
	assert.Equal(t, 20, count(notes, "prepare "))
	assert.Equal(t, 40, count(notes, "again "), "two turns each")
	first := slices.IndexFunc(notes, func(n string) bool { return strings.HasPrefix(n, "again") })
	assert.NotEqual(t, notes[first], notes[first+1], "in turn")
	assert.Equal(t, 3, b.Stats().Started)
}

// What a builder cannot build is built where it is measured; the others lose nothing by it.
func TestWhatCannotBeBuiltAheadIsMeasuredAllTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	for _, fault := range []string{"build-crash 7", "build-error 7", "build-hang 7", "load-error 7"} {
		b := newBench(t, func(o *Options) { withBuilders(2)(o); o.BuildTimeout = time.Second })
		var requests []cost.Request
		for i := range 9 {
			requests = append(requests, b.request(fmt.Sprint(i), "tvm", fmt.Sprintf("ok %d", i+1)))
		}
		requests = append(requests, b.request("bad", "tvm", fault))
		costs, err := b.Estimate(context.Background(), requests)
		require.NoError(t, err)
		for i := range 9 {
			assert.Equal(t, float64(i+1), costs[i].Estimate(), fault)
		}
		assert.Equal(t, 7.0, costs[9].Estimate(), fault)
	}
}

func TestFaultsOfWhatWasBuiltAhead(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	store := cost.NewMemoryStore()
	b := newBench(t, func(o *Options) { withBuilders(2)(o); o.Store = store; o.RunTimeout = time.Second })
	faults := map[string]string{"crash-prepare": cost.KindCrash, "wrong-result": cost.KindWrongResult,
		"crash-run": cost.KindCrash,
		"hang-run":  cost.KindTimeout, "nan": cost.KindNotANumber}
	var requests []cost.Request
	for i := range 6 {
		requests = append(requests, b.request(fmt.Sprint(i), "dnnl", fmt.Sprintf("ok %d", i+1)))
	}
	for order := range faults {
		requests = append(requests, b.request(order, "dnnl", order))
	}
	requests = append(requests, b.request("gone", "gone", "setup"))
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	for i, c := range costs {
		label := requests[i].Key.Structure
		switch kind := faults[label]; {
		case kind != "":
			if assert.True(t, c.Failed(), label) {
				assert.Equal(t, kind, c.Failure.Kind, label)
			}
		case label == "gone":
			assert.True(t, c.Failed())
		default:
			assert.Equal(t, float64(i+1), c.Estimate())
		}
	}
	assert.Equal(t, len(requests)-1, store.Len(), "what cannot be set up is no record")
}

// Requests that are expected are built while others are measured, and never measured unasked.
func TestExpectedCodeIsBuilt(t *testing.T) {
	b := newBench(t, withBuilders(1))
	var requests []cost.Request
	for i := range 12 {
		requests = append(requests, b.request(fmt.Sprint(i), "tvm", fmt.Sprintf("ok %d", i+1)))
	}
	require.NoError(t, b.Expect(requests))
	costs, err := b.Estimate(context.Background(), requests[9:])
	require.NoError(t, err)
	assert.Equal(t, 10.0, costs[0].Estimate())
	assert.Equal(t, 3, count(b.logged(t), "prepare "))
	costs, err = b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	assert.Equal(t, 1.0, costs[0].Estimate())
	assert.Equal(t, 12, count(b.logged(t), "prepare "))
	assert.Equal(t, 2, b.Stats().Started)
}

func TestExpectedCodeOfSeveralBackendsIsBuiltOnce(t *testing.T) {
	b := newBench(t, withBuilders(1))
	var requests []cost.Request
	for i := range 6 {
		requests = append(requests, b.request(fmt.Sprint(i), "tvm", fmt.Sprintf("ok %d", i+1)),
			b.request(fmt.Sprint(i), "dnnl", fmt.Sprintf("ok %d", i+21)))
	}
	require.NoError(t, b.Expect(requests))
	_, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	assert.Equal(t, 6, computationsBuilt(b.logged(t)))
}

// Folders of processes that were killed are removed by the next one; those in use are not.
func TestFoldersThatWereLeftBehind(t *testing.T) {
	parent := t.TempDir()
	first, lock, err := makeFolder(parent)
	require.NoError(t, err)
	second, held, err := makeFolder(parent)
	require.NoError(t, err)
	assert.DirExists(t, first)
	require.NoError(t, lock.Close()) // what the kernel does for the dead
	third, other, err := makeFolder(parent)
	require.NoError(t, err)
	assert.NoDirExists(t, first)
	assert.DirExists(t, second)
	assert.DirExists(t, third)
	require.NoError(t, held.Close())
	require.NoError(t, other.Close())
	_, _, err = makeFolder(filepath.Join(parent, "none"))
	assert.Error(t, err)
}

// A worker that dies costs its candidate, and nothing is built again.
func TestCodeOutlivesTheWorkerThatLoadedIt(t *testing.T) {
	b := newBench(t, withBuilders(2))
	var requests []cost.Request
	for i := range 16 {
		order := fmt.Sprintf("ok %d", i+1)
		if i%5 == 4 {
			order = "crash-prepare"
		}
		requests = append(requests, b.request(fmt.Sprint(i), "dnnl", order))
	}
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	for i, c := range costs {
		assert.Equal(t, i%5 == 4, c.Failed())
	}
	assert.Equal(t, 16, computationsBuilt(b.logged(t)))
}

// For a handful nobody starts a builder.
func TestFewAreBuiltWhereTheyAreMeasured(t *testing.T) {
	b := newBench(t, withBuilders(2))
	costs, err := b.Estimate(context.Background(),
		[]cost.Request{b.request("a", "dnnl", "ok 1"), b.request("b", "tvm", "ok 2")})
	require.NoError(t, err)
	assert.Equal(t, 1.0, costs[0].Estimate())
	assert.Equal(t, 1, count(b.logged(t), "start"))
	assert.Zero(t, count(b.logged(t), "build "))
}

// A builder that is paused does nothing, and its time limit waits with it.
func TestPausedBuildersStandStill(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	b := newBench(t, func(o *Options) { withBuilders(1)(o); o.BuildTimeout = 2 * time.Second })
	var requests []cost.Request
	for i := range 4 {
		requests = append(requests, b.request(fmt.Sprint(i), "tvm", fmt.Sprintf("build-slow %d", i+1)))
	}
	require.NoError(t, b.Expect(requests))
	require.Eventually(t, func() bool { return count(b.logged(t), "build ") == 1 }, 5*time.Second, 5*time.Millisecond)
	done := b.alone()
	before := count(b.logged(t), "built ")
	time.Sleep(2500 * time.Millisecond)
	assert.Equal(t, before, count(b.logged(t), "built "))
	done()
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	assert.Equal(t, 4.0, costs[3].Estimate())
	assert.Positive(t, count(b.logged(t), "load "), "the pause was no part of the time limit")
}
