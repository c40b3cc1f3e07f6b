// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// Open is Explore that measures nothing: a candidate's cost is what the store knows, else a lower bound (Bounded).
// Learn measures what is worth it once whole networks have shown what parts take in place.
func Open(mod *bridge.Object, cfg Config) (*Network, error) { return explore(mod, cfg, &slack{}) }

// slack says which candidates are measured alone: those that might be cheaper than what is known of their nodes.
type slack struct {
	// until ends the measuring; nil: nothing is measured.
	until context.Context
	// covers are the cheapest placement of what is known, for each function; nil where that covers not everything.
	covers [][]cover
	// seen is what computations took in place in whole networks, wherever they stand: these are known.
	seen map[cost.Key][]float64
}

// batch is how many candidates are asked for together: workers build some ahead while others are timed, and between two
// batches it is decided anew what comes next.
const batch = 32

// Learn measures candidates alone, those first that may gain most beside what tables (of a graph-level search; its
// seeds are enough) saw in place, until there is none left that could gain anything, or until is done. Candidates that
// backends propose by what was learnt come in: placements that were made before are to be made again. What is measured
// is in the store at once.
func (n *Network) Learn(until context.Context, tables []*feedback.Table) error {
	return bridge.OnThread(func() error {
		of := &slack{until: until, seen: map[cost.Key][]float64{}}
		for i, f := range n.s.functions {
			if tables == nil {
				of.covers = append(of.covers, nil)
				continue
			}
			for k := range f.set.Candidates {
				if seen := tables[i].InPlace(k); seen.Known() && !f.set.Candidates[k].Free {
					key := n.s.request(f, &f.set.Candidates[k]).Key
					of.seen[key] = append(of.seen[key], seen.Samples...)
				}
			}
			of.covers = append(of.covers, n.covers(i, tables[i]))
		}
		n.s.slack, n.inContext = of, of.seen
		if err := n.s.estimate(); err != nil {
			return err
		}
		if err := n.s.place(); err != nil {
			return err
		}
		return n.open()
	})
}

// cover is a candidate of the cheapest placement of what is known, and what it takes.
type cover struct {
	nodes []relay.NodeID
	ms    float64
}

// covers is a function's cheapest placement of what was seen in place or measured alone; nil where that covers not
// everything.
func (n *Network) covers(i int, table *feedback.Table) []cover {
	f := n.s.functions[i]
	options := make([]place.Option, len(f.set.Candidates))
	for k := range options {
		c := &f.set.Candidates[k]
		ms, seen := table.Cost(k)
		if !seen && !c.Free && f.costs[k].Origin == cost.Bounded {
			ms = math.Inf(1)
		}
		if c.Free {
			ms = 0
		}
		options[k] = place.Option{Nodes: c.Nodes, Cost: ms, Rank: c.Rank}
	}
	options = n.s.overhead().Apply(options)
	placed, err := place.Solve(options, place.TreeOf(f.set.Graph))
	if err != nil {
		return nil
	}
	covers := []cover{}
	for _, k := range placed.Chosen {
		covers = append(covers, cover{options[k].Nodes, options[k].Cost})
	}
	return covers
}

// leastWeight is an operator's share beside others whose bounds are 0 as well.
const leastWeight = 1e-6

// shares divide what the covers of function i take among their nodes, by the lower bounds of the operators by
// themselves: of a convolution and what is fused with it, the convolution has nearly all.
func (l *slack) shares(i int, f *function, all *computations) []float64 {
	weights := make([]float64, len(f.set.Graph.Nodes))
	for k := range f.set.Candidates {
		c, at := &f.set.Candidates[k], all.of[i][k]
		if at == lazy.Free || c.Operators(f.set.Graph) != 1 {
			continue
		}
		if w := max(leastWeight, all.bounds[at]); weights[c.Root] == 0 || w < weights[c.Root] {
			weights[c.Root] = w
		}
	}
	shares := make([]float64, len(weights))
	for _, c := range l.covers[i] {
		total := 0.0
		for _, v := range c.nodes {
			total += max(leastWeight, weights[v])
		}
		for _, v := range c.nodes {
			shares[v] = c.ms * max(leastWeight, weights[v]) / total
		}
	}
	return shares
}

// wanted are the computations that may gain something, by how much they may at most, the most first.
func (l *slack) wanted(s *search, all *computations, problem *lazy.Problem) []int {
	gain := make([]float64, len(all.requests))
	for i, f := range s.functions {
		shares := l.shares(i, f, all)
		for k := range f.set.Candidates {
			at := all.of[i][k]
			if at == lazy.Free {
				continue
			}
			if l.covers[i] == nil {
				gain[at] = math.Inf(1)
				continue
			}
			may := -all.bounds[at] - s.overhead().Option
			for _, v := range f.set.Candidates[k].Nodes {
				may += shares[v]
			}
			gain[at] += max(0, may)
		}
	}
	var list []int
	for i := range all.requests {
		known := problem.Known[i]
		if known.Known() || known.Failed() {
			continue
		}
		if _, seen := l.seen[all.requests[i].Key]; gain[i] > 0 && !seen || s.cfg.Exhaustive {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(gain[b], gain[a]) })
	return list
}

// measure measures what is wanted, and adds it to what the problem knows.
func (l *slack) measure(s *search, estimator cost.Estimator, all *computations, problem *lazy.Problem) error {
	if l.until == nil {
		return nil
	}
	list := l.wanted(s, all, problem)
	for at := 0; at < len(list) && l.until.Err() == nil; at += batch {
		part := list[at:min(at+batch, len(list))]
		requests := make([]cost.Request, len(part))
		for k, i := range part {
			requests[k] = all.requests[i]
		}
		costs, err := estimator.Estimate(l.until, requests)
		for k, i := range part {
			if k < len(costs) && (costs[k].Known() || costs[k].Failed()) {
				problem.Known[i] = costs[k]
				s.keepReference(all, i, &problem.Known[i])
			}
		}
		all.done += len(part)
		if err != nil && (l.until.Err() == nil || errors.Is(err, bridge.ErrInterrupted)) {
			return err
		}
		if err := s.cfg.Context.Err(); err != nil {
			return err
		}
	}
	return nil
}

// tables are what candidates are believed to take: by what Learn was told, before that by what was measured of them
// alone.
func (n *Network) tables() []*feedback.Table {
	tables := make([]*feedback.Table, len(n.s.functions))
	bounded, traits := n.Bounded(), graphlevel.TraitsOf(n.s.backends)
	for i, f := range n.s.functions {
		tables[i] = feedback.NewTable(f.set, n.Space.Functions[i].Costs, bounded[i], traits)
		for k := range f.set.Candidates {
			if c := &f.set.Candidates[k]; len(n.inContext) > 0 && !c.Free {
				tables[i].Believe(k, n.inContext[n.s.request(f, c).Key])
			}
		}
	}
	return tables
}

// restsOnBounds says that a placement has candidates of which no more than a lower bound is known.
func (n *Network) restsOnBounds(chosen [][]int) bool {
	bounded := n.Bounded()
	for i := range chosen {
		if slices.ContainsFunc(chosen[i], func(k int) bool {
			return bounded[i][k] &&
				!n.s.functions[i].set.Candidates[k].Free
		}) {
			return true
		}
	}
	return false
}

// believed is the cheapest placement by what is believed: lower bounds alone are no costs to place by.
func (n *Network) believed() ([][]int, error) {
	chosen := make([][]int, len(n.s.functions))
	for i, f := range n.s.functions {
		placed, err := place.Solve(n.priced(i), place.TreeOf(f.set.Graph))
		if err != nil {
			return nil, err
		}
		chosen[i] = placed.Chosen
	}
	return chosen, nil
}

// inPlace is a function's costs and options for a plan: where no more than a lower bound is known of a candidate, and a
// table saw it in place, that counts, but no less than the bound, which the plan's own rests on.
func (n *Network) inPlace(i int, table *feedback.Table) ([]cost.Cost, []place.Option) {
	f := n.s.functions[i]
	costs, options := slices.Clone(f.costs), slices.Clone(f.options)
	for k := range costs {
		seen := table.InPlace(k)
		if !seen.Known() || costs[k].Origin != cost.Bounded || f.set.Candidates[k].Free {
			continue
		}
		for i := range seen.Samples {
			seen.Samples[i] = max(seen.Samples[i], costs[k].Estimate())
		}
		options[k].Cost += seen.Estimate() - costs[k].Estimate()
		costs[k] = seen
	}
	return costs, options
}
