// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// Partition places the operators of a module on backends. The module should have gone through Normalise. It is not
// changed; the new module has the regions as functions of their own. Functions that have a Compiler attribute, and what
// they hold, are left as they are.
//
// On an error the module is nil; costs that were measured before it are in the store. Errors that are the caller's to
// mend are *OptionError, *byoc.UnknownBackendError, *UnusableError and *UncoveredError.
//
// What comes out is the fastest of what was found, of each backend alone and of plain TVM, run as whole networks: what
// pass/decide keeps (import it). Where nothing is to be run, with Config.Only or Config.Estimator, it is Place.
func Partition(mod *bridge.Object, cfg Config) (*bridge.Object, *plan.Plan, error) {
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	f := decider.Load()
	switch {
	case cfg.Estimator != nil && cfg.Level == GraphLevel:
		return nil, nil, &OptionError{"level",
			"is graph, which measures; costs that are given go with level=\"operator\""}
	case cfg.runsNothing():
		return Place(mod, cfg)
	case f == nil:
		return nil, nil, &OptionError{"level",
			"is for pass/decide, which this program has not: import it, or call Place"}
	}
	return (*f)(mod, cfg)
}

// runsNothing says that no whole network is to be run: there is nothing to choose, or the costs are given.
func (c *Config) runsNothing() bool { return c.Only != "" || c.Estimator != nil }

// Place is Partition by what parts take alone: no whole network is run, and what is the cheapest by the sum may be
// slower in place than a backend alone.
func Place(mod *bridge.Object, cfg Config) (out *bridge.Object, p *plan.Plan, err error) {
	// PassContext and Target, which TVM's passes read, belong to the thread.
	err = bridge.OnThread(func() error {
		var s *search
		if s, err = decided(mod, cfg, nil); err != nil {
			return err
		}
		if s.late {
			if out, p, err = s.believed(); err == nil {
				lastTimings.Store(&s.timings)
			}
			return err
		}
		if out, err = s.annotate(); err != nil {
			return err
		}
		if p, err = s.plan(); err != nil {
			out.Release()
			return err
		}
		lastTimings.Store(&s.timings)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return out, p, nil
}

// Decider is Partition where whole networks are run.
type Decider func(mod *bridge.Object, cfg Config) (*bridge.Object, *plan.Plan, error)

// decider is pass/decide's, which imports this package.
var decider atomic.Pointer[Decider]

// SetDecider says who runs whole networks for Partition; pass/decide does when it is imported.
func SetDecider(f Decider) { decider.Store(&f) }

// placed does everything of Place but write the plan.
func placed(mod *bridge.Object, cfg Config) (*search, *bridge.Object, error) {
	s, err := decided(mod, cfg, nil)
	if err != nil {
		return nil, nil, err
	}
	out, err := s.annotate()
	if err != nil {
		return nil, nil, err
	}
	return s, out, nil
}

// believed is the module and the plan of what is the cheapest by what is believed, where Config.Until ended the
// measuring.
func (s *search) believed() (*bridge.Object, *plan.Plan, error) {
	n := &Network{s: s}
	var err error
	if n.Hash, err = Hash(s.module.Object()); err != nil {
		return nil, nil, err
	}
	if err := n.open(); err != nil {
		return nil, nil, err
	}
	p, err := n.Plan(n.Placed, nil)
	if err != nil {
		return nil, nil, err
	}
	plain, err := n.Module(n.Placed)
	if err != nil {
		return nil, nil, err
	}
	defer plain.Release()
	out, err := WithLevel(plain, OperatorLevel)
	return out, p, err
}

// decided reads a module and places it. measured says what is measured for that; nil for all that the proof needs.
func decided(mod *bridge.Object, cfg Config, measured *slack) (*search, error) {
	s, err := proposed(mod, cfg)
	if err != nil {
		return nil, err
	}
	s.slack = measured
	if err := s.constrain(); err != nil {
		return nil, err
	}
	if s.cfg.Only != "" {
		err = s.placeOnly()
	} else if err = s.estimate(); err == nil {
		err = s.place()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// proposed reads a module and finds the candidates of all usable backends.
func proposed(mod *bridge.Object, cfg Config) (*search, error) {
	cfg, err := cfg.resolved()
	if err != nil {
		return nil, err
	}
	backends, absent, err := usable(&cfg)
	if err != nil {
		return nil, err
	}
	env, err := environment(&cfg, backends)
	if err != nil {
		return nil, err
	}
	s := &search{cfg: &cfg, backends: backends, absent: absent, env: env, byName: map[string]byoc.Backend{},
		level: OperatorLevel}
	for _, b := range backends {
		s.byName[b.Name()] = b
	}
	if err := s.read(mod); err != nil {
		return nil, err
	}
	if err := s.propose(); err != nil {
		return nil, err
	}
	return s, nil
}

func timed(field *float64, f func() (*bridge.Object, error)) (*bridge.Object, error) {
	defer clock(field)()
	return f()
}

// search is one Partition at work.
type search struct {
	cfg      *Config
	backends []byoc.Backend
	byName   map[string]byoc.Backend
	env      cost.Environment
	// libraries are what library says of the backends, by their names.
	libraries sync.Map
	module    *relay.Module
	functions []*function
	absent    []*UnusableError // backends that were left out
	all       *computations    // what there is to measure
	ties      int
	// tested counts the computations of which a cost and a bound are known, wrong those whose bound is above the cost.
	tested, wrong int
	timings       Timings
	// late says that Config.Until ended the measuring.
	late bool
	// slack, if not nil, says what is measured (Network.Learn); without it all that the proof needs is.
	slack *slack
	// level is what the module that comes out says of it (WithLevel); "" for nothing.
	level Level
}

// function is one global function with what is known and decided about it.
type function struct {
	set       *candidate.Set
	costs     []cost.Cost
	options   []place.Option
	placement *place.Placement
	regions   []annotate.Region
	borders   *declared // nil where borders cost nothing
	// selected are the rules (indices) that select a node; excluded is what they rule out.
	selected map[relay.NodeID][]int
	excluded []plan.Excluded
}

// read reads the module's functions, but for those that are already a backend's. A module without types, or with some
// missing since a pass changed it, goes through InferType first.
func (s *search) read(mod *bridge.Object) (err error) {
	s.cfg.Progress(Event{Stage: StageRead, Total: 1})
	if s.module, err = s.readOnce(mod); err != nil {
		return err
	}
	if !isTyped(s.module) {
		typed, err := timed(&s.timings.InferType, func() (*bridge.Object, error) { return relay.InferType(mod) })
		if err != nil {
			return fmt.Errorf("TVM cannot infer the module's types: %w", err)
		}
		defer typed.Release()
		if s.module, err = s.readOnce(typed); err != nil {
			return err
		}
	}
	for _, g := range s.module.Functions {
		if g.Attrs["Compiler"] == "" && !isTrue(g.Attrs["Primitive"]) {
			s.functions = append(s.functions, &function{set: &candidate.Set{Graph: g}})
		}
	}
	s.cfg.Progress(Event{Stage: StageRead, Done: 1, Total: 1})
	return nil
}

func (s *search) readOnce(mod *bridge.Object) (*relay.Module, error) {
	defer clock(&s.timings.Read)()
	return relay.Read(mod)
}

// isTyped says that every value of a module has a type.
func isTyped(m *relay.Module) bool {
	for _, g := range m.Functions {
		for v := range g.Nodes {
			if g.Nodes[v].Type == nil && (g.Placeable(relay.NodeID(v)) || g.Nodes[v].Kind == relay.KindConstant) {
				return false
			}
		}
	}
	return true
}

func isTrue(attr string) bool { return attr != "" && attr != "0" }

func (s *search) propose() error {
	defer clock(&s.timings.Candidates)()
	for i, f := range s.functions {
		s.cfg.Progress(Event{Stage: StageCandidates, Done: i, Total: len(s.functions), Label: f.set.Graph.Name})
		set, err := candidate.Propose(f.set.Graph, s.backends, candidate.Options{OpPattern: opPattern})
		if err != nil {
			return err
		}
		f.set = set
		s.fitting(set)
	}
	s.cfg.Progress(Event{Stage: StageCandidates, Done: len(s.functions), Total: len(s.functions)})
	return nil
}

// place chooses by cost, function by function.
func (s *search) place() error {
	defer clock(&s.timings.Place)()
	var missing []*UncoveredError
	for i, f := range s.functions {
		s.cfg.Progress(Event{Stage: StagePlace, Done: i, Total: len(s.functions), Label: f.set.Graph.Name})
		f.options = make([]place.Option, len(f.set.Candidates))
		for k := range f.set.Candidates {
			c := &f.set.Candidates[k]
			f.options[k] = place.Option{Nodes: c.Nodes, Cost: f.costs[k].Estimate(), Rank: c.Rank}
		}
		f.options = s.overhead().Apply(f.options)
		placement, err := s.solve(f)
		var uncovered *place.UncoveredError
		if errors.As(err, &uncovered) {
			missing = append(missing, s.uncovered(f, uncovered))
			continue
		}
		if err != nil {
			return fmt.Errorf("function %s: %w", f.set.Graph.Name, err)
		}
		f.decide(placement, s.byName)
	}
	if len(missing) > 0 {
		return mergeUncovered(missing)
	}
	s.cfg.Progress(Event{Stage: StagePlace, Done: len(s.functions), Total: len(s.functions)})
	return nil
}

// decide takes a placement and forms its regions.
func (f *function) decide(placement *place.Placement, byName map[string]byoc.Backend) {
	f.placement = placement
	f.regions = annotate.Regions(f.set, placement.Chosen, byName)
}

// annotate writes the regions into a new module and has TVM infer its types.
func (s *search) annotate() (*bridge.Object, error) {
	s.cfg.Progress(Event{Stage: StageAnnotate, Total: 1})
	list := make([]annotate.Function, len(s.functions))
	for i, f := range s.functions {
		list[i] = annotate.Function{Set: f.set, Regions: f.regions}
	}
	out, err := timed(&s.timings.Annotate, func() (*bridge.Object, error) { return annotate.Module(s.module, list) })
	if err != nil {
		return nil, err
	}
	defer out.Release()
	typed, err := timed(&s.timings.InferResult, func() (*bridge.Object, error) { return relay.InferType(out) })
	if err != nil {
		return nil, fmt.Errorf("the annotated module is not well typed, which is a defect of Collage: %w", err)
	}
	s.cfg.Progress(Event{Stage: StageAnnotate, Done: 1, Total: 1})
	if s.level == "" {
		return typed, nil
	}
	defer typed.Release()
	return WithLevel(typed, s.level)
}

// LevelAttribute is the attribute of a placed module that says at which level it was placed.
const LevelAttribute = "collage.level"

// WithLevel is a module with LevelAttribute; the caller's, as mod is.
func WithLevel(mod *bridge.Object, level Level) (*bridge.Object, error) {
	v, err := bridge.Global("ir.Module_WithAttr", mod, LevelAttribute, string(level))
	if err != nil {
		return nil, fmt.Errorf("saying at which level a module was placed: %w", err)
	}
	return v.Object()
}

// plan writes down what was decided.
func (s *search) plan() (*plan.Plan, error) {
	stop := clock(&s.timings.Hash)
	hash, err := Hash(s.module.Object())
	stop()
	if err != nil {
		return nil, err
	}
	placed := make([]*plan.Placed, len(s.functions))
	for i, f := range s.functions {
		placed[i] = &plan.Placed{Set: f.set, Costs: f.costs, Options: f.options, Placement: f.placement,
			Excluded: f.excluded,
			Borders:  f.borders.record()}
		for _, r := range f.regions {
			placed[i].Groups = append(placed[i].Groups, plan.Group{Symbol: r.Symbol, Candidates: r.Candidates})
		}
	}
	return s.written(hash, placed)
}

// written writes functions down that were placed.
func (s *search) written(hash string, placed []*plan.Placed) (*plan.Plan, error) {
	defer clock(&s.timings.Plan)()
	builder := plan.NewBuilder(plan.Module{Name: s.cfg.ModuleName, Hash: hash}, s.env, s.backends)
	builder.SetLevel(string(OperatorLevel)) // pass/decide says where it was another
	builder.SetOverhead(s.overhead().Option)
	builder.Constrain(plan.Constraints{Pin: s.cfg.Pin, Forbid: s.cfg.Forbid, Exact: s.cfg.Exact})
	for _, e := range s.absent {
		if b, err := byoc.Lookup(e.Backend); err == nil {
			builder.LeaveOut(b, e.text())
		}
	}
	builder.Tie(s.ties)
	builder.TestBounds(s.tested, s.wrong)
	for _, f := range placed {
		if err := builder.Add(f); err != nil {
			return nil, err
		}
	}
	return builder.Plan()
}

// Hash is a structural hash of a module: names of functions and parameters, operators, attributes, types, and
// constants by content. It is the same between runs.
func Hash(mod *bridge.Object) (string, error) {
	v, err := bridge.Global("node.StructuralHash", mod, true)
	if err != nil {
		return "", fmt.Errorf("hashing the module: %w", err)
	}
	n, err := v.Int()
	if err != nil {
		return "", fmt.Errorf("hashing the module: %w", err)
	}
	return fmt.Sprintf("%016x", uint64(n)), nil
}
