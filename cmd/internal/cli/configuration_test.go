// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configured parses compile's flags beside a configuration.
func configured(t *testing.T, text string, args ...string) (*compileAction, []string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	t.Setenv(configurationEnv, path)
	flags := newFlagSet(&compileCommand)
	action := compileCommand.New(flags).(*compileAction)
	require.NoError(t, flags.Parse(args))
	_, set, err := configure(&compileCommand, flags)
	if err != nil {
		assert.True(t, strings.HasPrefix(err.Error(), path) || strings.Contains(err.Error(), "configuration"), err.Error())
	}
	return action, set, err
}

func TestConfiguration(t *testing.T) {
	a, set, err := configured(t, `
backends: [tvm, dnnl]
threads: 4
repeat: 3
pin:
  - nn.dense=dnnl
  - nn.conv2d=tvm
compile:
  search-time: 5m
  threads: 2
run:
  repeat: 100
`, "--repeat", "7")
	require.NoError(t, err)
	assert.Equal(t, []string{"tvm", "dnnl"}, a.backends)
	assert.Equal(t, []string{"nn.dense=dnnl", "nn.conv2d=tvm"}, a.pin)
	assert.Equal(t, 2, a.threads, "the command's own part goes before")
	assert.Equal(t, 7, a.samples, "what is typed goes before both")
	assert.Equal(t, "5m0s", a.searchTime.String())
	assert.Equal(t, []string{"--search-time 5m0s", "--threads 2", "--backends tvm,dnnl",
		"--pin nn.dense=dnnl,nn.conv2d=tvm"}, set)
	assert.True(t, typed(a.flags, "repeat"))
	assert.False(t, typed(a.flags, "threads"))
	assert.False(t, typed(a.flags, "rounds"))

	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		_, set, err = configured(t, empty)
		require.NoError(t, err)
		assert.Empty(t, set)
	}
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"bakcends: tvm":                   `:1: there is no command and no flag bakcends: did you mean backends?`,
		"\ncompile:\n  serch-time: 5m":    `:3: compile has no flag serch-time: did you mean search-time?`,
		"compile: 5m":                     `:1: compile is a command: it maps its flags to what they are to be`,
		"threads: many":                   `:1: threads: many: not a whole number`,
		"compile:\n  search-time: soon":   `:2: search-time: soon: not a duration such as "90s" or "5m"`,
		"threads: [1, 2]":                 `:1: threads: one value is wanted, and no list`,
		"threads: {a: b}":                 `:1: threads: a value is wanted`,
		"pin: [[a]]":                      `:1: pin: a list of words is wanted`,
		"- tvm":                           `:1: it must map flags to what they are to be`,
		"a: [":                            `line 1: did not find expected node content`,
		strings.Repeat("#", 1<<20) + "\n": `has more than 1048576 bytes`,
	} {
		_, _, err := configured(t, text)
		assert.ErrorContains(t, err, want, "%.40q", text)
	}
}

func TestConfigurationThatIsNotThere(t *testing.T) {
	flags := newFlagSet(&compileCommand)
	compileCommand.New(flags)
	t.Setenv(configurationEnv, filepath.Join(t.TempDir(), "none.yaml"))
	_, _, err := configure(&compileCommand, flags)
	require.ErrorContains(t, err, "no such file")
	t.Setenv(configurationEnv, "")
	_, set, err := configure(&compileCommand, flags)
	require.NoError(t, err)
	assert.Empty(t, set)
}

// A file in the folder where a command runs is read, and told of.
func TestConfigurationInTheFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("model.onnx", []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(configurationFile, []byte("repeat: 0\n"), 0o600))
	code, _, stderr := runLine(t, "run", "model.onnx")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "--repeat 0: at least one call must be made")
	assert.Contains(t, stderr, "collage.yaml: --repeat 0\n")
	_, _, stderr = runLine(t, "run", "model.onnx", "--repeat", "1")
	assert.NotContains(t, stderr, "collage.yaml")
}
