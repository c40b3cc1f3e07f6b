// SPDX-License-Identifier: Apache-2.0

// Package opencl is TVM on an OpenCL device: a graphics processor, an accelerator, or the processor itself by way of
// pocl. Regions run there as networks of their own, whose weights and intermediate values stay in the device's memory;
// only what crosses a region's border is copied.
//
// What comes in: for the placement, graphs of which it says what TVM can run on such a device; from TVM, region
// functions (relay.ext.collage_opencl). What goes out: candidates by rules, and proposed regions; and for each region
// function a program for libcollage_opencl.so (byoc/runtime/opencl_program.h): the library that TVM exports of it.
package opencl

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions, and Device the kind of
// device that they run on.
const (
	Name     = "tvm_opencl"
	Compiler = "collage_opencl"
	Device   = "opencl"
)

// plugin is the file of the runtime, and its engine.
const plugin = "opencl"

type backend struct {
	copies atomic.Pointer[byoc.CopyCosts]
	device atomic.Pointer[device]
}

// New gives the backend. It needs neither TVM nor OpenCL; Probe says whether that is there.
func New() byoc.Backend { return &backend{} }

func (*backend) Name() string { return Name }
func (*backend) Description() string {
	return "TVM's own code generator, for an OpenCL device: whole regions in the device's memory"
}
func (*backend) Level() byoc.Level        { return byoc.GraphLevel }
func (*backend) Compiler() string         { return Compiler }
func (*backend) Patterns() []byoc.Pattern { return nil }
func (*backend) TakesAnything() bool      { return false }

// MergesRegions is true: within a region nothing is copied between the host and the device.
func (*backend) MergesRegions() bool { return true }

// Device implements byoc.Remote.
func (*backend) Device() string { return Device }

// Memory implements byoc.Remote.
func (b *backend) Memory() int64 {
	if d := b.device.Load(); d != nil {
		return d.Memory
	}
	return 0
}

// Hardware implements byoc.Remote.
func (b *backend) Hardware() string {
	if d := b.device.Load(); d != nil {
		return strings.Join([]string{d.Name, d.Version, d.Driver}, ", ")
	}
	return ""
}

// Know implements byoc.Remote.
func (b *backend) Know(c *byoc.CopyCosts) { b.copies.Store(c) }

// BorderCost implements byoc.Borderer: what copies take, once that is known.
func (b *backend) BorderCost() byoc.BorderCost {
	known := b.copies.Load()
	if known == nil {
		return nil
	}
	return func(t *relay.Type) (in, out float64) {
		bytes, _ := t.NumBytes()
		return known.Of(bytes)
	}
}

// measures is the plug-in's packed function that measures copies.
const measures = "collage.runtime.opencl.MeasureCopies"

// MeasureCopies implements byoc.Remote.
func (*backend) MeasureCopies(bytes int64) (to, from []float64, err error) {
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
func (*backend) Libraries() []string { return []string{plugin} }

// Rules implements byoc.Ruler: each operator by itself, and what TVM fuses.
func (*backend) Rules() *byoc.Rules {
	return &byoc.Rules{Supports: refusal, Style: byoc.TVMFusion}
}

// Propose implements byoc.Proposer: the greatest regions that can run on the device, and their parts between
// post-dominators, without operators that were learnt to fail there by themselves.
func (*backend) Propose(g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	failed := map[relay.NodeID]bool{}
	for _, l := range learnt {
		if l.Backend == Name && math.IsInf(l.Milliseconds, 1) && len(l.Nodes) == 1 {
			failed[l.Nodes[0]] = true
		}
	}
	return propose.Regions(g, func(v relay.NodeID) bool { return !failed[v] && refusal(g, v) == nil }, propose.Limit)
}

// types are the element types of tensors that every OpenCL device computes with. Of others (float16, float64) a device
// says by itself whether it does.
var types = []string{"float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"}

// elsewhere begins the names of operators that are no computation, or that TVM makes of what it runs on the host.
var elsewhere = []string{"annotation.", "device_copy", "dyn.", "memory.", "on_device", "random.", "vm.", "contrib."}

// refusal says why an operator cannot run on an OpenCL device; nil where it can.
func refusal(g *relay.Graph, call relay.NodeID) error {
	n := &g.Nodes[call]
	for _, prefix := range elsewhere {
		if strings.HasPrefix(n.Op, prefix) {
			return fmt.Errorf("%s runs on the host", n.Op)
		}
	}
	if slices.Contains(misnamed, n.Op) {
		return fmt.Errorf("TVM calls a function for %s that OpenCL has under another name", n.Op)
	}
	if err := computes(n.Type); err != nil {
		return err
	}
	for _, arg := range n.Inputs {
		if err := computes(g.Nodes[arg].Type); err != nil {
			return err
		}
	}
	return nil
}

// misnamed are operators for which TVM 0.19 writes calls of functions of C (tanf), which OpenCL has not.
var misnamed = []string{"acos", "acosh", "asin", "asinh", "atan", "atanh", "tan"}

// computes says what of a type keeps a tensor off the device; nil for nothing.
func computes(t *relay.Type) error {
	switch {
	case t == nil:
		return nil
	case t.Kind == relay.TypeTuple:
		for _, field := range t.Fields {
			if err := computes(field); err != nil {
				return err
			}
		}
	case t.Kind == relay.TypeTensor && !slices.Contains(types, t.DType):
		return fmt.Errorf("%s is not computed with on every OpenCL device", t.DType)
	case t.Kind == relay.TypeTensor && slices.Contains(t.Shape, 0):
		return errors.New("a tensor without elements has no memory on the device")
	}
	return nil
}

// Install makes relay.ext.collage_opencl available in this process, and TVM's code generator for OpenCL complete. The
// error says so where there is no device: a driver's file does not mean that there is one.
func (b *backend) Install() error {
	if err := region.Register(Compiler, plugin, plugin, emit); err != nil {
		return err
	}
	d, err := chosen()
	if err != nil {
		return err
	}
	b.device.Store(d)
	return completeCodeGenerator()
}

// device is what the plug-in says of a device (byoc/runtime/opencl_devices.h).
type device struct {
	Name    string
	Version string
	Driver  string
	Memory  int64 `json:"memory_bytes"`
}

// chosen is the device that regions run on.
func chosen() (*device, error) {
	at, err := bridge.Global("collage.runtime.opencl.Device")
	if err != nil {
		return nil, err
	}
	index, err := at.Int()
	if err != nil {
		return nil, err
	}
	found, err := bridge.Global("collage.runtime.opencl.Devices")
	if err != nil {
		return nil, err
	}
	text, err := found.Str()
	if err != nil {
		return nil, err
	}
	var devices []device
	if err := json.Unmarshal([]byte(text), &devices); err != nil {
		return nil, fmt.Errorf("what the plug-in says of the devices is not readable: %w", err)
	}
	return &devices[index], nil
}
