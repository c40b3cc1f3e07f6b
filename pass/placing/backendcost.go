// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"
	"math"
	"time"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
)

// backendCosts asks the backends that estimate by themselves (byoc.Coster) for what their candidates cost. What is
// known to have failed stays so.
func (s *Module) backendCosts(all *Computations, known []cost.Cost) error {
	functions := map[string]byoc.CostFunction{}
	for _, b := range s.Backends {
		if f := byoc.CostFunctionOf(b); f != nil {
			functions[b.Name()] = f
		}
	}
	if len(functions) == 0 {
		return nil
	}
	asked := make([]bool, len(all.requests))
	for i, f := range s.Functions {
		for k := range f.Set.Candidates {
			c, at := &f.Set.Candidates[k], all.Of[i][k]
			estimate := functions[c.Backend]
			if estimate == nil || at == lazy.Free || asked[at] || known[at].Failed() {
				continue
			}
			asked[at] = true
			ms, ok, err := estimate(f.Set.Graph, byoc.Proposal{Composite: c.Composite, Bare: c.Bare, Nodes: c.Nodes})
			if err != nil {
				return fmt.Errorf("the cost function of the backend %s, for %s: %w", c.Backend, all.requests[at].Label,
					err)
			}
			switch {
			case !ok:
			case math.IsInf(ms, 1):
				known[at] = cost.FromFailure(cost.Failure{Phase: "cost", Kind: cost.KindError,
					Detail: "the backend's cost function rules it out"}, time.Time{})
				known[at].Origin = cost.ByBackend
			case ms >= 0:
				known[at] = cost.Cost{Samples: []float64{ms}, Origin: cost.ByBackend}
			default:
				return fmt.Errorf("the cost function of the backend %s gives %v ms for %s: name milliseconds, or "+
					"infinity for what must "+
					"not be placed", c.Backend, ms, all.requests[at].Label)
			}
		}
	}
	return nil
}
