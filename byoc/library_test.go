// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func touch(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	return path
}

func TestLibraryIsFoundInItsOrder(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", root)
	t.Setenv("COLLAGE_PYTHON", filepath.Join(root, "venv/bin/python"))
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(root, "ld"))
	t.Setenv(PluginDirEnv, filepath.Join(root, "installed/lib/python3.11/site-packages/collage/lib"))
	require.NoError(t, os.MkdirAll(os.Getenv(PluginDirEnv), 0o755))
	l := Library{Env: "COLLAGE_NONE_LIBRARY", Packages: []string{"none/libs/libnone.so.*"},
		Prefix: []string{"lib/libnone.so.2"},
		Names:  []string{"libnone.so.2"}}

	_, err := l.Find()
	require.ErrorContains(t, err, "libnone.so.2 not found")
	require.ErrorContains(t, err, "another place is named in COLLAGE_NONE_LIBRARY")

	// Each of these places goes before those above it.
	for _, path := range []string{
		"ld/libnone.so.2",
		"installed/lib/libnone.so.2", "venv/lib/libnone.so.2",
		"installed/lib/python3.11/site-packages/none/libs/libnone.so.7",
		"venv/lib/python3.11/site-packages/none/libs/libnone.so.8",
	} {
		want := touch(t, filepath.Join(root, path))
		got, err := l.Find()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}

	named := touch(t, filepath.Join(root, "mine.so"))
	t.Setenv(l.Env, named)
	got, err := l.Find()
	require.NoError(t, err)
	require.Equal(t, named, got)
	t.Setenv(l.Env, filepath.Join(root, "absent.so"))
	_, err = l.Find()
	require.ErrorContains(t, err, "COLLAGE_NONE_LIBRARY is ")
}
