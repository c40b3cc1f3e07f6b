// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// OptionKind is the type of a PassContext option.
type OptionKind uint8

// The types that options can have.
const (
	OptionString OptionKind = iota
	OptionInteger
	OptionBool
	OptionStringList
)

// optionSymbols are the instances of tvm::transform::PassContext::RegisterConfigOption<T>(const char*) that
// libtvm exports. No packed function registers options.
var optionSymbols = map[OptionKind]string{
	OptionString:     "_ZN3tvm9transform11PassContext20RegisterConfigOptionINS_7runtime6StringEEEjPKc",
	OptionInteger:    "_ZN3tvm9transform11PassContext20RegisterConfigOptionINS_7IntegerEEEjPKc",
	OptionBool:       "_ZN3tvm9transform11PassContext20RegisterConfigOptionINS_4BoolEEEjPKc",
	OptionStringList: "_ZN3tvm9transform11PassContext20RegisterConfigOptionINS_7runtime5ArrayINS3_6StringEvEEEEjPKc",
}

var optionMutex sync.Mutex

// RegisterPassContextOption makes a key legal in PassContext's config. A key that is registered already stays
// as it is. Needs libtvm.
func RegisterPassContextOption(key string, kind OptionKind) error {
	symbol, ok := optionSymbols[kind]
	if !ok {
		return fmt.Errorf("ValueError: PassContext option %s: no such kind of option (%d)", key, kind)
	}
	optionMutex.Lock()
	defer optionMutex.Unlock()
	v, err := Global("transform.ListConfigs")
	if err != nil {
		return err
	}
	configs, err := v.Object()
	if err != nil {
		return err
	}
	defer configs.Release()
	if _, taken, err := configs.Get(key); err != nil || taken {
		return err
	}
	// TVM keeps the pointer for ever.
	name := C.CString(key)
	if C.collage_register_option(internC(symbol), name) != C.COLLAGE_OK {
		C.free(unsafe.Pointer(name))
		return fmt.Errorf("cannot register the PassContext option %s: TVM from %s does not export %s", key, libraryPath,
			symbol)
	}
	return nil
}

// PassContextConfig reads an option of the PassContext that is current on this thread; false where it is not
// set. See OnThread.
func PassContextConfig(key string) (Value, bool, error) {
	v, err := Global("transform.GetCurrentPassContext")
	if err != nil {
		return Value{}, false, err
	}
	context, err := v.Object()
	if err != nil {
		return Value{}, false, err
	}
	defer context.Release()
	config, err := context.AttrObject("config")
	if err != nil || config == nil {
		return Value{}, false, err
	}
	defer config.Release()
	return config.Get(key)
}
