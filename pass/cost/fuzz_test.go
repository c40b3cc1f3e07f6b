// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// futureLine is a line of a later version, which this program keeps and does not use.
const futureLine = `{"collage_cost":99,"key":"of the future"}` + "\n"

// seedStores are files as they are found: whole, torn, joined, with records of a later version, and with noise.
func seedStores(t testing.TB) [][]byte {
	var lines [][]byte
	failed := FromFailure(Failure{Phase: "run", Kind: KindTimeout, Detail: "no answer within 60 s"}, testCost(0).Taken)
	for i, c := range []Cost{testCost(1), testCost(2), failed, testCost(4)} {
		line, err := encodeRecord(testKey(i), c)
		require.NoError(t, err)
		lines = append(lines, line)
	}
	later := testCost(7)
	later.Taken = later.Taken.Add(time.Hour)
	again, err := encodeRecord(testKey(0), later)
	require.NoError(t, err)
	whole := bytes.Join(lines, nil)
	torn := lines[1][:len(lines[1])/2]
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	future := []byte(futureLine)
	return [][]byte{nil, whole, join(whole, again), join(again, whole), join(whole, torn), join(torn, whole),
		join(lines[0], torn, lines[2], lines[3][:len(lines[3])-1]), join(lines[0], future, lines[1]),
		join(lines[0], future[:len(future)-1]),
		join(lines[0][:len(lines[0])-1], lines[1]), join(lines[0], []byte("noise\n\n"), lines[1], torn),
		join(torn, future)}
}

// FuzzScanLine takes lines apart: no byte of one is lost but blanks, and what is read is what was written.
func FuzzScanLine(f *testing.F) {
	for _, content := range seedStores(f) {
		line, _, _ := bytes.Cut(content, []byte("\n"))
		f.Add(line)
	}
	long := testCost(1)
	long.Samples = []float64{7.000000000000001e+22, math.MaxFloat64}
	line, err := encodeRecord(testKey(1), long)
	require.NoError(f, err)
	f.Add(bytes.TrimSpace(line))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		var parts []byte
		scanLine(line, func(r record, raw []byte) {
			parts = append(parts, raw...)
			require.NoError(t, r.Cost.Validate())
			if r.Cost.Taken.Year() > 9999 || r.Cost.Taken.Year() < 0 {
				return
			}
			text, err := encodeRecord(r.Key, r.Cost)
			require.NoError(t, err)
			again, err := decodeRecord(bytes.TrimSpace(text))
			require.NoError(t, err)
			require.Equal(t, r.Key, again.Key)
			require.True(t, r.Cost.Taken.Equal(again.Cost.Taken))
			require.InDeltaSlice(t, r.Cost.Samples, again.Cost.Samples, 1e-6)
		}, func(part []byte, err error) {
			require.Error(t, err)
			parts = append(parts, part...)
		})
		require.True(t, bytes.HasPrefix(line, parts))
		require.Empty(t, bytes.TrimSpace(line[len(parts):]))
	})
}

// goods are what must never be lost from a file: each line that by itself is a record, by its key the last one taken,
// and each line of a later version.
type goods struct {
	taken map[Key]time.Time
	newer map[string]bool
}

func goodsOf(content []byte) goods {
	g := goods{taken: map[Key]time.Time{}, newer: map[string]bool{}}
	for line := range bytes.SplitSeq(content, []byte("\n")) {
		r, err := decodeRecord(line)
		switch {
		case errors.Is(err, errNewer):
			g.newer[string(bytes.TrimSpace(line))] = true
		case err == nil && !g.taken[r.Key].After(r.Taken):
			g.taken[r.Key] = r.Taken
		}
	}
	return g
}

// requireKept says that all that is good in before is in the file, too.
func requireKept(t *testing.T, before goods, path, after string) {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	now := goodsOf(content)
	for key, taken := range before.taken {
		kept, ok := now.taken[key]
		require.True(t, ok, "%s lost %v", after, key)
		require.False(t, kept.Before(taken), "%s has an older cost of %v", after, key)
	}
	for line := range before.newer {
		require.True(t, now.newer[line], "%s lost %s", after, line)
	}
}

// FuzzStoreFile opens, writes to, repairs, prunes and merges files with any content: nothing good is lost, and what is
// no store is not touched.
func FuzzStoreFile(f *testing.F) {
	for _, content := range seedStores(f) {
		f.Add(content)
	}
	other, err := encodeRecord(testKey(50), testCost(5))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, content []byte) {
		folder := t.TempDir()
		file := func(name string) string {
			path := filepath.Join(folder, name)
			require.NoError(t, os.WriteFile(path, content, 0o644))
			return path
		}
		before := goodsOf(content)

		path := file("open")
		s, err := OpenStore(path)
		read, readErr := ReadFile(path)
		require.Equal(t, err == nil, readErr == nil, "%v %v", err, readErr)
		if err != nil {
			for _, change := range []func() error{
				func() error { _, err := Repair(path); return err },
				func() error { _, err := Prune(path, func(Entry) bool { return true }, false); return err },
				func() error { _, err := Merge(path, nil); return err },
			} {
				require.Error(t, change())
			}
			same, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, same), "another's file was touched")
			return
		}
		for key := range read.last {
			_, ok := before.taken[key]
			require.True(t, ok || len(read.Problems) > 0 || bytes.Count(content, []byte(recordStart)) > read.Lines,
				"%v came from nowhere", key)
		}

		// A store that is written to.
		err = s.Put(testKey(50), testCost(5))
		require.NoError(t, s.file.Close())
		requireKept(t, before, path, "Put")
		if err == nil {
			again, err := OpenStore(path)
			require.NoError(t, err)
			_, found := again.Lookup(testKey(50))
			require.True(t, found)
			require.NoError(t, again.file.Close())
		} else {
			same, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, same), "a store that refuses to write changed")
		}

		path = file("repaired")
		change, err := Repair(path)
		require.NoError(t, err)
		requireKept(t, before, path, "Repair")
		clean, err := ReadFile(path)
		require.NoError(t, err)
		require.Empty(t, clean.Problems)
		require.False(t, clean.Torn)
		require.Equal(t, change.Before, change.After)
		require.Equal(t, read.Entries(), clean.Entries())
		require.Equal(t, read.Newer, clean.Newer)
		require.Equal(t, len(read.Problems) > 0, change.BrokenTo != "")

		path = file("pruned")
		_, err = Prune(path, func(Entry) bool { return false }, false)
		require.NoError(t, err)
		requireKept(t, before, path, "Prune")
		pruned, err := ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, read.Entries(), pruned.Entries())
		// Without costs it is a store all the same, and what is of others is still there.
		_, err = Prune(path, func(Entry) bool { return true }, false)
		require.NoError(t, err)
		requireKept(t, goods{newer: before.newer}, path, "Prune of all")
		pruned, err = ReadFile(path)
		require.NoError(t, err)
		require.Empty(t, pruned.Entries())
		require.Equal(t, len(read.Problems), len(pruned.Problems))

		path, second := file("merged"), filepath.Join(folder, "second")
		require.NoError(t, os.WriteFile(second, other, 0o644))
		_, err = Merge(path, []string{second})
		require.NoError(t, err)
		requireKept(t, before, path, "Merge")
		requireKept(t, goodsOf(other), path, "Merge")
		fresh := filepath.Join(folder, "fresh")
		_, err = Merge(fresh, []string{second, file("input")})
		require.NoError(t, err)
		requireKept(t, before, fresh, "Merge")
	})
}
