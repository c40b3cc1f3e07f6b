// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
)

type bench struct {
	*Pool
	log   string
	built int
}

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	b := &bench{log: filepath.Join(t.TempDir(), "log")}
	options := Options{
		Command: []string{os.Args[0]},
		Env: []string{"MEASURE_TEST_WORKER=good", "MEASURE_TEST_LOG=" + b.log,
			"GORACE=atexit_sleep_ms=0"},
		Reference:    "tvm",
		BuildTimeout: 10 * time.Second, RunTimeout: 10 * time.Second,
	}
	if change != nil {
		change(&options)
	}
	pool, err := NewPool(options)
	require.NoError(t, err)
	b.Pool = pool
	t.Cleanup(func() {
		assert.NoError(t, pool.Close())
		assert.NoDirExists(t, pool.dir)
	})
	return b
}

// logged are the worker's notes.
func (b *bench) logged(t *testing.T) []string {
	content, err := os.ReadFile(b.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// request asks for a workload whose function is an order to the test worker.
func (b *bench) request(structure, backend, order string) cost.Request {
	compiler := backend
	if backend == "tvm" {
		compiler = ""
	}
	return cost.Request{
		Key:   cost.Key{Structure: structure, Backend: backend},
		Label: order + " on " + backend,
		Build: func() (*cost.Workload, error) {
			b.built++
			return &cost.Workload{Function: order, Compiler: compiler}, nil
		},
	}
}

func TestEstimateMeasuresAndStores(t *testing.T) {
	store := cost.NewMemoryStore()
	var events []Event
	b := newBench(t, func(o *Options) {
		o.Store = store
		o.Progress = func(e Event) { events = append(events, e) }
	})
	requests := []cost.Request{
		b.request("a", "dnnl", "ok 1.5"),
		b.request("b", "dnnl", "ok 2.5"),
		b.request("a", "dnnl", "ok 1.5"), // the same key: once only
		b.request("a", "tvm", "ok 3.5"),
	}
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	estimates := []float64{}
	for _, c := range costs {
		estimates = append(estimates, c.Estimate())
		assert.Equal(t, cost.Measured, c.Origin)
	}
	assert.Equal(t, []float64{1.5, 2.5, 1.5, 3.5}, estimates)
	assert.Equal(t, 1e-6, costs[0].MaxError)
	assert.Equal(t, []string{"start", "ok 3.5", "ok 1.5", "ok 2.5"}, b.logged(t), "TVM first, structures together")
	assert.Equal(t, Stats{Requested: 3, Measured: 3, Started: 1}, b.Stats())
	require.Len(t, events, 3)
	assert.Equal(t, 3, events[2].Done)
	assert.Equal(t, 3, events[2].Total)

	// The second time nothing is built and nothing measured.
	built := b.built
	again, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	assert.Equal(t, costs[1].Samples, again[1].Samples)
	assert.Equal(t, built, b.built)
	assert.Equal(t, 3, b.Stats().FromStore)
	assert.Equal(t, 6, events[len(events)-1].Done+3)
}

// Each fault loses its candidate with its reason, and the others are measured.
func TestFaultsLoseOnlyTheirCandidate(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	faults := []struct{ order, phase, kind, detail string }{
		{"crash-build", "build", cost.KindCrash, "going down"},
		{"crash-run", "run", cost.KindCrash, "terminated"},
		{"killed", "build", cost.KindOutOfMemory, "memory"},
		{"exit", "build", cost.KindCrash, "exit status 7: last words"},
		{"hang-build", "build", cost.KindTimeout, "no answer within 800ms"},
		{"hang-run", "run", cost.KindTimeout, "no answer within 800ms"},
		{"garbage", "build", cost.KindError, "onednn_verbose"},
		{"half-a-line", "build", cost.KindError, "no message"},
		{"not-json-number", "run", cost.KindError, "NaN"},
		{"no-samples", "run", cost.KindError, "no samples"},
		{"wrong-result", "check", cost.KindWrongResult,
			"output 0 differs in 3 of 10 elements, most at [7]: 1.5 instead of 1.0"},
		{"error", "build", cost.KindError, "TVMError: no strategy"},
		{"nan", "check", cost.KindNotANumber, "output 0"},
		{"long", "run", cost.KindError, "yend"},
	}
	store := cost.NewMemoryStore()
	b := newBench(t, func(o *Options) {
		o.Store = store
		o.BuildTimeout, o.RunTimeout = 800*time.Millisecond, 800*time.Millisecond
	})
	var requests []cost.Request
	for i, f := range faults {
		requests = append(requests,
			b.request(fmt.Sprintf("good-%d", i), "dnnl", fmt.Sprintf("ok %d", i+1)),
			b.request(fmt.Sprintf("bad-%d", i), "dnnl", f.order))
	}
	requests = append(requests, b.request("stale", "dnnl", "stale"))
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	for i, f := range faults {
		assert.Equal(t, float64(i+1), costs[2*i].Estimate())
		c := costs[2*i+1]
		if assert.True(t, c.Failed(), f.order) {
			assert.Equal(t, f.phase, c.Failure.Phase, f.order)
			assert.Equal(t, f.kind, c.Failure.Kind, f.order)
			assert.Contains(t, c.Failure.Detail, f.detail, f.order)
			assert.Less(t, len(c.Failure.Detail), 4096+200, f.order)
		}
		stored, found := store.Lookup(requests[2*i+1].Key)
		assert.True(t, found && stored.Failed(), "the failure of %q is a record, too", f.order)
	}
	assert.Equal(t, 4.0, costs[len(costs)-1].Estimate(), "an answer that came too late is dropped")
	assert.Equal(t, len(faults), b.Stats().Failed)
}

func TestACrashIsTriedOnceMoreInAFreshWorker(t *testing.T) {
	b := newBench(t, nil)
	costs, err := b.Estimate(context.Background(), []cost.Request{
		b.request("a", "dnnl", "ok 1"), b.request("b", "dnnl", "crash-unless-fresh"), b.request("c", "dnnl", "ok 3")})
	require.NoError(t, err)
	assert.Equal(t, 2.0, costs[1].Estimate())
	assert.Equal(t, 3.0, costs[2].Estimate())
	assert.Equal(t, 2, b.Stats().Started)
}

// childGone waits until the process that the worker noted as its child is gone.
func childGone(t *testing.T, b *bench) {
	for _, line := range b.logged(t) {
		var pid int
		if _, err := fmt.Sscanf(line, "child %d", &pid); err == nil {
			assert.Eventually(t, func() bool {
				state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return err != nil || strings.Contains(string(state), ") Z ")
			}, 5*time.Second, 10*time.Millisecond, "the child lives on")
			return
		}
	}
	t.Error("the worker has noted no child")
}

func TestChildrenOfAWorkerGoWithIt(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	for _, order := range []string{"hang-with-child", "exit-with-child"} {
		b := newBench(t, func(o *Options) { o.BuildTimeout = 800 * time.Millisecond })
		start := time.Now()
		costs, err := b.Estimate(context.Background(),
			[]cost.Request{b.request("a", "dnnl", order), b.request("b", "dnnl", "ok 1")})
		require.NoError(t, err)
		assert.True(t, costs[0].Failed())
		assert.Equal(t, 1.0, costs[1].Estimate())
		assert.Less(t, time.Since(start), 10*time.Second)
		childGone(t, b)
	}
}

func TestAFatWorkerIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	b := newBench(t, func(o *Options) { o.MaxMemory = 200 << 20 })
	var requests []cost.Request
	for i := range 8 {
		requests = append(requests, b.request(fmt.Sprint(i), "dnnl", "fat"))
	}
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	for _, c := range costs {
		assert.Equal(t, 1.0, c.Estimate())
	}
	assert.Greater(t, b.Stats().Started, 1)
}

func TestAWorkerThatDoesNotStartIsAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	for kind, want := range map[string]string{"dies": "No module named collage", "mute": "no hello within"} {
		b := newBench(t, func(o *Options) {
			o.Env = append(o.Env, "MEASURE_TEST_WORKER="+kind)
			o.StartTimeout = 500 * time.Millisecond
			if kind == "dies" {
				o.StartTimeout = 10 * time.Second
			}
		})
		costs, err := b.Estimate(context.Background(), []cost.Request{b.request("a", "dnnl", "ok 1")})
		require.ErrorContains(t, err, "does not start")
		assert.ErrorContains(t, err, want)
		assert.False(t, costs[0].Failed(), "no fault of the candidate")
	}
	b := newBench(t, func(o *Options) { o.Command = []string{"/does/not/exist"} })
	_, err := b.Estimate(context.Background(), []cost.Request{b.request("a", "dnnl", "ok 1")})
	assert.ErrorContains(t, err, "/does/not/exist")
}

// However the search is ended, what was measured before is in the store and the worker is gone.
func TestInterruptsKeepWhatWasMeasured(t *testing.T) {
	interrupt := errors.New("interrupted")
	for _, how := range []string{"poll", "context"} {
		path := filepath.Join(t.TempDir(), "costs.jsonl")
		store, err := cost.OpenStore(path)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		interrupted := false
		b := newBench(t, func(o *Options) {
			o.Store = store
			o.Progress = func(e Event) {
				if e.Done == 2 {
					interrupted = true
					if how == "context" {
						time.AfterFunc(50*time.Millisecond, cancel)
					}
				}
			}
			o.Poll = func() error {
				if how == "poll" && interrupted {
					return interrupt
				}
				return nil
			}
		})
		start := time.Now()
		costs, err := b.Estimate(ctx, []cost.Request{b.request("a", "dnnl", "ok 1"), b.request("b", "dnnl", "ok 2"),
			b.request("c", "dnnl", "hang-with-child"), b.request("d", "dnnl", "ok 4")})
		if how == "poll" {
			require.ErrorIs(t, err, interrupt)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		assert.Less(t, time.Since(start), 5*time.Second)
		assert.Equal(t, 1.0, costs[0].Estimate())
		assert.False(t, costs[2].Failed(), "an interrupt is no fault of the candidate")
		require.NoError(t, store.Close())
		again, err := cost.OpenStore(path)
		require.NoError(t, err)
		assert.Equal(t, 2, again.Len())
		require.NoError(t, again.Close())
		if how == "context" {
			childGone(t, b)
		}
		// The pool is fit for further use.
		costs, err = b.Estimate(context.Background(), []cost.Request{b.request("a", "dnnl", "ok 1")})
		require.NoError(t, err)
		assert.Equal(t, 1.0, costs[0].Estimate())
	}
}

func TestAStoreThatCannotBeWrittenEndsTheSearch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	store, err := cost.OpenStore(path)
	require.NoError(t, err)
	require.NoError(t, store.Close())
	b := newBench(t, func(o *Options) { o.Store = store })
	costs, err := b.Estimate(context.Background(),
		[]cost.Request{b.request("a", "dnnl", "ok 1"), b.request("b", "dnnl", "ok 1")})
	require.ErrorContains(t, err, path)
	assert.Equal(t, 1.0, costs[0].Estimate(), "what was measured is still there")
	assert.False(t, costs[1].Known())
}

func TestFailuresAreRetriedWhenAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	key := cost.Key{Structure: "a", Backend: "dnnl"}
	store, err := cost.OpenStore(path)
	require.NoError(t, err)
	require.NoError(t, store.Put(key, cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindCrash}, time.Now())))
	require.NoError(t, store.Close())
	for _, retry := range []bool{false, true} {
		store, err := cost.OpenStore(path)
		require.NoError(t, err)
		b := newBench(t, func(o *Options) { o.Store, o.RetryFailures = store, retry })
		costs, err := b.Estimate(context.Background(), []cost.Request{b.request("a", "dnnl", "ok 1")})
		require.NoError(t, err)
		assert.Equal(t, !retry, costs[0].Failed())
		require.NoError(t, store.Close())
	}
}

// A library that has gone since it was probed loses its backend, not the search, and is tried again by the next one.
func TestABackendThatIsNotSetUpIsLeftOut(t *testing.T) {
	store := cost.NewMemoryStore()
	b := newBench(t, func(o *Options) { o.Store = store })
	requests := []cost.Request{b.request("a", "dnnl", "ok 1"), b.request("b", "gone", "setup"),
		b.request("c", "gone", "ok 3"),
		b.request("d", "dnnl", "ok 4")}
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	assert.Equal(t, 1.0, costs[0].Estimate())
	for _, c := range costs[1:3] {
		require.True(t, c.Failed())
		assert.Equal(t, "load", c.Failure.Phase)
		assert.Contains(t, c.Failure.Detail, "no code generator")
	}
	assert.Equal(t, 4.0, costs[3].Estimate())
	assert.Equal(t, 2, store.Len())
	assert.NotContains(t, b.logged(t), "ok 3", "it is not asked for again")

	_, err = b.Estimate(context.Background(), []cost.Request{b.request("e", "tvm", "setup")})
	assert.ErrorContains(t, err, "no code generator", "without TVM there is nothing to measure with")
}

// Further samples are taken in turn and stand with the first ones in the store.
func TestRefineTakesTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	store, err := cost.OpenStore(path)
	require.NoError(t, err)
	b := newBench(t, func(o *Options) { o.Store, o.Samples = store, 3 })
	requests := []cost.Request{b.request("a", "dnnl", "ok 1"), b.request("b", "dnnl", "ok 2"),
		b.request("c", "dnnl", "crash-again")}
	_, err = b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	costs, err := b.Refine(context.Background(), requests, 3)
	require.NoError(t, err)
	assert.Len(t, costs[0].Samples, 6)
	assert.Len(t, costs[1].Samples, 6)
	assert.True(t, costs[2].Failed(), "it fails later")
	assert.Equal(t, []string{"start", "ok 1", "ok 2", "crash-again", "again ok 1", "again ok 2", "again crash-again"},
		b.logged(t)[:7])
	assert.Equal(t, 3+3, b.built, "built again once, for all rounds")
	require.NoError(t, store.Close())
	again, err := cost.OpenStore(path)
	require.NoError(t, err)
	for i, want := range costs {
		c, found := again.Lookup(requests[i].Key)
		require.True(t, found)
		assert.Equal(t, want.Samples, c.Samples)
		assert.Equal(t, want.Failed(), c.Failed())
	}
	require.NoError(t, again.Close())
}

func TestMachineIsCalibratedOnce(t *testing.T) {
	store := cost.NewMemoryStore()
	b := newBench(t, func(o *Options) { o.Store = store })
	env := cost.Environment{Target: "llvm", Device: "cpu", Threads: 2}
	first, err := b.Machine(context.Background(), env)
	require.NoError(t, err)
	assert.Equal(t, 1e9/0.5, first.Flops, "the best sample")
	again, err := b.Machine(context.Background(), env)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	calibrations := 0
	for _, line := range b.logged(t) {
		if line == "calibrate" {
			calibrations++
		}
	}
	assert.Equal(t, 1, calibrations)
	env.Threads = 1
	_, err = b.Machine(context.Background(), env)
	require.NoError(t, err, "one thread is another machine")
}

// A worker that takes too much memory is ended before the kernel looks for somebody to kill.
func TestAGreedyCandidateIsOutOfMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	b := newBench(t, func(o *Options) { o.MemoryLimit = 300 << 20 })
	costs, err := b.Estimate(context.Background(),
		[]cost.Request{b.request("a", "dnnl", "ok 1"), b.request("b", "dnnl", "greedy"),
			b.request("c", "dnnl", "ok 3")})
	require.NoError(t, err)
	require.True(t, costs[1].Failed())
	assert.Equal(t, cost.KindOutOfMemory, costs[1].Failure.Kind)
	assert.Contains(t, costs[1].Failure.Detail, "more than 300 MiB")
	assert.Equal(t, 3.0, costs[2].Estimate())
}

func TestAFunctionThatCannotBeBuiltEndsTheSearch(t *testing.T) {
	b := newBench(t, nil)
	r := b.request("a", "dnnl", "ok 1")
	r.Build = func() (*cost.Workload, error) { return nil, errors.New("out of handles") }
	_, err := b.Estimate(context.Background(), []cost.Request{r})
	assert.ErrorContains(t, err, "ok 1 on dnnl: out of handles")
}

func TestSeveralWorkers(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Workers = 3 })
	var requests []cost.Request
	for i := range 12 {
		order := fmt.Sprintf("ok %d", i+1)
		if i%4 == 3 {
			order = "crash-run"
		}
		requests = append(requests, b.request(fmt.Sprint(i), "dnnl", order))
	}
	costs, err := b.Estimate(context.Background(), requests)
	require.NoError(t, err)
	for i, c := range costs {
		if i%4 == 3 {
			assert.True(t, c.Failed())
		} else {
			assert.Equal(t, float64(i+1), c.Estimate())
		}
	}
}

func TestCompare(t *testing.T) {
	var rounds []int
	b := newBench(t, nil)
	models := []Model{{Name: "tvm", Path: "a.so"}, {Name: "dnnl", Path: "/b.so"}}
	c, err := b.Compare(context.Background(), models,
		CompareOptions{Rounds: 4, Progress: func(round, of int) { rounds = append(rounds, round) }})
	require.NoError(t, err)
	assert.Equal(t, []float64{1, 1, 1, 1}, c.Costs["tvm"].Samples)
	assert.Equal(t, 2.0, c.Costs["dnnl"].Estimate())
	assert.Equal(t, OutputCheck{MaxError: 0.5, OK: true}, c.Outputs["dnnl"])
	assert.Equal(t, []int{1, 2, 3, 4}, rounds)
	// Where nobody says how many threads, the networks get all that an exported one would get.
	assert.Contains(t, b.logged(t), fmt.Sprintf("compare on %d threads", runtime.NumCPU()))

	models[1].Path = "/crash.so"
	_, err = b.Compare(context.Background(), models, CompareOptions{Rounds: 4})
	assert.ErrorContains(t, err, "the worker ended")
	_, err = b.Compare(context.Background(), nil, CompareOptions{})
	assert.Error(t, err)
}

func TestNoWorkerOutlivesItsPool(t *testing.T) {
	b := newBench(t, nil)
	_, err := b.Estimate(context.Background(), []cost.Request{b.request("a", "dnnl", "ok 1")})
	require.NoError(t, err)
	pid := b.slots[0].command.Process.Pid
	require.NoError(t, b.Close())
	assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}
