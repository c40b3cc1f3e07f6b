// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Decided reads a module and places it. measured says what is measured for that; nil for all that the proof needs.
func Decided(mod *bridge.Object, cfg settings.Config, measured *Slack) (*Module, error) {
	s, err := proposed(mod, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.measureCopies(); err != nil {
		return nil, err
	}
	s.Slack = measured
	if err := s.constrain(); err != nil {
		return nil, err
	}
	if s.Config.Only != "" {
		err = s.PlaceOnly()
	} else if err = s.Estimate(); err == nil {
		err = s.Place()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func timed(field *float64, f func() (*bridge.Object, error)) (*bridge.Object, error) {
	defer clock(field)()
	return f()
}

// Place chooses by cost, function by function.
func (s *Module) Place() error {
	defer clock(&s.Timings.Place)()
	var missing []*UncoveredError
	for i, f := range s.Functions {
		s.Config.Progress(settings.Event{Stage: settings.StagePlace, Done: i, Total: len(s.Functions),
			Label: f.Set.Graph.Name})
		f.Options = make([]place.Option, len(f.Set.Candidates))
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			f.Options[k] = place.Option{Nodes: c.Nodes, Cost: f.Costs[k].Estimate(), Rank: c.Rank}
		}
		f.Options = s.Overhead().Apply(f.Options)
		placement, err := s.solve(f)
		var uncovered *place.UncoveredError
		if errors.As(err, &uncovered) {
			missing = append(missing, s.uncovered(f, uncovered))
			continue
		}
		if err != nil {
			return fmt.Errorf("function %s: %w", f.Set.Graph.Name, err)
		}
		f.decide(placement, s.ByName)
	}
	if len(missing) > 0 {
		return mergeUncovered(missing)
	}
	s.Config.Progress(settings.Event{Stage: settings.StagePlace, Done: len(s.Functions), Total: len(s.Functions)})
	return nil
}

// decide takes a placement and forms its regions.
func (f *Function) decide(placement *place.Solution, byName map[string]byoc.Backend) {
	f.Solution = placement
	f.Regions = annotate.Regions(f.Set, placement.Chosen, byName)
}

// Annotate writes the regions into a new module and has TVM infer its types.
func (s *Module) Annotate() (*bridge.Object, error) {
	s.Config.Progress(settings.Event{Stage: settings.StageAnnotate, Total: 1})
	list := make([]annotate.Function, len(s.Functions))
	for i, f := range s.Functions {
		list[i] = annotate.Function{Set: f.Set, Regions: f.Regions}
	}
	out, err := timed(&s.Timings.Annotate, func() (*bridge.Object, error) { return annotate.Module(s.Relay, list) })
	if err != nil {
		return nil, err
	}
	defer out.Release()
	typed, err := timed(&s.Timings.InferResult, func() (*bridge.Object, error) { return relay.InferType(out) })
	if err != nil {
		return nil, fmt.Errorf("the annotated module is not well typed, which is a defect of Collage: %w", err)
	}
	s.Config.Progress(settings.Event{Stage: settings.StageAnnotate, Done: 1, Total: 1})
	if s.level == "" {
		return typed, nil
	}
	defer typed.Release()
	return WithLevel(typed, s.level)
}

// Plan writes down what was decided.
func (s *Module) Plan() (*plan.Plan, error) {
	hash, err := s.Hash()
	if err != nil {
		return nil, err
	}
	placed := make([]*plan.Placed, len(s.Functions))
	for i, f := range s.Functions {
		placed[i] = &plan.Placed{Set: f.Set, Costs: f.Costs, Options: f.Options, Solution: f.Solution,
			Excluded: f.Excluded,
			Borders:  f.Borders.Record()}
		for _, r := range f.Regions {
			placed[i].Groups = append(placed[i].Groups, plan.Group{Symbol: r.Symbol, Candidates: r.Candidates})
		}
	}
	return s.Written(hash, placed)
}

// Written writes functions down that were placed.
func (s *Module) Written(hash string, placed []*plan.Placed) (*plan.Plan, error) {
	defer clock(&s.Timings.Plan)()
	builder := plan.NewBuilder(plan.Module{Name: s.Config.ModuleName, Hash: hash}, s.Env, s.Backends)
	builder.SetLevel(string(settings.OperatorLevel)) // pass/decide says where it was another
	builder.SetOverhead(s.Overhead().Option)
	builder.Constrain(plan.Constraints{Pin: s.Config.Pin, Forbid: s.Config.Forbid, Exact: s.Config.Exact})
	for _, e := range s.absent {
		if b, err := byoc.Lookup(e.Backend); err == nil {
			builder.LeaveOut(b, e.Text())
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

// Hash is the module's.
func (s *Module) Hash() (string, error) {
	defer clock(&s.Timings.Hash)()
	return Hash(s.Relay.Object())
}
