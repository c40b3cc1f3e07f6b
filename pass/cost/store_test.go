// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc/rounding"
)

func testKey(i int) Key {
	return Key{Structure: fmt.Sprintf("%064d", i), Backend: "dnnl", Composite: "dnnl.conv2d_relu",
		Environment: Environment{Target: "llvm", Device: "cpu", Library: "oneDNN 2.6.0", TVM: "0.19.0", Threads: 2}}
}

func testCost(i int) Cost {
	return Cost{Samples: []float64{float64(i), float64(i) + 0.5}, Origin: Measured, MaxError: 1e-6,
		Taken: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func openStore(t *testing.T, path string) *Store {
	t.Helper()
	s, err := OpenStore(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// storeBytes is the content of a store file with n records.
func storeBytes(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	s := openStore(t, path)
	for i := range n {
		require.NoError(t, s.Put(testKey(i), testCost(i)))
	}
	require.NoError(t, s.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

func TestStoreKeepsCosts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "folder", "costs.jsonl")
	s := openStore(t, path)
	_, found := s.Lookup(testKey(1))
	assert.False(t, found)
	require.NoError(t, s.Put(testKey(1), testCost(1)))
	c, found := s.Lookup(testKey(1))
	require.True(t, found)
	assert.Equal(t, Measured, c.Origin)
	require.NoError(t, s.Close())

	again := openStore(t, path)
	c, found = again.Lookup(testKey(1))
	require.True(t, found)
	assert.Equal(t, Stored, c.Origin)
	assert.Equal(t, testCost(1).Samples, c.Samples)
	assert.True(t, testCost(1).Taken.Equal(c.Taken))
	other := testKey(1)
	other.Library = "oneDNN 2.7.0"
	_, found = again.Lookup(other)
	assert.False(t, found, "another version of the library is another key")
}

func TestStoreRefusesWhatIsNoCost(t *testing.T) {
	t.Parallel()
	s := NewMemoryStore()
	assert.Error(t, s.Put(testKey(1), Cost{}))
	assert.Zero(t, s.Len())
}

func TestTheLatestRecordCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	newer := testCost(7)
	newer.Taken = newer.Taken.Add(time.Hour)
	s := openStore(t, a)
	require.NoError(t, s.Put(testKey(1), newer))
	s = openStore(t, b)
	require.NoError(t, s.Put(testKey(1), testCost(3)))
	first, err := os.ReadFile(a)
	require.NoError(t, err)
	second, err := os.ReadFile(b)
	require.NoError(t, err)
	for _, merged := range [][]byte{append(bytes.Clone(first), second...), append(bytes.Clone(second), first...)} {
		path := filepath.Join(dir, "merged")
		require.NoError(t, os.WriteFile(path, merged, 0o644))
		c, found := openStore(t, path).Lookup(testKey(1))
		require.True(t, found)
		assert.Equal(t, newer.Samples, c.Samples)
	}
}

func TestFailuresExpire(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	s := openStore(t, path)
	taken := testCost(0).Taken
	require.NoError(t, s.Put(testKey(1), FromFailure(Failure{Phase: "run", Kind: KindTimeout, Detail: "60s"}, taken)))
	require.NoError(t, s.Put(testKey(2), FromFailure(Failure{Phase: "check", Kind: KindWrongResult}, taken)))
	for _, s := range []*Store{s, openStore(t, path)} {
		s.now = func() time.Time { return taken.Add(6 * 24 * time.Hour) }
		c, found := s.Lookup(testKey(1))
		require.True(t, found)
		assert.Equal(t, "timeout in run: 60s", c.Failure.String())
		s.now = func() time.Time { return taken.Add(8 * 24 * time.Hour) }
		_, found = s.Lookup(testKey(1))
		assert.False(t, found, "a time-out is tried again after a week")
		_, found = s.Lookup(testKey(2))
		assert.True(t, found, "a wrong result is believed for longer")
	}
}

// step goes from byte to byte, under -short in the middle of records from one byte in eleven to the next.
func step(at int, content []byte) int {
	const margin = 24 // what is special stands at the ends of lines
	next := at + 11
	if !testing.Short() || next+margin > len(content) ||
		bytes.IndexByte(content[max(0, at-margin):next+margin], '\n') >= 0 {
		return 1
	}
	return 11
}

// A process that is killed leaves the file at any byte: what was whole stays, what is torn goes, and the next
// record is not lost in the torn one.
func TestTornLastLineAtEveryByte(t *testing.T) {
	t.Parallel()
	content := storeBytes(t, 3)
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	for cut := 0; cut <= len(content); cut += step(cut, content) {
		require.NoError(t, os.WriteFile(path, content[:cut], 0o644))
		whole := bytes.Count(content[:cut], []byte("\n"))
		lastIsWhole := cut > 0 && cut < len(content) && content[cut] == '\n' // only its line break is missing
		s, err := OpenStore(path)
		require.NoError(t, err, "cut at %d", cut)
		require.Equal(t, whole, s.Len(), "cut at %d", cut)
		require.NoError(t, s.Put(testKey(9), testCost(9)), "cut at %d", cut)
		require.NoError(t, s.Close())
		if lastIsWhole {
			whole++
		}
		s, err = OpenStore(path)
		require.NoError(t, err)
		require.Equal(t, whole+1, s.Len(), "cut at %d", cut)
		problems, _ := s.Problems()
		require.Empty(t, problems, "cut at %d", cut)
		_, found := s.Lookup(testKey(9))
		require.True(t, found, "cut at %d", cut)
		require.NoError(t, s.Close())
	}
}

// `cat torn whole`: the first record of the second file stands behind the torn one, in the same line.
func TestTornLineInFrontOfAnotherAtEveryByte(t *testing.T) {
	t.Parallel()
	first, second := storeBytes(t, 1), storeBytes(t, 3)
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	for cut := 0; cut < len(first); cut += step(cut, first) {
		require.NoError(t, os.WriteFile(path, append(bytes.Clone(first[:cut]), second...), 0o644))
		s, err := OpenStore(path)
		require.NoError(t, err, "cut at %d", cut)
		require.Equal(t, 3, s.Len(), "cut at %d", cut)
		require.NoError(t, s.Put(testKey(9), testCost(9)))
		require.Equal(t, 4, s.Len())
		require.NoError(t, s.Close())
	}
}

func TestDamageInTheMiddleIsSkippedAndKept(t *testing.T) {
	t.Parallel()
	content := storeBytes(t, 3)
	lines := bytes.SplitAfter(content, []byte("\n"))
	damaged := append(append(bytes.Clone(lines[0]), "not a record\n\n"...), append(bytes.Clone(lines[1]),
		`{"collage_cost":99,"key":"of the future"}`+"\n"...)...)
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	require.NoError(t, os.WriteFile(path, damaged, 0o644))
	s := openStore(t, path)
	assert.Equal(t, 2, s.Len())
	problems, newer := s.Problems()
	require.Len(t, problems, 1)
	assert.Equal(t, 2, problems[0].Line)
	assert.Equal(t, 1, newer)
	require.NoError(t, s.Put(testKey(9), testCost(9)))
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(after, damaged), "only ever appended to")
}

func TestAnotherFileIsRefusedAndNotTouched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "model.onnx")
	content := []byte("\x08\x07\x12\x04some\nmodel without an end")
	require.NoError(t, os.WriteFile(path, content, 0o644))
	_, err := OpenStore(path)
	require.ErrorContains(t, err, "not a cost store")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, content, after)

	// A store with a foreign last line without its end: no byte of it is cut off.
	content = append(storeBytes(t, 1), "a note of mine"...)
	require.NoError(t, os.WriteFile(path, content, 0o644))
	s := openStore(t, path)
	assert.ErrorContains(t, s.Put(testKey(9), testCost(9)), "neither a record")
	_, found := s.Lookup(testKey(9))
	assert.True(t, found, "in memory all the same")
	after, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, content, after)

	_, err = OpenStore(t.TempDir())
	assert.Error(t, err)
}

func TestStoreFollowsAReplacedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "costs.jsonl")
	s := openStore(t, path)
	require.NoError(t, s.Put(testKey(1), testCost(1)))
	pruned := filepath.Join(dir, "pruned")
	require.NoError(t, os.WriteFile(pruned, storeBytes(t, 3)[:0], 0o644))
	require.NoError(t, os.Rename(pruned, path))
	require.NoError(t, s.Put(testKey(2), testCost(2)))
	assert.Equal(t, 1, openStore(t, path).Len(), "the record stands in the new file")
	require.NoError(t, os.Remove(path))
	require.NoError(t, s.Put(testKey(3), testCost(3)))
	assert.Equal(t, 1, openStore(t, path).Len())
	assert.Equal(t, 3, s.Len())
}

func TestEntriesAreSorted(t *testing.T) {
	t.Parallel()
	s := NewMemoryStore()
	for _, i := range []int{3, 1, 2} {
		require.NoError(t, s.Put(testKey(i), testCost(i)))
	}
	for i, e := range s.Entries() {
		assert.Equal(t, testKey(i+1), e.Key)
	}
}

func TestScalesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	scales := func(scale float64) Cost {
		c := testCost(1)
		c.Scales = &Scales{Inputs: 3, Values: []Scale{{Value: 7,
			Learnt: rounding.Learnt{Steps: rounding.Steps{Scale: scale, Zero: 9}, Gain: 0.1 + 0.2, ChannelGain: 1e-9}}}}
		return c
	}
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	s := openStore(t, path)
	require.ErrorContains(t, s.Put(testKey(1), scales(0)), "value 7: a scale of 0 whose zero is 9 is none")
	require.NoError(t, s.Put(testKey(1), scales(0.25)))
	c, found := openStore(t, path).Lookup(testKey(1))
	require.True(t, found)
	assert.Equal(t, scales(0.25).Scales, c.Scales, "to the last bit")
}
