// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
)

// networkWorker is a worker whose networks' regions, and whose executables' names, are orders to behave well or badly.
func networkWorker() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var m struct {
			ID        int      `json:"id"`
			Op        string   `json:"op"`
			Network   string   `json:"network"`
			Out       string   `json:"out"`
			Model     string   `json:"model"`
			Against   string   `json:"against"`
			Reference string   `json:"reference"`
			Rounds    int      `json:"rounds"`
			Check     bool     `json:"check"`
			Keep      []string `json:"keep"`

			Seconds float64 `json:"seconds"`
			Inputs  float64 `json:"input_seconds"`
			Noise   float64 `json:"noise_seconds"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			os.Exit(3)
		}
		model := filepath.Base(m.Model)
		fail := func(phase, kind, detail string) {
			say(map[string]any{"id": m.ID, "event": "error", "phase": phase, "kind": kind, "detail": detail})
		}
		result := func(fields map[string]any) {
			fields["id"], fields["event"] = m.ID, "result"
			say(fields)
		}
		logLine(fmt.Sprintf("%s %s%s %d %v", m.Op, m.Network, model, m.Rounds, m.Check))
		switch {
		case m.Op == "hello":
			say(map[string]any{"id": m.ID, "event": "hello", "tvm": "0.19.0", "pid": os.Getpid()})
		case m.Network == "bad", model == "wrong.so":
			fail("check", cost.KindWrongResult, "by 3")
		case m.Network == "full":
			fail("build", "disk-full", "no room in /tmp")
		case m.Network == "nonsense":
			fail("protocol", cost.KindError, "what?")
		case m.Network == "crash", model == "crash.so":
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			time.Sleep(time.Hour)
		case m.Network == "hang":
			time.Sleep(time.Hour)
		case m.Op == "network_build":
			if m.Network == "long" {
				time.Sleep(time.Second)
			}
			time.Sleep(20 * time.Millisecond)
			logLine("end " + m.Network)
			result(map[string]any{"seconds": 0.5, "bytes": 100, "storage_bytes": 10, "parameter_bytes": 20,
				"executable": map[string]any{"ops": []any{map[string]any{"op": "add", "kernel": 0, "args": []int{-1}}},
					"root": 0, "kernels": []string{"k"}}})
		case m.Op == "network_run" && filepath.Base(m.Reference) != "tvm.so":
			fail("run", cost.KindError, "there is nothing to compare with")
		case m.Op == "network_run":
			samples, against := make([]float64, m.Rounds), make([]float64, m.Rounds)
			for i := range samples {
				samples[i], against[i] = 2, map[string]float64{"tvm.so": 4, "b.so": 3}[filepath.Base(m.Against)]
			}
			if model == "short.so" {
				samples = samples[1:]
			}
			if model == "zero.so" {
				samples[0] = 0
			}
			result(map[string]any{"samples_ms": samples, "against_ms": against,
				"outputs":        map[string]any{"each": []any{map[string]any{"elements": 1, "greatest": 0.25}}},
				"resident_bytes": 1 << 20})
		case m.Op == "network_watch":
			logLine(fmt.Sprint("for ", m.Inputs, m.Noise))
			result(map[string]any{"inputs": 3})
		case m.Op == "network_round":
			logLine(fmt.Sprint("for ", m.Seconds))
			result(map[string]any{"inputs": 2, "errors": []any{map[string]any{}}})
		case m.Op == "network_profile":
			result(map[string]any{"kernels_ms": []float64{1.5}, "names": []string{"k"}})
		case m.Op == "network_footprint":
			result(map[string]any{"resident_bytes": 7, "peak_bytes": 9})
		default:
			result(map[string]any{})
		}
	}
	os.Exit(0)
}

type networkBench struct {
	*Networks
	log string
}

func newNetworks(t *testing.T, builders int, change func(*Options)) *networkBench {
	t.Helper()
	b := &networkBench{log: filepath.Join(t.TempDir(), "log")}
	options := Options{Command: []string{os.Args[0]}, NetworkTimeout: 10 * time.Second, RunTimeout: 10 * time.Second,
		Env: []string{"MEASURE_TEST_WORKER=networks", "MEASURE_TEST_LOG=" + b.log, "GORACE=atexit_sleep_ms=0"}}
	if change != nil {
		change(&options)
	}
	networks, err := NewNetworks(options, builders, t.TempDir())
	require.NoError(t, err)
	b.Networks = networks
	t.Cleanup(networks.Close)
	return b
}

func (b *networkBench) logged(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(b.log)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func (b *networkBench) build(t *testing.T, networks ...string) (map[int]*NetworkBuilt, error) {
	t.Helper()
	var jobs []NetworkBuild
	for _, n := range networks {
		jobs = append(jobs, NetworkBuild{Network: n, Out: n + ".so"})
	}
	built := map[int]*NetworkBuilt{}
	err := b.Build(context.Background(), jobs, len(jobs), func(i int, n *NetworkBuilt) error {
		built[i] = n
		return nil
	})
	return built, err
}

func TestNetworksAreBuiltSideBySide(t *testing.T) {
	b := newNetworks(t, 2, nil)
	built, err := b.build(t, "a", "b", "bad", "c")
	require.NoError(t, err)
	require.Len(t, built, 4)
	assert.Equal(t, int64(100), built[0].Bytes)
	require.NotNil(t, built[3].Executable)
	assert.Equal(t, []string{"k"}, built[3].Executable.Kernels)
	assert.Equal(t, &cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: "by 3"}, built[2].Failure)
	hellos := 0
	for _, line := range b.logged(t) {
		if strings.HasPrefix(line, "hello") {
			hellos++
		}
	}
	assert.Equal(t, 2, hellos, "a worker serves one network after the other")
}

// While the one that is wanted is built, the other builder goes through those that are not; none of them is begun after
// it.
func TestWhatIsBuiltMeanwhile(t *testing.T) {
	for _, builders := range []int{1, 2} {
		b := newNetworks(t, builders, nil)
		jobs := []NetworkBuild{{Network: "long", Out: "long.so"}}
		for i := range 200 {
			jobs = append(jobs, NetworkBuild{Network: fmt.Sprint("n", i), Out: fmt.Sprint(i, ".so")})
		}
		var order []int
		require.NoError(t, b.Build(context.Background(), jobs, 1, func(i int, n *NetworkBuilt) error {
			assert.Nil(t, n.Failure)
			order = append(order, i)
			return nil
		}))
		if builders == 1 {
			assert.Equal(t, []int{0}, order, "nobody has time for the others")
			continue
		}
		at := slices.Index(order, 0)
		assert.Positive(t, at, "some were finished before")
		assert.LessOrEqual(t, len(order), at+2, "one was begun before it was finished, no other after it")
		assert.Less(t, len(order), len(jobs))
	}
}

func TestABuilderThatDiesLosesItsNetworkOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for workers that hang or eat memory: not under -short")
	}
	b := newNetworks(t, 1, func(o *Options) { o.NetworkTimeout = 300 * time.Millisecond })
	built, err := b.build(t, "a", "crash", "b", "hang", "c")
	require.NoError(t, err)
	require.Len(t, built, 5)
	assert.Equal(t, cost.KindCrash, built[1].Failure.Kind)
	assert.Equal(t, cost.KindTimeout, built[3].Failure.Kind)
	for _, i := range []int{0, 2, 4} {
		assert.Nil(t, built[i].Failure, i)
	}
}

func TestWhatEndsBuilding(t *testing.T) {
	b := newNetworks(t, 2, nil)
	_, err := b.build(t, "a", "full")
	var full *DiskFullError
	require.ErrorAs(t, err, &full)
	assert.Equal(t, "no space left on device: no room in /tmp", full.Error())
	_, err = b.build(t, "nonsense")
	assert.ErrorContains(t, err, "the worker cannot do what it was asked to: what?")

	interrupted := errors.New("interrupted")
	b = newNetworks(t, 1, func(o *Options) { o.Poll = func() error { return interrupted } })
	_, err = b.build(t, "hang")
	assert.ErrorIs(t, err, interrupted)
	_, err = b.Run(context.Background(), NetworkRun{Model: "a.so", Reference: "tvm.so", Against: "tvm.so", Step: 3,
		Rounds: 3})
	if err != nil { // it may have been faster than the first poll
		assert.ErrorIs(t, err, interrupted)
	}
	_, err = NewNetworks(Options{}, 1, "")
	assert.ErrorContains(t, err, "COLLAGE_PYTHON")
}

func TestNetworksAreRunInSteps(t *testing.T) {
	b := newNetworks(t, 1, nil)
	ctx := context.Background()
	run := NetworkRun{Model: "a.so", Reference: "tvm.so", Against: "b.so", Pace: 0.5, Step: 3, Rounds: 8}
	c, err := b.Run(ctx, run)
	require.NoError(t, err)
	assert.Len(t, c.Samples, 8)
	assert.Equal(t, slices.Repeat([]float64{3}, 8), c.Network.Against)
	assert.Equal(t, 0.5, c.Network.Pace)
	assert.Equal(t, 0.25, c.MaxError)
	assert.Equal(t, int64(1<<20), c.Network.Resident)
	assert.Equal(t, []string{"network_run a.so 3 true", "network_run a.so 3 false", "network_run a.so 2 false"},
		b.logged(t)[2:],
		"outputs are compared once")

	asked := 0
	run.More = func(c cost.Cost) bool { asked++; return false }
	c, err = b.Run(ctx, run)
	require.NoError(t, err)
	assert.Len(t, c.Samples, 3, "hopeless")
	assert.Equal(t, 1, asked)

	kernels, failure, err := b.Profile(ctx, "a.so", "tvm.so", 5)
	require.NoError(t, err)
	assert.Nil(t, failure)
	assert.Equal(t, []float64{1.5}, kernels.Kernels)
	require.NoError(t, b.Drop(ctx, "tvm.so"))
	f, err := b.Footprint(ctx, "a.so")
	require.NoError(t, err)
	assert.Equal(t, Footprint{Resident: 7, Peak: 9}, f)
}

func TestNetworksThatFail(t *testing.T) {
	b := newNetworks(t, 1, nil)
	ctx := context.Background()
	for model, kind := range map[string]string{"wrong.so": cost.KindWrongResult, "crash.so": cost.KindCrash,
		"short.so": cost.KindError,
		"zero.so":  cost.KindError} {
		c, err := b.Run(ctx, NetworkRun{Model: model, Reference: "tvm.so", Against: "tvm.so", Step: 3, Rounds: 6})
		require.NoError(t, err, model)
		require.NotNil(t, c.Failure, model)
		assert.Equal(t, kind, c.Failure.Kind, model)
	}
	c, err := b.Run(ctx, NetworkRun{Model: "fine.so", Reference: "tvm.so", Against: "tvm.so", Step: 3, Rounds: 6})
	require.NoError(t, err)
	assert.True(t, c.Known(), "the lane is there again")
	kernels, failure, err := b.Profile(ctx, "crash.so", "tvm.so", 5)
	require.NoError(t, err)
	assert.Nil(t, kernels.Kernels, "what cannot be profiled is no error")
	require.NotNil(t, failure)
	assert.Equal(t, cost.KindCrash, failure.Kind)
	_, failure, err = b.Profile(ctx, "wrong.so", "tvm.so", 5)
	require.NoError(t, err)
	assert.Equal(t, &cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: "by 3"}, failure)
	f, err := b.Footprint(ctx, "crash.so")
	require.NoError(t, err)
	assert.Zero(t, f)
}

// However many inputs there is time for, those that are looked at come from everywhere in the data.
func TestSpreadComesFromEverywhere(t *testing.T) {
	t.Parallel()
	list := make([]int, 100)
	for i := range list {
		list[i] = i
	}
	order := spread(list)
	assert.ElementsMatch(t, list, order)
	for _, first := range []int{5, 10, 25, 60} {
		some := slices.Sorted(slices.Values(order[:first]))
		assert.LessOrEqual(t, some[0], 300/first)
		assert.GreaterOrEqual(t, some[first-1], 99-300/first)
		for i := 1; i < first; i++ {
			assert.LessOrEqual(t, some[i]-some[i-1], 300/first, "%d: %v", first, some)
		}
	}
	assert.Empty(t, spread([]int(nil)))
}

func TestValuesAreLookedAtForAShorterTimeInAHurry(t *testing.T) {
	for hurry, want := range map[float64][]string{0: {"for 2 3", "for 3"}, 0.25: {"for 0.5 0.75", "for 0.75"}} {
		b := newNetworks(t, 1, func(o *Options) { o.Hurry = hurry })
		seen, failure, err := b.Watch(t.Context(), "a.so", 1, nil, &Inputs{Searched: RandomInputs(1, 2)})
		require.NoError(t, err)
		require.Nil(t, failure)
		assert.Equal(t, 3, seen.Inputs)
		_, used, failure, err := b.Rounded(t.Context(), "a.so", 1, [][]rounding.Steps{{}}, &Inputs{})
		require.NoError(t, err)
		require.Nil(t, failure)
		assert.Equal(t, 2, used)
		times := slices.DeleteFunc(b.logged(t), func(line string) bool { return !strings.HasPrefix(line, "for ") })
		assert.Equal(t, want, times)
	}
}
