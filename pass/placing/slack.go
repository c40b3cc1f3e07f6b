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
	// LikelyOnly leaves out those that would have to be better than any that was seen of their kind.
	LikelyOnly bool
}

// batch is how many candidates are asked for together: workers build some ahead while others are timed, and between two
// batches it is decided anew what comes next, since those that were measured speak for others of their kind.
const batch = 32

// Cover is a candidate of the cheapest placement of what is known, and what it takes.
type Cover struct {
	Nodes        []relay.NodeID
	Milliseconds float64
}

// leastWeight is an operator's share beside others whose bounds are 0 as well.
const leastWeight = 1e-6

// singly are the lower bounds of a function's operators by themselves; 0 for those that are no candidate alone.
func singly(f *Function, i int, all *Computations) []float64 {
	weights := make([]float64, len(f.Set.Graph.Nodes))
	for k := range f.Set.Candidates {
		c, at := &f.Set.Candidates[k], all.Of[i][k]
		if at == lazy.Free || c.Operators(f.Set.Graph) != 1 || all.Bounds[at] <= 0 { // of another device nothing is known
			continue
		}
		if w := max(leastWeight, all.Bounds[at]); weights[c.Root] == 0 || w < weights[c.Root] {
			weights[c.Root] = w
		}
	}
	return weights
}

// shares divide what the covers of function i take among their nodes, by the lower bounds of the operators by
// themselves: of a convolution and what is fused with it, the convolution has nearly all.
func (l *Slack) shares(i int, weights []float64) []float64 {
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

// kind is what computations have in common that take about as many times their bounds.
type kind struct{ backend, kernel, operator string }

// kindOf is a candidate's; of its operators the one counts that has most to do, by the weights of shares.
func kindOf(f *Function, k int, weights []float64) kind {
	c := &f.Set.Candidates[k]
	most := c.Root
	for _, v := range c.Nodes {
		if weights[v] > weights[most] {
			most = v
		}
	}
	return kind{c.Backend, c.Kernel, f.Set.Graph.Nodes[most].Op}
}

// enoughOfAKind is how many computations of a kind must be known before others of it are expected to be no better than
// the best of them: at half of it, one that was disturbed or is odd would speak for all; at twice, kernels that a
// network has three of would all be measured, however slow the first two are.
const enoughOfAKind = 2

// efficiency says how many times their bounds computations of a kind took at least, as far as that was seen, alone or
// in place, of enough of them: 1 of all others.
func (l *Slack) efficiency(s *Module, all *Computations, problem *lazy.Problem, weights [][]float64) map[kind]float64 {
	least, seen := map[kind]float64{}, map[kind]map[int]bool{}
	for i, f := range s.Functions {
		for k := range f.Set.Candidates {
			at := all.Of[i][k]
			if at == lazy.Free || all.Bounds[at] <= 0 {
				continue
			}
			took := math.Inf(1)
			if c := problem.Known[at]; c.Known() {
				took = c.Estimate()
			}
			for _, ms := range l.Seen[all.requests[at].Key] {
				took = min(took, ms)
			}
			if math.IsInf(took, 1) {
				continue
			}
			of := kindOf(f, k, weights[i])
			if seen[of] == nil {
				seen[of], least[of] = map[int]bool{}, math.Inf(1)
			}
			seen[of][at] = true
			least[of] = min(least[of], took/all.Bounds[at])
		}
	}
	for of, list := range seen {
		if len(list) < enoughOfAKind {
			delete(least, of)
		}
	}
	return least
}

// wanted are the computations that may gain something. Those come first that would if they were as good as the best of
// their kind so far, by how much that is; then, unless LikelyOnly, those that would have to be better than any that was
// seen, by how much they may gain at most. Where all convolutions on TVM took twenty times their bounds in a network,
// another way to cut one hardly takes its bound.
func (l *Slack) wanted(s *Module, all *Computations, problem *lazy.Problem) []int {
	weights := make([][]float64, len(s.Functions))
	for i, f := range s.Functions {
		weights[i] = singly(f, i, all)
	}
	least := l.efficiency(s, all, problem, weights)
	most, gain := make([]float64, len(all.requests)), make([]float64, len(all.requests))
	for i, f := range s.Functions {
		shares := l.shares(i, weights[i])
		for k := range f.Set.Candidates {
			at := all.Of[i][k]
			if at == lazy.Free {
				continue
			}
			if l.Covers[i] == nil {
				most[at], gain[at] = math.Inf(1), math.Inf(1)
				continue
			}
			may := -s.Overhead().Option
			for _, v := range f.Set.Candidates[k].Nodes {
				may += shares[v]
			}
			most[at] += max(0, may-all.Bounds[at])
			gain[at] += max(0, may-all.Bounds[at]*max(1, least[kindOf(f, k, weights[i])]))
		}
	}
	var list []int
	for i := range all.requests {
		known := problem.Known[i]
		if known.Known() || known.Failed() {
			continue
		}
		may := most
		if l.LikelyOnly {
			may = gain
		}
		if _, seen := l.Seen[all.requests[i].Key]; may[i] > 0 && !seen || s.Config.Exhaustive {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Or(cmp.Compare(gain[b], gain[a]), cmp.Compare(most[b], most[a]))
	})
	return list
}

// measure measures what is wanted, and adds it to what the problem knows.
func (l *Slack) measure(s *Module, estimator cost.Estimator, all *Computations, problem *lazy.Problem) error {
	if l.Until == nil {
		return nil
	}
	asked := make([]bool, len(all.requests)) // what was asked for in vain is not asked for again
	for l.Until.Err() == nil {
		part := slices.DeleteFunc(l.wanted(s, all, problem), func(i int) bool { return asked[i] })
		if len(part) == 0 {
			break
		}
		part = part[:min(len(part), batch)]
		requests := make([]cost.Request, len(part))
		for k, i := range part {
			requests[k], asked[i] = all.requests[i], true
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
