// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
)

// unmeasured are the seeds that need no costs: those of alone, and backends that share regions together by their lower
// bounds, which come first after plain TVM: they are hardly ever worse than one of them alone, and may be all that
// there is time for.
func (c *decision) unmeasured() []graphlevel.Seed {
	seeds := c.alone()
	if c.Reach == ReachParts {
		return seeds
	}
	var together []graphlevel.Seed
	for _, family := range c.graph.network.Families() {
		p := c.graph.network.Together(family...)
		if p == nil || slices.ContainsFunc(seeds, func(s graphlevel.Seed) bool { return s.Placement.Key == p.Key }) {
			continue // only one of them takes anything here
		}
		together = append(together, graphlevel.Seed{Name: strings.Join(family, "+") + ", by lower bounds",
			Placement: p})
	}
	first := 0
	if len(seeds) > 0 && seeds[0].Name == "tvm" {
		first = 1
	}
	return slices.Insert(seeds, first, together...)
}

// alone are plain TVM and every backend alone, as its users would have it, those first that leave the least to TVM, but
// for those that have a narrower one (narrower). One that leaves so much to TVM that, by what that takes in place, it
// cannot be near the best is not built.
func (c *decision) alone() []graphlevel.Seed {
	network := c.graph.network
	var seeds []graphlevel.Seed
	if slices.Contains(c.Backends, "tvm") && !c.constrained() {
		seeds = append(seeds, graphlevel.Seed{Name: "tvm", Placement: c.graph.lane.Plain()})
	}
	if c.Reach == ReachParts {
		return seeds
	}
	first := len(seeds)
	for name, b := range c.named() {
		if p := network.Alone(b.Name()); p != nil && !c.narrower(b) {
			seeds = append(seeds, graphlevel.Seed{Name: name, Placement: p, Alone: true, Wide: c.wide(b)})
		}
	}
	slices.SortStableFunc(seeds[first:], func(a, b graphlevel.Seed) int {
		return cmp.Compare(network.Left(a.Placement), network.Left(b.Placement))
	})
	return seeds
}

// named are the backends that may have a network to themselves, with what that is called.
func (c *decision) named() iter.Seq2[string, byoc.Backend] {
	return func(yield func(string, byoc.Backend) bool) {
		for _, b := range c.graph.network.Backends() {
			name := b.Name()
			switch {
			case c.constrained():
				name = "mostly " + name // as far as what was asked for lets it
			case b.TakesAnything():
				continue
			}
			if c.leavesMore(b) {
				continue // nobody uses it alone: it stands in the regions of the backend that it is the narrow form of
			}
			if !yield(name, b) {
				return
			}
		}
	}
}

// narrower says that a backend has one beside it that does the same in a narrower type, with a network to itself: that
// is tried first, and what is learnt from it, since whoever allows it expects it to be quicker.
func (c *decision) narrower(b byoc.Backend) bool {
	for _, other := range c.named() {
		if byoc.WideOf(other) == b.Name() && other.Name() != b.Name() {
			return true
		}
	}
	return false
}

// wide is the seed of the backend that does the same as one in the network's own type, where it is not tried before
// (narrower); nil for none.
func (c *decision) wide(b byoc.Backend) *graphlevel.Seed {
	if byoc.WideOf(b) == b.Name() {
		return nil
	}
	for name, other := range c.named() {
		if other.Name() == byoc.WideOf(b) {
			if p := c.graph.network.Alone(other.Name()); p != nil {
				return &graphlevel.Seed{Name: name, Placement: p, Alone: true}
			}
		}
	}
	return nil
}

// leavesMore says that a backend that computes narrowly leaves more to TVM than the one that does the same in the
// network's own type.
func (c *decision) leavesMore(b byoc.Backend) bool {
	if byoc.WideOf(b) == b.Name() || !byoc.SharesCompiler(b) {
		return false
	}
	network := c.graph.network
	own, wide := network.Alone(b.Name()), network.Alone(byoc.WideOf(b))
	return own == nil || wide == nil || network.Left(own) > network.Left(wide)
}

// seeds are what the graph level goes on with: the unmeasured ones, the operator level's placement, each backend with
// the cheapest of its own candidates, backends that share regions together with the cheapest of theirs, and with
// kernels that work in groups wherever those can be, and runners-up.
func (c *decision) seeds() []graphlevel.Seed {
	network := c.graph.network
	families := network.Families()
	seeds := append(c.unmeasured(), graphlevel.Seed{Name: operatorLevelName, Placement: network.placed()})
	if c.Reach == ReachParts {
		return seeds
	}
	for name, b := range c.named() {
		if p := network.Alone(b.Name()); p != nil && c.narrower(b) {
			seeds = append(seeds, graphlevel.Seed{Name: name, Placement: p, Alone: true, Optional: true})
		}
		if p := network.Tuned(b.Name()); p != nil {
			// What a family can do together is hardly ever worse.
			optional := slices.ContainsFunc(families,
				func(family []string) bool { return slices.Contains(family, b.Name()) })
			seeds = append(seeds, graphlevel.Seed{Name: name + ", cheapest of its own", Placement: p,
				Optional: optional, Alone: !optional})
		}
	}
	for _, family := range families {
		if p := network.Tuned(family...); p != nil {
			seeds = append(seeds, graphlevel.Seed{Name: strings.Join(family, "+"), Placement: p})
		}
		for i, kernel := range network.GroupedKernels() {
			name := strings.Join(family, "+") + ", in groups"
			if i > 0 {
				name += " by " + kernel
			}
			if p := network.Grouped(kernel, family...); p != nil {
				seeds = append(seeds, graphlevel.Seed{Name: name, Placement: p})
			}
		}
	}
	return append(seeds, network.RunnersUp()...)
}

// kept are the networks that were measured beside the seeds, as seeds of what comes after learn.
func (c *decision) kept(seeds []graphlevel.Seed) func() []graphlevel.Seed {
	var names []string
	var again []func() *genome.Placement
	for i := range c.graph.result.Trials {
		t := &c.graph.result.Trials[i]
		if !t.Cost.Failed() && !slices.ContainsFunc(seeds,
			func(s graphlevel.Seed) bool { return s.Placement.Key == t.Placement.Key }) {
			names, again = append(names, t.Name), append(again, c.graph.network.Kept(t.Placement))
		}
	}
	return func() []graphlevel.Seed {
		var list []graphlevel.Seed
		for i, placement := range again {
			if p := placement(); p != nil {
				list = append(list, graphlevel.Seed{Name: names[i], Placement: p})
			}
		}
		return list
	}
}

// distinct counts the placements of seeds.
func distinct(seeds []graphlevel.Seed) int {
	keys := map[string]bool{}
	for _, s := range seeds {
		keys[s.Placement.Key] = true
	}
	return len(keys)
}
