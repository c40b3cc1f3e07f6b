// SPDX-License-Identifier: Apache-2.0

// Package onnxruntime is ONNX Runtime as a backend: an engine that is given a whole region and optimises across its
// operators.
//
// What comes in: for the placement, graphs in which supported operators are looked for; from TVM, region functions
// through the packed function relay.ext.collage_onnxruntime. What goes out: patterns and proposed regions; and for each
// region function an ONNX model without its weights, which libcollage_onnxruntime.so hands to ONNX Runtime together
// with them (byoc/runtime/onnxruntime_*.cc).
//
// A rule (rule.go) holds for each of Relay's operators when it means what ONNX's means, and how it is written.
// convolution.go, pool.go, product.go, norm.go, elementwise.go, reduce.go, shape.go, selection.go and image.go hold the
// rules; model.go turns a region into a graph, proto.go writes it as protobuf.
package onnxruntime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends; Compiler is the Compiler attribute of the regions.
const (
	Name     = "onnxruntime"
	Compiler = "collage_onnxruntime"
)

// DumpEnv names a folder into which each region that is compiled is also written as a complete ONNX model, SYMBOL.onnx:
// what the engine is given can be looked at, and run by ONNX Runtime alone.
const DumpEnv = "COLLAGE_ONNXRUNTIME_DUMP"

type backend struct {
	name     string
	patterns func() []byoc.Pattern
}

// New gives the backend. It needs neither TVM nor ONNX Runtime; Probe says whether that is there.
func New() byoc.Backend {
	return &backend{Name, sync.OnceValue(func() []byoc.Pattern { return patterns(Name, refusalOfNodes) })}
}

func (b *backend) Name() string { return b.name }
func (*backend) Description() string {
	return "ONNX Runtime, an engine for whole regions, through its C API"
}
func (*backend) Level() byoc.Level          { return byoc.GraphLevel }
func (*backend) Compiler() string           { return Compiler }
func (b *backend) Patterns() []byoc.Pattern { return b.patterns() }
func (*backend) TakesAnything() bool        { return false }
func (*backend) MergesRegions() bool        { return true }

// SharesCompiler is true: what is computed in float32 and in bytes stands in one model.
func (*backend) SharesCompiler() bool { return true }

// Libraries implements byoc.Linker: the plug-in, not ONNX Runtime itself.
func (*backend) Libraries() []string { return []string{Name} }

// Propose implements byoc.Proposer: recurrent layers, the greatest regions that can be run, and their stages.
func (b *backend) Propose(g *relay.Graph, _ []byoc.Learnt) []byoc.Proposal {
	return append(recurrent.Propose(g, b.name),
		propose.Regions(g, func(id relay.NodeID) bool { return refusal(g, id) == nil }, propose.Limit)...)
}

// TakesOpen implements byoc.OpenTaker.
func (*backend) TakesOpen() bool { return true }

// ProposedKernels implements byoc.KernelProposer.
func (*backend) ProposedKernels() []string { return recurrent.Kernels() }

// Install makes relay.ext.collage_onnxruntime and the engine's plug-in available in this process.
func (*backend) Install() error {
	if err := region.RegisterOpen(Compiler, Name, Name, emit); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return nil
}

// formatLine begins the text of a region; libcollage_onnxruntime.so (byoc/runtime/onnxruntime_program.cc) reads it.
const formatLine = "collage-onnxruntime 3\n"

// emit is the region.Emitter. It writes formatLine, a line with the names of the region's groups (region.GroupsLine),
// one with the names of the model's outputs, the names of the initialisers that the constants are, with spaces between,
// a zero, and the model, whose nodes' names say to which groups each belongs (region.LayerPrefix).
func emit(p *region.Program) ([]byte, []region.ValueID, error) {
	w, err := write(p, p.ConstantBytes, false)
	if err != nil {
		return nil, nil, err
	}
	if folder := os.Getenv(DumpEnv); folder != "" {
		if err := dump(p, folder); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", DumpEnv, err)
		}
	}
	groups, _ := p.Groups()
	head := formatLine + region.GroupsLine(groups) + strings.Join(w.outputs, " ") + "\n" +
		strings.Join(w.names, " ") + "\x00"
	return append([]byte(head), w.model...), w.constants, nil
}

// dump writes the region as a model that is complete by itself.
func dump(p *region.Program, folder string) error {
	w, err := write(p, p.ConstantBytes, true)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, p.Symbol+".onnx"), w.model, 0o644)
}
