// SPDX-License-Identifier: Apache-2.0

// Package device is what backends have in common whose regions run on another device than the processor, with TVM's
// kernels or beside them. A region is a network of its own, whose weights and intermediate values stay in the device's
// memory; only what crosses its border is copied.
//
// What comes in: from a backend, what kind of device it is for (Kind); from the placement, graphs; from TVM, region
// functions (relay.ext.collage_<kind>). What goes out: which operators such a device takes (Limits), proposed regions,
// what copies take, and for each region function a program for the kind's plug-in (byoc/runtime/device_program.h), which
// holds the library that TVM exports of it.
package device

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
)

// Kind is a kind of device, whose plug-in is libcollage_<name>.so.
type Kind struct {
	// Name is what TVM calls it: "opencl", "cuda".
	Name string
	// Target gives the text of TVM's target for regions there, and what of the kind its code runs on ("sm_90"); AnyOf for
	// all of it.
	Target func(k *Kind) (text, architecture string, err error)
	// Prepare makes TVM able to build for the device, once the plug-in is loaded.
	Prepare func() error
	// Elsewhere says that regions are built for another machine, so that no device need be here; nil for never.
	Elsewhere func() bool
}

// AnyOf is the architecture of code that runs on every device of its kind.
const AnyOf = "-"

// Compiler is the Compiler attribute of the regions of all backends of a kind of device.
func Compiler(kind string) string { return "collage_" + kind }

// Remote is the part of a backend that is the device's, to be embedded. Several backends may be of one kind; their
// regions are joined.
type Remote struct {
	byoc.KnownCopies
	kind  *Kind
	found atomic.Pointer[Found]
}

// NewRemote gives that part of a backend for a kind of device.
func NewRemote(kind *Kind) *Remote { return &Remote{kind: kind} }

// Compiler implements byoc.Backend.
func (r *Remote) Compiler() string { return Compiler(r.kind.Name) }

// TakesAnything implements byoc.Backend.
func (*Remote) TakesAnything() bool { return false }

// MergesRegions is true: within a region nothing is copied between the host and the device.
func (*Remote) MergesRegions() bool { return true }

// SharesCompiler is true: what a library computes and what TVM's kernels do with it stay on the device.
func (*Remote) SharesCompiler() bool { return true }

// Device implements byoc.Remote.
func (r *Remote) Device() string { return r.kind.Name }

// Memory implements byoc.Remote.
func (r *Remote) Memory() int64 {
	if d := r.found.Load(); d != nil {
		return d.Memory
	}
	return 0
}

// Hardware implements byoc.Remote.
func (r *Remote) Hardware() string {
	if d := r.found.Load(); d != nil {
		return strings.Join([]string{d.Name, d.Version, d.Driver}, ", ")
	}
	return ""
}

// function is the name of one of the plug-in's packed functions.
func (k *Kind) function(name string) string { return "collage.runtime." + k.Name + "." + name }

// MeasureCopies implements byoc.Remote.
func (r *Remote) MeasureCopies(bytes int64) (to, from []float64, err error) {
	measures := r.kind.function("MeasureCopies")
	value, err := bridge.Global(measures, bytes)
	if err != nil {
		return nil, nil, err
	}
	text, err := value.Str()
	if err != nil {
		return nil, nil, err
	}
	var took struct{ To, From []float64 }
	if err := json.Unmarshal([]byte(text), &took); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", measures, err)
	}
	return took.To, took.From, nil
}

// Libraries implements byoc.Linker.
func (r *Remote) Libraries() []string { return []string{r.kind.Name} }

// Install makes relay.ext.collage_<kind> available in this process, and TVM able to build for the device. The error says
// so where there is no device: a driver's file does not mean that there is one.
func (r *Remote) Install() error {
	k := r.kind
	if err := region.Register(Compiler(k.Name), k.Name, k.Name, k.emit); err != nil {
		return err
	}
	if err := k.Prepare(); err != nil {
		return err
	}
	found, err := k.Chosen()
	switch {
	case err == nil:
		r.found.Store(found)
	case k.Elsewhere != nil && k.Elsewhere():
		return nil // what is built is not run here
	}
	return err
}

// Found is what the plug-in says of a device (byoc/runtime/device_kind.h).
type Found struct {
	Name         string
	Version      string
	Driver       string
	Memory       int64 `json:"memory_bytes"`
	Architecture string
}

// Chosen is the device that regions run on. The plug-in must have been loaded.
func (k *Kind) Chosen() (*Found, error) {
	at, err := bridge.Global(k.function("Device"))
	if err != nil {
		return nil, err
	}
	index, err := at.Int()
	if err != nil {
		return nil, err
	}
	found, err := bridge.Global(k.function("Devices"))
	if err != nil {
		return nil, err
	}
	text, err := found.Str()
	if err != nil {
		return nil, err
	}
	var devices []Found
	if err := json.Unmarshal([]byte(text), &devices); err != nil {
		return nil, fmt.Errorf("what the plug-in says of the devices is not readable: %w", err)
	}
	return &devices[index], nil
}
