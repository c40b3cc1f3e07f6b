// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#cgo CFLAGS: -O2 -std=gnu11 -Wall
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ErrNotLoaded is what every call gives before Load has found a TVM.
var ErrNotLoaded = errors.New("no TVM loaded: call bridge.Load first")

var (
	loadMutex   sync.Mutex
	loaded      atomic.Bool
	libraryPath string
	hasCompiler bool
	// nodeGetAttr is node.NodeGetAttr, nil in libtvm_runtime. It is looked up once, because reading a module calls
	// it thousands of times.
	nodeGetAttr unsafe.Pointer
)

// Load finds TVM. An empty path takes the TVM that is already in the process (Python's, where `import tvm` came
// before); any other is the path of libtvm or libtvm_runtime, which is opened so that plug-ins loaded later see
// its symbols. Once Load has succeeded, further calls with "" or with the same library do nothing. A process
// can hold one TVM only: a path to another one is an error.
func Load(path string) error {
	loadMutex.Lock()
	defer loadMutex.Unlock()
	if C.collage_forked() != 0 {
		return ErrForked
	}
	if loaded.Load() && path == "" {
		return nil
	}
	var message [1024]C.char
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	if C.collage_load(cpath, &message[0], C.size_t(len(message))) != C.COLLAGE_OK {
		return fmt.Errorf("cannot load TVM: %s", C.GoString(&message[0]))
	}
	if loaded.Load() {
		return nil
	}
	libraryPath = C.GoString(C.collage_library_path())
	if err := prepare(); err != nil {
		return fmt.Errorf("cannot use TVM from %s: %w", libraryPath, err)
	}
	loaded.Store(true)
	return nil
}

// prepare looks up what the bridge itself calls, and tries TVM's object layouts.
func prepare() error {
	f := getFrame()
	defer f.put()
	lookup := func(name string) unsafe.Pointer {
		if C.collage_get_global(internC(name), f.c) != C.COLLAGE_OK {
			return nil
		}
		return f.handle() // kept for the life of the process
	}
	array := lookup("runtime.Array")
	if array == nil {
		return errors.New("it has no runtime.Array")
	}
	nodeGetAttr = lookup("node.NodeGetAttr")
	if C.collage_probe_layouts(array, lookup("ir.IntImm"), lookup("ir.FloatImm"), f.c) != C.COLLAGE_OK {
		return f.err()
	}
	hasCompiler = lookup("relay.analysis.post_order_visit") != nil
	return nil
}

// Loaded says whether Load has found a TVM.
func Loaded() bool { return loaded.Load() }

// LibraryPath is the file that TVM's symbols come from; "" before Load.
func LibraryPath() string {
	loadMutex.Lock()
	defer loadMutex.Unlock()
	return libraryPath
}

// HasCompiler says whether the TVM in the process can read and rewrite Relay: true for libtvm, false for
// libtvm_runtime.
func HasCompiler() bool { return loaded.Load() && hasCompiler }

// internedC are C strings that live for ever: names of attributes and functions that are asked for again
// and again.
var internedC sync.Map // string -> *C.char

// internC gives the C copy of a name. Only for names that come from code, not from data: it never frees.
func internC(name string) *C.char {
	if p, ok := internedC.Load(name); ok {
		return p.(*C.char)
	}
	p := C.CString(name)
	if q, raced := internedC.LoadOrStore(strings.Clone(name), p); raced {
		C.free(unsafe.Pointer(p))
		return q.(*C.char)
	}
	return p
}
