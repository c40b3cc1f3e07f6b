// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What cobra's own command, which the scripts call, completes.
func TestCompletions(t *testing.T) {
	for line, want := range map[string][]string{
		"comp":                                 {"compile", "completion"},
		"db ":                                  {"ls", "merge", "prune", "export", "verify"},
		"bench w":                              {"without"},
		"help ex":                              {"explain"},
		"completion ":                          {"bash", "zsh", "fish"},
		"compile m.onnx --search":              {"--search-time"},
		"compile m.onnx --precision ":          {"f32", "bf16", "int8", "auto"},
		"compile m.onnx --level ":              {"graph", "operator"},
		"compile m.onnx --format t":            {"tflite", "torchscript"},
		"compile m.onnx --backends tvm,dn":     {"tvm,dnnl", "tvm,dnnl_tvm"},
		"compile m.onnx --backends tvm,dnnl,d": {"tvm,dnnl,dnnl_tvm"},
		"tune m.onnx --tuner m":                {"metaschedule"},
		"db ls --backend op":                   {"openvino", "openblas"},
	} {
		words := strings.Split(line, " ")
		code, stdout, stderr := runLine(t, append([]string{"__complete"}, words...)...)
		assert.Zero(t, code, stderr)
		var got []string
		for _, one := range strings.Split(strings.TrimSpace(stdout), "\n") {
			word, _, _ := strings.Cut(one, "\t")
			if !strings.HasPrefix(word, ":") {
				got = append(got, word)
			}
		}
		for _, one := range want {
			assert.Contains(t, got, one, line)
		}
		assert.NotContains(t, got, "tvm,tvm", line)
	}
}

// The scripts are whole: each shell that is here reads its own.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range shells {
		code, script, stderr := runLine(t, "completion", shell)
		require.Zero(t, code, stderr)
		assert.Contains(t, script, "__complete")
		program, err := exec.LookPath(shell)
		if err != nil {
			continue // the script is the library's
		}
		path := filepath.Join(t.TempDir(), "script")
		require.NoError(t, os.WriteFile(path, []byte(script), 0o600))
		out, err := exec.Command(program, "-n", path).CombinedOutput()
		assert.NoError(t, err, string(out))
	}
	code, _, stderr := runLine(t, "completion", "bsh")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "there is no completion for bsh: did you mean bash?")
	_, _, stderr = runLine(t, "completion", "powershell")
	assert.Contains(t, stderr, "there is no completion for powershell (shells: bash, zsh, fish)")
}
