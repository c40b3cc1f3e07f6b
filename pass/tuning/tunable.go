// SPDX-License-Identifier: Apache-2.0

// Package tuning says what TVM's tuners should work on, by a plan's prices, and whether what they found helps.
package tuning

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// Tunable is a computation of TVM's that would make the network faster if TVM's tuners made it faster.
type Tunable struct {
	// Key is the computation's structural key, and Operators are those that it holds, in order.
	Key       string
	Operators []string
	// Operator is the one that is tuned, and Type the type of its result.
	Operator, Type string
	// Count is how often the network has it.
	Count int
	// Milliseconds is what TVM takes for it now, once.
	Milliseconds float64
	// Price is what TVM must take less than to be placed there: what the best alternative takes, or its own time where
	// it is placed already (Placed).
	Price  float64
	Placed bool
	// Gain is what the network would gain, all Count places together, if tuning halved Milliseconds.
	Gain float64
	// Function and Nodes are the first place.
	Function string
	Nodes    []int
}

// hopedSpeedup is by how much tuning is taken to help when what is tuned first is chosen. What does not even then come
// below its price is not worth a trial.
const hopedSpeedup = 2.0

// tunedOperators have schedules with parameters in TVM, which AutoTVM and MetaSchedule look for.
var tunedOperators = []string{"nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose",
	"nn.conv3d_transpose", "nn.dense", "nn.matmul", "nn.batch_matmul"}

// Tunables are the computations of a plan that are worth tuning, those first that promise most. The prices of a plan
// tell: an operator that TVM could take in half of the time, and whose price is above that, makes the network faster by
// the difference. The plan must have been searched for (plan.Estimate.Optimal).
func Tunables(p *plan.Plan) []Tunable {
	type place struct {
		function string
		node     int
	}
	nodes := map[place]*plan.Node{}
	var all []Tunable
	for i := range p.Regions {
		r := &p.Regions[i]
		for k := range r.Candidates {
			c := &r.Candidates[k]
			t := Tunable{Key: c.Key, Count: 1, Milliseconds: c.Milliseconds, Price: c.Milliseconds, Placed: true,
				Function: r.Function}
			for n := range c.Nodes {
				nodes[place{r.Function, c.Nodes[n].Index}] = &c.Nodes[n]
				t.Nodes = append(t.Nodes, c.Nodes[n].Index)
			}
			if r.Backend == "tvm" {
				all = append(all, t)
			}
		}
	}
	for i := range p.Candidates.Rejected {
		c := &p.Candidates.Rejected[i]
		if c.Backend == "tvm" && c.Origin != cost.Bounded {
			all = append(all, Tunable{Key: c.Key, Count: 1, Milliseconds: c.Milliseconds,
				Price:    c.Milliseconds - c.Slack,
				Function: c.Function, Nodes: c.Nodes})
		}
	}
	// Of the ways in which TVM could take an operator, the one nearest to being chosen stands for it.
	best := map[place]*Tunable{}
	var order []place
	for i := range all {
		t := &all[i]
		anchor := -1
		for _, index := range t.Nodes {
			n := nodes[place{t.Function, index}]
			if n == nil {
				continue
			}
			t.Operators = append(t.Operators, n.Operator)
			if slices.Contains(tunedOperators, n.Operator) {
				anchor, t.Operator, t.Type = index, n.Operator, n.Type
			}
		}
		if anchor < 0 || t.Key == "" {
			continue
		}
		at := place{t.Function, anchor}
		if best[at] == nil {
			order = append(order, at)
		}
		if best[at] == nil || t.Milliseconds-t.Price < best[at].Milliseconds-best[at].Price {
			best[at] = t
		}
	}
	byKey := map[string]*Tunable{}
	var keys []string
	for _, at := range order {
		t := best[at]
		if t.Gain = hopedGain(t.Price, t.Milliseconds, hopedSpeedup); t.Gain <= 0 {
			continue
		}
		if same := byKey[t.Key]; same != nil {
			same.Count++
			same.Gain += t.Gain
			same.Placed = same.Placed || t.Placed
			continue
		}
		byKey[t.Key] = t
		keys = append(keys, t.Key)
	}
	out := make([]Tunable, len(keys))
	for i, key := range keys {
		out[i] = *byKey[key]
	}
	slices.SortStableFunc(out, func(a, b Tunable) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}

// hopedGain is what is gained, in milliseconds, where tuning helps by so much and what stands there now takes price.
func hopedGain(price, milliseconds, speedup float64) float64 { return price - milliseconds/speedup }

// tuningMargin is how much faster a computation must be with what a tuner has found, by the median of paired samples,
// so that this is kept: another record takes its place in the log, and other builds that are as fast by chance differ
// by as much.
const tuningMargin = 0.98

// TuningHelps says whether a computation is faster with what a tuner has found than as TVM makes it by itself, by
// samples in milliseconds of both, taken in turn: by more than the margin, and more surely than chance explains (a sign
// test). Where there are no samples it does not.
func TuningHelps(byItself, tuned []float64) bool {
	return helpsBy(byItself, tuned, tuningMargin)
}

func helpsBy(byItself, tuned []float64, margin float64) bool {
	ratio := statistics.PairedRatio(tuned, byItself)
	return len(byItself) == len(tuned) && len(tuned) > 0 && ratio.Median < margin && ratio.High < 1
}

// TunableWorkload makes a computation of a plan a function that TVM's tuners can take apart. mod is the normalised
// module that the plan is of.
func TunableWorkload(mod *bridge.Object, t *Tunable) (w *cost.Workload, err error) {
	err = bridge.OnThread(func() error {
		m, err := relay.Read(mod)
		if err != nil {
			return err
		}
		defer m.Release()
		i := slices.IndexFunc(m.Functions, func(g *relay.Graph) bool { return g.Name == t.Function })
		if i < 0 {
			return fmt.Errorf("the module has no function %s, which the plan names", t.Function)
		}
		g := m.Functions[i]
		c := &candidate.Candidate{Backend: "tvm", Key: t.Key}
		for _, index := range t.Nodes {
			if index < 0 || index >= len(g.Nodes) {
				return fmt.Errorf("%s has no node %d, which the plan names", t.Function, index)
			}
			c.Nodes = append(c.Nodes, relay.NodeID(index))
		}
		c.Root = c.Nodes[len(c.Nodes)-1]
		c.Scope = g.Nodes[c.Root].Scope
		c.Inputs, c.Constants = g.Boundary(c.Nodes)
		tvm, err := byoc.Lookup(c.Backend)
		if err == nil {
			w, err = annotate.Workload(g, c, tvm)
		}
		return err
	})
	return w, err
}
