// SPDX-License-Identifier: Apache-2.0

// Package bridge is TVM's C API as Go, with the feel of gotvm. It is the one package that speaks C
// (cmd/libcollage does too, for its exported entry points; a test holds that line).
//
// What comes in: a process that holds libtvm or libtvm_runtime, versions 0.10 to 0.19, or the path of one (Load).
// Symbols are looked up when the program runs, so nothing here needs TVM to build, and a program without TVM can
// link the package. What goes out: TVM's functions, objects, modules and tensors as Go values; Go functions as
// TVM's packed functions; errors of both sides.
//
//	err := bridge.Load("")                                       // the TVM that Python brought
//	v, err := bridge.Global("relay.transform.InferType")         // any global function, by name
//	fn, err := bridge.GetGlobalFunction("relay.ir.Var")          // or hold it
//	v, err = fn.Invoke("x", nil, nil)
//	err = bridge.RegisterFunction("collage.hello", false, hello) // a Go function that TVM and Python can call
//	mod, err := bridge.LoadModuleFromFile("model.so", "")
//	a, err := bridge.Empty([]int64{1, 3, 224, 224}, bridge.Float32, bridge.CPU())
//
// # Ownership
//
//	what                              who owns it
//	*Object, *Function, *Module,      Go: one reference each. Release gives it back at once; else Go's
//	*NDArray from a call              collector does, some time after the last use
//	arguments of Invoke               the caller, always. TVM takes references of its own to what it keeps.
//	                                  Slices, maps and Go functions become TVM objects for the call
//	arguments of a Go callback        the callback, also after it has returned; but for a bare DLTensor, which
//	                                  TVM lends for the length of the call (later use is an error)
//	result of a Go callback           the Go side keeps its handle; TVM takes a reference of its own
//	Go function given to TVM          alive until TVM drops its last reference, or until it leaves the registry
//	                                  (RemoveGlobalFunction, or registering anew)
//	strings and bytes                 copied, both ways
//	a view (NDArray.View)             keeps the tensor alive that it looks at
//	*Error                            a reference to the Python exception, where it was one
//
// A call that fails gives nothing that must be released. LiveHandles counts, by kind, what Go holds and what of
// Go's TVM holds.
//
// # Errors
//
// An error of TVM's arrives as an *Error with the name of the exception and the message without trace and
// banner. A Python exception arrives as an *Error that carries the exception itself: returned to TVM by a
// callback, wrapped or not, it is the same object again, so a user's exception class survives Python -> Go ->
// Python. A Go error whose text begins with an exception's name ("ValueError: ...") becomes that exception; any
// other becomes TVMError. A panic in a callback becomes an InternalError with the stack.
//
// # Threads
//
// Everything may be used from any goroutine. But PassContext, Target and the like are thread-local in TVM: code
// that enters one, or that must see what its caller entered, stays on one thread (OnThread; a callback from TVM
// is on the caller's thread already), and other goroutines do pure Go meanwhile. A Go function given to TVM may
// be called from any thread, several at once. Calls into Python take the GIL by themselves.
//
// # Guards
//
// In a process made by fork after loading, Go does not work: callbacks and Load answer with an error before they
// enter Go. A second copy of the library in one process is refused (ClaimProcess). After StopFinalizers, which
// the host calls when it exits, nothing is given back to an interpreter that may be gone. While Go runs, Python
// cannot see Ctrl-C: long work calls CheckSignals.
//
// # Cost
//
// A call is 120 to 180 ns, an attribute that is an integer or a string the same, one that is an object 400 ns
// (its handle must be tracked), a Go callback 300 ns on top (bench_test.go). Object.Attr keeps the C copies of
// attribute names; Object.Ints reads a whole shape in one step; strings, arrays and constants are read in place
// where their layout was found at load to be the known one.
package bridge
