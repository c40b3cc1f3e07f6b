// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/relay"
)

// Traits are what the graph level must know of a backend.
type Traits struct {
	// Anything: see byoc.Backend.TakesAnything. Such a backend's share stays inline, fused as TVM likes.
	Anything bool
	// Merges: see byoc.Backend.MergesRegions. Where neighbours do not merge, what crossing the border of each takes is
	// in its own cost.
	Merges bool
	// Graph says that it runs a region as it likes, whichever of its candidates the region is made of
	// (byoc.GraphLevel).
	Graph bool
	// Declared is what the backend says about its borders; nil where it says nothing.
	Declared byoc.BorderCost
	// Compiler is the Compiler attribute of its regions. Backends with the same one share regions, and have the same
	// borders.
	Compiler string
}

// TraitsOf reads them off a backend.
func TraitsOf(b byoc.Backend) Traits {
	return Traits{Anything: b.TakesAnything(), Merges: b.MergesRegions(), Graph: b.Level() == byoc.GraphLevel,
		Declared: byoc.BorderCostOf(b), Compiler: b.Compiler()}
}

// Borders holds what it takes to bring values to a backend, or to those that share its regions, and away from it. What
// a backend declares is believed; else it is learnt from profiles, beginning with what moving the bytes once would
// take.
type Borders struct {
	traits func(backend string) Traits
	sums   map[string]*Border // by compiler
}

// What is believed before anything was seen, with the weight that it keeps.
const (
	// copyRate is what a byte takes that is read and written once, in milliseconds: 10 GB/s.
	copyRate = 1e-7
	// callTime is what calling a region takes, in milliseconds.
	callTime = 0.005
	// priorBytes and priorCalls are how much it is believed, in bytes and calls.
	priorBytes = 4 << 20
	priorCalls = 4
)

// NewBorders begins with nothing seen.
func NewBorders(traits func(backend string) Traits) *Borders {
	return &Borders{traits: traits, sums: map[string]*Border{}}
}

// Observe takes what a profile says about borders; times are multiplied by scale.
func (b *Borders) Observe(p *Profile, scale float64) {
	for _, seen := range p.Borders {
		sum := b.sums[b.compiler(seen.Backend)]
		if sum == nil {
			sum = &Border{}
			b.sums[b.compiler(seen.Backend)] = sum
		}
		sum.Calls, sum.CallMilliseconds = sum.Calls+seen.Calls, sum.CallMilliseconds+scale*seen.CallMilliseconds
		sum.Ins, sum.InBytes, sum.In = sum.Ins+seen.Ins, sum.InBytes+seen.InBytes, sum.In+scale*seen.In
		sum.Outs, sum.OutBytes, sum.Out = sum.Outs+seen.Outs, sum.OutBytes+seen.OutBytes, sum.Out+scale*seen.Out
	}
}

// compiler is the one of the backend of a region, or of those that share it (annotate.Region.Backend); "" for what
// stays inline.
func (b *Borders) compiler(backend string) string {
	one, _, _ := strings.Cut(backend, "+")
	return b.traits(one).Compiler
}

// Cost is what it is believed to take to bring a value of a type to a backend, and from it to elsewhere, in
// milliseconds. Calling a region is shared among the values that it reads.
func (b *Borders) Cost(backend string, t *relay.Type) (in, out float64) {
	traits := b.traits(backend)
	if traits.Declared != nil {
		return border.OfType(traits.Declared, t)
	}
	rate, compiler := copyRate, traits.Compiler
	switch {
	case traits.Anything:
		rate, compiler = 0, "" // plain layouts, and nothing to be called
	case !traits.Merges:
		return 0, 0
	}
	seen := b.sums[compiler]
	if seen == nil {
		seen = &Border{}
	}
	bytes := float64(typeBytes(t))
	in = bytes * (rate*priorBytes + seen.In) / float64(priorBytes+seen.InBytes)
	out = bytes * (rate*priorBytes + seen.Out) / float64(priorBytes+seen.OutBytes)
	if !traits.Anything {
		in += (callTime*priorCalls + seen.CallMilliseconds) / float64(priorCalls+max(seen.Calls, seen.Ins))
	}
	return in, out
}
