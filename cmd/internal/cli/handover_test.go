// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// executesEnv makes the test's program one that hands over to another.
const executesEnv = "COLLAGE_TEST_EXECUTES"

// TestExecutingProgram is the program that TestOneSettingOfAVariable starts; by itself it does nothing.
func TestExecutingProgram(t *testing.T) {
	if os.Getenv(executesEnv) == "" {
		return
	}
	environment := append(os.Environ(), "TMPDIR=/the/users", temporaryEnv+"=/ours", "TMPDIR=/ours")
	t.Fatal(execute("/usr/bin/env", []string{"env"}, environment))
}

// What is handed over has its own TMPDIR, also where the user has set one.
func TestOneSettingOfAVariable(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(program, "-test.run=^TestExecutingProgram$")
	command.Env = append(os.Environ(), executesEnv+"=1")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	var found []string
	for line := range strings.Lines(string(output)) {
		if strings.HasPrefix(line, "TMPDIR=") || strings.HasPrefix(line, temporaryEnv+"=") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	assert.ElementsMatch(t, []string{"TMPDIR=/ours", temporaryEnv + "=/ours"}, found)
}
