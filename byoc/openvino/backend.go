// SPDX-License-Identifier: Apache-2.0

// Package openvino is OpenVINO as a graph-level backend: whole regions run in its CPU plug-in, which fuses and lays out
// for itself.
//
// What comes in: for the placement, graphs in which its patterns are looked for and from which it proposes regions;
// from TVM, region functions (relay.ext.collage_openvino). What goes out: the patterns with their limits, the proposed
// regions, and for each region function a program for libcollage_openvino.so: OpenVINO IR version 11, XML with the
// weights beside it.
//
// An operator is a check and a writer (operators.go): the check says in words what OpenVINO does otherwise than Relay,
// the writer appends layers to the IR (ir.go, writer.go). The families of operators have a file each; program.go goes
// through a region, patterns.go says what the placement looks for.
package openvino

import (
	"slices"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/inbytes"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions.
const (
	Name     = "openvino"
	Compiler = "collage_openvino"
)

type backend struct {
	name      string
	precision byoc.Precision
	patterns  func() []byoc.Pattern
}

// New gives the backend. It needs neither TVM nor OpenVINO; Probe says whether OpenVINO is there.
func New() byoc.Backend { return newBackend(Name, byoc.F32) }

// NewBF16 gives the backend that has OpenVINO compute in bfloat16, what it would do by itself on processors with
// instructions for it. In a region that has some of it, what other backends have there is marked as float32.
func NewBF16() byoc.Backend { return narrow{newBackend(Name+"_bf16", byoc.BF16)} }

// NewINT8 gives the backend that has OpenVINO multiply bytes: where a network rounds to bytes itself, by the network's
// own scales, else by such as byoc.Rounding says. The weights stand in the artefact so.
func NewINT8() byoc.Backend {
	return inBytes{narrow{newBackend(Name+"_int8", byoc.INT8)}, &inbytes.Quantised{}}
}

// newBackend makes one of them; composites are called after it.
func newBackend(name string, precision byoc.Precision) backend {
	return backend{name, precision, sync.OnceValue(func() []byoc.Pattern { return patterns(prefix(name)) })}
}

// prefix begins the names of a backend's composites.
func prefix(name string) string { return Compiler + strings.TrimPrefix(name, Name) }

// narrow is a backend that does not compute in the network's own type.
type narrow struct{ backend }

// Precision and Wide implement byoc.Narrow.
func (n narrow) Precision() byoc.Precision { return n.precision }
func (narrow) Wide() string                { return Name }

// Description says in what it computes, too.
func (n narrow) Description() string {
	if n.precision == byoc.INT8 {
		return n.backend.Description() + ", which multiplies bytes"
	}
	return n.backend.Description() + ", computed in bfloat16"
}

// Probe is OpenVINO's, on a processor that gains by the type.
func (n narrow) Probe() byoc.Probe {
	if n.precision == byoc.INT8 {
		return byoc.ProbeINT8(n.backend.Probe(), Name)
	}
	return byoc.ProbeBF16(n.backend.Probe(), Name)
}

func (b backend) Name() string { return b.name }
func (backend) Description() string {
	return "OpenVINO, Intel's inference engine, on the CPU: whole regions as one model"
}
func (backend) Level() byoc.Level          { return byoc.GraphLevel }
func (backend) Compiler() string           { return Compiler }
func (b backend) Patterns() []byoc.Pattern { return b.patterns() }
func (backend) TakesAnything() bool        { return false }

// MergesRegions is true: inside a region OpenVINO keeps its own layouts, and each border costs a call.
func (backend) MergesRegions() bool { return true }

// SharesCompiler is true: what is computed in float32, in bfloat16 and in bytes stands in one model.
func (backend) SharesCompiler() bool { return true }

// Propose implements byoc.Proposer: recurrent layers, the greatest regions that OpenVINO can run, and their parts
// between post-dominators, so that "the engine takes it all" is a candidate whose cost is measured. What is a match of
// a pattern, too, is left out: it would be written, and measured, the same.
func (b backend) Propose(g *relay.Graph, _ []byoc.Learnt) []byoc.Proposal {
	regions := propose.Regions(g, func(v relay.NodeID) bool { return check(callOf(g, v)) == nil }, propose.Limit)
	return append(recurrent.Propose(g, prefix(b.name)), slices.DeleteFunc(regions, func(p byoc.Proposal) bool {
		return len(p.Nodes) <= longest &&
			b.matched(g, p.Nodes)
	})...)
}

// TakesOpen implements byoc.OpenTaker. What is computed narrowly is written with its sizes.
func (b backend) TakesOpen() bool { return b.precision == byoc.F32 }

// ProposedKernels implements byoc.KernelProposer.
func (backend) ProposedKernels() []string { return recurrent.Kernels() }

// longest is how many nodes the longest pattern can cover: an operator, bias, residual value and GELU.
const longest = 9

// matched says that one of the patterns covers exactly these nodes.
func (b backend) matched(g *relay.Graph, nodes []relay.NodeID) bool {
	for _, p := range b.patterns() {
		for _, m := range g.Match(p.Shape, nodes[len(nodes)-1]) {
			if slices.Equal(m.Nodes, nodes) {
				return true
			}
		}
	}
	return false
}

// Install makes relay.ext.collage_openvino available in this process. OpenVINO itself is opened when a region is first
// run.
func (backend) Install() error {
	return region.RegisterOpen(Compiler, Name, Name, emit)
}

// Libraries implements byoc.Linker: one plug-in runs the regions of both precisions.
func (backend) Libraries() []string { return []string{Name} }
