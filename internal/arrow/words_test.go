// SPDX-License-Identifier: Apache-2.0

package arrow

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// homes are the packages of pass/ that may declare a type of that name, whatever its case: docs/architecture.md says
// what the word means. Plans and reports keep records of the same things.
var homes = map[string][]string{
	"search":    {"graphlevel"},
	"placement": {"genome"},
	"region":    {"annotate", "plan", "report", "page"},
	"border":    {"plan", "feedback"},
}

func TestWordsHaveOneMeaning(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", "..", "pass"), func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range parsed.Decls {
			group, is := declared.(*ast.GenDecl)
			if !is || group.Tok != token.TYPE {
				continue
			}
			for _, spec := range group.Specs {
				name := spec.(*ast.TypeSpec).Name.Name
				allowed, word := homes[strings.ToLower(name)]
				at := filepath.Base(filepath.Dir(file))
				assert.True(t, !word || slices.Contains(allowed, at), "%s declares a type %s; it is a word of %v", file, name,
					allowed)
				seen[strings.ToLower(name)] = seen[strings.ToLower(name)] || word
			}
		}
		return nil
	})
	require.NoError(t, err)
	for word := range homes {
		assert.True(t, seen[word], "nobody declares %s any more", word)
	}
}
