// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// recordVersion is the version of the lines that this package writes.
const recordVersion = 1

// recordStart is how every record of every version begins. In JSON a quotation mark inside a string is escaped, so
// these bytes never stand inside a record: they mark where one begins, even where a torn line has swallowed the
// line break before it.
const recordStart = `{"collage_cost":`

// record is one line of the store.
type record struct {
	Version int `json:"collage_cost"`
	Key     Key `json:"key"`
	Cost
	// Expires is when a failure is no longer believed.
	Expires time.Time `json:"expires,omitzero"`
}

// errNewer marks a record of a version that this program does not know. It is kept in the file and not used.
var errNewer = errors.New("written by a newer version of Collage")

// encodeRecord makes the line for a cost, line break included.
func encodeRecord(key Key, c Cost) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := record{Version: recordVersion, Key: key, Cost: c}
	if c.Failure != nil && !c.Taken.IsZero() {
		r.Expires = c.Taken.Add(c.Failure.Lifetime())
	}
	r.Cost.Samples = roundSamples(c.Samples)
	var line bytes.Buffer
	encoder := json.NewEncoder(&line) // ends the line by itself
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(&r); err != nil {
		return nil, fmt.Errorf("cost: encoding a record: %w", err)
	}
	if !bytes.HasPrefix(line.Bytes(), []byte(recordStart)) {
		panic("cost: a record does not begin with " + recordStart)
	}
	return line.Bytes(), nil
}

// wholeNumbers is from where on each float64 is a whole number: rounding gives nothing and may overflow.
const wholeNumbers = 1 << 53

// RoundSample cuts a latency in milliseconds to a tenth of a nanosecond, which is far below what a clock can tell
// apart: the digits that a store keeps. What is too long to hold so small a part (10 days and more) stays as it is.
func RoundSample(ms float64) float64 {
	if tenths := ms * 1e7; tenths < wholeNumbers {
		return math.Round(tenths) / 1e7
	}
	return ms
}

func roundSamples(samples []float64) []float64 {
	rounded := make([]float64, len(samples))
	for i, s := range samples {
		rounded[i] = RoundSample(s)
	}
	return rounded
}

// decodeRecord reads one line without its line break.
func decodeRecord(line []byte) (record, error) {
	var head struct {
		Version int `json:"collage_cost"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return record{}, err
	}
	// Go's JSON takes names in other cases and anywhere in the object, too: a line that begins otherwise would make a
	// file that is no store.
	if head.Version < 1 || !bytes.HasPrefix(bytes.TrimSpace(line), []byte(recordStart)) {
		return record{}, errors.New("not a cost record")
	}
	if head.Version > recordVersion {
		return record{}, errNewer
	}
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return record{}, err
	}
	if r.Key.Structure == "" || r.Key.Backend == "" {
		return record{}, errors.New("the record's key is incomplete")
	}
	return r, r.Cost.Validate()
}

// scanLine gives each record of one line to yield, with its bytes, and what cannot be read to bad. A line holds several
// records only where a torn record was joined with the next one: then what follows the torn part is still read.
func scanLine(line []byte, yield func(r record, raw []byte), bad func(part []byte, err error)) {
	for len(bytes.TrimSpace(line)) > 0 {
		r, err := decodeRecord(line)
		if err == nil {
			yield(r, line)
			return
		}
		next := -1
		if len(line) > 1 {
			next = bytes.Index(line[1:], []byte(recordStart))
		}
		if next < 0 {
			bad(line, err)
			return
		}
		// The part before may itself be whole (two records without a line break between them).
		if r, err := decodeRecord(line[:next+1]); err == nil {
			yield(r, line[:next+1])
		} else {
			bad(line[:next+1], err)
		}
		line = line[next+1:]
	}
}

// couldBeRecord says whether a part of a line without its end can be the beginning of a record.
func couldBeRecord(part []byte) bool {
	start := []byte(recordStart)
	return bytes.HasPrefix(part, start) || bytes.HasPrefix(start, part)
}
