// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// File is what stands in the file of a store, line by line, for whoever looks after one.
type File struct {
	Path  string
	Bytes int64
	// Lines is the number of lines, Records that of the records on them that this program reads. Newer counts records
	// of later versions of Collage.
	Lines, Records, Newer int
	// Superseded counts the records that a later one with the same key has replaced.
	Superseded int
	// Problems are the parts that are no record.
	Problems []Problem
	// Torn says that the last line has no end: its writer was killed, or is at work. Whole is set where it is a record
	// all the same. A torn last line that is no record is among the Problems.
	Torn, Whole bool

	parts []part
	last  map[Key]int // index of the part that counts for a key
}

// part is a piece of the file: a record, a record of a later version (key is zero, newer is set), or what cannot be
// read (err is set). Empty lines are none.
type part struct {
	raw    []byte
	record record
	newer  bool
	err    error
}

// ReadFile reads a store's file without changing it; one that is written at the same time may be read too. A file that
// is something else than a store is refused.
func ReadFile(path string) (*File, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cost: reading the cost store: %w", err)
	}
	s := &Store{path: path}
	if err := s.checkIsStore(content); err != nil {
		return nil, err
	}
	return scanFile(path, content), nil
}

func scanFile(path string, content []byte) *File {
	f := &File{Path: path, Bytes: int64(len(content)), last: map[Key]int{}}
	for len(content) > 0 {
		line, rest, ended := bytes.Cut(content, []byte("\n"))
		content = rest
		f.Lines++
		f.Torn = !ended
		records := 0
		scanLine(line, func(r record, raw []byte) { records++; f.add(part{raw: raw, record: r}) },
			func(raw []byte, err error) {
				if errors.Is(err, errNewer) {
					f.Newer++
					f.add(part{raw: raw, newer: true})
					return
				}
				if !ended {
					err = fmt.Errorf("the last line is torn: %w", err)
				}
				f.Problems = append(f.Problems, Problem{Line: f.Lines, Err: err})
				f.add(part{raw: raw, err: err})
			})
		f.Whole = !ended && records > 0
	}
	return f
}

func (f *File) add(p part) {
	if p.newer || p.err != nil {
		f.parts = append(f.parts, p)
		return
	}
	f.Records++
	before, ok := f.last[p.record.Key]
	f.parts = append(f.parts, p)
	if ok {
		f.Superseded++
		if f.parts[before].record.Taken.After(p.record.Taken) {
			return
		}
	}
	f.last[p.record.Key] = len(f.parts) - 1
}

// Entries are the costs that count, in the order of their keys' text, expired failures among them.
func (f *File) Entries() []Entry {
	s := NewMemoryStore()
	for _, i := range f.last {
		r := f.parts[i].record
		c := r.Cost
		c.Origin = Stored
		s.entries[r.Key] = Entry{Key: r.Key, Cost: c, Expires: r.Expires}
	}
	return s.Entries()
}

// write writes the records that count and that keep wants, byte for byte as they stood, and with them the records of
// later versions. Parts that cannot be read go to broken; nil keeps them where they are. Where one of them would become
// the beginning of the file, an empty line goes before it: what is written must be taken for a store (checkIsStore).
func (f *File) write(w io.Writer, keep func(Entry) bool, broken io.Writer) error {
	atStart := true
	for i, p := range f.parts {
		to := w
		switch {
		case p.err != nil:
			if broken != nil {
				to = broken
			}
		case p.newer:
		case f.last[p.record.Key] != i:
			continue
		default:
			if keep != nil && !keep(Entry{Key: p.record.Key, Cost: p.record.Cost, Expires: p.record.Expires}) {
				continue
			}
		}
		text := slices.Concat(bytes.TrimSpace(p.raw), []byte("\n"))
		if to == w {
			if atStart && !couldBeRecord(text) {
				text = slices.Concat([]byte("\n"), text)
			}
			atStart = false
		}
		if _, err := to.Write(text); err != nil {
			return err
		}
	}
	return nil
}
