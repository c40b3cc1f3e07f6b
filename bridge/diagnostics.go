// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"runtime"
	"time"
)

// RegisterDiagnostics registers what tests and bug reports ask of the bridge from the other side:
//
//	collage.bridge.LiveHandles() -> Map   LiveHandles, by kind, and "total"
//	collage.bridge.Collect()              runs Go's collector until the counts stand still
//	collage.bridge.Call(f, args...)       calls f through Go and gives its result or its error
//	collage.bridge.Wait(seconds)          waits, and looks for Ctrl-C meanwhile, as long work does
func RegisterDiagnostics() error {
	functions := map[string]func([]Value) (any, error){
		"collage.bridge.LiveHandles": func([]Value) (any, error) {
			c := LiveHandles()
			return map[string]any{"objects": c.Objects, "functions": c.Functions, "modules": c.Modules,
				"ndarrays": c.NDArrays, "closures": c.Closures, "py_errors": c.PyErrors, "total": c.Total()}, nil
		},
		"collage.bridge.Collect": func([]Value) (any, error) { Collect(); return nil, nil },
		"collage.bridge.Call": func(args []Value) (any, error) {
			if len(args) == 0 {
				return nil, fmt.Errorf("TypeError: collage.bridge.Call wants a function")
			}
			fn, err := args[0].Function()
			if err != nil {
				return nil, err
			}
			rest := make([]any, len(args)-1)
			for i := range rest {
				rest[i] = args[i+1]
			}
			return fn.Invoke(rest...)
		},
		"collage.bridge.Wait": func(args []Value) (any, error) {
			if len(args) != 1 {
				return nil, fmt.Errorf("TypeError: collage.bridge.Wait wants a number of seconds")
			}
			seconds, err := args[0].Float()
			if err != nil {
				return nil, err
			}
			end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
			for time.Now().Before(end) {
				time.Sleep(SignalInterval)
				if err := CheckSignals(); err != nil {
					return nil, err
				}
			}
			return nil, nil
		},
	}
	for name, f := range functions {
		if err := RegisterFunction(name, true, f); err != nil {
			return err
		}
	}
	return nil
}

// Collect runs Go's collector, and waits for the cleanups of what it found, until LiveHandles no longer falls.
// For tests that compare counts.
func Collect() {
	last, still := LiveHandles(), 0
	for round := 0; round < 100 && still < 3; round++ {
		runtime.GC()
		time.Sleep(time.Millisecond)
		now := LiveHandles()
		if now == last {
			still++
		} else {
			last, still = now, 0
		}
	}
}
