// SPDX-License-Identifier: Apache-2.0

package network

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/placing"
)

// Plain is the placement that leaves everything to TVM; nil where TVM does not take everything or a constraint forbids
// it.
func (n *Network) Plain() *genome.Placement { return n.Single(n.Space.Backends[n.Space.Free()].Name()) }

// Reference is the placement that everything is held against: all of it on TVM, whether that may be chosen or not.
func (n *Network) Reference() (*genome.Placement, error) {
	p, err := n.Space.Decode(n.Space.Uniform(n.Space.Free()))
	if err == nil && p.Outlined() > 0 {
		p.Regions, p.Key = make([][]annotate.Region, len(p.Regions)), n.Space.Place(make([][]int, len(p.Chosen))).Key
	}
	return p, err
}

// Single is the placement that gives a backend all that it can take, of what has not failed, and the rest to TVM,
// without regard to costs: what a user of that backend alone would get. Where a backend has kernels to choose from it
// is Tuned: in no other way does its user choose. nil where the backend is not offered, or there is no such placement.
func (n *Network) Single(backend string) *genome.Placement {
	if n.chooses(backend) {
		return n.Tuned(backend)
	}
	return n.alone([]string{backend}, func(int, int) float64 { return placing.EachCandidate })
}

// chooses says that a backend has kernels of which one is chosen for an operator. An engine's are what it has for many
// operators at once, which it runs so whichever candidate they stand in.
func (n *Network) chooses(backend string) bool {
	b := n.Placing.ByName[backend]
	return b != nil && b.Level() == byoc.OperatorLevel && len(byoc.Kernels(b)) > 0
}

// Alone is Single without regard to what is known of costs: among a backend's own kernels the lower bounds decide. It
// is the same before anything was measured and afterwards, but for what is known to fail.
func (n *Network) Alone(backend string) *genome.Placement {
	if !n.chooses(backend) {
		return n.Single(backend)
	}
	overhead, all := n.Placing.Overhead().Option, n.Placing.All
	return n.alone([]string{backend}, func(i, k int) float64 { return all.Bounds[all.Of[i][k]] + overhead })
}

// Tuned is Single where the costs decide among the backend's own candidates: algorithms, and what is fused. One that
// was not measured counts by its bound, as the graph level counts it. Several backends get all that any of them can
// take, each operator from the one that is the cheapest there.
func (n *Network) Tuned(backends ...string) *genome.Placement {
	overhead, tables := n.Placing.Overhead().Option, n.tables()
	return n.alone(backends, func(i, k int) float64 {
		ms, _ := tables[i].Cost(k)
		return ms + overhead
	})
}

// GroupedKernels are the kernels of candidates that work on neighbours together (byoc.Pattern.Grouped), in the order in
// which their backends name them.
func (n *Network) GroupedKernels() []string {
	there := map[string]bool{}
	for _, f := range n.Placing.Functions {
		for k := range f.Set.Candidates {
			if c := &f.Set.Candidates[k]; c.Grouped {
				there[c.Kernel] = true
			}
		}
	}
	var kernels []string
	for _, b := range n.Placing.Backends {
		var names []string
		for _, p := range b.Patterns() {
			names = append(names, p.Kernel)
		}
		for _, kernel := range append(names, byoc.Kernels(b)...) { // which has those of no pattern, too
			if there[kernel] {
				kernels = append(kernels, kernel)
				delete(there, kernel)
			}
		}
	}
	return kernels
}

// Grouped is Tuned where kernels that work on neighbours together (byoc.Pattern.Grouped) do all that they can, this one
// before the others: what they take in a group is not known before a network with groups was measured, and by what
// their candidates take alone none would ever be built. nil where that kernel has no candidates.
func (n *Network) Grouped(kernel string, backends ...string) *genome.Placement {
	overhead, tables, there := n.Placing.Overhead().Option, n.tables(), false
	p := n.alone(backends, func(i, k int) float64 {
		f := n.Placing.Functions[i]
		c := &f.Set.Candidates[k]
		if c.Grouped {
			there = there || c.Kernel == kernel
			return overhead + later(c.Kernel != kernel) // the fewer candidates, the better
		}
		ms, _ := tables[i].Cost(k)
		return ms + overhead + apart*float64(c.Operators(f.Set.Graph))
	})
	if !there {
		return nil
	}
	return p
}

// later is what a candidate counts more, in milliseconds, where another one comes first that counts as much: less than
// any cost.
func later(is bool) float64 {
	if is {
		return 1e-6
	}
	return 0
}

// apart is what an operator counts, beside its cost, that is not done in a group where it could be, in milliseconds:
// more than costs are, less than elsewhere.
const apart = 1e3

// Together is Alone of backends that share regions: each operator is the one's whose lower bound is the lowest there,
// and where the bounds are alike the last one's, which has kernels for what the others do. Kernels that work on
// neighbours together do all that they can, as in Grouped, the first of GroupedKernels before the others; but not what
// one of these backends may do in a narrower type, where the lowest bound says. So do kernels that do without padding
// where that is cleared: what they take where it is computed says nothing.
func (n *Network) Together(backends ...string) *genome.Placement {
	overhead, all := n.Placing.Overhead().Option, n.Placing.All
	kernels, withoutPadding := n.GroupedKernels(), n.withoutPadding(backends)
	narrowest := 0
	for _, name := range backends {
		narrowest = max(narrowest, n.precision(name))
	}
	return n.alone(backends, func(i, k int) float64 {
		f := n.Placing.Functions[i]
		c := &f.Set.Candidates[k]
		if c.Grouped && n.precision(c.Backend) == narrowest {
			return overhead + later(c.Kernel != kernels[0])
		}
		if slices.Contains(withoutPadding, c.Kernel) {
			return overhead
		}
		ms := all.Bounds[all.Of[i][k]]
		if c.Backend == backends[len(backends)-1] {
			ms = asLast(ms, alike)
		}
		return ms + overhead + apart*float64(c.Operators(f.Set.Graph))
	})
}

// withoutPadding are the kernels of backends that do without padding, where candidates of theirs clear it.
func (n *Network) withoutPadding(backends []string) (kernels []string) {
	for _, name := range backends {
		clearer, ok := n.Placing.ByName[name].(byoc.PaddingClearer)
		if !ok {
			continue
		}
		clears, without := clearer.PaddingKernels()
		for _, f := range n.Placing.Functions {
			if slices.ContainsFunc(f.Set.Candidates, func(c candidate.Candidate) bool {
				return c.Backend == name && c.Kernel == clears
			}) {
				kernels = append(kernels, without...)
				break
			}
		}
	}
	return kernels
}

// precision is the place among byoc.Precisions of what a backend computes in.
func (n *Network) precision(backend string) int {
	return slices.Index(byoc.Precisions(), byoc.PrecisionOf(n.Placing.ByName[backend]))
}

// alike is by what share lower bounds of one operator may differ and say nothing about who is faster.
const alike = 0.01

// asLast is what the last of backends that share regions counts for a lower bound of its own.
func asLast(bound, alike float64) float64 { return bound * (1 - alike) }

// Families are the backends that share regions with others, each together with those, in the order of the backends:
// those that compute in the network's own type, and then, where some compute narrowly, with those of each narrower one.
func (n *Network) Families() [][]string {
	var families [][]string
	seen := map[string]bool{}
	for i, b := range n.Placing.Backends {
		family := []string{b.Name()}
		for _, other := range n.Placing.Backends[i+1:] {
			if byoc.ShareRegions(b, other) {
				family = append(family, other.Name())
			}
		}
		if len(family) > 1 && !seen[b.Name()] {
			before := 1
			for k := range byoc.Precisions() {
				some := slices.DeleteFunc(slices.Clone(family), func(name string) bool { return n.precision(name) > k })
				if len(some) > before {
					families, before = append(families, some), len(some)
				}
			}
		}
		for _, name := range family {
			seen[name] = true
		}
	}
	return families
}

// alone is Module.Alone as a placement; nil where there is none.
func (n *Network) alone(backends []string, own func(i, k int) float64) *genome.Placement {
	chosen, err := n.Placing.Alone(backends, own)
	if err != nil {
		return nil
	}
	return n.Space.Place(chosen)
}

// Left is how many operators a placement leaves to what takes anything: TVM.
func (n *Network) Left(p *genome.Placement) int {
	left := 0
	for i, chosen := range p.Chosen {
		set := n.Placing.Functions[i].Set
		for _, k := range chosen {
			if c := &set.Candidates[k]; n.Placing.ByName[c.Backend].TakesAnything() {
				left += c.Operators(set.Graph)
			}
		}
	}
	return left
}

// BackendsOf are the backends of a placement's operators that do not take anything, sorted.
func (n *Network) BackendsOf(p *genome.Placement) []string {
	there := map[string]bool{}
	for i, chosen := range p.Chosen {
		for _, k := range chosen {
			if name := n.Placing.Functions[i].Set.Candidates[k].Backend; !n.Placing.ByName[name].TakesAnything() {
				there[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(there))
}

// RunnersUp are the cheapest placements by the costs, beside the one that was chosen: the one that would win were all
// costs at the worse ends of their intervals, and for each backend with a part in the winner the cheapest without it
// (and without all that share regions), borders counted as they are believed before any was seen.
func (n *Network) RunnersUp() []graphlevel.Seed {
	var seeds []graphlevel.Seed
	seen := map[string]bool{n.Placed.Key: true}
	add := func(name string, solve func(i int, options []place.Option) ([]int, error)) {
		chosen := make([][]int, len(n.Placing.Functions))
		for i := range n.Placing.Functions {
			options := append([]place.Option(nil), n.Placing.Functions[i].Options...)
			for k, believed := range n.priced(i) {
				if n.Placing.Functions[i].Costs[k].Origin == cost.Bounded {
					options[k].Cost = believed.Cost
				}
			}
			of, err := solve(i, options)
			if err != nil {
				return
			}
			chosen[i] = of
		}
		if p := n.Space.Place(chosen); !seen[p.Key] {
			seen[p.Key] = true
			seeds = append(seeds, graphlevel.Seed{Name: name, Placement: p, Optional: true})
		}
	}
	space := *n.Space
	space.Border = graphlevel.BorderOf(&space, feedback.NewBorders(graphlevel.TraitsOf(n.Placing.Backends)))
	bordered := func(i int, options []place.Option) ([]int, error) {
		placed, err := graphlevel.PlaceWithBorders(&space, i, options)
		if err != nil {
			return nil, err
		}
		return placed.Chosen, nil
	}
	add("with borders", func(i int, _ []place.Option) ([]int, error) { return bordered(i, n.priced(i)) })
	add("runner-up", func(i int, options []place.Option) ([]int, error) {
		f := n.Placing.Functions[i]
		intervals := make([]place.Interval, len(options))
		for k := range options {
			intervals[k] = place.Interval{Low: options[k].Cost, High: options[k].Cost}
			if c := f.Costs[k]; len(c.Samples) > 1 && !f.Set.Candidates[k].Free {
				low, high := c.Interval()
				charged := options[k].Cost - c.Estimate()
				intervals[k] = place.Interval{Low: min(low+charged, options[k].Cost),
					High: max(high+charged, options[k].Cost)}
			}
		}
		p, err := place.SolveInterval(options, intervals, n.Space.Functions[i].Tree)
		if err != nil {
			return nil, err
		}
		if p.Rival == nil {
			return p.Chosen, nil
		}
		return p.Rival, nil
	})
	var leave [][]string
	for _, b := range n.Placing.Backends {
		if !b.TakesAnything() {
			leave = append(leave, []string{b.Name()})
		}
	}
	for _, without := range append(leave, n.Families()...) {
		add("without "+strings.Join(without, "+"), func(i int, _ []place.Option) ([]int, error) {
			options := n.priced(i)
			for k := range options {
				if slices.Contains(without, n.Placing.Functions[i].Set.Candidates[k].Backend) {
					options[k].Cost = math.Inf(1)
				}
			}
			return bordered(i, options)
		})
	}
	return seeds
}

// priced are a function's candidates with their costs, each measured alone, or what is believed where no more than a
// bound is known, as the operator level adds to them; what borders cost is not in it.
func (n *Network) priced(i int) []place.Option {
	f, table := n.Placing.Functions[i], n.tables()[i]
	options := make([]place.Option, len(f.Set.Candidates))
	for k := range options {
		c := &f.Set.Candidates[k]
		options[k] = place.Option{Nodes: c.Nodes, Cost: f.Costs[k].Estimate(), Rank: c.Rank}
		if f.Costs[k].Origin == cost.Bounded && !c.Free {
			options[k].Cost, _ = table.Cost(k)
		}
	}
	return n.Placing.Overhead().Apply(options)
}
