// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only the bridge speaks C; libcollage does for its exported entry points.
func TestOnlyTheBridgeImportsC(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	found := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" ||
				name == "build" || name == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			if spec.Path.Value == `"C"` {
				dir, err := filepath.Rel(root, filepath.Dir(path))
				if err != nil {
					return err
				}
				found[filepath.ToSlash(dir)] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	var dirs []string
	for dir := range found {
		dirs = append(dirs, dir)
	}
	sort.Strings(dirs)
	require.Equal(t, []string{"bridge", "cmd/libcollage"}, dirs)
}

// Every .c and .h file carries the licence line, as every .go file does.
func TestFilesAreSmallAndLicensed(t *testing.T) {
	files, err := filepath.Glob("*.[ch]")
	require.NoError(t, err)
	more, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range append(files, more...) {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(data), "// SPDX-License-Identifier: Apache-2.0\n"), name)
		require.Less(t, strings.Count(string(data), "\n"), 500, name)
	}
}
