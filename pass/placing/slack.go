// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/relay"
)

// Slack says which candidates are measured alone: those that might be cheaper than what is known of their nodes.
type Slack struct {
	// Until ends the measuring; nil: nothing is measured.
	Until context.Context
	// Covers are the cheapest placement of what is known, for each function; nil where that covers not everything.
	Covers [][]Cover
	// Seen is what computations took in place in whole networks, wherever they stand: these are known.
	Seen map[cost.Key][]float64
}

// batch is how many candidates are asked for together: workers build some ahead while others are timed, and between two
// batches it is decided anew what comes next.
const batch = 32

// Cover is a candidate of the cheapest placement of what is known, and what it takes.
type Cover struct {
	Nodes        []relay.NodeID
	Milliseconds float64
}

// leastWeight is an operator's share beside others whose bounds are 0 as well.
const leastWeight = 1e-6

// shares divide what the covers of function i take among their nodes, by the lower bounds of the operators by
// themselves: of a convolution and what is fused with it, the convolution has nearly all.
func (l *Slack) shares(i int, f *Function, all *Computations) []float64 {
	weights := make([]float64, len(f.Set.Graph.Nodes))
	for k := range f.Set.Candidates {
		c, at := &f.Set.Candidates[k], all.Of[i][k]
		if at == lazy.Free || c.Operators(f.Set.Graph) != 1 {
			continue
		}
		if w := max(leastWeight, all.Bounds[at]); weights[c.Root] == 0 || w < weights[c.Root] {
			weights[c.Root] = w
		}
	}
	shares := make([]float64, len(weights))
	for _, c := range l.Covers[i] {
		total := 0.0
		for _, v := range c.Nodes {
			total += max(leastWeight, weights[v])
		}
		for _, v := range c.Nodes {
			shares[v] = c.Milliseconds * max(leastWeight, weights[v]) / total
		}
	}
	return shares
}

// wanted are the computations that may gain something, by how much they may at most, the most first.
func (l *Slack) wanted(s *Module, all *Computations, problem *lazy.Problem) []int {
	gain := make([]float64, len(all.requests))
	for i, f := range s.Functions {
		shares := l.shares(i, f, all)
		for k := range f.Set.Candidates {
			at := all.Of[i][k]
			if at == lazy.Free {
				continue
			}
			if l.Covers[i] == nil {
				gain[at] = math.Inf(1)
				continue
			}
			may := -all.Bounds[at] - s.Overhead().Option
			for _, v := range f.Set.Candidates[k].Nodes {
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
		if _, seen := l.Seen[all.requests[i].Key]; gain[i] > 0 && !seen || s.Config.Exhaustive {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(gain[b], gain[a]) })
	return list
}

// measure measures what is wanted, and adds it to what the problem knows.
func (l *Slack) measure(s *Module, estimator cost.Estimator, all *Computations, problem *lazy.Problem) error {
	if l.Until == nil {
		return nil
	}
	list := l.wanted(s, all, problem)
	for at := 0; at < len(list) && l.Until.Err() == nil; at += batch {
		part := list[at:min(at+batch, len(list))]
		requests := make([]cost.Request, len(part))
		for k, i := range part {
			requests[k] = all.requests[i]
		}
		costs, err := estimator.Estimate(l.Until, requests)
		for k, i := range part {
			if k < len(costs) && (costs[k].Known() || costs[k].Failed()) {
				problem.Known[i] = costs[k]
				s.keepReference(all, i, &problem.Known[i])
			}
		}
		all.done += len(part)
		if err != nil && (l.Until.Err() == nil || errors.Is(err, bridge.ErrInterrupted)) {
			return err
		}
		if err := s.Config.Context.Err(); err != nil {
			return err
		}
	}
	return nil
}
