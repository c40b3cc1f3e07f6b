// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
)

// Emitter writes a region in an engine's own format. constants are the tensors that the engine is to be given beside
// the text, in this order; they must be constants of the Program, or added to it (AddConstant). An error says which
// operator or attribute the engine cannot run.
type Emitter func(p *Program) (text []byte, constants []ValueID, err error)

// registering lets one Register at a time look whether a name is taken.
var registering sync.Mutex

// Register makes relay.ext.<compiler> available in this process: for each region it calls emit, and hands what that
// writes to collage.runtime.<engine>ModuleCreate, which the plug-in (a name for byoc.PluginPath) registers when it is
// loaded. Where relay.ext.<compiler> is there already nothing happens. TVM must be loaded.
//
// emit is called on the thread that compiles; the Program is released after it has returned.
//
// A region with open dimensions is refused: RegisterOpen is for engines that take such.
func Register(compiler, engine, plugin string, emit Emitter) error {
	return register(compiler, engine, plugin, Read, plainly(emit))
}

// RegisterOpen is Register for an engine whose regions may have open dimensions (Program.Open), which the module's
// inputs and outputs then have.
func RegisterOpen(compiler, engine, plugin string, emit Emitter) error {
	return register(compiler, engine, plugin, ReadOpen, plainly(emit))
}

// RegisterSized is Register for an engine that knows sizes (byoc.SizedTaker): emit is called with a region of fixed sizes,
// several times for one with open dimensions, and the engine is given what that becomes at all sizes
// (byoc/runtime/dnnl_sized_text.h).
func RegisterSized(compiler, engine, plugin string, emit Emitter) error {
	return register(compiler, engine, plugin, ReadOpen, func(p *Program) ([]byte, *Program, []ValueID, error) {
		if p.Open {
			return emitSized(p, emit)
		}
		return plainly(emit)(p)
	})
}

// writer writes a program; the constants are those of `of`.
type writer func(p *Program) (text []byte, of *Program, constants []ValueID, err error)

func plainly(emit Emitter) writer {
	return func(p *Program) ([]byte, *Program, []ValueID, error) {
		text, constants, err := emit(p)
		return text, p, constants, err
	}
}

func register(compiler, engine, plugin string, read func(*bridge.Object) (*Program, error), write writer) error {
	registering.Lock()
	defer registering.Unlock()
	if !bridge.Loaded() {
		return errors.New("no TVM is loaded in this process")
	}
	codegen := "relay.ext." + compiler
	if f, ok := bridge.LookupGlobalFunction(codegen); ok {
		f.Release()
		return nil
	}
	create := "collage.runtime." + engine + "ModuleCreate"
	if err := LoadPlugin(plugin, create); err != nil {
		return err
	}
	// The module holds the region's constants. Without this TVM would store them twice more, as constants of the region
	// and as parameters of the model.
	nothing := func([]bridge.Value) (any, error) { return map[string]any{}, nil }
	if err := bridge.RegisterFunction(codegen+".constant_updater", false, nothing); err != nil {
		return err
	}
	return bridge.RegisterFunction(codegen, false, func(args []bridge.Value) (any, error) {
		if len(args) != 1 {
			return nil, fmt.Errorf("TypeError: %s takes one argument, the region function; got %d", codegen, len(args))
		}
		fn, err := args[0].Object()
		if err != nil {
			return nil, fmt.Errorf("TypeError: %s takes a relay.Function: %w", codegen, err)
		}
		return generate(compiler, create, fn, read, write)
	})
}

// generate makes the runtime module of one region.
func generate(compiler, create string, fn *bridge.Object, read func(*bridge.Object) (*Program, error),
	write writer) (any, error) {
	p, err := read(fn)
	if err != nil {
		return nil, &byoc.GeneratorError{Backend: byoc.BackendOf(compiler, ""), Err: err}
	}
	defer p.Graph.Release()
	text, of, constants, err := write(p)
	if err != nil {
		return nil, p.Refused(compiler, err)
	}
	data := make([]any, len(constants))
	for i, v := range constants {
		tensor, err := of.constant(v)
		if err != nil {
			return nil, err
		}
		defer tensor.Release()
		data[i] = tensor
	}
	return bridge.Global(create, p.Symbol, text, data, p.typeLines(p.Inputs), p.typeLines(p.Outputs))
}

// typeLines writes the types of tensors as the runtime modules read them (byoc/runtime/region_module.h).
func (p *Program) typeLines(values []ValueID) string {
	var text strings.Builder
	for _, v := range values {
		t := p.Values[v].Type
		text.WriteString(t.DType)
		for _, extent := range t.Shape {
			fmt.Fprintf(&text, " %d", extent)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// plugins keeps what was loaded: packed functions stay registered for the life of the process.
var (
	pluginsLock sync.Mutex
	plugins     []*bridge.Module
)

// LoadPlugin brings a runtime plug-in (a name for byoc.PluginPath) into the process, unless the packed function that it
// registers is there. It stays for the life of the process.
func LoadPlugin(plugin, registers string) error {
	if f, ok := bridge.LookupGlobalFunction(registers); ok {
		f.Release()
		return nil
	}
	path, err := byoc.PluginPath(plugin)
	if err != nil {
		return err
	}
	m, err := byoc.OpenPlugin(path)
	if err != nil {
		return err
	}
	f, ok := bridge.LookupGlobalFunction(registers)
	if !ok {
		m.Release()
		return fmt.Errorf("the plug-in %s does not register %s", path, registers)
	}
	f.Release()
	pluginsLock.Lock()
	defer pluginsLock.Unlock()
	plugins = append(plugins, m)
	return nil
}
