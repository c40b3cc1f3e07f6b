// SPDX-License-Identifier: Apache-2.0

// Package opencl is OpenCL devices: a graphics processor, an accelerator, or the processor itself by way of pocl. Two
// backends run there: TVM's own code (tvm_opencl), and the products and convolutions of the library CLBlast (clblast).
// Regions, in which both may stand, are networks of their own, whose weights and intermediate values stay in the
// device's memory; only what crosses a region's border is copied.
//
// What comes in: for the placement, graphs of which they say what can run on such a device. What goes out: candidates by
// rules and patterns, and proposed regions. How regions are built and run is byoc/device; in them, calls of CLBlast are
// modules of their own (byoc/runtime/opencl_clblast.cc).
package opencl

import (
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/device"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends.
const Name = "tvm_opencl"

const kindName = "opencl"

// kind is OpenCL, whose kernels are kept as their source.
var kind = device.Kind{
	Name:    kindName,
	Target:  func(*device.Kind) (text, architecture string, err error) { return kindName, device.AnyOf, nil },
	Prepare: prepare,
}

// prepare completes TVM's code generator, and has TVM build the calls of CLBlast within regions.
func prepare() error {
	if err := calls.Register(); err != nil {
		return err
	}
	return completeCodeGenerator()
}

type backend struct{ *device.Remote }

// New gives the backend. It needs neither TVM nor OpenCL; Probe says whether that is there.
func New() byoc.Backend { return &backend{device.NewRemote(&kind)} }

func (*backend) Name() string { return Name }
func (*backend) Description() string {
	return "TVM's own code generator, for an OpenCL device: whole regions in the device's memory"
}
func (*backend) Level() byoc.Level        { return byoc.GraphLevel }
func (*backend) Patterns() []byoc.Pattern { return nil }

// limits are what every OpenCL device takes. Of other types (float16, float64) a device says by itself whether it does.
// TVM 0.19 writes calls of functions of C (tanf), which OpenCL has not.
var limits = device.Limits{
	Title:    "OpenCL",
	Types:    []string{"float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"},
	Misnamed: []string{"acos", "acosh", "asin", "asinh", "atan", "atanh", "tan"},
}

// Rules implements byoc.Ruler.
func (*backend) Rules() *byoc.Rules { return limits.Rules() }

// Propose implements byoc.Proposer.
func (*backend) Propose(g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	return limits.Propose(Name, g, learnt)
}
