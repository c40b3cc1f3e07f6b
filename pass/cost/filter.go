// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"strings"
	"time"
)

// Filter picks costs of a store. Everything that is set must hold.
type Filter struct {
	// Backend is the name of a backend.
	Backend string
	// Text stands in the computation, the composite or the key.
	Text string
	// Failures picks what failed, Expired the failures that are no longer believed.
	Failures, Expired bool
	// Before picks what was taken before that time, where it is set.
	Before time.Time
	// OtherMachine picks what was measured on another device than this machine's.
	OtherMachine bool
	// OtherVersions picks what was measured with another version of TVM or of the backend's library than the one that
	// the newest cost of that backend on that device has.
	OtherVersions bool
}

// IsZero says that the filter picks everything.
func (f Filter) IsZero() bool { return f == Filter{} }

// Of gives the filter for the costs of one store.
func (f Filter) Of(entries []Entry) func(Entry) bool {
	type product struct{ backend, device string }
	newest := map[product]Entry{}
	for _, e := range entries {
		p := product{e.Key.Backend, e.Key.Device}
		if last, ok := newest[p]; !ok || e.Cost.Taken.After(last.Cost.Taken) {
			newest[p] = e
		}
	}
	now := time.Now()
	return func(e Entry) bool {
		last := newest[product{e.Key.Backend, e.Key.Device}].Key
		switch {
		case f.Backend != "" && f.Backend != e.Key.Backend,
			f.Text != "" && !strings.Contains(e.Cost.Computation, f.Text) &&
				!strings.Contains(e.Key.Composite, f.Text) &&
				!strings.HasPrefix(e.Key.Structure, f.Text),
			f.Failures && !e.Cost.Failed(),
			f.Expired && !e.expired(now),
			!f.Before.IsZero() && !e.Cost.Taken.Before(f.Before),
			f.OtherMachine && e.Key.Device == Device(),
			f.OtherVersions && e.Key.TVM == last.TVM && e.Key.Library == last.Library:
			return false
		}
		return true
	}
}

// Expired says that the entry is a failure that is no longer believed.
func (e Entry) Expired() bool { return e.expired(time.Now()) }
