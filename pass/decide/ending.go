// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/bridge"
)

// The packed functions of the Python host (python/collage/interrupts.py) that give Ctrl-C to an Ending and take it
// away.
const (
	watchFunction   = "collage.interrupts.watch"
	unwatchFunction = "collage.interrupts.unwatch"
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

// Watch has Ctrl-C end the search where Python called and would raise KeyboardInterrupt, until release is called; a
// second one raises it. Where no Python is in the process, outside of its main thread, and where the program has a
// handler of its own, it does nothing.
func (e *Ending) Watch() (release func(), err error) {
	nothing := func() {}
	watch, there := bridge.LookupGlobalFunction(watchFunction)
	if !there {
		return nothing, nil
	}
	defer watch.Release()
	v, err := watch.Invoke(func([]bridge.Value) (any, error) { return e.End(), nil })
	if err != nil {
		return nothing, fmt.Errorf("having Ctrl-C end the search: %w", err)
	}
	if watching, err := v.Int(); err != nil || watching == 0 {
		return nothing, err
	}
	return func() {
		// It cannot fail in the thread where watching could be begun, but for a KeyboardInterrupt, which is due anyway.
		_, _ = bridge.Global(unwatchFunction)
	}, nil
}
