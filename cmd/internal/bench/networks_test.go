// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/cmd/internal/machine"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden holds a text against a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "%s (go test -rewrite writes it anew)", name)
}

var someDay = time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)

// someTurns are eight turns of about so many milliseconds.
func someTurns(ms float64) []float64 {
	turns := make([]float64, 8)
	for i := range turns {
		turns[i] = ms * (1 + 0.001*float64(i%3))
	}
	return turns
}

func someCell(peer string, ms float64, other bool) NetworkCell {
	return NetworkCell{Peer: peer, Median: ms, Turns: someTurns(ms), other: other}
}

// someRow is a network with what it takes as compiled, on oneDNN alone and on TVM.
func someRow(name string, shares map[string]int, ours, alone, tvm float64) NetworkRow {
	row := NetworkRow{Name: name, Model: "workload:" + name, Chosen: "collage", Shares: shares, Taken: someDay,
		Load: machine.Load{Seconds: 10, Processors: 2, Known: true},
		Cells: []NetworkCell{someCell(Ours, ours, false), someCell(withoutNative, alone, true),
			someCell("tvm", tvm, false)}}
	row.compare()
	return row
}

func someReport(rows ...NetworkRow) *NetworkReport {
	r := &NetworkReport{Machine: machine.Info{OS: "linux", Arch: "amd64", Processor: "Some", Features: []string{"avx2"},
		Processors: 2, Environment: map[string]string{}}, Taken: someDay, Threads: 2, Rounds: 8, TurnMS: 300,
		Precision: "float32", Networks: rows,
		Peers: []PeerInfo{{Name: Ours, Version: "net.tar"}, {Name: withoutNative, Version: "dnnl", Other: true},
			{Name: "tvm", Version: "TVM 0.19.0"}}}
	r.summarise()
	return r
}

func fourRows() []NetworkRow {
	faster := someRow("faster", map[string]int{"dnnl": 2, "native": 3}, 1, 2, 3)
	same := someRow("same", map[string]int{"dnnl": 2, "native": 3}, 2, 2, 3)
	single := someRow("single", nil, 1, 1.5, 3)
	single.Chosen = "native"
	other := someRow("other", map[string]int{"dnnl": 2, "tvm": 3}, 1, 1.5, 3)
	return []NetworkRow{faster, same, single, other}
}

func textOf(t *testing.T, r *NetworkReport) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	return text.String()
}

// Where native is of no use stands in each report that has oneDNN alone: not kept, or not faster.
func TestWhereNativeIsOfNoUse(t *testing.T) {
	r := someReport(fourRows()...)
	golden(t, "networks.txt", textOf(t, r))
	var names []string
	for _, n := range r.Summary.NoUse {
		names = append(names, n.Network)
	}
	assert.Equal(t, []string{"same", "other"}, names)

	r = someReport(fourRows()[0])
	assert.Contains(t, textOf(t, r), "native is of no use (not kept, or not faster than dnnl alone) on: none\n")
	r.Peers[1].Name = "mkl alone"
	r.summarise()
	assert.NotContains(t, textOf(t, r), "of no use")
}

// written is a report as a file has it.
func written(t *testing.T, r *NetworkReport) *NetworkReport {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	back, err := ReadNetworks(path)
	require.NoError(t, err)
	return back
}

// Several reports become one: later rows take the place of earlier ones, columns that one has not are told, the means
// are over all.
func TestReportsAreMerged(t *testing.T) {
	rows := fourRows()
	first := someReport(rows[:3]...)
	again := someRow("same", map[string]int{"native": 5}, 1, 4, 5)
	again.Taken = someDay.Add(48 * time.Hour)
	again.Cells = append(again.Cells, someCell("openvino", 3, false))
	again.compare()
	second := someReport(again, NetworkRow{Name: "broken", Model: "workload:broken", Failure: "it is none"})
	second.Taken = again.Taken
	second.Peers = append(second.Peers, PeerInfo{Name: "openvino", Version: "OpenVINO 1"})
	second.summarise()

	merged, err := MergeNetworks([]*NetworkReport{written(t, first), written(t, second)}, []string{"a", "b"})
	require.NoError(t, err)
	golden(t, "networks_merged.txt", textOf(t, merged))
	assert.Equal(t, 3, merged.Summary.BestPeer.Networks)
	assert.Equal(t, []string{"broken"}, merged.Summary.Failed)
	for _, mean := range merged.Summary.Others {
		assert.Equal(t, 3, mean.Mean.Networks)
		assert.Equal(t, withoutNative, mean.Name)
	}
	alone, err := MergeNetworks([]*NetworkReport{written(t, first), written(t, first)}, []string{"a", "a"})
	require.NoError(t, err)
	assert.Equal(t, textOf(t, first), textOf(t, alone), "a report with itself is itself")
}

func TestAnEngineThatRanNothingIsOfAnyVersion(t *testing.T) {
	info := PeerInfo{}
	for _, version := range []string{"", "Engine 1", ""} {
		info.hear(version)
	}
	assert.Equal(t, "Engine 1", info.Version)

	silent, told := someReport(fourRows()[:1]...), someReport(fourRows()[1:]...)
	silent.Peers[2].Version = ""
	require.NotEmpty(t, told.Peers[2].Version)
	for _, reports := range [][]*NetworkReport{{silent, told}, {told, silent}} {
		merged, err := MergeNetworks(reports, []string{"a", "b"})
		require.NoError(t, err)
		assert.Equal(t, told.Peers[2].Version, merged.Peers[2].Version)
	}
}

func TestWhatCannotStandInOneTable(t *testing.T) {
	for want, change := range map[string]func(*NetworkReport){
		"the machine is another":            func(r *NetworkReport) { r.Machine.Features = []string{"avx512f"} },
		"2 and 1 threads":                   func(r *NetworkReport) { r.Threads = 1 },
		"8 turns of 300 ms and 8 of 100 ms": func(r *NetworkReport) { r.TurnMS = 100 },
		"in float32 and in up to bf16":      func(r *NetworkReport) { r.Precision = "up to bf16" },
		"tvm is TVM 0.20.0 and TVM 0.19.0":  func(r *NetworkReport) { r.Peers[2].Version = "TVM 0.20.0" },
	} {
		other := someReport(fourRows()...)
		change(other)
		_, err := MergeNetworks([]*NetworkReport{someReport(fourRows()...), other}, []string{"a", "b"})
		assert.ErrorContains(t, err, want)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	for _, text := range []string{"{", `{"networks": []}`,
		`{"rounds": 1, "peers": [{"name": "collage"}], "networks": [{"name": "a", "peers": []}]}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := ReadNetworks(path)
		assert.ErrorContains(t, err, "is no report of bench all")
	}
}
