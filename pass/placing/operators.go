// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// OperatorCosts is what the different operators of a network cost by themselves.
type OperatorCosts struct {
	// Environment is what was measured for: target, device, threads.
	Environment cost.Environment
	// Backends are the backends in the order of the columns, with what each was asked through.
	Backends []byoc.Backend
	// Absent are those that were left out (Config.SkipUnusable).
	Absent []*settings.UnusableError
	// Operators are in the order in which the network has them first.
	Operators []OperatorCost
}

// OperatorCost is one operator with its shapes and attributes.
type OperatorCost struct {
	// Node is the operator's first occurrence in Graph.
	Graph *relay.Graph
	Node  relay.NodeID
	// Count is how often the network has the same computation.
	Count int
	// Kernels are what the backends offer for it by itself, in the order of Backends; several of one backend where it
	// has several ways (algorithms, layouts).
	Kernels []KernelCost
	// Refusals are the reasons of backends that do not take it, by name.
	Refusals map[string]string
}

// KernelCost is one way to run an operator.
type KernelCost struct {
	Backend string
	// Composite is the pattern's name; "" for TVM.
	Composite string
	Cost      cost.Cost
}

// Best is the cheapest way of a backend; nil where it has none.
func (o *OperatorCost) Best(backend string) *KernelCost {
	var best *KernelCost
	for i := range o.Kernels {
		k := &o.Kernels[i]
		if k.Backend == backend && (best == nil || k.Cost.Estimate() < best.Cost.Estimate() ||
			math.IsInf(best.Cost.Estimate(), 1) && k.Cost.Known()) {
			best = k
		}
	}
	return best
}

// MeasureOperators finds out what each different operator among names ("nn.conv2d") costs by itself on each backend of
// the configuration. What the store knows is not measured again. The module should have gone through Normalise. Errors
// are those of Partition; of the configuration, pins, prohibitions and Only are not looked at.
func MeasureOperators(mod *bridge.Object, cfg settings.Config, names []string) (out *OperatorCosts, err error) {
	cfg.Pin, cfg.Forbid, cfg.Only = nil, nil, ""
	err = bridge.OnThread(func() error {
		out, err = measureOperators(mod, cfg, names)
		return err
	})
	return out, err
}

func measureOperators(mod *bridge.Object, cfg settings.Config, names []string) (*OperatorCosts, error) {
	s, err := proposed(mod, cfg)
	if err != nil {
		return nil, err
	}
	out := &OperatorCosts{Environment: s.Env, Backends: s.Backends, Absent: s.absent}
	requests, of := s.operatorRequests(out, names)
	if len(requests) == 0 {
		return out, nil
	}
	costs, err := s.costsOf(requests, func(cost.Estimator) error { return nil })
	if err != nil {
		return nil, err
	}
	for i, c := range costs {
		at := of[i]
		out.Operators[at.operator].Kernels[at.kernel].Cost = c
	}
	return out, nil
}

// costsOf has the requests estimated, and then whatever else the caller wants of the estimator, which it ends.
func (s *Module) costsOf(requests []cost.Request, then func(cost.Estimator) error) ([]cost.Cost, error) {
	s.All = &Computations{requests: requests}
	estimator, done, err := s.estimator(sampled(s.Config))
	if err != nil {
		return nil, err
	}
	costs, err := estimator.Estimate(s.Config.Context, requests)
	if err == nil {
		err = then(estimator)
	}
	if closing := done(); err == nil {
		err = closing
	}
	return costs, err
}

// kernelPlace says which kernel of which operator a request belongs to.
type kernelPlace struct{ operator, kernel int }

// operatorRequests fills in the operators, and gives the request of each of their kernels.
func (s *Module) operatorRequests(out *OperatorCosts, names []string) (requests []cost.Request, of []kernelPlace) {
	index := map[string]int{} // structural key -> operator
	for _, f := range s.Functions {
		g := f.Set.Graph
		first := map[relay.NodeID]int{}
		for v := range g.Nodes {
			id := relay.NodeID(v)
			if !candidate.IsOperator(&g.Nodes[v]) || !slices.Contains(names, g.Nodes[v].Op) || !g.Placeable(id) {
				continue
			}
			key := g.Key([]relay.NodeID{id}, id, relay.KeyOptions{})
			if at, known := index[key]; known {
				out.Operators[at].Count++
				continue
			}
			index[key] = len(out.Operators)
			first[id] = len(out.Operators)
			out.Operators = append(out.Operators,
				OperatorCost{Graph: g, Node: id, Count: 1, Refusals: map[string]string{}})
		}
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			at, wanted := first[c.Root]
			if !wanted || len(c.Nodes) != 1 || c.Free {
				continue
			}
			o := &out.Operators[at]
			requests = append(requests, s.Request(f, c))
			of = append(of, kernelPlace{at, len(o.Kernels)})
			o.Kernels = append(o.Kernels, KernelCost{Backend: c.Backend, Composite: c.Composite})
		}
		for _, r := range f.Set.Refusals {
			if at, wanted := first[r.Node]; wanted && out.Operators[at].Refusals[r.Backend] == "" {
				out.Operators[at].Refusals[r.Backend] = r.Reason
			}
		}
	}
	return requests, of
}
