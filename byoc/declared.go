// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"fmt"
	"sync"
)

// Declaration is what somebody says of a backend where it would be measured otherwise (pass/declared). What is said so
// holds for all searches of this process, until it is withdrawn.
type Declaration struct {
	// Source says whose word it is, in a few words: a file.
	Source string
	// Cost is what each candidate takes.
	Cost CostFunction
	// Copies and Memory are those of the backend's device (Remote); nil and 0 where nothing is said.
	Copies CopyCosts
	Memory int64
}

var declarations = struct {
	sync.RWMutex
	byName map[string]*Declaration
}{byName: map[string]*Declaration{}}

// Declare has what is said of a backend hold. The error says that something else is said of it already.
func Declare(backend string, d *Declaration) error {
	declarations.Lock()
	defer declarations.Unlock()
	if other := declarations.byName[backend]; other != nil {
		return fmt.Errorf("the costs of the backend %q are declared already: %s", backend, other.Source)
	}
	declarations.byName[backend] = d
	return nil
}

// Withdraw ends what Declare began, if it is this that is said of the backend.
func Withdraw(backend string, d *Declaration) {
	declarations.Lock()
	defer declarations.Unlock()
	if declarations.byName[backend] == d {
		delete(declarations.byName, backend)
	}
}

// DeclarationOf is what is said of a backend; nil for nothing.
func DeclarationOf(b Backend) *Declaration {
	declarations.RLock()
	defer declarations.RUnlock()
	return declarations.byName[b.Name()]
}

// MemoryOf is the memory of the device that a backend's regions run on, in bytes, as declared or else as the backend
// found it; 0 for the processor, and where it is not known.
func MemoryOf(b Backend) int64 {
	r, ok := b.(Remote)
	if !ok {
		return 0
	}
	if d := DeclarationOf(b); d != nil && d.Memory > 0 {
		return d.Memory
	}
	return r.Memory()
}
