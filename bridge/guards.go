// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
)

// instanceFunction is the global function by which a loaded copy of Collage is known to others.
const instanceFunction = "collage.bridge.Instance"

// ClaimProcess makes this copy of the library, described by name (its path), the process's only one. Another
// copy in the same process, with a Go runtime of its own, would answer the same names; its ClaimProcess fails.
func ClaimProcess(name string) error {
	if fn, ok := LookupGlobalFunction(instanceFunction); ok {
		defer fn.Release()
		where := "another place"
		if v, err := fn.Invoke(); err == nil {
			if s, err := v.Str(); err == nil {
				where = s
			}
		}
		return fmt.Errorf("RuntimeError: Collage is already loaded in this process, from %s; a second copy (%s) cannot "+
			"work beside it", where, name)
	}
	return RegisterFunction(instanceFunction, false, func([]Value) (any, error) { return name, nil })
}

// StopFinalizers makes the bridge leak on purpose from now on: nothing is given back to TVM or to Python any
// more. It is for the process's exit, when the interpreter may be gone before Go's collector runs a last
// time: dropping a Python closure would crash. What is being given back is waited for (5 s at most), so the caller
// must not hold the GIL. Calls still work.
func StopFinalizers() { C.collage_stop() }

// Forked says whether this process was made by fork after the library was loaded. Go code does not run
// reliably in such a process; the C entry points refuse before they reach Go.
func Forked() bool { return C.collage_forked() != 0 }

// OnThread runs f on one operating-system thread. PassContext and Target are thread-local in TVM: a goroutine
// that enters one, or reads the one that its caller entered, must not move between threads. Inside a callback
// from TVM that is so already.
func OnThread(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}

//go:noinline
func keepAlive(v any) { runtime.KeepAlive(v) }
