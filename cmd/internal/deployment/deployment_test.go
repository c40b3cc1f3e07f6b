// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

// self is this test's own file: an ELF that is there on every machine.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func TestFolders(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, CheckFolder(folder))
	require.NoError(t, CheckFolder(filepath.Join(folder, "new")))
	require.ErrorContains(t, CheckFolder(filepath.Join(folder, "no", "new")), "the folder "+folder+"/no does not exist")
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, CheckFolder(file), "it is no folder")
	require.ErrorContains(t, CheckFolder(folder), "is not empty")
}

func TestManifestsThatAreWrong(t *testing.T) {
	folder := t.TempDir()
	_, err := Read(folder)
	require.ErrorContains(t, err, "is a folder without a manifest.json")
	for text, want := range map[string]string{
		"{": "unexpected end",
		`{"format": "collage-package 2", "library": "model/mod.so"}`:    `its format is "collage-package 2"`,
		`{"format": "collage-package 1"}`:                               "names no library",
		`{"format": "collage-package 1", "library": "../mod.so"}`:       `"../mod.so" is no path inside the package`,
		`{"format": "collage-package 1", "library": "/etc/passwd"}`:     `"/etc/passwd" is no path inside the package`,
		`{"format": "collage-package 1", "library": "a", "graph": "/"}`: `"/" is no path inside the package`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, ManifestName), []byte(text), 0o600))
		_, err := Read(folder)
		assert.ErrorContains(t, err, want)
	}
	good := `{"format": "collage-package 1", "library": "model/mod.so"}`
	require.NoError(t, os.WriteFile(filepath.Join(folder, ManifestName), []byte(good), 0o600))
	_, err = Open(folder)
	require.ErrorContains(t, err, "is not whole")
}

// Nothing stays of a package that could not be written.
func TestAPackageIsWrittenAsAWhole(t *testing.T) {
	parent := t.TempDir()
	folder := filepath.Join(parent, "package")
	content := &Content{Model: &runmodel.Files{Library: filepath.Join(parent, "none.so")}, Program: self(t)}
	_, err := Write(folder, content)
	require.Error(t, err)
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestTwoLibrariesOfOneName(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	content, err := os.ReadFile(self(t))
	require.NoError(t, err)
	var paths []string
	for _, folder := range []string{first, second} {
		path := filepath.Join(folder, "libsame.so")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		paths = append(paths, path)
	}
	libraries, err := named(paths[:1])
	require.NoError(t, err)
	assert.Equal(t, []Library{{Path: paths[0], Name: "libsame.so"}}, libraries)
	_, err = named(paths)
	require.ErrorContains(t, err, "there are two libraries libsame.so in the process")
	require.NoError(t, os.WriteFile(paths[0], []byte("text"), 0o600))
	_, err = named(paths[:1])
	require.ErrorContains(t, err, "is in the process, and cannot be read")
}

func TestKernelsOfADriver(t *testing.T) {
	require.True(t, isKernel("/somebody/.cache/pocl/kcache/AF/KEAI/relu/256-1-1/relu.so"))
	require.False(t, isKernel("/usr/lib/libpocl.so.2"))
	t.Setenv("POCL_CACHE_DIR", "/somewhere/")
	require.True(t, isKernel("/somewhere/AF/relu.so"))
	require.False(t, isKernel("/somewhere-else/libdnnl.so.2"))
}

// What oneMKL loads on other processors lies beside its core and is not in this process.
func TestPartsForOtherProcessors(t *testing.T) {
	folder := t.TempDir()
	content, err := os.ReadFile(self(t))
	require.NoError(t, err)
	for _, name := range []string{"libmkl_core.so.2", "libmkl_avx2.so.2", "libmkl_blacs.so.2"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	libraries, err := named([]string{filepath.Join(folder, "libmkl_core.so.2")})
	require.NoError(t, err)
	var names []string
	for _, library := range libraries {
		names = append(names, library.Name)
	}
	assert.Equal(t, []string{"libmkl_avx2.so.2", "libmkl_core.so.2"}, names)
}

func TestVersionsOfGLIBC(t *testing.T) {
	version, err := glibcOf(self(t))
	require.NoError(t, err)
	if len(version) > 0 { // a test without C has none
		assert.Equal(t, 2, version[0])
		assert.Regexp(t, `^2\.\d+`, versionText(version))
	}
}
