// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// Table holds what the candidates of one function cost: measured alone, and in place wherever a placement that had them
// was profiled. It is filled in a fixed order, so that the same profiles give the same table.
type Table struct {
	set      *candidate.Set
	isolated []float64
	// bounded says that isolated is no more than a lower bound.
	bounded []bool
	traits  func(backend string) Traits
	// context has what was seen of each candidate, one number for each profile, in their order.
	context [][]float64
	// sums of what was seen, and of what the same had cost alone, by computation, by operator and by backend.
	byKey, byOperator, byBackend map[string]*ratio
}

type ratio struct{ context, isolated float64 }

func (r *ratio) add(context, isolated float64) {
	r.context += context
	r.isolated += isolated
}

// NewTable begins with what was measured of each candidate alone, in milliseconds (+Inf where it failed; a lower bound
// where nothing was, which bounded says).
func NewTable(set *candidate.Set, isolated []float64, bounded []bool, traits func(backend string) Traits) *Table {
	t := &Table{set: set, isolated: isolated, bounded: bounded, traits: traits,
		context: make([][]float64, len(isolated)),
		byKey:   map[string]*ratio{}, byOperator: map[string]*ratio{}, byBackend: map[string]*ratio{}}
	return t
}

// Observe takes what a profile says about the candidates that were chosen: a part's time is shared among those in it by
// what they cost alone. Candidates that were not chosen, but ran as they stand, are known by it, too: those that stay
// inline (TVM's kernels are exactly its nodes), and those of engines that run regions in their own way, whatever they
// were cut from (the region's parts are exactly its nodes). What crossing borders took is not in it (Borders), but
// where a backend's neighbours do not merge. Times are multiplied by scale.
func (t *Table) Observe(profile *Profile, chosen []int, scale float64) {
	owner := map[relay.NodeID]int{}
	for _, k := range chosen {
		for _, v := range t.set.Candidates[k].Nodes {
			owner[v] = k
		}
	}
	sums := map[int]float64{}
	partOf := map[relay.NodeID]int{}
	for i := range profile.Parts {
		part := &profile.Parts[i]
		weights := map[int]float64{}
		var order []int
		total := 0.0
		for _, v := range part.Nodes {
			partOf[v] = i
			k, ok := owner[v]
			if !ok || t.set.Candidates[k].Free {
				continue
			}
			if _, seen := weights[k]; !seen {
				order = append(order, k)
			}
			w := t.weight(k)
			weights[k] += w
			total += w
		}
		for _, k := range order {
			sums[k] += scale * t.inPlace(part, t.set.Candidates[k].Backend) * weights[k] / total
		}
	}
	for _, k := range slices.Sorted(keysOf(sums)) {
		t.see(k, sums[k])
	}
	// What TVM, and engines that are given whole regions, made of their share, whatever was chosen there.
	for k := range t.set.Candidates {
		c := &t.set.Candidates[k]
		traits := t.traits(c.Backend)
		if _, was := sums[k]; was || c.Free || !traits.Anything && !traits.Graph || math.IsInf(t.isolated[k], 1) {
			continue
		}
		if ms, exact := t.ran(profile, partOf, owner, c); exact {
			t.see(k, scale*ms)
		}
	}
}

// inPlace is what a part took that its candidates are to be charged with.
func (t *Table) inPlace(part *Part, backend string) float64 {
	ms := part.Milliseconds + part.Border
	if traits := t.traits(backend); traits.Anything || traits.Merges {
		ms -= part.Crossing
	}
	return ms
}

// ran is the time of the parts that hold nothing but a candidate's nodes and together all its operators.
func (t *Table) ran(profile *Profile, partOf map[relay.NodeID]int, owner map[relay.NodeID]int,
	c *candidate.Candidate) (float64, bool) {
	parts := map[int]int{}
	for _, v := range c.Nodes {
		k, chosen := owner[v]
		if chosen && !t.set.Candidates[k].Free && t.set.Candidates[k].Backend != c.Backend {
			return 0, false
		}
		if !chosen && !t.traits(c.Backend).Anything {
			return 0, false // it ran inline
		}
		i, ok := partOf[v]
		if !ok {
			if candidate.IsOperator(&t.set.Graph.Nodes[v]) {
				return 0, false
			}
			continue
		}
		parts[i]++
	}
	ms := 0.0
	for _, i := range slices.Sorted(keysOf(parts)) {
		if parts[i] != len(profile.Parts[i].Nodes) {
			return 0, false
		}
		ms += t.inPlace(&profile.Parts[i], c.Backend)
	}
	return ms, len(parts) > 0
}

func keysOf[V any](m map[int]V) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// weight is what a candidate's share of a part's time is measured by, for each of its nodes in it.
func (t *Table) weight(k int) float64 {
	w := t.isolated[k]
	if !(w > 0) || math.IsInf(w, 1) {
		w = 1e-3
	}
	return w / float64(len(t.set.Candidates[k].Nodes))
}

// Believe notes what a candidate took in place, in one network after the other, where that is known from elsewhere.
func (t *Table) Believe(k int, history []float64) {
	for _, ms := range history {
		t.see(k, ms)
	}
}

// see notes what a candidate took in place.
func (t *Table) see(k int, ms float64) {
	t.context[k] = append(t.context[k], ms)
	alone := t.isolated[k]
	if !(alone > 0) || math.IsInf(alone, 1) {
		return
	}
	for i, m := range t.ratios() {
		key := t.ratioKeys(k)[i]
		if m[key] == nil {
			m[key] = &ratio{}
		}
		m[key].add(ms, alone)
	}
}

// ratios are the sums, the most particular first; ratioKeys says which of them a candidate belongs to.
func (t *Table) ratios() []map[string]*ratio {
	return []map[string]*ratio{t.byKey, t.byOperator, t.byBackend}
}

func (t *Table) ratioKeys(k int) [3]string {
	c := &t.set.Candidates[k]
	prefix := c.Backend + " "
	if t.bounded[k] { // what a bound has to do with a time is another question
		prefix = "bounded " + prefix
	}
	return [3]string{prefix + c.Composite + " " + c.Key, prefix + t.operator(c), prefix}
}

// operator names what a candidate is about: its first operator, which in most patterns is the one that takes the time.
func (t *Table) operator(c *candidate.Candidate) string {
	for _, v := range c.Nodes {
		if n := &t.set.Graph.Nodes[v]; candidate.IsOperator(n) {
			return n.Op
		}
	}
	return ""
}

const (
	// mostScale is how far from what it took alone the cost of a candidate is believed to be that was not seen in
	// place.
	mostScale = 2.0
	// boundScale is how many times its lower bound a candidate is believed to take of which nothing else is known.
	boundScale = 3.0
)

// Cost is what candidate k is believed to cost in place, in milliseconds: what was seen (InPlace); else what it took
// alone, scaled by what the same computation, else the same operator, else the backend as a whole took in place
// against alone. seen says which.
func (t *Table) Cost(k int) (ms float64, seen bool) { return t.costWithin(k, mostScale, boundScale) }

func (t *Table) costWithin(k int, mostScale, boundScale float64) (ms float64, seen bool) {
	if ms, seen := t.Seen(k); seen {
		return ms, true
	}
	if math.IsInf(t.isolated[k], 1) || t.set.Candidates[k].Free {
		return t.isolated[k], false
	}
	keys := t.ratioKeys(k)
	for i, m := range t.ratios() {
		r := m[keys[i]]
		if r == nil || r.isolated <= 0 {
			continue
		}
		scale := r.context / r.isolated
		if t.bounded[k] {
			return t.isolated[k] * max(1, scale), false
		}
		return t.isolated[k] * min(mostScale, max(1/mostScale, scale)), false
	}
	if t.bounded[k] {
		return t.isolated[k] * boundScale, false
	}
	return t.isolated[k], false
}

// Costs are what all candidates are believed to cost in place.
func (t *Table) Costs() []float64 {
	costs := make([]float64, len(t.isolated))
	for k := range costs {
		costs[k], _ = t.Cost(k)
	}
	return costs
}

// InPlace is what was seen of a candidate in place: a sample for each profile that tells of it, in their order. One
// profile is one run of one network, so a single one says little; Interval says how far they are apart. Unknown where
// none does.
func (t *Table) InPlace(k int) cost.Cost {
	if len(t.context[k]) == 0 {
		return cost.Cost{}
	}
	return cost.Cost{Samples: slices.Clone(t.context[k]), Origin: cost.Context}
}

// Seen is InPlace's estimate, in milliseconds.
func (t *Table) Seen(k int) (float64, bool) {
	if len(t.context[k]) == 0 {
		return 0, false
	}
	return t.InPlace(k).Estimate(), true
}
