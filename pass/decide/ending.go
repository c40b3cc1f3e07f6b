// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"sync"
)

// Ending lets somebody end a search early: what was found so far is then written. The zero Ending is ready for use; nil
// never ends anything.
type Ending struct {
	mu sync.Mutex
	// kept says that there is something to be written.
	kept, wanted bool
	cancels      []context.CancelFunc
}

// End ends the search, if there is something that can be written; else it says so with false, and does nothing. A
// second call does nothing and says false.
func (e *Ending) End() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.kept || e.wanted {
		return false
	}
	e.wanted = true
	for _, cancel := range e.cancels {
		cancel()
	}
	return true
}

// ready says whether there is something to be written.
func (e *Ending) ready(kept bool) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = kept
}

// asked says that the search is to end.
func (e *Ending) asked() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wanted
}

// context is one that ends when the search is to end.
func (e *Ending) context(of context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(of)
	if e == nil {
		return ctx, cancel
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wanted {
		cancel()
	}
	e.cancels = append(e.cancels, cancel)
	return ctx, cancel
}
