// SPDX-License-Identifier: Apache-2.0

// Package opencl is OpenCL devices: a graphics processor, an accelerator, or the processor itself by way of pocl. Two
// backends run there: TVM's own code (tvm_opencl), and the products and convolutions of the library CLBlast (clblast).
// Regions, in which both may stand, are networks of their own, whose weights and intermediate values stay in the
// device's memory; only what crosses a region's border is copied.
//
// What comes in: for the placement, graphs of which they say what can run on such a device; from TVM, region functions
// (relay.ext.collage_opencl). What goes out: candidates by rules and patterns, and proposed regions; and for each region
// function a program for libcollage_opencl.so (byoc/runtime/opencl_program.h): the library that TVM exports of it, in
// which calls of CLBlast are modules of their own (byoc/runtime/opencl_clblast.cc).
package opencl

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends.
const Name = "tvm_opencl"

type backend struct{ remote }

// New gives the backend. It needs neither TVM nor OpenCL; Probe says whether that is there.
func New() byoc.Backend { return &backend{} }

func (*backend) Name() string { return Name }
func (*backend) Description() string {
	return "TVM's own code generator, for an OpenCL device: whole regions in the device's memory"
}
func (*backend) Level() byoc.Level        { return byoc.GraphLevel }
func (*backend) Patterns() []byoc.Pattern { return nil }

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
