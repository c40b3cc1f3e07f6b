// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteReplacesAsAWhole(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "y.npz")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))

	broken := errors.New("broken half way")
	err := Write(path, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 3<<20))
		return errors.Join(err, broken)
	})
	require.ErrorIs(t, err, broken)
	content, _ := os.ReadFile(path)
	assert.Equal(t, "old", string(content))
	assert.Equal(t, []string{"y.npz"}, names(t, folder))

	require.NoError(t, Write(path, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }))
	content, _ = os.ReadFile(path)
	assert.Equal(t, "new", string(content))
	info, _ := os.Stat(path)
	assert.EqualValues(t, 0o640, info.Mode().Perm())
	assert.Equal(t, []string{"y.npz"}, names(t, folder))
}

func TestWriteFollowsLinksAndLeavesDevicesInPlace(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "real"), nil, 0o600))
	link := filepath.Join(folder, "link")
	require.NoError(t, os.Symlink("real", link))
	require.NoError(t, Write(link, func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }))
	content, _ := os.ReadFile(filepath.Join(folder, "real"))
	assert.Equal(t, "x", string(content))

	toDevice := filepath.Join(folder, "null")
	require.NoError(t, os.Symlink("/dev/null", toDevice))
	require.NoError(t, Write(toDevice, func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }))
	info, err := os.Stat("/dev/null")
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeDevice)
}

func TestAFullDiskIsSaidSo(t *testing.T) {
	link := filepath.Join(t.TempDir(), "model.tar")
	require.NoError(t, os.Symlink("/dev/full", link))
	err := Write(link, func(w io.Writer) error { _, err := w.Write(make([]byte, 2<<20)); return err })
	require.Error(t, err)
	assert.True(t, IsDiskFull(err))
	assert.Equal(t, "cannot write "+link+": no space left on device", err.Error())
}

func TestCopyWithACheckThatFails(t *testing.T) {
	folder := t.TempDir()
	from, to := filepath.Join(folder, "from"), filepath.Join(folder, "to")
	require.NoError(t, os.WriteFile(from, []byte("content"), 0o600))
	stopped := errors.New("stopped")
	require.ErrorIs(t, Copy(to, from, func() error { return stopped }), stopped)
	assert.Equal(t, []string{"from"}, names(t, folder))
	require.NoError(t, Copy(to, from, func() error { return nil }))
	content, _ := os.ReadFile(to)
	assert.Equal(t, "content", string(content))
}

func TestCheckWritable(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	assert.NoError(t, CheckWritable(filepath.Join(folder, "new.tar")))
	assert.NoError(t, CheckWritable(file))
	assert.NoError(t, CheckWritable("/dev/null"))
	assert.ErrorContains(t, CheckWritable(""), "is empty")
	assert.ErrorContains(t, CheckWritable(folder), "is a folder")
	assert.ErrorContains(t, CheckWritable(filepath.Join(folder, "no", "x.tar")), "does not exist")
	assert.ErrorContains(t, CheckWritable(filepath.Join(file, "x.tar")), "not a folder")
	assert.Equal(t, []string{"file"}, names(t, folder))
}

func TestRehearseLeavesNothingBehind(t *testing.T) {
	folder := t.TempDir()
	from, to := filepath.Join(folder, "from"), filepath.Join(folder, "to")
	require.NoError(t, os.WriteFile(from, make([]byte, 3<<20), 0o600))
	require.NoError(t, Rehearse(to, from))
	assert.Equal(t, []string{"from"}, names(t, folder))
	require.NoError(t, os.WriteFile(to, []byte("as it was"), 0o600))
	require.NoError(t, Rehearse(to, from))
	content, err := os.ReadFile(to)
	require.NoError(t, err)
	assert.Equal(t, "as it was", string(content))
	assert.Equal(t, []string{"from", "to"}, names(t, folder))
	require.NoError(t, Rehearse("/dev/full", from), "what is no file takes what it takes")
	require.Error(t, Rehearse(filepath.Join(folder, "nowhere", "to"), from))
	require.Error(t, Rehearse(to, filepath.Join(folder, "nothing")))
}
