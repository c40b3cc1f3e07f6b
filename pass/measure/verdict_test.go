// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
)

func TestWhatComesOfOutputs(t *testing.T) {
	const wrong = `{"elements": 6, "wrong": 2, "greatest": 3, "at": [1, 2], "got": "4.5", "expected": "1.5", "l2": 0.2}`
	const right = `{"elements": 6, "wrong": 0, "greatest": 0.5, "at": [], "l2": 0.25}`
	for name, of := range map[string]struct {
		seen                    string
		kind, detail            string // of a candidate
		narrow, network, within string // the kind where it is narrow, of a network, and of a narrow network
		greatest                float64
	}{
		"right":    {`{"unlike": "", "each": [` + right + `]}`, "", "", "", "", "", 0.5},
		"nothing":  {`null`, "", "", "", "", "", 0},
		"no bytes": {`{"unlike": "", "each": [{"elements": 0, "greatest": 0}]}`, "", "", "", "", "", 0},
		"wrong": {`{"unlike": "", "each": [` + right + `, ` + wrong + `]}`, cost.KindWrongResult,
			"output 1 differs in 2 of 6 elements, most at [1, 2]: 4.5 instead of 1.5", "", cost.KindWrongResult, "", 3},
		"without bounds": {`{"unlike": "", "each": [{"elements": 1, "wrong": 1, "greatest": null, "at": [], "got": "inf",
			"expected": "1.0", "l2": 1e9}]}`, cost.KindWrongResult,
			"output 0 differs in 1 of 1 elements, most at []: inf instead of 1.0", cost.KindWrongResult,
			cost.KindWrongResult, "", 0},
		"another type": {`{"unlike": "output 0 is float64(2,) and not float32(2,)", "each": []}`, cost.KindWrongResult,
			"output 0 is float64(2,) and not float32(2,)", cost.KindWrongResult, cost.KindWrongResult,
			cost.KindWrongResult, 0},
		"not a number": {`{"unlike": "", "each": [{"elements": 1, "wrong": 1, "greatest": null, "at": [0], "got": "nan",
			"expected": "1.0", "new_nan": true, "l2": 1e9}]}`, cost.KindNotANumber,
			"the result holds NaN where plain TVM's holds numbers", cost.KindNotANumber, cost.KindNotANumber,
			cost.KindNotANumber, 0},
		"something else": {`{"unlike": "", "each": [{"elements": 1, "wrong": 0, "greatest": 1, "l2": 0.26}]}`, "", "",
			cost.KindWrongResult, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *outputsSeen
			require.NoError(t, json.Unmarshal([]byte(of.seen), &seen))
			kind := func(f *cost.Failure) string {
				if f == nil {
					return ""
				}
				assert.Equal(t, "check", f.Phase)
				return f.Kind
			}
			assert.Equal(t, of.kind, kind(seen.verdict(false)))
			if of.detail != "" {
				assert.Equal(t, of.detail, seen.verdict(false).Detail)
			}
			assert.Equal(t, of.narrow, kind(seen.verdict(true)))
			assert.Equal(t, of.network, kind(seen.networkVerdict(false)))
			assert.Equal(t, of.within, kind(seen.networkVerdict(true)))
			assert.Equal(t, of.greatest, seen.greatest())
		})
	}
	var seen outputsSeen
	require.NoError(t, json.Unmarshal([]byte(`{"each": [{"elements": 1, "l2": 0.5}]}`), &seen))
	assert.Contains(t, seen.verdict(true).Detail, "off by 0.5 (L2, relative): that is no rounding")
}

func TestTolerancesThatNobodyGave(t *testing.T) {
	rtol, atol := tolerances(0, 0)
	assert.Equal(t, []float64{candidateRTol, shareOfGreatest}, []float64{rtol, atol})
	rtol, atol = tolerances(0.5, 0.25)
	assert.Equal(t, []float64{0.5, 0.25}, []float64{rtol, atol})
}

func TestWhatNetworksMayBeOffByWhateverTheirOutputsAre(t *testing.T) {
	for doubt, want := range map[float64]float64{0: oneRounding, 4e-6: oneRounding, 6e-6: 12e-6, 1: 2} {
		assert.InEpsilon(t, want, shareOfAll(doubt), 1e-12)
		assert.Equal(t, want > oneRounding, Doubtful(doubt))
	}
}

// memory is something that runs, and what the process's memory does meanwhile.
type memory struct {
	runs, bytes, pauses int
	grow                func(m *memory, runs int) int
}

func (m *memory) soak(runs int, pause time.Duration) (int64, bool) {
	if pause > 0 {
		m.pauses++
	}
	grown := m.grow(m, runs)
	m.runs, m.bytes = m.runs+runs, m.bytes+grown
	return int64(grown), true
}

func TestWhatCountsAsALeak(t *testing.T) {
	grows := func(each int) func(*memory, int) int { return func(_ *memory, runs int) int { return each * runs } }
	for name, of := range map[string]struct {
		runMs float64
		grow  func(m *memory, runs int) int
		want  int64
		most  int // bytes that it may have taken until that was known; 0 for any
	}{
		"84 bytes a run":                        {0.001, grows(84), 84, 0},
		"64 KiB a run":                          {0.001, grows(1 << 16), 1 << 16, 0},
		"16 blocks of 100,000 bytes":            {0.001, grows(1), 0, 0},
		"slow runs, before memory is exhausted": {20, grows(1 << 20), 1 << 20, 64 << 20},
		"a pool that fills up": {0.001, func(m *memory, runs int) int {
			if m.runs < 300_000 {
				return 100 * runs
			}
			return 0
		}, 0, 0},
		"what a thread without a processor puts off": {0.001, func(m *memory, runs int) int {
			if m.pauses > 0 {
				return 0
			}
			return 84 * runs
		}, 0, 0},
		"a first, shorter block without growth": {0.001, func(m *memory, runs int) int {
			if m.runs == 0 {
				return leakBytes/firstBlock - 1
			}
			return 84 * runs
		}, 0, 0},
		"a block without growth": {0.001, func(m *memory, runs int) int {
			if m.runs == mostSoaked+mostSoaked/firstBlock {
				return leakBytes - 1
			}
			return 84 * runs
		}, 0, 0},
		"less after the pause, but still": {0.001, func(m *memory, runs int) int {
			if m.pauses > 0 {
				return 60 * runs
			}
			return 84 * runs
		}, 84, 0},
	} {
		m := &memory{grow: of.grow}
		assert.Equal(t, of.want, leak(of.runMs, m.soak), name)
		if of.most > 0 {
			assert.Less(t, m.bytes, of.most, name)
		}
		if strings.HasPrefix(name, "what a thread") {
			assert.Greater(t, m.runs, 300_000, "it looked like a leak for long enough to be taken for one")
		}
	}
	assert.Zero(t, leak(1, func(int, time.Duration) (int64, bool) { return 1 << 40, false }), "it could not be run")
}

func TestACandidateThatLeaksIsLost(t *testing.T) {
	b := newBench(t, nil)
	costs, err := b.Estimate(t.Context(), []cost.Request{b.request("a", "dnnl", "leaks 2097152"),
		b.request("b", "dnnl", "puts-off 8388608"), b.request("c", "dnnl", "leaks 1"), b.request("d", "dnnl", "ok 3"),
		b.request("e", "dnnl", "crash-soaked"), b.request("f", "tvm", "leaks 2097152"),
		b.request("g", "dnnl", "garbled")})
	require.NoError(t, err)
	require.True(t, costs[0].Failed())
	assert.Equal(t, cost.Failure{Phase: "run", Kind: cost.KindLeak,
		Detail: "each run leaves about 2048 KiB behind that is not freed"}, *costs[0].Failure)
	assert.Equal(t, []float64{20, 21}, costs[1].Samples, "what was put off is freed after a pause")
	assert.Equal(t, []float64{20, 21}, costs[2].Samples, "it stopped")
	assert.Equal(t, 3.0, costs[3].Estimate())
	require.True(t, costs[4].Failed())
	assert.Equal(t, cost.KindCrash, costs[4].Failure.Kind)
	assert.False(t, costs[5].Failed(), "TVM's own code is what the others are held against")
	require.True(t, costs[6].Failed(), "nobody knows whether it leaks")
	assert.Contains(t, costs[6].Failure.Detail, `the worker's answer to "soak" is not readable`)
	logged := b.logged(t)
	assert.Contains(t, logged, "soak 5 after 0", "about 0.1 s of runs of 20 ms")
	assert.Contains(t, logged, "soak 5 after 0.2")
	assert.Contains(t, logged, "forget leaks 2097152")
	assert.NotContains(t, logged, "forget puts-off 8388608")
}
