// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
)

// Emitter makes a backend's regions executable. region.Engine writes programs for an engine, csource.Emitter writes C,
// ModuleEmitter makes any runtime module, ExistingEmitter leaves it to the TVM in the process.
type Emitter interface {
	// Install makes relay.ext.<b.Compiler()> available in this process, where TVM is loaded. It is idempotent.
	Install(b Backend) error
}

// ModuleEmitter is relay.ext.<compiler> as a Go function: it takes a region, a relay.Function with the attribute
// global_symbol, and gives the runtime module that has a function of that name (a *bridge.Module, or a bridge.Value
// that holds one). It is called on the thread that compiles.
type ModuleEmitter func(region *bridge.Object) (any, error)

// Install implements Emitter.
func (e ModuleEmitter) Install(b Backend) error {
	name := CodeGenerator(b)
	if present, err := codeGeneratorPresent(name); present || err != nil {
		return err
	}
	return bridge.RegisterFunction(name, false, func(args []bridge.Value) (any, error) {
		if len(args) != 1 {
			return nil, fmt.Errorf("TypeError: %s takes one argument, the region function; got %d", name, len(args))
		}
		fn, err := args[0].Object()
		if err != nil {
			return nil, fmt.Errorf("TypeError: %s takes a relay.Function: %w", name, err)
		}
		if key := fn.TypeKey(); key != "relay.Function" {
			return nil, fmt.Errorf("TypeError: %s takes a relay.Function, got a %s", name, key)
		}
		made, err := e(fn)
		return made, generatorFailed(b.Name(), err)
	})
}

// ExistingEmitter is relay.ext.<compiler> as the TVM in the process has it.
type ExistingEmitter struct{}

// Install implements Emitter: it says whether it is there.
func (ExistingEmitter) Install(b Backend) error {
	name := CodeGenerator(b)
	present, err := codeGeneratorPresent(name)
	if err == nil && !present {
		err = fmt.Errorf("the TVM in this process has no code generator %s; use one that was built with it, or "+
			"register it "+
			"(tvm.register_func)", name)
	}
	return err
}

// CodeGenerator is the packed function that TVM calls for each region of a backend.
func CodeGenerator(b Backend) string { return "relay.ext." + b.Compiler() }

func codeGeneratorPresent(name string) (bool, error) {
	if !bridge.Loaded() {
		return false, errors.New("no TVM is loaded in this process")
	}
	f, ok := bridge.LookupGlobalFunction(name)
	if ok {
		f.Release()
	}
	return ok, nil
}
