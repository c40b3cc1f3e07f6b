// SPDX-License-Identifier: Apache-2.0

// Libcollage is Collage as a C shared library, for a process that holds TVM: Python, or any other.
//
// What comes in: one call of collage_init (entry.h). What goes out: the packed functions collage.* and the
// PassContext options collage.* in the process's TVM.
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/collage-tvm/collage/bridge"
)

func main() {} // a c-shared library has none; Go wants it

var (
	initMutex sync.Mutex
	initDone  bool
)

// collageGoInit does the work of collage_init. It gives NULL, or a message that the caller frees.
//
//export collageGoInit
func collageGoInit(libtvm, python, self *C.char) *C.char {
	if err := initialise(goString(libtvm), goString(python), goString(self)); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

//export collageGoShutdown
func collageGoShutdown() { bridge.StopFinalizers() }

func goString(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// initialise finds TVM and registers everything, once.
func initialise(libtvm, python, self string) (err error) {
	initMutex.Lock()
	defer initMutex.Unlock()
	if initDone {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("InternalError: panic in collage_init: %v\n%s", r, debug.Stack())
		}
	}()
	if err := adoptEnvironment(); err != nil {
		return err
	}
	if err := bridge.Load(libtvm); err != nil {
		return err
	}
	if err := bridge.ClaimProcess(self); err != nil {
		return err
	}
	if python != "" && os.Getenv("COLLAGE_PYTHON") == "" {
		// The interpreter for workers; who starts Collage may have chosen another one.
		if err := os.Setenv("COLLAGE_PYTHON", python); err != nil {
			return err
		}
	}
	for _, register := range registrations {
		if err := register(); err != nil {
			return err
		}
	}
	initDone = true
	return nil
}
