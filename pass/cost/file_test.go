// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func writeStore(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, content, 0o640))
	return path
}

func TestReadFileChangesNothing(t *testing.T) {
	t.Parallel()
	content := storeBytes(t, 3)
	torn := append(append([]byte{}, content...), content[:40]...)
	path := writeStore(t, "costs.jsonl", torn)
	f, err := ReadFile(path)
	require.NoError(t, err)
	assert.Len(t, f.Entries(), 3)
	assert.Equal(t, 3, f.Records)
	assert.Equal(t, 4, f.Lines)
	assert.True(t, f.Torn)
	assert.False(t, f.Whole)
	require.Len(t, f.Problems, 1)
	assert.ErrorContains(t, f.Problems[0].Err, "torn")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, torn, after)

	// A whole record whose writer was killed before the line break.
	f, err = ReadFile(writeStore(t, "whole.jsonl", content[:len(content)-1]))
	require.NoError(t, err)
	assert.True(t, f.Torn)
	assert.True(t, f.Whole)
	assert.Empty(t, f.Problems)
	assert.Len(t, f.Entries(), 3)

	missing := filepath.Join(t.TempDir(), "none.jsonl")
	_, err = ReadFile(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NoFileExists(t, missing)
	_, err = ReadFile(writeStore(t, "other", []byte("hello\n")))
	require.ErrorContains(t, err, "not a cost store")
}

func TestRepairLosesNothingThatCanBeRead(t *testing.T) {
	t.Parallel()
	content := storeBytes(t, 4)
	newer := `{"collage_cost":99,"key":"of the future"}` + "\n"
	line := len(content) / 4
	// A torn record that the next one was glued to, a whole record of a later version, noise, and a torn last line.
	broken := string(content[:line]) + string(content[line:line+30]) + string(content[line:2*line]) + newer +
		"noise\n" +
		string(content[2*line:]) + string(content[:25])
	path := writeStore(t, "costs.jsonl", []byte(broken))
	change, err := Repair(path)
	require.NoError(t, err)
	assert.Equal(t, 4, change.Before)
	assert.Equal(t, 4, change.After)
	assert.Equal(t, 3, change.Broken)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(content[:2*line])+newer+string(content[2*line:]), string(after))
	kept, err := os.ReadFile(change.BrokenTo)
	require.NoError(t, err)
	assert.Equal(t, string(content[line:line+30])+"\nnoise\n"+string(content[:25])+"\n", string(kept))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())

	f, err := ReadFile(path)
	require.NoError(t, err)
	assert.Empty(t, f.Problems)
	again, err := Repair(path)
	require.NoError(t, err)
	assert.Zero(t, again.Broken)
	assert.Empty(t, again.BrokenTo)
}

func TestPruneKeepsTheRestByteForByte(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	s := openStore(t, path)
	old, recent := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(i int, taken time.Time) Cost {
		c := testCost(i)
		c.Taken = taken
		return c
	}
	require.NoError(t, s.Put(testKey(1), at(1, old)))
	require.NoError(t, s.Put(testKey(2), at(2, old)))
	require.NoError(t, s.Put(testKey(2), at(3, recent))) // replaces the one before
	require.NoError(t, s.Put(testKey(3), FromFailure(Failure{Phase: "run", Kind: KindCrash, Detail: "9"}, old)))

	entries := s.Entries()
	before := Filter{Before: recent}.Of(entries)
	dry, err := Prune(path, before, true)
	require.NoError(t, err)
	assert.Equal(t, &Change{Before: 3, After: 1, Superseded: 1, BytesBefore: dry.BytesBefore,
		BytesAfter: dry.BytesAfter}, dry)
	change, err := Prune(path, Filter{Expired: true}.Of(entries), false)
	require.NoError(t, err)
	assert.Equal(t, 2, change.After)

	// The store that was open all the time goes on with the new file.
	require.NoError(t, s.Put(testKey(4), at(4, recent)))
	require.NoError(t, s.Close())
	f, err := ReadFile(path)
	require.NoError(t, err)
	assert.Len(t, f.Entries(), 3)
	assert.Zero(t, f.Superseded)

	change, err = Prune(path, before, false)
	require.NoError(t, err)
	assert.Equal(t, 2, change.After)
	_, err = Prune(filepath.Join(t.TempDir(), "none"), before, false)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestPruneWhileOthersWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	s := openStore(t, path)
	require.NoError(t, s.Put(testKey(0), testCost(0)))
	var group sync.WaitGroup
	for w := range 3 {
		group.Go(func() {
			mine, err := OpenStore(path)
			if !assert.NoError(t, err) {
				return
			}
			defer mine.Close()
			for i := range 40 {
				assert.NoError(t, mine.Put(testKey(100*(w+1)+i), testCost(i)))
			}
		})
	}
	for range 10 {
		_, err := Prune(path, func(Entry) bool { return false }, false)
		require.NoError(t, err)
	}
	group.Wait()
	f, err := ReadFile(path)
	require.NoError(t, err)
	assert.Empty(t, f.Problems)
	assert.Len(t, f.Entries(), 121)
}

func TestMerge(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	name := func(s string) string { return filepath.Join(folder, s) }
	for k, file := range []string{"a", "b"} {
		s := openStore(t, name(file))
		for i := range 3 {
			c := testCost(10 * k)
			c.Taken = c.Taken.Add(time.Duration(k) * time.Hour)
			require.NoError(t, s.Put(testKey(i+2*k), c)) // key 2 is in both
		}
		require.NoError(t, s.Close())
	}
	a, err := os.ReadFile(name("a"))
	require.NoError(t, err)
	change, err := Merge(name("c"), []string{name("a"), name("b")})
	require.NoError(t, err)
	assert.Equal(t, 5, change.After)
	assert.Equal(t, 1, change.Superseded)
	f, err := ReadFile(name("c"))
	require.NoError(t, err)
	assert.Equal(t, 10.0, f.Entries()[2].Cost.Samples[0], "the later one counts")

	// Whichever comes first, and with the output among the inputs.
	for i, inputs := range [][]string{{"b", "a"}, {"c", "a", "b"}} {
		var paths []string
		for _, in := range inputs {
			paths = append(paths, name(in))
		}
		change, err = Merge(name([]string{"d", "c"}[i]), paths)
		require.NoError(t, err)
		assert.Equal(t, 5, change.After, inputs)
	}
	_, err = Merge(name("e"), []string{name("a"), name("none")})
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NoFileExists(t, name("e"))
	same, err := os.ReadFile(name("a"))
	require.NoError(t, err)
	assert.Equal(t, a, same, "inputs stay as they were")
}

func TestFilter(t *testing.T) {
	t.Parallel()
	entry := func(i int, change func(*Entry)) Entry {
		e := Entry{Key: testKey(i), Cost: testCost(i)}
		e.Key.Device = Device()
		e.Cost.Computation = fmt.Sprint("nn.relu ", i)
		if change != nil {
			change(&e)
		}
		return e
	}
	entries := []Entry{
		entry(0, nil),
		entry(1, func(e *Entry) { e.Key.Device = "another" }),
		entry(2, func(e *Entry) { e.Key.Library, e.Cost.Taken = "oneDNN 3", e.Cost.Taken.Add(time.Hour) }),
		entry(3, func(e *Entry) { e.Key.Backend, e.Key.Composite = "tvm", "" }),
		entry(4, func(e *Entry) {
			e.Cost = FromFailure(Failure{Phase: "run", Kind: KindCrash}, e.Cost.Taken)
			e.Expires = e.Cost.Taken
		}),
	}
	for want, f := range map[string]Filter{"[0 1 2 3 4]": {}, "[3]": {Backend: "tvm"}, "[2]": {Text: "relu 2"},
		"[1]":   {OtherMachine: true},
		"[0 4]": {OtherVersions: true}, "[4]": {Failures: true}, "[]": {Failures: true, Backend: "tvm"},
		"[0 1 3 4]": {Before: testCost(0).Taken.Add(time.Minute)}} {
		picks, got := f.Of(entries), []int{}
		for i, e := range entries {
			if picks(e) {
				got = append(got, i)
			}
		}
		assert.Equal(t, want, fmt.Sprint(got))
	}
	assert.True(t, Filter{}.IsZero())
}
