// SPDX-License-Identifier: Apache-2.0

// Package arrow holds the direction in which packages import each other: docs/architecture.md lists them, and nobody
// imports what stands behind it there.
package arrow

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/collage-tvm/collage/"

// rooms are the folders at the top, in the order of the arrow.
var rooms = []string{"bridge", "relay", "byoc", "pass", "cmd"}

// imports gives for each package of the module, by its folder, those packages of the module that it imports; what tests
// import does not count.
func imports(t *testing.T, root string) map[string][]string {
	t.Helper()
	of := map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		name := ""
		if entry != nil {
			name = entry.Name()
		}
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root &&
			(strings.HasPrefix(name, ".") || name == "testdata" || name == "build" || name == "dist"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if of[folder] == nil {
			of[folder] = []string{}
		}
		for _, spec := range parsed.Imports {
			full, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if own, is := strings.CutPrefix(full, module); is && !slices.Contains(of[folder], own) {
				of[folder] = append(of[folder], own)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return of
}

// listed are the packages of pass/ in the order in which the document lists them, one a line.
func listed(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	var order []string
	for _, block := range strings.Split(string(text), "```")[1:] {
		if !strings.HasPrefix(block, "text\npass/border") {
			continue
		}
		for _, line := range strings.Split(block, "\n")[1:] {
			if words := strings.Fields(line); len(words) > 0 {
				order = append(order, words[0])
			}
		}
	}
	return order
}

// against gives the imports that go against the arrow, as "a imports b".
func against(of map[string][]string, order []string) []string {
	var wrong []string
	room := func(folder string) int { return slices.Index(rooms, strings.Split(folder, "/")[0]) }
	for folder, imported := range of {
		for _, other := range imported {
			bad := false
			switch {
			case room(folder) >= 0 && room(other) >= 0:
				bad = room(other) > room(folder)
				if strings.HasPrefix(folder+"/", "pass/") && strings.HasPrefix(other+"/", "pass/") {
					at := slices.Index(order, other)
					bad = at < 0 || at >= slices.Index(order, folder)
				}
			case strings.HasPrefix(folder, "internal/"):
				bad = !strings.HasPrefix(other, "internal/") && other != "bridge" // TVM's modules for tests
			case room(folder) >= 0:
				bad = !strings.HasPrefix(other, "internal/") && path.Base(other) != "collage"
			}
			if bad {
				wrong = append(wrong, folder+" imports "+other)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestNobodyImportsAgainstTheArrow(t *testing.T) {
	root := filepath.Join("..", "..")
	of, order := imports(t, root), listed(t, filepath.Join(root, "docs", "architecture.md"))
	var packages []string
	for folder := range of {
		if strings.HasPrefix(folder+"/", "pass/") {
			packages = append(packages, folder)
		}
	}
	require.ElementsMatch(t, packages, order, "docs/architecture.md lists every package of pass/, once")
	require.Empty(t, against(of, order))
}

// What the test above would find.
func TestImportsAgainstTheArrowAreFound(t *testing.T) {
	order := []string{"pass/place", "pass/measure", "pass/graphlevel/feedback", "pass"}
	require.Equal(t, []string{"byoc/dnnl imports pass/place", "internal/rounds imports relay",
		"pass/measure imports pass/graphlevel/feedback", "pass/place imports pass/unlisted"},
		against(map[string][]string{
			"pass/measure": {"pass/graphlevel/feedback", "pass/place", "relay", "internal/rounds"}, "byoc/dnnl": {"pass/place", "byoc"},
			"pass": {"pass/measure", "bridge"}, "internal/rounds": {"relay"}, "pass/place": {"pass/unlisted"},
			"cmd/collage": {"pass", "python/collage"}, "scripts/x": {"pass/place"},
		}, order))
}
