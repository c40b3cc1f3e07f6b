// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Store is the file of costs: JSON lines, one record a line, only ever appended to, so that `cat a b > c` merges two
// stores. Of several records with one key the one that was taken last counts.
//
// Several processes may use one file at once: each record is one write of an O_APPEND descriptor under an exclusive
// flock. A process that is killed can leave at most the beginning of one record at the end of the file; whoever
// writes next removes it. All methods are safe for concurrent use.
type Store struct {
	mu       sync.Mutex
	path     string
	file     *os.File // nil for a store in memory
	offset   int64    // how much of the file has been read; the end of a line
	line     int      // how many lines that were
	entries  map[Key]Entry
	pending  [][]byte // records that could not be written yet
	problems []Problem
	newer    int
	now      func() time.Time
}

// Entry is one key with the cost that counts for it.
type Entry struct {
	Key  Key
	Cost Cost
	// Expires is when a failure is no longer believed; zero for never.
	Expires time.Time
}

// Problem is a part of the file that is not a readable record. It is left as it is.
type Problem struct {
	Line int
	Err  error
}

// DefaultPath is the store that is used where none is named: collage/costs.jsonl in the user's cache folder.
func DefaultPath() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cost: no place for the cost store: %w: name a file (--db FILE, Config.Store)", err)
	}
	return filepath.Join(cache, "collage", "costs.jsonl"), nil
}

// StorePath is the store that is used where a user names this one, and DefaultPath for "". Errors are DefaultPath's.
func StorePath(named string) (string, error) {
	if named == "" {
		return DefaultPath()
	}
	return named, nil
}

// NewMemoryStore is a store without a file: its costs end with it.
func NewMemoryStore() *Store {
	return &Store{entries: map[Key]Entry{}, now: time.Now}
}

// OpenStore opens the store in the given file ("" for DefaultPath), making the file and its folder where they are
// missing, and reads it. Close it after use. A file that is something else than a store is refused and not touched.
func OpenStore(path string) (*Store, error) {
	path, err := StorePath(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cost: making the folder of the cost store: %w", err)
	}
	s := NewMemoryStore()
	s.path = path
	if err := s.reopen(); err != nil {
		return nil, err
	}
	if err := s.readNew(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

// Path is the store's file; "" for a store in memory.
func (s *Store) Path() string { return s.path }

// Len is the number of keys that have a cost, expired failures among them.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Lookup returns what is known under a key. Failures that have expired are not found.
func (s *Store) Lookup(key Key) (Cost, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok || e.expired(s.now()) {
		return Cost{}, false
	}
	e.Cost.Samples = slices.Clone(e.Cost.Samples)
	return e.Cost, true
}

func (e Entry) expired(now time.Time) bool {
	return e.Cost.Failed() && !e.Expires.IsZero() && now.After(e.Expires)
}

// Put keeps a cost in memory and appends it to the file. The error says why the file could not be written; the cost
// is then still in memory, and the next Put, Flush or Close tries again to write it.
func (s *Store) Put(key Key, c Cost) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Taken.IsZero() {
		c.Taken = s.now()
	}
	c.Taken = c.Taken.UTC().Truncate(time.Millisecond)
	line, err := encodeRecord(key, c)
	if err != nil {
		return err
	}
	e := Entry{Key: key, Cost: c}
	e.Cost.Samples = roundSamples(c.Samples)
	if c.Failure != nil {
		e.Expires = c.Taken.Add(c.Failure.Lifetime())
	}
	s.entries[key] = e
	if s.path == "" {
		return nil
	}
	s.pending = append(s.pending, line)
	return s.flush()
}

// Flush writes what earlier Puts could not write.
func (s *Store) Flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}

// Refresh reads what other processes have written since.
func (s *Store) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return s.readNew()
}

// Close writes what is still to be written and closes the file. Lookup goes on to work.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.flush()
	err = errors.Join(err, s.file.Close())
	s.file = nil
	return err
}

// Entries are all keys with their costs, expired failures among them, in the order of the keys' text.
func (s *Store) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return compareKeys(a.Key, b.Key) })
	return entries
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Structure, b.Structure), cmp.Compare(a.Backend, b.Backend),
		cmp.Compare(a.Composite, b.Composite), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Library, b.Library), cmp.Compare(a.TVM, b.TVM), cmp.Compare(a.Threads, b.Threads),
		cmp.Compare(a.Options, b.Options))
}

// Problems are the parts of the file that could not be read; newer is the number of records of later versions of
// Collage, which are no problem but not used.
func (s *Store) Problems() (problems []Problem, newer int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems), s.newer
}

// flush appends the pending records. The caller holds mu.
func (s *Store) flush() error {
	if len(s.pending) == 0 {
		return nil
	}
	if s.file == nil {
		return fmt.Errorf("cost: the cost store %s is closed", s.path)
	}
	if err := s.lock(); err != nil {
		return err
	}
	defer s.unlock()
	if err := s.readNew(); err != nil {
		return err
	}
	if err := s.repairTail(); err != nil {
		return err
	}
	for len(s.pending) > 0 {
		if err := s.append(s.pending[0]); err != nil {
			return err
		}
		s.pending = s.pending[1:]
	}
	return nil
}

// append writes one line at the end of the file, which is locked and ends with a line break (or is empty).
func (s *Store) append(line []byte) error {
	end, err := s.file.Seek(0, io.SeekEnd)
	if err != nil {
		return s.writeError(err)
	}
	n, err := s.file.Write(line)
	if err != nil {
		if n > 0 {
			// A full disk takes a part of the line. Cutting needs no space; should it fail, the next writer repairs.
			_ = s.file.Truncate(end)
		}
		return s.writeError(err)
	}
	if s.offset == end {
		s.offset, s.line = end+int64(n), s.line+1
	}
	return nil
}

func (s *Store) writeError(err error) error {
	advice := ""
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		advice = ": make space or name a store on another disk (--db FILE, Config.Store)"
	}
	return fmt.Errorf("cost: writing the cost store %s: %w%s", s.path, err, advice)
}

// reopen opens the file at the store's path, making it where it is missing.
func (s *Store) reopen() error {
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("cost: opening the cost store: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", s.path)
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("cost: opening the cost store: %w", err)
	}
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.offset, s.line = file, 0, 0
	s.problems, s.newer = nil, 0
	return nil
}

// readNew reads the lines that were appended since the last time. A last line without its end is left for later:
// its writer may be at work. The caller holds mu or is the only user.
func (s *Store) readNew() error {
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("cost: reading the cost store %s: %w", s.path, err)
	}
	if info.Size() < s.offset {
		// Somebody cut the file. What was read stays known; lines are counted anew.
		s.offset, s.line, s.problems, s.newer = 0, 0, nil, 0
	}
	content, err := io.ReadAll(io.NewSectionReader(s.file, s.offset, info.Size()-s.offset))
	if err != nil {
		return fmt.Errorf("cost: reading the cost store %s: %w", s.path, err)
	}
	if s.offset == 0 {
		if err := s.checkIsStore(content); err != nil {
			return err
		}
	}
	for {
		end := bytes.IndexByte(content, '\n')
		if end < 0 {
			return nil
		}
		s.line++
		scanLine(content[:end], func(r record, _ []byte) { s.take(r) }, func(_ []byte, err error) {
			if errors.Is(err, errNewer) {
				s.newer++
			} else {
				s.problems = append(s.problems, Problem{Line: s.line, Err: err})
			}
		})
		content = content[end+1:]
		s.offset += int64(end + 1)
	}
}

// take keeps a record that was read, unless a later one is known.
func (s *Store) take(r record) {
	known, ok := s.entries[r.Key]
	if ok && known.Cost.Taken.After(r.Cost.Taken) {
		return
	}
	if ok && known.Cost.Taken.Equal(r.Cost.Taken) && known.Cost.Origin == Measured {
		return // it is ours, read back
	}
	c := r.Cost
	c.Origin = Stored
	s.entries[r.Key] = Entry{Key: r.Key, Cost: c, Expires: r.Expires}
}

// checkIsStore refuses a file whose first line has nothing of a record: appending to it, or cutting its last line,
// would harm somebody's data.
func (s *Store) checkIsStore(content []byte) error {
	first, _, _ := bytes.Cut(content, []byte("\n"))
	first = bytes.TrimSpace(first)
	if couldBeRecord(first) || bytes.Contains(first, []byte(recordStart)) {
		return nil
	}
	return fmt.Errorf("cost: %s is not a cost store (its first line is not a cost record); name another file", s.path)
}

// repairTail makes the file end with a line break. A last line without one is what a killed process left: a whole
// record gets its line break, a torn one is cut off. The file is locked, so nobody is writing that line now.
func (s *Store) repairTail() error {
	info, err := s.file.Stat()
	if err != nil {
		return s.writeError(err)
	}
	// readNew has just read up to the last line break.
	if info.Size() <= s.offset {
		return nil
	}
	tail := make([]byte, info.Size()-s.offset)
	if _, err := s.file.ReadAt(tail, s.offset); err != nil {
		return s.writeError(err)
	}
	if !couldBeRecord(tail) && !bytes.Contains(tail, []byte(recordStart)) {
		return fmt.Errorf("cost: the last line of the cost store %s is neither a record nor the beginning of one; "+
			"repair the file or name another one", s.path)
	}
	whole := false
	scanLine(tail, func(r record, _ []byte) { whole = true; s.take(r) }, func(_ []byte, err error) {
		whole = whole || errors.Is(err, errNewer) // which is kept, too
	})
	if !whole {
		if err := s.file.Truncate(s.offset); err != nil {
			return s.writeError(err)
		}
		return nil
	}
	if _, err := s.file.Write([]byte("\n")); err != nil {
		return s.writeError(err)
	}
	s.offset, s.line = info.Size()+1, s.line+1
	return nil
}
