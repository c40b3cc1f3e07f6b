// SPDX-License-Identifier: Apache-2.0

package tracefile

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/internal/atomicfile"
)

// event is one of the Trace Event Format. Times are in microseconds.
type event struct {
	Name string `json:"name"`
	// Kind is "X" for a span, "i" for a moment, "C" for a value, "M" for what a track is called.
	Kind     string   `json:"ph"`
	At       float64  `json:"ts"`
	Duration *float64 `json:"dur,omitempty"`
	PID      int      `json:"pid"`
	TID      int      `json:"tid"`
	// Scope of a moment is "t": its thread.
	Scope   string  `json:"s,omitempty"`
	Details Details `json:"args,omitempty"`
}

// file is what is written.
type file struct {
	Events []event `json:"traceEvents"`
	// Unit is what viewers show times in.
	Unit string `json:"displayTimeUnit"`
	// About says what made it.
	About Details `json:"otherData,omitempty"`
}

// WriteFile closes the recording and writes it to path, which has it whole or not at all. about says what it is of. The
// nil Recorder writes nothing.
func (r *Recorder) WriteFile(path string, about Details) error {
	if r == nil {
		return nil
	}
	return atomicfile.Write(path, func(w io.Writer) error { return r.Write(w, about) })
}

// Write closes the recording and writes it.
func (r *Recorder) Write(w io.Writer, about Details) error {
	r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.NewEncoder(w).Encode(file{Events: r.events(), Unit: "ms", About: about})
}

// events are the tracks' names, and behind them all else in the order of time, what lasts longer first.
func (r *Recorder) events() []event {
	var names, all []event
	spell := r.speller()
	for i, t := range r.tracks {
		if t.tid == 1 {
			names = append(names, event{Name: "process_name", Kind: "M", PID: t.pid, TID: t.tid,
				Details: Details{"name": t.process}},
				event{Name: "process_sort_index", Kind: "M", PID: t.pid, TID: t.tid, Details: Details{"sort_index": i}})
		}
		names = append(names, event{Name: "thread_name", Kind: "M", PID: t.pid, TID: t.tid,
			Details: Details{"name": t.name}})
		for _, s := range t.closed {
			lasted := r.at(s.to) - r.at(s.from)
			details := s.details
			if s.cut {
				details = maps.Clone(details)
				details["unfinished"] = true
			}
			all = append(all, event{Name: spell.Replace(s.name), Kind: "X", At: r.at(s.from), Duration: &lasted,
				PID: t.pid, TID: t.tid, Details: details})
		}
	}
	for _, m := range r.marks {
		all = append(all, event{Name: spell.Replace(m.name), Kind: "i", Scope: "t", At: r.at(m.at), PID: m.track.pid,
			TID: m.track.tid, Details: m.details})
	}
	for _, v := range r.values {
		all = append(all, event{Name: v.name, Kind: "C", At: r.at(v.at), PID: r.command.pid, TID: r.command.tid,
			Details: Details{"value": v.number}})
	}
	slices.SortStableFunc(all, func(a, b event) int {
		if order := cmp.Compare(a.At, b.At); order != 0 {
			return order
		}
		return cmp.Compare(lasts(b), lasts(a))
	})
	return append(names, all...)
}

func lasts(e event) float64 {
	if e.Duration == nil {
		return 0
	}
	return *e.Duration
}

// speller puts names in the place of keys.
func (r *Recorder) speller() *strings.Replacer {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(r.called)) {
		pairs = append(pairs, key, r.called[key])
	}
	return strings.NewReplacer(pairs...)
}

// at is in microseconds since the command began, as far as a nanosecond.
func (r *Recorder) at(t time.Time) float64 {
	return float64(max(0, t.Sub(r.began)).Nanoseconds()) / 1e3
}
