// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
)

// storeHere makes costs.jsonl with some of everything in a folder of its own, and gives the folder that the test began
// in.
func storeHere(t *testing.T) string {
	t.Helper()
	home, err := os.Getwd()
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	s, err := cost.OpenStore("costs.jsonl")
	require.NoError(t, err)
	day := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(structure, backend, composite, computation string, c cost.Cost, change func(*cost.Key)) {
		k := cost.Key{Structure: strings.Repeat(structure, 16), Backend: backend, Composite: composite,
			Environment: cost.Environment{
				Target: "llvm -mcpu=skylake-avx512", Device: "a processor", TVM: "0.19.0", Threads: 2, Options: "O3"}}
		if backend == "dnnl" {
			k.Library = "oneDNN 2.6.0"
		}
		if change != nil {
			change(&k)
		}
		c.Computation = computation
		if c.Taken.IsZero() {
			c.Taken = day
		}
		require.NoError(t, s.Put(k, c))
	}
	measured := func(ms float64) cost.Cost {
		return cost.Cost{Samples: []float64{ms, 1.02 * ms, 1.01 * ms, 1.5 * ms}, Origin: cost.Measured,
			MaxError: 1.5e-6}
	}
	conv, dense := "nn.conv2d add nn.relu Tensor[(1, 64, 56, 56), float32]", "nn.dense Tensor[(1, 1000), float32]"
	put("ab12", "tvm", "", conv, measured(2), nil)
	put("ab12", "dnnl", "dnnl.conv2d_bias_relu", conv, measured(0.75), nil)
	put("cd34", "tvm", "", dense, measured(0.1), nil)
	put("cd34", "dnnl", "dnnl.dense", dense, cost.FromFailure(cost.Failure{Phase: "check", Kind: cost.KindWrongResult,
		Detail: "differs by 0.25 at [0, 1]\nand so on"}, day), nil)
	newer := measured(0.05)
	newer.Taken = day.Add(2 * time.Hour)
	put("cd34", "dnnl", "dnnl.dense", dense, newer, func(k *cost.Key) { k.Library, k.Threads = "oneDNN 3.0.0", 1 })
	later := measured(1.9)
	later.Taken = day.Add(time.Hour)
	put("ab12", "tvm", "", conv, later, nil)
	require.NoError(t, s.Close())
	return home
}

func TestDBList(t *testing.T) {
	home := storeHere(t)
	code, stdout, stderr := runLine(t, "db", "ls", "--db", "costs.jsonl")
	require.Zero(t, code, stderr)
	compareGolden(t, filepath.Join(home, "testdata", "db_ls.txt"), stdout)
	code, stdout, _ = runLine(t, "db", "ls", "--db", "costs.jsonl", "--failures", "--verbose")
	assert.Zero(t, code)
	compareGolden(t, filepath.Join(home, "testdata", "db_ls_failures.txt"), stdout)

	for flags, want := range map[string]int{"": 5, "--backend dnnl": 3, "--match nn.dense": 3, "--match ab12": 2,
		"--failures":      1,
		"--older-than 1h": 5, "--other-machine": 5, "--other-versions": 2, "--match bias_relu --backend tvm": 0} {
		_, stdout, stderr := runLine(t, append([]string{"db", "ls", "--json", "--db", "costs.jsonl"},
			strings.Fields(flags)...)...)
		var got struct{ Costs []map[string]any }
		require.NoError(t, json.Unmarshal([]byte(stdout), &got), stderr)
		assert.Len(t, got.Costs, want, flags)
	}
}

func TestDBExport(t *testing.T) {
	home := storeHere(t)
	code, stdout, stderr := runLine(t, "db", "export", "--db", "costs.jsonl", "--backend", "dnnl")
	require.Zero(t, code, stderr)
	compareGolden(t, filepath.Join(home, "testdata", "db_export.csv"), stdout)
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 4)

	code, _, stderr = runLine(t, "db", "export", "--db", "costs.jsonl", "-o", "costs.json")
	require.Zero(t, code, stderr)
	text, err := os.ReadFile("costs.json")
	require.NoError(t, err)
	var exported struct {
		Schema int
		Costs  []map[string]any
	}
	require.NoError(t, json.Unmarshal(text, &exported))
	assert.Equal(t, outputSchema, exported.Schema)
	assert.Len(t, exported.Costs, 5)
	assert.Contains(t, exported.Costs[0], "samples_ms")
}

func TestDBPruneMergeVerify(t *testing.T) {
	storeHere(t)
	original, err := os.ReadFile("costs.jsonl")
	require.NoError(t, err)
	run := func(want int, line string) (string, string) {
		t.Helper()
		code, stdout, stderr := runLine(t, strings.Fields(line)...)
		require.Equal(t, want, code, stdout+stderr)
		return stdout, stderr
	}
	costs := func(path string) int {
		f, err := cost.ReadFile(path)
		require.NoError(t, err)
		return len(f.Entries())
	}

	stdout, _ := run(0, "db prune --db costs.jsonl --backend tvm --dry-run")
	assert.Contains(t, stdout, "costs.jsonl: would remove 2 of 5 costs, and 1 record that later ones have replaced;")
	same, err := os.ReadFile("costs.jsonl")
	require.NoError(t, err)
	assert.Equal(t, original, same)

	require.NoError(t, os.WriteFile("copy.jsonl", original, 0o600))
	run(0, "db prune --db copy.jsonl --backend tvm")
	assert.Equal(t, 3, costs("copy.jsonl"))
	stdout, _ = run(0, "db prune --db copy.jsonl --older-than 1h --json")
	assert.Contains(t, stdout, `"removed": 3`)

	stdout, _ = run(0, "db merge costs.jsonl copy.jsonl -o all.jsonl")
	assert.Contains(t, stdout, "all.jsonl: 5 costs (0 before), 1 record was replaced by later ones;")
	stdout, _ = run(0, "db verify --db all.jsonl")
	assert.Equal(t, "all.jsonl: 5 lines with 5 records, 5 costs; all can be read\n", stdout)

	// A process that was killed while it wrote, and an editor.
	broken := fmt.Sprintf("%snonsense\n%s", original, original[:100])
	require.NoError(t, os.WriteFile("broken.jsonl", []byte(broken), 0o600))
	stdout, stderr := run(2, "db verify --db broken.jsonl")
	assert.Contains(t, stdout, "broken.jsonl:7: invalid character 'o' in literal null")
	assert.Contains(t, stdout, "broken.jsonl:8: the last line is torn: unexpected end of JSON input")
	assert.Equal(t, "collage: error: broken.jsonl: 2 parts cannot be read; collage db verify --repair moves what is "+
		"broken out of the way\n",
		stderr)
	run(0, "db verify --repair --db broken.jsonl")
	stdout, _ = run(0, "db verify --json --db broken.jsonl")
	assert.Contains(t, stdout, `"valid": true`)
	assert.Equal(t, 5, costs("broken.jsonl"))
	kept, err := os.ReadFile("broken.jsonl.broken")
	require.NoError(t, err)
	assert.Equal(t, "nonsense\n"+string(original[:100])+"\n", string(kept))
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{"12h": 12 * time.Hour, "30d": 720 * time.Hour,
		"1.5w": 252 * time.Hour, "0d": 0} {
		got, err := parseAge(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "d", "12", "-1d", "xd", "30m", "1e9d"} {
		_, err := parseAge(text)
		assert.Error(t, err, text)
	}
}
