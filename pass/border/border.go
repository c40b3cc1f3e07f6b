// SPDX-License-Identifier: Apache-2.0

// Package border is the one place that says what is paid for a value that goes from one region to another.
//
// What comes in: who makes and who reads each value (Flow), which node is in which region (Regions), and what a value
// costs where it leaves a region of some side and where it enters one (Ends). What goes out: what is paid for
// (Flow.Each), and the sum (Flow.Sum). The solver's objective, the ranking of whole networks, the plan and the check of
// its proof all ask here.
//
// A value is paid for once by the region that makes it, where anything outside of that region reads it, and once by
// each other region that reads it, however many nodes read it there:
//
//   - What stays inline, TVM's share, is one region.
//   - Within a region nothing is paid, whether it is one backend's or shared by several. Two regions pay whoever's they are.
//   - An input of the function is made by nobody, the result of a scope is read by somebody outside; inline, neither is paid
//     for.
//   - Constants are bound where they are used, and cost nothing.
//   - A tuple costs what its fields cost together (OfType).
//
// Sums are of whole picoseconds, so that they are the same in whatever order they are made.
package border

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/relay"
)

// Flow says who makes and who reads the values of a graph.
type Flow struct {
	// Readers[v] are the nodes that read the value of v, ascending, each once. Constants have none.
	Readers [][]relay.NodeID
	// Made[v] says that v is computed by some region, Result[v] that its value is that of a scope.
	Made, Result []bool
}

// FlowOf reads the flow off a graph. What stands between two nodes without computing anything (a function literal that
// is called) is looked through; what a nested scope captures is read there, and by the node that opens the scope.
func FlowOf(g *relay.Graph) *Flow {
	n := len(g.Nodes)
	f := &Flow{Readers: make([][]relay.NodeID, n), Made: make([]bool, n), Result: make([]bool, n)}
	for v := range n {
		id := relay.NodeID(v)
		if !g.Placeable(id) {
			continue
		}
		f.Made[v], f.Result[v] = true, g.ScopeRoot(id)
		inputs, _ := g.Boundary([]relay.NodeID{id})
		for _, u := range inputs {
			f.Readers[u] = append(f.Readers[u], id)
		}
	}
	return f
}

// Reads are the values that each node reads, ascending: Readers the other way round.
func (f *Flow) Reads() [][]relay.NodeID {
	reads := make([][]relay.NodeID, len(f.Readers))
	for u, readers := range f.Readers {
		for _, w := range readers {
			reads[w] = append(reads[w], relay.NodeID(u))
		}
	}
	return reads
}

// Side numbers backends, or whatever else a region can belong to; backends that share regions are one side. The numbers
// are the caller's.
type Side int32

// Regions say in which region each node is.
type Regions struct {
	// Of has the number of each node's region; 0 for what stays inline, and for what nobody makes.
	Of []int32
	// Sides has the side of each region; that of what stays inline first.
	Sides []Side
}

// Payment is a value that is paid for at a region: where it leaves the region that makes it (Out), or where it enters
// one that reads it.
type Payment struct {
	Value  relay.NodeID
	Region int32
	Out    bool
}

// Each calls pay for all that is paid for, by value; first where it leaves, then where it enters, by the first reader.
func (f *Flow) Each(r *Regions, pay func(Payment)) {
	var entered []int32
	for v, readers := range f.Readers {
		id := relay.NodeID(v)
		home := r.Of[v]
		leaves := f.Result[v] && home > 0
		entered = entered[:0]
		for _, w := range readers {
			to := r.Of[w]
			if f.Made[v] && to == home || !f.Made[v] && to == 0 || slices.Contains(entered, to) {
				continue
			}
			entered = append(entered, to)
		}
		if f.Made[v] && (leaves || len(entered) > 0) {
			pay(Payment{id, home, true})
		}
		for _, to := range entered {
			pay(Payment{id, to, false})
		}
	}
}

// Ends is what a value costs where it enters a region of a side, and where it leaves one, in picoseconds.
type Ends func(v relay.NodeID, s Side) (in, out int64)

// Of is what a payment costs.
func (e Ends) Of(p Payment, r *Regions) int64 {
	in, out := e(p.Value, r.Sides[p.Region])
	if p.Out {
		return out
	}
	return in
}

// Sum is what all that is paid for costs together, in picoseconds.
func (f *Flow) Sum(r *Regions, ends Ends) int64 {
	sum := int64(0)
	f.Each(r, func(p Payment) { sum += ends.Of(p, r) })
	return sum
}

// Rounded makes Ends of costs in milliseconds: each is rounded to whole picoseconds.
func Rounded(of func(v relay.NodeID, s Side) (in, out float64)) Ends {
	return func(v relay.NodeID, s Side) (in, out int64) {
		i, o := of(v, s)
		return int64(math.Round(i * 1e9)), int64(math.Round(o * 1e9))
	}
}

// OfType is what a value of a type costs by what each tensor in it costs; nothing for a value without a type.
func OfType(tensor func(t *relay.Type) (in, out float64), t *relay.Type) (in, out float64) {
	if t == nil {
		return 0, 0
	}
	if t.Kind != relay.TypeTuple {
		return tensor(t)
	}
	for _, field := range t.Fields {
		i, o := OfType(tensor, field)
		in, out = in+i, out+o
	}
	return in, out
}
