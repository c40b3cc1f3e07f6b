// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The wheel has Collage without what runs other engines: whoever benchmarks there is told where it is.
func TestPeersThatAreNotInstalled(t *testing.T) {
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	folder := t.TempDir()
	t.Setenv("PYTHONPATH", folder)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "collage"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "collage", "__init__.py"), nil, 0o600))
	_, err = installed(t.Context(), python, []string{"json"})
	require.ErrorIs(t, err, errNoPeers)
	p, err := startPeer(python, "tvm", 1, nil)
	require.NoError(t, err)
	require.ErrorIs(t, p.ask(t.Context(), time.Minute, map[string]any{"op": "load"}, &struct{}{}), errNoPeers)

	require.NoError(t, os.Mkdir(filepath.Join(folder, "collage", "peers"), 0o700))
	found, err := installed(t.Context(), python, []string{"json", "nowhere"})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"json": "unknown"}, found)
}

// A peer that leaves a process behind, in a session of its own and with the pipe in its hands, keeps nobody waiting.
func TestPeerIsEndedWithoutItsDescendants(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("setsid is not installed")
	}
	folder := t.TempDir()
	python, descendant := filepath.Join(folder, "python"), filepath.Join(folder, "descendant")
	script := "#!/bin/sh\n" + `setsid sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 3600' '` + descendant + `' 2>/dev/null &
read -r request
echo '{"version": "1"}'
exec sleep 3600
`
	require.NoError(t, os.WriteFile(python, []byte(script), 0o700))
	p, err := startPeer(python, "tvm", 1, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := os.Stat(descendant); return err == nil }, time.Minute,
		10*time.Millisecond)
	content, err := os.ReadFile(descendant)
	require.NoError(t, err)
	number, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	defer func() { _ = syscall.Kill(number, syscall.SIGKILL) }()

	var loaded struct{ Version string }
	require.NoError(t, p.ask(t.Context(), time.Minute, map[string]any{"op": "load"}, &loaded))
	assert.Equal(t, "1", loaded.Version)
	ended := make(chan struct{})
	go func() { p.end(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the end of the peer waits for a process that it left behind")
	}
	assert.NoError(t, syscall.Kill(number, 0), "the descendant has left the group, and lives")
}
