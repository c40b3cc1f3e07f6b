// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// KernelCosts is what the kernels of one backend take, each beside what the others take for the same computation.
type KernelCosts struct {
	Environment cost.Environment
	// Backends are those of the configuration, in its order; Absent those that were left out (Config.SkipUnusable).
	Backends []byoc.Backend
	Absent   []*settings.UnusableError
	// Kernels are in the order in which the network has them, each computation once for each kernel.
	Kernels []KernelOffer
}

// KernelOffer is one computation that a kernel can do.
type KernelOffer struct {
	// Kernel is its name (byoc.Pattern.Kernel).
	Kernel    string
	Graph     *relay.Graph
	Candidate *candidate.Candidate
	// Own is what the kernel takes.
	Own cost.Cost
	// Others are what the other backends take for the same operators, in the order of Backends: by the pattern that is
	// fastest, or all operators as one region where the backend has no pattern for them.
	Others []KernelCost
	// Limit is what the work takes at the speeds that were measured of this machine, by the algorithm that the
	// operators spell out, in milliseconds (bound.Machine.Roofline).
	Limit float64
}

// MeasureKernels finds out what the kernels of a backend take for what a network has for them, beside the other
// backends of the configuration. A kernel is measured on the largest groups of operators that it takes. The module
// should have gone through Normalise. Errors are those of Partition; of the configuration, pins, prohibitions and Only
// are not looked at.
func MeasureKernels(mod *bridge.Object, cfg settings.Config, backend string) (out *KernelCosts, err error) {
	cfg.Pin, cfg.Forbid, cfg.Only = nil, nil, ""
	err = bridge.OnThread(func() error {
		out, err = measureKernels(mod, cfg, backend)
		return err
	})
	return out, err
}

func measureKernels(mod *bridge.Object, cfg settings.Config, backend string) (*KernelCosts, error) {
	s, err := proposed(mod, cfg)
	if err != nil {
		return nil, err
	}
	out := &KernelCosts{Environment: s.Env, Backends: s.Backends, Absent: s.absent}
	requests, places := s.kernelRequests(out, backend)
	if len(requests) == 0 {
		return out, nil
	}
	machine := &bound.Machine{}
	costs, err := s.costsOf(requests, func(estimator cost.Estimator) (err error) {
		if c, ok := estimator.(calibrator); ok {
			machine, err = c.Machine(s.Config.Context, s.Env)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range requests {
		places[i](costs[i], requests[i].Candidate.Composite)
	}
	for i := range out.Kernels {
		k := &out.Kernels[i]
		k.Limit = machine.Roofline(bound.Direct(k.Graph, k.Candidate))
	}
	return out, nil
}

// kernelRequests fills in the kernels, and gives the requests with what is to be done with the cost of each.
func (s *Module) kernelRequests(out *KernelCosts, backend string) (requests []cost.Request,
	places []func(cost.Cost, string)) {
	seen := map[string]bool{}
	for _, f := range s.Functions {
		for _, c := range LargestOffers(f.Set, backend) {
			id := c.Kernel + " " + c.Key
			if seen[id] {
				continue
			}
			seen[id] = true
			out.Kernels = append(out.Kernels, KernelOffer{Kernel: c.Kernel, Graph: f.Set.Graph, Candidate: c})
			at := len(out.Kernels) - 1
			ask := func(c *candidate.Candidate, place func(cost.Cost, string)) {
				requests, places = append(requests, s.Request(f, c)), append(places, place)
			}
			ask(c, func(found cost.Cost, _ string) { out.Kernels[at].Own = found })
			for _, b := range s.Backends {
				if b.Name() == backend {
					continue
				}
				i := len(out.Kernels[at].Others)
				out.Kernels[at].Others = append(out.Kernels[at].Others, KernelCost{Backend: b.Name()})
				for _, other := range Coverings(f.Set, c, b.Name()) {
					ask(other, func(found cost.Cost, composite string) {
						if best := &out.Kernels[at].Others[i]; !best.Cost.Known() || found.Known() &&
							found.Estimate() < best.Cost.Estimate() {
							best.Cost, best.Composite = found, composite
						}
					})
				}
			}
		}
	}
	return requests, places
}

// LargestOffers are a backend's candidates that name a kernel, without those whose operators are all among those of
// another one of the same kernel; in the order of their roots.
func LargestOffers(set *candidate.Set, backend string) []*candidate.Candidate {
	var offers []*candidate.Candidate
	for i := range set.Candidates {
		if c := &set.Candidates[i]; c.Backend == backend && c.Kernel != "" {
			offers = append(offers, c)
		}
	}
	within := func(small, large *candidate.Candidate) bool {
		return len(small.Nodes) < len(large.Nodes) && !slices.ContainsFunc(small.Nodes, func(v relay.NodeID) bool {
			_, found := slices.BinarySearch(large.Nodes, v)
			return !found
		})
	}
	return slices.DeleteFunc(slices.Clone(offers), func(c *candidate.Candidate) bool {
		return slices.ContainsFunc(offers, func(o *candidate.Candidate) bool {
			return o.Kernel == c.Kernel &&
				within(c, o)
		})
	})
}

// Coverings are the candidates of a backend that hold the same nodes as c; where there is none, one that gives the
// backend these operators as they stand.
func Coverings(set *candidate.Set, c *candidate.Candidate, backend string) []*candidate.Candidate {
	var found []*candidate.Candidate
	for i := range set.Candidates {
		if o := &set.Candidates[i]; o.Backend == backend && !o.Free && slices.Equal(o.Nodes, c.Nodes) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		whole := *c
		whole.Backend, whole.Composite, whole.Bare, whole.Kernel = backend, "", true, ""
		found = append(found, &whole)
	}
	return found
}
