// SPDX-License-Identifier: Apache-2.0

// Package native is the backend of Collage's own kernels (byoc/runtime/native): those that oneDNN does not have, or
// that may be faster. Each is a candidate of its own, measured beside oneDNN's and everybody else's.
//
// What comes in: graphs in which its patterns are looked for. What goes out: patterns with the kernel that each stands
// for, and attention and recurrent layers, which it proposes. Its regions are dnnl's: one code generator (byoc/dnnl,
// which knows the rules of both backends) and one engine write and run the candidates of both, so that neighbours share
// layouts, workspace and threads. docs/native.md says how a kernel is added.
package native

import (
	"fmt"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/onednn"
	"github.com/collage-tvm/collage/byoc/recurrent"
	"github.com/collage-tvm/collage/relay"
)

// Name is what users write in --backends.
const Name = "native"

type backend struct{ install func() error }

// New gives the backend. install makes the code generator available that it shares with dnnl (dnnl.Install).
func New(install func() error) byoc.Backend { return backend{install} }

// Rules are all patterns, those of each kernel most specific first.
var Rules = sync.OnceValue(func() []*onednn.Rule {
	return slices.Concat(normRules(), upsampledRules(), winogradRules(), narrowRules(),
		productRules(), stripRules(), GridRules("native.grid"), raggedRules())
})

var patterns = sync.OnceValue(func() []byoc.Pattern { return onednn.Patterns(Rules()) })

func (backend) Name() string { return Name }
func (backend) Description() string {
	return "Collage's own kernels for x86 CPUs, one candidate each; they share regions with dnnl"
}
func (backend) Level() byoc.Level        { return byoc.OperatorLevel }
func (backend) Compiler() string         { return onednn.Compiler }
func (backend) Patterns() []byoc.Pattern { return patterns() }
func (backend) TakesAnything() bool      { return false }

// MergesRegions and SharesCompiler: steps of this backend and of dnnl stand in one region.
func (backend) MergesRegions() bool  { return true }
func (backend) SharesCompiler() bool { return true }

// TakesSized implements byoc.SizedTaker.
func (backend) TakesSized() bool { return true }

// PaddingKernels implements byoc.PaddingClearer: attention goes sequence by sequence, and as products and a softmax it
// goes by places.
func (backend) PaddingKernels() (clears string, without []string) {
	return RaggedKernel, []string{AttentionKernel}
}

func (b backend) Install() error {
	if err := b.install(); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return nil
}

// RecurrentKernel is the kernel of LSTM, GRU and RNN (byoc/runtime/native/recurrent.h). Each is proposed under its own
// name (recurrent.Kernels).
const RecurrentKernel = "recurrent"

// Propose gives the attentions and the recurrent layers of a graph; what was learnt does not matter.
func (backend) Propose(g *relay.Graph, _ []byoc.Learnt) []byoc.Proposal {
	return append(attentions(g), recurrent.Propose(g, Name)...)
}

// ProposedKernels implements byoc.KernelProposer.
func (backend) ProposedKernels() []string {
	return append([]string{AttentionKernel}, recurrent.Kernels()...)
}

// runtimeRevision is raised whenever kernels change: what was measured with others is measured anew.
const runtimeRevision = 16

// Probe says whether the engine is here, which is dnnl's, and for which instructions the kernels are chosen: they are
// part of the version, and so of the key of costs.
func (backend) Probe() byoc.Probe { return probeFor(bestInstructionSet()) }

func probeFor(set instructionSet) byoc.Probe {
	engine := onednn.Probe(onednn.Engine)
	p := byoc.Probe{Library: "Collage's kernels", Usable: engine.Usable}
	if !p.Usable {
		// What is missing dnnl says.
		p.Reason, p.Remedy = "the engine that runs its regions is that of dnnl, which cannot be used", engine.Remedy
		return p
	}
	p.Version = fmt.Sprintf("%d.%s+oneDNN.%s", runtimeRevision, set, engine.Version)
	p.Features = []string{set.String()}
	return p
}
