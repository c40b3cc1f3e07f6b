// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plansHere puts the plans that pass/plan's tests write into a folder of their own, as before.json and after.json.
func plansHere(t *testing.T) {
	t.Helper()
	texts := map[string][]byte{}
	for name, file := range map[string]string{"before.json": "plan.json", "after.json": "slow-library.json"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "pass", "plan", "testdata", file))
		require.NoError(t, err)
		texts[name] = text
	}
	t.Chdir(t.TempDir())
	for name, text := range texts {
		require.NoError(t, os.WriteFile(name, text, 0o600))
	}
}

func TestExplainAndDiff(t *testing.T) {
	home, err := os.Getwd()
	require.NoError(t, err)
	plansHere(t)
	for line, file := range map[string]string{
		"explain before.json": "explain.txt", "explain before.json %2": "explain_node.txt",
		"explain --verify before.json": "explain_verify.txt", "diff before.json after.json": "diff.txt",
		"explain after.json": "explain_constrained.txt",
	} {
		code, stdout, stderr := runLine(t, strings.Fields(line)...)
		assert.Zero(t, code, line)
		assert.Empty(t, stderr)
		compareGolden(t, filepath.Join(home, "testdata", file), stdout)
	}
	for line, has := range map[string]string{
		"explain before.json --json": `"regret_ms": 2.25`, "explain before.json nn.softmax --json": `"fate": "refused"`,
		"explain --verify before.json --json": `"valid": true`,
		"diff before.json after.json --json":  `"same_module": true`,
	} {
		code, stdout, stderr := runLine(t, strings.Fields(line)...)
		assert.Zero(t, code, stderr)
		assert.True(t, json.Valid([]byte(stdout)), line)
		assert.Contains(t, stdout, has)
	}
	code, stdout, stderr := runLine(t, "explain", "before.json", "nn.lstm")
	assert.Equal(t, 2, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, `nothing in the plan is called "nn.lstm"`)
}

// A plan that was changed by hand is refused, with what is wrong.
func TestTamperedPlanIsRefused(t *testing.T) {
	plansHere(t)
	text, err := os.ReadFile("before.json")
	require.NoError(t, err)
	for what, c := range map[string]struct{ from, to, want string }{
		"a cheaper loser": {`"estimate_ms": 3,` + "\n    \"origin\"", `"estimate_ms": 0.5,` + "\n    \"origin\"",
			"the proof does not check: function main: certificate: option"},
		"another total": {`"total_ms": 3.75`, `"total_ms": 3.5`,
			"the estimate is 3.5 ms, the regions sum to 3.75 ms, with 0 ms between them"},
		"a moved price": {`"price_ms": -1.25`, `"price_ms": -1.249999999`,
			"the proof does not check: function main: certificate: the prices sum to"},
		"a missing loser":   {`"proposed": 12`, `"proposed": 13`, "13 candidates were proposed, 12 are listed"},
		"another backend":   {`"backend": "tvm"`, `"backend": "abc"`, `the backend "abc" is not listed`},
		"something strange": {`"collage_plan": 3`, `"collage_plan": 3, "x": 1`, "unknown field"},
	} {
		changed := strings.Replace(string(text), c.from, c.to, 1)
		require.NotEqual(t, string(text), changed, what)
		require.NoError(t, os.WriteFile("changed.json", []byte(changed), 0o600))
		code, stdout, stderr := runLine(t, "explain", "--verify", "changed.json")
		assert.Equal(t, 2, code, what)
		assert.Empty(t, stdout, what)
		assert.Contains(t, stderr, c.want, what)
	}
	// Without the claim to be the cheapest, the prices prove what they prove.
	humble := strings.Replace(string(text), `"optimal": true`, `"optimal": false`, 1)
	require.NoError(t, os.WriteFile("changed.json", []byte(humble), 0o600))
	code, stdout, stderr := runLine(t, "explain", "--verify", "changed.json")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "costs less than 3.75 ms")
	humble = strings.Replace(humble, `"bound_ms": 3.75`, `"bound_ms": 0`, 1)
	require.NoError(t, os.WriteFile("changed.json", []byte(humble), 0o600))
	code, _, stderr = runLine(t, "explain", "--verify", "changed.json")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "holds no proof: its placement was not searched for")
}
