// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Change says what a rewrite did to a store.
type Change struct {
	// Before and After are the numbers of costs that count; Superseded records were replaced by later ones and are
	// gone.
	Before     int `json:"before"`
	After      int `json:"after"`
	Superseded int `json:"superseded"`
	// Broken parts of the file could not be read. They were moved to BrokenTo; where that is "", they stay where they
	// were.
	Broken   int    `json:"broken"`
	BrokenTo string `json:"broken_to,omitempty"`
	// BytesBefore and BytesAfter are the sizes of the file.
	BytesBefore int64 `json:"bytes_before"`
	BytesAfter  int64 `json:"bytes_after"`
}

// Prune removes from a store's file the costs that remove wants gone, and the records that later ones have replaced. It
// holds the file's lock: processes that write to the store at the same time wait, and go on with the new file. dry only
// says what would be done.
func Prune(path string, remove func(Entry) bool, dry bool) (*Change, error) {
	return rewrite(path, func(e Entry) bool { return !remove(e) }, false, dry)
}

// Repair takes what cannot be read out of a store's file, into a file beside it, and gives a torn last line its end.
func Repair(path string) (*Change, error) { return rewrite(path, nil, true, false) }

func rewrite(path string, keep func(Entry) bool, repair, dry bool) (*Change, error) {
	if dry {
		f, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		var text, broken bytes.Buffer
		if err := f.write(&text, keep, &broken); err != nil {
			return nil, err
		}
		return f.change(text.Bytes()), nil
	}
	s, err := openLocked(path, false)
	if err != nil {
		return nil, err
	}
	defer s.release()
	f, err := s.readLocked()
	if err != nil {
		return nil, err
	}
	var text, broken bytes.Buffer
	if repair {
		err = f.write(&text, keep, &broken)
	} else {
		err = f.write(&text, keep, nil)
	}
	if err != nil {
		return nil, err
	}
	change := f.change(text.Bytes())
	if broken.Len() > 0 {
		change.BrokenTo = s.path + ".broken"
		if err := appendTo(change.BrokenTo, broken.Bytes()); err != nil {
			return nil, err
		}
	}
	return change, s.replace(text.Bytes())
}

func (f *File) change(after []byte) *Change {
	c := &Change{Before: len(f.last), Superseded: f.Superseded, Broken: len(f.Problems), BytesBefore: f.Bytes,
		BytesAfter: int64(len(after))}
	c.After = len(scanFile("", after).last)
	return c
}

// Merge puts the costs of several stores into one file. Of several records with one key the one that was taken last
// stays. The output may be one of the inputs; if it exists, what it holds is kept too. Parts of the inputs that cannot
// be read are left out, and counted.
func Merge(output string, inputs []string) (change *Change, err error) {
	_, missing := os.Stat(output)
	s, err := openLocked(output, true)
	if err != nil {
		return nil, err
	}
	defer s.release()
	defer func() {
		if err != nil && missing != nil {
			os.Remove(s.path) // nobody has written to it: it is locked
		}
	}()
	mine, err := s.readLocked()
	if err != nil {
		return nil, err
	}
	all := &File{Path: output, last: map[Key]int{}}
	newer := map[string]bool{}
	take := func(f *File) {
		for _, p := range f.parts {
			switch {
			case p.newer && newer[string(p.raw)]:
				continue
			case p.newer:
				newer[string(p.raw)] = true
			case p.err != nil:
				all.Problems = append(all.Problems, Problem{Err: p.err})
				if f != mine {
					continue
				}
			}
			all.add(p)
		}
		all.Bytes += f.Bytes
	}
	take(mine)
	for _, path := range inputs {
		if same, err := s.isFile(path); err != nil {
			return nil, err
		} else if same {
			continue
		}
		f, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		take(f)
	}
	var text bytes.Buffer
	if err := all.write(&text, nil, nil); err != nil {
		return nil, err
	}
	change = all.change(text.Bytes())
	change.Before = len(mine.last)
	return change, s.replace(text.Bytes())
}

// openLocked opens a store's file, which must be there unless create, and takes its lock. The caller calls release.
func openLocked(path string, create bool) (*Store, error) {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved // the file is replaced, not the link to it
	} else if !create || !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cost: opening the cost store: %w", err)
	}
	s := NewMemoryStore()
	s.path = path
	if err := s.reopen(); err != nil {
		return nil, err
	}
	if err := s.lock(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) release() {
	s.unlock()
	s.file.Close()
}

func (s *Store) readLocked() (*File, error) {
	info, err := s.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("cost: reading the cost store %s: %w", s.path, err)
	}
	content, err := io.ReadAll(io.NewSectionReader(s.file, 0, info.Size()))
	if err != nil {
		return nil, fmt.Errorf("cost: reading the cost store %s: %w", s.path, err)
	}
	if err := s.checkIsStore(content); err != nil {
		return nil, err
	}
	return scanFile(s.path, content), nil
}

func (s *Store) isFile(path string) (bool, error) {
	here, err := s.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("cost: reading the cost store: %w", err)
	}
	return os.SameFile(here, there), nil
}

// replace puts a new file in the place of the locked one. Whoever waits for the lock sees that and opens the new one.
func (s *Store) replace(content []byte) (err error) {
	info, err := s.file.Stat()
	if err != nil {
		return s.writeError(err)
	}
	file, err := os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+".partial-*")
	if err != nil {
		return s.writeError(err)
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
			err = s.writeError(err)
		}
	}()
	w := bufio.NewWriter(file)
	if _, err = w.Write(content); err != nil {
		return err
	}
	if err = w.Flush(); err != nil {
		return err
	}
	if err = file.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	if err = file.Sync(); err != nil {
		return err
	}
	if err = file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), s.path)
}

func appendTo(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("cost: keeping what cannot be read: %w", err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("cost: keeping what cannot be read in %s: %w", path, err)
	}
	return nil
}
