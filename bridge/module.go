// SPDX-License-Identifier: Apache-2.0

package bridge

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Module is a runtime module: what TVM's code generators make and the runtime runs. (Relay's IRModule is an
// Object.)
type Module struct{ handle }

func newModule(p unsafe.Pointer) *Module {
	m := &Module{}
	m.own(liveModule, p, freeModuleHandle)
	return m
}

// LoadModuleFromFile loads a module from a file; format "" means the file's extension ("so", "json", ...).
func LoadModuleFromFile(path, format string) (*Module, error) {
	if !loaded.Load() {
		return nil, ErrNotLoaded
	}
	f := getFrame()
	defer f.put()
	rc := C.collage_module_load((*C.char)(f.cstring(path)), (*C.char)(f.cstring(format)), f.c)
	if rc != C.COLLAGE_OK {
		return nil, fmt.Errorf("cannot load %s: %w", path, f.err())
	}
	return newModule(f.handle()), nil
}

// Release gives the reference back to TVM now; see Object.Release.
func (m *Module) Release() {
	if m != nil {
		m.release(freeModuleHandle)
	}
}

// GetFunction finds a function of the module, and of those it imports where queryImports says so.
func (m *Module) GetFunction(name string, queryImports bool) (*Function, error) {
	p, err := m.pointer()
	if err != nil {
		return nil, err
	}
	f := getFrame()
	defer f.put()
	var imports C.int
	if queryImports {
		imports = 1
	}
	rc := C.collage_module_get_function(p, (*C.char)(f.cstring(name)), imports, f.c)
	runtime.KeepAlive(m)
	switch rc {
	case C.COLLAGE_OK:
		return newFunction(f.handle(), name), nil
	case C.COLLAGE_NONE:
		return nil, fmt.Errorf("AttributeError: the module (%s) has no function %s", m.TypeKey(), name)
	}
	return nil, f.err()
}

// TypeKey is the module's kind ("library", "llvm", "dnnl_json", "metadata").
func (m *Module) TypeKey() string {
	v, err := Global("runtime.ModuleGetTypeKey", m)
	if err != nil {
		return ""
	}
	s, _ := v.Str()
	return s
}

// Import makes dep one of the modules that m brings along.
func (m *Module) Import(dep *Module) error {
	p, err := m.pointer()
	if err != nil {
		return err
	}
	d, err := dep.pointer()
	if err != nil {
		return err
	}
	f := getFrame()
	defer f.put()
	rc := C.collage_module_import(p, d, f.c)
	runtime.KeepAlive(m)
	runtime.KeepAlive(dep)
	if rc != C.COLLAGE_OK {
		return f.err()
	}
	return nil
}

// Imports are the modules that m brings along.
func (m *Module) Imports() ([]*Module, error) {
	v, err := Global("runtime.ModuleImportsSize", m)
	if err != nil {
		return nil, err
	}
	n, err := v.Int()
	if err != nil {
		return nil, err
	}
	imports := make([]*Module, n)
	for i := range imports {
		if v, err = Global("runtime.ModuleGetImport", m, i); err != nil {
			return nil, err
		}
		if imports[i], err = v.Module(); err != nil {
			return nil, err
		}
	}
	return imports, nil
}

// Source is the module's text in a format that it knows ("" for its own).
func (m *Module) Source(format string) (string, error) {
	v, err := Global("runtime.ModuleGetSource", m, format)
	if err != nil {
		return "", err
	}
	return v.Str()
}

// Save writes the module to a file in a format that its kind knows; most kinds do not save themselves but are
// exported together with their importer.
func (m *Module) Save(path, format string) error {
	_, err := Global("runtime.ModuleSaveToFile", m, path, format)
	return err
}
