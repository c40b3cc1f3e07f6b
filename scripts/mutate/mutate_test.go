// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is a module of one package, half of which its test looks at.
func module(t *testing.T) string {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n",
		"code.go": `package example

func Larger(a, b int) int {
	if a < b {
		return b
	}
	return a
}

func Untested(a int) int {
	return a + 1
}

func Steps(n int) (steps int) {
	for n > 0 {
		n--
		steps++
	}
	return steps
}
`,
		"code_test.go": `package example

import "testing"

func TestLarger(t *testing.T) {
	if Larger(1, 2) != 2 || Larger(3, 2) != 3 {
		t.Fatal()
	}
}

func TestSteps(t *testing.T) {
	if Steps(3) != 3 {
		t.Fatal()
	}
}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	return folder
}

func TestFindsMutantsInTheOrderOfTheCode(t *testing.T) {
	folder := module(t)
	found, err := find(filepath.Join(folder, "code.go"), "code.go")
	require.NoError(t, err)
	var changes []string
	for _, m := range found {
		changes = append(changes, fmt.Sprintf("%d: %s", m.Line, m.Change))
	}
	require.Equal(t, []string{"4: negate a < b", "4: < -> <=", "11: + -> -", "11: 1 -> 2", "11: 1 -> 0",
		"15: never loop", "15: > -> >=",
		"15: 0 -> 1", "15: 0 -> -1", "16: remove n--", "16: -- -> ++", "17: remove steps++", "17: ++ -> --"}, changes)

	// The sample is the same one when lines move, and another one for another seed.
	content, err := os.ReadFile(filepath.Join(folder, "code.go"))
	require.NoError(t, err)
	moved := filepath.Join(folder, "moved.go")
	require.NoError(t, os.WriteFile(moved, []byte(strings.Replace(string(content), "\nfunc", "\n// More.\nfunc", 1)),
		0o644))
	again, err := find(moved, "code.go")
	require.NoError(t, err)
	names := func(list []*Mutant) (names []string) {
		for _, m := range list {
			names = append(names, m.id())
		}
		return names
	}
	first := names(sample(found, "1", 5))
	require.Len(t, first, 5)
	require.Equal(t, first, names(sample(again, "1", 5)))
	found, err = find(filepath.Join(folder, "code.go"), "code.go")
	require.NoError(t, err)
	require.NotEqual(t, first, names(sample(found, "2", 5)))
}

func TestSaysWhatTheTestsNotice(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program for each mutant: not under -short")
	}
	folder := module(t)
	t.Chdir(folder)
	before, err := os.ReadFile("code.go")
	require.NoError(t, err)
	list := filepath.Join(folder, "equivalent.txt")
	require.NoError(t, os.WriteFile(list, []byte(
		"# why\ncode.go :: if a < b { :: < -> <= :: both are returned where they are equal\n"), 0o644))
	s := settings{seed: "1", workers: 2, equivalent: list, json: "result.json", patience: 1}
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), s, []string{"."}, &out))
	text, err := os.ReadFile("result.json")
	require.NoError(t, err)
	var result Result
	require.NoError(t, json.Unmarshal(text, &result))
	outcomes := map[string]Outcome{}
	for _, m := range result.Packages[0].Mutants {
		outcomes[fmt.Sprintf("%d: %s", m.Line, m.Change)] = m.Outcome
	}
	require.Equal(t, Killed, outcomes["4: negate a < b"])
	require.Equal(t, Equivalent, outcomes["4: < -> <="])
	require.Equal(t, Uncovered, outcomes["11: + -> -"])
	require.Equal(t, TimedOut, outcomes["16: remove n--"])
	require.Equal(t, Killed, outcomes["15: never loop"])
	require.Contains(t, out.String(), "uncovered: code.go:11:11: + -> -")
	require.InDelta(t, 75, result.Packages[0].Score, 0.1, "nine of twelve")
	after, err := os.ReadFile("code.go")
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "the tree is only read")

	// What was noticed is taken over; an entry that fits nothing is an error.
	s.again = "result.json"
	require.NoError(t, run(context.Background(), s, []string{"."}, &out))
	require.NoError(t, os.WriteFile(list, []byte("code.go :: if a > b { :: < -> <= :: gone\n"), 0o644))
	require.ErrorContains(t, run(context.Background(), s, []string{"."}, &out), "no mutant any more")
}
