// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
)

// Costs are kept by the version: where what is written changes, those of the other form must not be found.
func TestVersionHasTheWritersRevision(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(byoc.PluginDirEnv, folder)
	plugin := filepath.Join(folder, "libcollage_onnxruntime.so")
	require.NoError(t, os.WriteFile(plugin, nil, 0o644))
	// A library without versions of symbols is called after its file.
	self, err := os.Executable()
	require.NoError(t, err)
	file := filepath.Join(folder, "libonnxruntime.so.1.2.3")
	require.NoError(t, os.Symlink(self, file))
	t.Setenv("COLLAGE_ONNXRUNTIME_LIBRARY", file)
	p := New().Probe()
	require.True(t, p.Usable, p.Reason)
	require.Equal(t, fmt.Sprintf("1.2.3+collage.%d", writerRevision), p.Version)
}
