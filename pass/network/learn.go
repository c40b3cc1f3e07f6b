// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"math"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/settings"
)

// Open is Explore that measures nothing: a candidate's cost is what the store knows, else a lower bound (Bounded).
// Learn measures what is worth it once whole networks have shown what parts take in place.
func Open(mod *bridge.Object, cfg settings.Config) (*Network, error) {
	return Explore(mod, cfg, &placing.Slack{})
}

// Learn measures candidates alone, those first that may gain most beside what tables (of a graph-level search; its
// seeds are enough) saw in place, until there is none left that could gain anything, or until is done; with likelyOnly,
// until there is none that would gain anything if it were as good as the best of its kind. Candidates that backends
// propose by what was learnt come in: placements that were made before are to be made again. What is measured is in the
// store at once.
func (n *Network) Learn(until context.Context, tables []*feedback.Table, likelyOnly bool) error {
	return bridge.OnThread(func() error {
		of := &placing.Slack{Until: until, Seen: map[cost.Key][]float64{}, LikelyOnly: likelyOnly}
		for i, f := range n.Placing.Functions {
			if tables == nil {
				of.Covers = append(of.Covers, nil)
				continue
			}
			for k := range f.Set.Candidates {
				if seen := tables[i].InPlace(k); seen.Known() && !f.Set.Candidates[k].Free {
					key := n.Placing.Request(f, &f.Set.Candidates[k]).Key
					of.Seen[key] = append(of.Seen[key], seen.Samples...)
				}
			}
			of.Covers = append(of.Covers, n.covers(i, tables[i]))
		}
		n.Placing.Slack, n.inContext = of, of.Seen
		if err := n.Placing.Estimate(); err != nil {
			return err
		}
		if err := n.Placing.Place(); err != nil {
			return err
		}
		return n.open()
	})
}

// covers is a function's cheapest placement of what was seen in place or measured alone; nil where that covers not
// everything.
func (n *Network) covers(i int, table *feedback.Table) []placing.Cover {
	f := n.Placing.Functions[i]
	options := make([]place.Option, len(f.Set.Candidates))
	for k := range options {
		c := &f.Set.Candidates[k]
		ms, seen := table.Cost(k)
		if !seen && !c.Free && f.Costs[k].Origin == cost.Bounded {
			ms = math.Inf(1)
		}
		if c.Free {
			ms = 0
		}
		options[k] = place.Option{Nodes: c.Nodes, Cost: ms, Rank: c.Rank}
	}
	options = n.Placing.Overhead().Apply(options)
	placed, err := place.Solve(options, place.TreeOf(f.Set.Graph))
	if err != nil {
		return nil
	}
	covers := []placing.Cover{}
	for _, k := range placed.Chosen {
		covers = append(covers, placing.Cover{Nodes: options[k].Nodes, Milliseconds: options[k].Cost})
	}
	return covers
}

// tables are what candidates are believed to take: by what Learn was told, before that by what was measured of them
// alone.
func (n *Network) tables() []*feedback.Table {
	tables := make([]*feedback.Table, len(n.Placing.Functions))
	bounded, traits := n.Bounded(), graphlevel.TraitsOf(n.Placing.Backends)
	for i, f := range n.Placing.Functions {
		tables[i] = feedback.NewTable(f.Set, n.Space.Functions[i].Costs, bounded[i], traits)
		for k := range f.Set.Candidates {
			if c := &f.Set.Candidates[k]; len(n.inContext) > 0 && !c.Free {
				tables[i].Believe(k, n.inContext[n.Placing.Request(f, c).Key])
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
				!n.Placing.Functions[i].Set.Candidates[k].Free
		}) {
			return true
		}
	}
	return false
}

// believed is the cheapest placement by what is believed: lower bounds alone are no costs to place by.
func (n *Network) believed() ([][]int, error) {
	chosen := make([][]int, len(n.Placing.Functions))
	for i, f := range n.Placing.Functions {
		placed, err := place.Solve(n.priced(i), place.TreeOf(f.Set.Graph))
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
	f := n.Placing.Functions[i]
	costs, options := slices.Clone(f.Costs), slices.Clone(f.Options)
	for k := range costs {
		seen := table.InPlace(k)
		if !seen.Known() || costs[k].Origin != cost.Bounded || f.Set.Candidates[k].Free {
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
