// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#cgo CFLAGS: -fexceptions
#include "shim.h"
*/
import "C"

import "fmt"

// NewBinaryMethod makes a packed function of a virtual C++ method that libtvm exports without registering it,
//
//	double Class::Method(const ObjectRef& a, const ObjectRef& b) const
//
// or one that returns a class of one double. symbol is its mangled name. The packed function takes the object, a and
// b, and gives a float; what the method throws is its error. The object must be of that class,
// and the class the first below tvm::runtime::Object with virtual methods, or derived from it: nothing can check it.
func NewBinaryMethod(symbol string) (*Function, error) {
	if !loaded.Load() {
		return nil, ErrNotLoaded
	}
	method := C.collage_symbol(internC(symbol))
	if method == nil {
		return nil, fmt.Errorf("TVM from %s does not export %s", LibraryPath(), symbol)
	}
	f := getFrame()
	defer f.put()
	if C.collage_new_binary_method(method, f.c) != C.COLLAGE_OK {
		return nil, f.err()
	}
	return newFunction(f.handle(), symbol), nil
}
