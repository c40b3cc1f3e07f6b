// SPDX-License-Identifier: Apache-2.0

package dnnltvm

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// The packed functions through which TVM's compiler meets a BYOC backend, and the one of its oneDNN runtime.
const (
	codegenName         = "relay.ext." + Compiler
	constantUpdaterName = "relay.ext." + Compiler + ".constant_updater"
	runtimeCreateName   = "runtime.DNNLJSONRuntimeCreate"
)

// install does the work of Install; the lock is held.
func (b *backend) install() error {
	if !bridge.Loaded() {
		return errors.New("no TVM is loaded in this process")
	}
	if f, ok := bridge.LookupGlobalFunction(codegenName); ok {
		f.Release()
		foreign.Store(true)
		return nil
	}
	if err := region.LoadPlugin(plugin, runtimeCreateName); err != nil {
		return err
	}
	if err := bridge.RegisterFunction(codegenName, false, generate); err != nil {
		return err
	}
	return bridge.RegisterFunction(constantUpdaterName, false, updateConstants)
}

// generate is relay.ext.dnnl: it takes a region function and gives the runtime module that executes it.
func generate(args []bridge.Value) (any, error) {
	fn, err := functionArgument(codegenName, args, 1)
	if err != nil {
		return nil, err
	}
	symbol, err := globalSymbol(fn)
	if err != nil {
		return nil, err
	}
	_, p, err := read(fn, symbol)
	if err != nil {
		return nil, &byoc.GeneratorError{Backend: Name, Err: err}
	}
	return bridge.Global(runtimeCreateName, symbol, p.graphJSON(), p.constantNames())
}

// updateConstants is relay.ext.dnnl.constant_updater: it takes the same function and its symbol, and gives the
// constants by the names that generate used, for TVM to store them beside the module.
func updateConstants(args []bridge.Value) (any, error) {
	fn, err := functionArgument(constantUpdaterName, args, 2)
	if err != nil {
		return nil, err
	}
	symbol, err := args[1].Str()
	if err != nil {
		return nil, fmt.Errorf("%s: the symbol: %w", constantUpdaterName, err)
	}
	g, p, err := read(fn, symbol)
	if err != nil {
		return nil, err
	}
	named := make(map[string]any, len(p.constants))
	for _, c := range p.constants {
		if named[c.name], err = tensorOf(g, c); err != nil {
			return nil, fmt.Errorf("%s: the constant %s: %w", constantUpdaterName, c.name, err)
		}
	}
	return named, nil
}

// tensorOf gives a constant's NDArray.
func tensorOf(g *relay.Graph, c constantEntry) (any, error) {
	if c.value == relay.NoNode {
		return bridge.FromSlice([]float32{c.number}, 1)
	}
	return g.Handle(c.value).Attr("data")
}

func functionArgument(callee string, args []bridge.Value, want int) (*bridge.Object, error) {
	if len(args) != want {
		return nil, fmt.Errorf("TypeError: %s takes %d arguments, got %d", callee, want, len(args))
	}
	fn, err := args[0].Object()
	if err != nil {
		return nil, fmt.Errorf("TypeError: %s takes a relay.Function: %w", callee, err)
	}
	if key := fn.TypeKey(); key != "relay.Function" {
		return nil, fmt.Errorf("TypeError: %s takes a relay.Function, got a %s", callee, key)
	}
	return fn, nil
}

// globalSymbol reads the name under which TVM will call the region.
func globalSymbol(fn *bridge.Object) (string, error) {
	attrs, err := fn.AttrObject("attrs")
	if err != nil {
		return "", err
	}
	if attrs != nil {
		if symbol, err := attrs.AttrString("global_symbol"); err == nil && symbol != "" {
			return symbol, nil
		}
	}
	return "", fmt.Errorf("ValueError: %s: the region function has no attribute global_symbol", codegenName)
}

// read turns a region function into a program.
func read(fn *bridge.Object, symbol string) (*relay.Graph, *program, error) {
	g, err := relay.ReadFunction(symbol, fn)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", codegenName, err)
	}
	p, err := translate(g, symbol)
	if err != nil {
		return nil, nil, fmt.Errorf("ValueError: %s: %w", codegenName, err)
	}
	return g, p, nil
}
