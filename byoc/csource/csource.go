// SPDX-License-Identifier: Apache-2.0

// Package csource makes regions executable by writing C (or C++) for them, which the compiler that links the exported
// model compiles: the shortest way from a library of functions to a backend.
//
// What comes in: a region.Program, and from the backend the statements that compute its results. What goes out: a
// runtime.CSourceModule. Each tensor is a pointer named after its number (Name); inputs and constants are const, and
// what lies between operators is workspace that the TVM runtime lends.
package csource

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
)

// Kernel gives the statements for one region: what stands between the braces of a function. They must not return. An
// error says which operator cannot be written.
type Kernel func(p *region.Program) (statements string, err error)

// Emitter gives the emitter of a backend that writes C: prelude stands once before the region's function (includes,
// functions of the library).
func Emitter(prelude string, kernel Kernel) byoc.Emitter { return emitter{prelude, kernel} }

type emitter struct {
	prelude string
	kernel  Kernel
}

// Install implements byoc.Emitter.
func (e emitter) Install(b byoc.Backend) error {
	pack := byoc.PackParametersOf(b)
	return byoc.ModuleEmitter(func(fn *bridge.Object) (any, error) {
		p, err := region.Read(fn)
		if err != nil {
			return nil, err
		}
		defer p.Graph.Release()
		statements, err := e.kernel(p)
		if err != nil {
			return nil, p.Refused(b.Compiler(), err)
		}
		constants, err := Pack(p, pack)
		if err != nil {
			return nil, p.Refused(b.Compiler(), err)
		}
		return Module(p, b.Name(), e.prelude, statements, constants)
	}).Install(b)
}

// Module makes the runtime module of a backend's region from its statements and its constants (Pack).
func Module(p *region.Program, backend, prelude, statements string, constants Constants) (bridge.Value, error) {
	text, err := Source(p, backend, prelude, statements, constants)
	if err != nil {
		return bridge.Value{}, fmt.Errorf("ValueError: region %s: %w", p.Symbol, err)
	}
	return bridge.Global("runtime.CSourceModuleCreate", text, "cc", []string{p.Symbol}, []string{})
}
