// SPDX-License-Identifier: Apache-2.0

package device

import (
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
)

// Calls are the calls of a library's that stand within regions, each a composite function by itself: TVM calls them
// with tensors in the device's memory (byoc/runtime/device_call.h).
type Calls struct {
	// Of is the first part of their composites' names ("clblast"). Python gives them the Compiler attribute
	// "collage_<Of>" (python/collage/device_library.py); nobody else writes that: it is no backend's.
	Of string
	// Creates is the plug-in's packed function that makes the module of a call, of its symbol and text.
	Creates string
	// Kind is the kind of device whose regions they stand in.
	Kind string
	// Write is the text of a call.
	Write func(p *region.Program) (string, error)
}

// ProbeBeside is what is found of a library whose calls stand beside TVM's kernels: what these need (kernels), and the
// library, whose version stands in the costs' key behind prefix. remedy is how one gets it.
func ProbeBeside(kernels byoc.Probe, title string, places byoc.Library, prefix, remedy string) byoc.Probe {
	p := byoc.Probe{Library: title, Reason: kernels.Reason, Remedy: kernels.Remedy}
	if !kernels.Usable {
		return p
	}
	path, err := places.Find()
	if err != nil {
		p.Reason, p.Remedy = err.Error(), remedy
		return p
	}
	p.Usable, p.Path, p.Features = true, path, kernels.Features
	p.Version = prefix + byoc.FileVersion(path) + "+" + kernels.Version
	return p
}

var registering sync.Mutex

// Register has TVM make modules of these calls. It may be called again.
func (c *Calls) Register() error {
	registering.Lock()
	defer registering.Unlock()
	name := "relay.ext." + Compiler(c.Of)
	if f, ok := bridge.LookupGlobalFunction(name); ok {
		f.Release()
		return nil
	}
	return bridge.RegisterFunction(name, false, func(args []bridge.Value) (any, error) {
		fn, err := args[0].Object()
		if err != nil {
			return nil, err
		}
		p, err := region.Read(fn)
		if err != nil {
			return nil, err
		}
		defer p.Graph.Release()
		text, err := c.Write(p)
		if err != nil {
			return nil, p.Refused(Compiler(c.Kind), err)
		}
		return bridge.Global(c.Creates, p.Symbol, text)
	})
}
