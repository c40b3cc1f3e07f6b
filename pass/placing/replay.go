// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// ReplayError says why a plan cannot be replayed on a module.
type ReplayError struct {
	Reason string
	// Backend is the one in question, Operator and Span are those of the exit of what it was to take; "" where the
	// reason is another.
	Backend, Operator, Span string
}

func (e *ReplayError) Error() string { return "the plan cannot be replayed: " + e.Reason }

// Exception is what Python is told.
func (e *ReplayError) Exception() bridge.Exception {
	return bridge.Exception{Class: "PlanError", Backend: e.Backend, Operator: e.Operator, Span: e.Span}
}

// at is the error with the place where it is.
func (e *ReplayError) at(backend string, n *relay.Node) *ReplayError {
	e.Backend, e.Operator, e.Span = backend, candidate.OperatorName(n), plan.SpanText(n.Span)
	return e
}

// Replay writes the placement of a plan into a module, which is to be the one that the plan was made for (normalised in
// the same way: the plan has its hash). Nothing is measured and nothing chosen; that each region is one that its
// backend takes, and that regions do not need each other's results, is checked, and that the store of costs knows of no
// candidate that it fails here (RetryFailures leaves that out). Of cfg, Progress, Exact, Store and RetryFailures are
// used.
//
// On an error the module is nil. Errors that are the caller's to mend are *ReplayError, *byoc.UnknownBackendError and
// *UnusableError.
func Replay(mod *bridge.Object, p *plan.Plan, cfg settings.Config) (out *bridge.Object, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if cfg.Progress == nil {
		cfg.Progress = func(settings.Event) {}
	}
	cfg.KnowsScales, cfg.WithoutCosts = true, true
	err = bridge.OnThread(func() error {
		backends, err := settings.LookupBackends(usedBackends(p))
		if err != nil {
			return fmt.Errorf("the plan needs it: %w", err)
		}
		s := &Module{Config: &cfg, Backends: backends, ByName: map[string]byoc.Backend{}, level: settings.Level(p.Level)}
		for _, b := range backends {
			s.ByName[b.Name()] = b
		}
		if err := s.read(mod); err != nil {
			return err
		}
		hash, err := Hash(s.Relay.Object())
		if err != nil {
			return err
		}
		if hash != p.Module.Hash {
			return &ReplayError{Reason: fmt.Sprintf("it is for another network: %s has the hash %s, this one has %s "+
				"(weights, shapes and the "+
				"versions of TVM and Collage count too); make a plan for this one", quoteName(p.Module.Name), p.Module.Hash, hash)}
		}
		if err := s.propose(); err != nil {
			return err
		}
		for _, f := range s.Functions {
			if err := s.replay(f, p); err != nil {
				return err
			}
		}
		if err := s.refuseFailed(p); err != nil {
			return err
		}
		out, err = s.Annotate()
		return err
	})
	return out, err
}

// notExact says that a plan's candidate does not go with Config.Exact.
func notExact(c *plan.Candidate) *ReplayError {
	last := &c.Nodes[len(c.Nodes)-1]
	return &ReplayError{Reason: fmt.Sprintf("it has %s at %%%d (%s), which associates its sums otherwise than a direct sum "+
		"does, and exact "+
		"does without such; make the plan again with exact", c.Name(), last.Index, last.Operator),
		Backend: c.Backend, Operator: last.Operator, Span: last.Span}
}

func quoteName(name string) string {
	if name == "" {
		return "its network"
	}
	return name
}

// usedBackends are those that have a region, in the plan's order.
func usedBackends(p *plan.Plan) []string {
	var names []string
	for _, b := range p.Backends {
		if slices.ContainsFunc(p.Regions, func(r plan.Region) bool { return slices.Contains(r.Backends(), b.Name) }) {
			names = append(names, b.Name)
		}
	}
	return names
}

// replay gives a function the candidates and regions that the plan names.
func (s *Module) replay(f *Function, p *plan.Plan) error {
	g := f.Set.Graph
	k := slices.IndexFunc(p.Module.Functions, func(known plan.Function) bool { return known.Name == g.Name })
	if k < 0 || p.Module.Functions[k].Nodes != len(g.Nodes) {
		return &ReplayError{Reason: fmt.Sprintf("the network's function %s is not the one that it was made for", g.Name)}
	}
	proposed := map[string]*candidate.Candidate{}
	for i := range f.Set.Candidates {
		c := &f.Set.Candidates[i]
		proposed[candidateID(c.Backend, c.Composite, c.Nodes)] = c
	}
	set := &candidate.Set{Graph: g}
	var covers [][]relay.NodeID
	for i := range p.Regions {
		r := &p.Regions[i]
		if r.Function != g.Name {
			continue
		}
		region := annotate.Region{Backend: r.Backend, Compiler: s.ByName[r.BackendOf(&r.Candidates[0])].Compiler(),
			Symbol: r.Symbol, Steps: r.Steps(), Shifts: r.Shifts()}
		for j := range r.Candidates {
			planned := &r.Candidates[j]
			nodes := make([]relay.NodeID, len(planned.Nodes))
			for n := range nodes {
				nodes[n] = relay.NodeID(planned.Nodes[n].Index)
			}
			c := proposed[candidateID(r.BackendOf(planned), planned.Composite, nodes)]
			if c == nil {
				var err error
				if c, err = s.asPlanned(g, r.BackendOf(planned), planned.Composite, nodes); err != nil {
					return err
				}
			}
			if s.Config.Exact && (c.Reassociates || planned.Reassociates) {
				return notExact(planned)
			}
			region.Candidates = append(region.Candidates, len(set.Candidates))
			region.Precisions = append(region.Precisions, byoc.PrecisionOf(s.ByName[c.Backend]))
			region.Nodes = append(region.Nodes, nodes...)
			set.Candidates = append(set.Candidates, *c)
		}
		slices.Sort(region.Nodes)
		if r.Symbol == "" {
			for _, i := range region.Candidates {
				covers = append(covers, set.Candidates[i].Nodes)
			}
			continue
		}
		covers = append(covers, region.Nodes)
		wanted := s.RoundedIn(set, &region)
		for v := range region.Steps {
			if !slices.Contains(wanted, v) {
				return &ReplayError{Reason: fmt.Sprintf("region %d rounds %%%d, which %s does not have rounded", i, v, r.Backend)}
			}
		}
		for _, v := range wanted {
			if _, known := region.Steps[v]; !known {
				return &ReplayError{Reason: fmt.Sprintf("region %d does not say by which scale it rounds %%%d, which %s has rounded; "+
					"make the plan again", i, v, r.Backend)}
			}
		}
		region.Given = s.GivenIn(set, &region)
		if err := s.FitsShifts(set, &region); err != nil {
			return &ReplayError{Reason: fmt.Sprintf("region %d %s", i, err)}
		}
		region.Scope = set.Candidates[region.Candidates[0]].Scope
		region.Border(g)
		f.Regions = append(f.Regions, region)
	}
	if err := place.QuotientAcyclic(place.ReadsOf(g), covers); err != nil {
		return &ReplayError{Reason: fmt.Sprintf("function %s: %s", g.Name, strings.TrimPrefix(err.Error(), "placement: "))}
	}
	f.Set = set
	return nil
}

// refuseFailed looks whether a candidate of the plan is known to fail here. A store that is not there knows nothing.
func (s *Module) refuseFailed(p *plan.Plan) error {
	path, err := cost.StorePath(s.Config.Store)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(path); err != nil || s.Config.RetryFailures {
		return nil
	}
	store, err := cost.OpenStore(path)
	if err != nil {
		return err
	}
	defer store.Close()
	s.Env = p.Environment
	s.Env.Device = cost.Device()
	// What TVM's tuners found out is in the keys of TVM's costs alone.
	s.Env.Options, _, _ = strings.Cut(s.Env.Options, " "+settings.TunedWord)
	if tvm, err := byoc.Lookup("tvm"); err == nil {
		s.Env.TVM = tvm.Probe().Version
	}
	for _, f := range s.Functions {
		for i := range f.Set.Candidates {
			c := &f.Set.Candidates[i]
			known, ok := store.Lookup(s.Request(f, c).Key)
			if !ok || !known.Failed() || s.ByName[c.Backend].TakesAnything() {
				continue
			}
			return (&ReplayError{Reason: fmt.Sprintf("%s on %s at %%%d (%s) is known to fail here: %s; make the plan again, "+
				"or have it built all the "+
				"same with retry_failures (--retry-failures)", cmp.Or(c.Composite, "a group of operators"), c.Backend,
				c.Root,
				candidate.OperatorName(&f.Set.Graph.Nodes[c.Root]), known.Failure)}).at(c.Backend, &f.Set.Graph.Nodes[c.Root])
		}
	}
	return nil
}

func candidateID(backend, composite string, nodes []relay.NodeID) string {
	return fmt.Sprint(backend, " ", composite, " ", nodes)
}

// asPlanned is a candidate that is not proposed now. Those of a backend that takes anything depend on what was asked
// for when the plan was made, and any group of nodes with one exit will do; a library's must be ones that it offers.
func (s *Module) asPlanned(g *relay.Graph, backend, composite string, nodes []relay.NodeID) (*candidate.Candidate,
	error) {
	root := nodes[len(nodes)-1]
	if !s.ByName[backend].TakesAnything() {
		what := composite
		if what == "" {
			what = "a group of operators"
		}
		return nil, (&ReplayError{Reason: fmt.Sprintf("%s does not take %s at %%%d (%s) any more; make the plan again", backend,
			what, root,
			candidate.OperatorName(&g.Nodes[root]))}).at(backend, &g.Nodes[root])
	}
	if err := candidate.Check(g, nodes); err != nil {
		return nil, (&ReplayError{Reason: fmt.Sprintf("the candidate at %%%d: %s", root, err)}).at(backend, &g.Nodes[root])
	}
	c := &candidate.Candidate{Backend: backend, Composite: composite, Scope: g.Nodes[root].Scope, Nodes: nodes,
		Root: root}
	c.Border(g)
	return c, nil
}
