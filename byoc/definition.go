// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// Definition is a backend as data, for the common case:
//
//	byoc.Register(byoc.Definition{Name: "mylib", Description: "...", Patterns: ..., Emit: csource.Emitter(...)}.Backend())
//
// A backend that needs more implements Backend itself. At least one of Patterns, Rules and Propose says what it takes.
type Definition struct {
	// Name is what users write in --backends; Description one line for `collage backends`.
	Name, Description string
	Level             Level
	// Compiler is the Compiler attribute of the regions; "" for Name with '_' for '-'.
	Compiler string
	// Patterns, most specific first; Composite names begin with Compiler and a point, or with Name where
	// SharesCompiler.
	Patterns []Pattern
	// Rules generate candidates by operator kind; nil for none.
	Rules *Rules
	// Propose is Proposer.Propose; nil for none. propose.Regions does it for engines.
	Propose func(g *relay.Graph, learnt []Learnt) []Proposal
	// MergesRegions joins neighbouring candidates into one region.
	MergesRegions bool
	// SharesCompiler: see Cohabitant. It needs MergesRegions.
	SharesCompiler bool
	// Emit makes regions executable. Required.
	Emit Emitter
	// Probe says whether the library is here, and which version; nil for a backend that needs none.
	Probe func() Probe
	// Cost estimates instead of measuring; nil to measure. BorderCost is what crossing the border takes; nil for
	// nothing.
	Cost       CostFunction
	BorderCost BorderCost
	// PackParameters prepares constants when a region is compiled; nil to take them as they are.
	PackParameters PackParameters
	// Libraries are what exported models are linked with (Linker).
	Libraries []string
}

// Backend gives the backend that a definition describes, for Register, which says what is wrong with it.
func (d Definition) Backend() Backend {
	if d.Compiler == "" {
		d.Compiler = strings.ReplaceAll(d.Name, "-", "_")
	}
	return &defined{d}
}

// defined is a Definition with the methods of a Backend.
type defined struct{ d Definition }

func (b *defined) Name() string                   { return b.d.Name }
func (b *defined) Description() string            { return b.d.Description }
func (b *defined) Level() Level                   { return b.d.Level }
func (b *defined) Compiler() string               { return b.d.Compiler }
func (b *defined) Patterns() []Pattern            { return b.d.Patterns }
func (b *defined) TakesAnything() bool            { return false }
func (b *defined) MergesRegions() bool            { return b.d.MergesRegions }
func (b *defined) SharesCompiler() bool           { return b.d.SharesCompiler }
func (b *defined) Install() error                 { return b.d.Emit.Install(b) }
func (b *defined) Rules() *Rules                  { return b.d.Rules }
func (b *defined) CostFunction() CostFunction     { return b.d.Cost }
func (b *defined) BorderCost() BorderCost         { return b.d.BorderCost }
func (b *defined) PackParameters() PackParameters { return b.d.PackParameters }
func (b *defined) Libraries() []string            { return b.d.Libraries }

func (b *defined) Probe() Probe {
	if b.d.Probe == nil {
		return Probe{Usable: true, Library: b.d.Name}
	}
	return b.d.Probe()
}

func (b *defined) Propose(g *relay.Graph, learnt []Learnt) []Proposal {
	if b.d.Propose == nil {
		return nil
	}
	return b.d.Propose(g, learnt)
}

// fault names the first field that is missing or contradicts another; "" where none does.
func (b *defined) fault() (field, text string) {
	switch {
	case b.d.Emit == nil:
		return "Emit", "is missing: csource.Emitter, region.Engine, byoc.ModuleEmitter or byoc.ExistingEmitter say " +
			"how regions " +
			"are made executable"
	case b.d.Rules != nil && b.d.Rules.Supports == nil:
		return "Rules.Supports", "is missing: it says which operators the rules may combine"
	case b.d.Rules != nil && b.d.Rules.Style > ArbitraryFusion:
		return "Rules.Style", "is none of NoFusion, TVMFusion and ArbitraryFusion"
	case b.d.Rules != nil && (b.d.Rules.MaxDepth < 0 || b.d.Rules.Limit < 0):
		return "Rules.MaxDepth", "and Rules.Limit must not be negative"
	}
	if b.d.SharesCompiler && !b.d.MergesRegions {
		return "SharesCompiler", "needs MergesRegions: what does not merge has no region to share"
	}
	for _, p := range b.d.Patterns {
		own := strings.HasPrefix(p.Composite, b.d.Compiler+".") || b.d.SharesCompiler &&
			strings.HasPrefix(p.Composite, b.d.Name+".")
		if !p.Bare && p.Composite != "" && !own {
			return "Patterns", "holds " + p.Composite + ", which does not begin with the Compiler, " + b.d.Compiler +
				"."
		}
	}
	return "", ""
}
