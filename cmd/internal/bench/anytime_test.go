// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A plan with a timeline says itself what was found when; what the store told of was no executable.
func TestHistoryOfAPlan(t *testing.T) {
	plan := `{"graph_level": {"networks": [{"name": "tvm", "placement": "a", "ratio": 1}, {"name": "dnnl", "placement": "b", "ratio": 0.6},
		{"name": "feedback 1", "placement": "c", "ratio": 0.7}, {"name": "known", "placement": "d", "ratio": 0.1},
		{"name": "fails", "placement": "e"}, {"name": "placed again", "placement": "f", "ratio": 0.5}]},
		"timeline": {"networks": [{"placement": "a", "seconds": 6}, {"placement": "b", "seconds": 7.5}, {"placement": "c", "seconds": 20},
		{"placement": "d", "seconds": 21, "stored": true}, {"placement": "e", "seconds": 22}, {"placement": "f", "seconds": 30}]},
		"backends": [{"name": "tvm", "operators": 3}, {"name": "dnnl", "operators": 7}, {"name": "mkl", "operators": 0}],
		"finalists": [{"name": "tvm"}, {"name": "collage", "chosen": true}]}`
	var c Compilation
	require.NoError(t, c.History([]byte(plan), []Spoken{{1, "  never: 3 ms, 0.01 of plain TVM's time, said"}}))
	assert.Equal(t, []Found{{6, "tvm", 1}, {7.5, "dnnl", 0.6}, {30, "placed again", 0.5}}, c.Found)
	assert.Equal(t, "collage: tvm 3, dnnl 7", c.Kept)
	assert.Error(t, c.History([]byte("no plan"), nil))
}

// Earlier versions only say it while they work.
func TestHistoryOfWhatWasSaid(t *testing.T) {
	said := []Spoken{
		{2, "measuring candidates"},
		{9.5, "  tvm: 25.54 ms, 1 of plain TVM's time, no region outside of it (measured, 5 s), the best so far"},
		{11, "  operator level: 14.79 ms, 0.579 of plain TVM's time, 3 regions outside of it (measured, 18 s), the " +
			"best so far"},
		{13, "  dnnl, cheapest of its own: 15.1 ms, 0.6 of plain TVM's time, 1 region outside of it (measured, 20 s)"},
		{14, "  mkl: crash in run: signal 11"},
		{15, "  with 3 nn.conv2d to tvm: 1.2e+01 ms, 4.7e-01 of plain TVM's time, 2 regions outside of it (measured, 21 s), " +
			"the best so far"},
	}
	var c Compilation
	require.NoError(t, c.History([]byte(`{"finalists": [{"name": "dnnl", "chosen": true}]}`), said))
	assert.Equal(t, []Found{{9.5, "tvm", 1}, {11, "operator level", 0.579}, {15, "with 3 nn.conv2d to tvm", 0.47}}, c.Found)
	assert.Equal(t, "dnnl", c.Kept)
}

// someRuns are two programs on a network of which plain TVM takes 10 ms: ours is at 5 ms after 30 s, the other one at
// 6.
func someRuns() AnytimeRow {
	ours := AnytimeRun{Column: "collage", Median: 5, Turns: []float64{5},
		Compilation: Compilation{Taken: 58, Written: true,
			Found: []Found{{6, "tvm", 1}, {8, "dnnl", 0.6}, {30, "feedback 1", 0.512}, {40, "placed again", 0.5}}}}
	before := AnytimeRun{Column: "before", Median: 6, Turns: []float64{6},
		Compilation: Compilation{Taken: 90, Written: true,
			Found: []Found{{20, "tvm", 1}, {25, "dnnl", 0.6}}}}
	return AnytimeRow{Name: "net", TVM: 10, Runs: []AnytimeRun{ours, before}}
}

func TestWhenTheBestWasThere(t *testing.T) {
	row := someRuns()
	row.judge([]float64{5, 7, 15, 58, 90}, nil)
	assert.Equal(t, 5.0, row.Best)
	assert.Equal(t, "collage", row.By)
	assert.Equal(t, []float64{0, 10, 6, 5, 5}, row.Runs[0].Latencies)
	assert.Equal(t, []float64{0, 0, 0, 6, 6}, row.Runs[1].Latencies)
	assert.Equal(t, 30.0, row.Runs[0].Within)
	assert.Zero(t, row.Runs[1].Within)

	// What was written is what counts: it is slower than the search believed, and so never close.
	row = someRuns()
	row.Runs[0].Median = 5.2
	row.judge([]float64{15}, map[string]float64{"net": 5, "other": 1})
	assert.Equal(t, "reference", row.By)
	assert.Zero(t, row.Runs[0].Within)

	// Plain TVM was slower in the search than in the end: what counts is how the search's networks compare.
	row = someRuns()
	row.Runs[0].Found[1].Ratio, row.Runs[0].Found[2].Ratio, row.Runs[0].Found[3].Ratio = 0.48, 0.41, 0.4
	row.judge([]float64{15, 35}, nil)
	assert.InDeltaSlice(t, []float64{6, 5.125}, row.Runs[0].Latencies, 1e-9)
	assert.Equal(t, 30.0, row.Runs[0].Within)

	// Nothing was written: plain TVM's time is all that there is to tell by.
	row = someRuns()
	row.Runs[1].Median = 0
	row.judge([]float64{30}, nil)
	assert.Equal(t, []float64{6}, row.Runs[1].Latencies)
}

func TestTheReportOfWhatWasFound(t *testing.T) {
	row := someRuns()
	failed := AnytimeRun{Column: "collage", Compilation: Compilation{Taken: 3, Failure: "no such model",
		Found: []Found{}}}
	report := &AnytimeReport{Threads: 2, Rounds: 1, Asked: 60, At: []float64{15, 60},
		Columns: []AnytimeColumn{{Name: "collage",
			Backends: []string{"tvm", "dnnl"}}, {Name: "before", Version: "commit 0", Backends: []string{"tvm"}}},
		Rows: []AnytimeRow{row, {Name: "broken", Runs: []AnytimeRun{failed, {Column: "before"}}}}}
	for i := range report.Rows {
		report.Rows[i].judge(report.At, nil)
	}
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	for _, line := range []string{
		"collage was within 3 % of the best on 0 after 15 s, 1 after 60 s, of 2; it took 0.97 to 0.97 of the time " +
			"asked for",
		"before was within 3 % of the best on 0 after 15 s, 0 after 60 s, of 2; it took 1.50 to 1.50 of the time " +
			"asked for",
		"a  collage on broken: no such model", "before: tvm (commit 0)"} {
		assert.Contains(t, text.String(), line)
	}
	assert.Regexp(t, `net +collage +6\.0 s +6\.00 +5\.00 +5\.00 +5\.00 +30\.0 s +58\.0 s`, text.String())

	var picture bytes.Buffer
	require.NoError(t, report.WritePicture(&picture))
	decoder := xml.NewDecoder(bytes.NewReader(picture.Bytes()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	assert.Contains(t, picture.String(), "net, before")
	assert.NotContains(t, picture.String(), "broken")
	assert.Error(t, (&AnytimeReport{}).WritePicture(io.Discard), "there is nothing to draw")
}

// What was taken with the same setting is taken over, unless what it wrote has gone.
func TestWhatIsKeptOfABenchmark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.anytime.json")
	nothing, err := readKept[anytimeKept](path)
	require.NoError(t, err)
	_, there := nothing.run("collage", "1m of tvm", path)
	assert.False(t, there)

	kept := &anytimeKept{Row: someRuns(), Settings: map[string]string{"collage": "1m of tvm", "before": "1m of tvm"},
		InTurn: "once"}
	kept.Row.Runs[1].Written = false
	text, err := json.Marshal(kept)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	again, err := readKept[anytimeKept](path)
	require.NoError(t, err)
	assert.Equal(t, kept, again)
	run, there := again.run("collage", "1m of tvm", path)
	require.True(t, there)
	assert.Equal(t, kept.Row.Runs[0], *run)
	_, there = again.run("collage", "2m of tvm", path)
	assert.False(t, there, "taken with another setting")
	_, there = again.run("collage", "1m of tvm", path+".tar")
	assert.False(t, there, "the executable is not there")
	_, there = again.run("before", "1m of tvm", path+".tar")
	assert.True(t, there, "there never was one")

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = readKept[anytimeKept](path)
	assert.ErrorContains(t, err, "remove it")
}

func TestReferences(t *testing.T) {
	best, err := ReadReference([]byte(`{"networks": [{"name": "a", "best_ms": 2}, {"name": "b", "peers": [{"peer": "tvm", "median_ms": 1},
		{"peer": "collage", "median_ms": 3}]}, {"name": "c"}]}`))
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"a": 2, "b": 3}, best)
	_, err = ReadReference([]byte("text"))
	assert.Error(t, err)
}
