// SPDX-License-Identifier: Apache-2.0

// Package placing is the operator level: a Module is read, its candidates are proposed, bound by rules, measured as far
// as the proof needs, placed and written, or placed as a plan says (Replay).
package placing

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
)

// proposed reads a module and finds the candidates of all usable backends.
func proposed(mod *bridge.Object, cfg settings.Config) (*Module, error) {
	cfg, err := cfg.Resolved()
	if err != nil {
		return nil, err
	}
	backends, absent, err := settings.Usable(&cfg)
	if err != nil {
		return nil, err
	}
	env, err := workers.Environment(&cfg, backends)
	if err != nil {
		return nil, err
	}
	s := &Module{Config: &cfg, Backends: backends, absent: absent, Env: env, ByName: map[string]byoc.Backend{},
		level: settings.OperatorLevel}
	for _, b := range backends {
		s.ByName[b.Name()] = b
	}
	if err := s.read(mod); err != nil {
		return nil, err
	}
	if err := s.propose(); err != nil {
		return nil, err
	}
	return s, nil
}

// Module is a module that is being placed, with what is known and decided about it.
type Module struct {
	Config   *settings.Config
	Backends []byoc.Backend
	ByName   map[string]byoc.Backend
	Env      cost.Environment
	// Libraries are what Library says of the backends, by their names.
	Libraries sync.Map
	Relay     *relay.Module
	Functions []*Function
	absent    []*settings.UnusableError // backends that were left out
	All       *Computations             // what there is to measure
	ties      int
	// tested counts the computations of which a cost and a bound are known, wrong those whose bound is above the cost.
	tested, wrong int
	Timings       Timings
	// Late says that Config.Until ended the measuring.
	Late bool
	// Slack, if not nil, says what is measured (Network.Learn); without it all that the proof needs is.
	Slack *Slack
	// level is what the module that comes out says of it (WithLevel); "" for nothing.
	level settings.Level
}

// Function is one global function with what is known and decided about it.
type Function struct {
	Set      *candidate.Set
	Costs    []cost.Cost
	Options  []place.Option
	Solution *place.Solution
	Regions  []annotate.Region
	Borders  *declared // nil where borders cost nothing
	// selected are the rules (indices) that select a node; excluded is what they rule out.
	selected map[relay.NodeID][]int
	Excluded []plan.Excluded
}

// read reads the module's functions, but for those that are already a backend's. A module without types, or with some
// missing since a pass changed it, goes through InferType first.
func (s *Module) read(mod *bridge.Object) (err error) {
	s.Config.Progress(settings.Event{Stage: settings.StageRead, Total: 1})
	if s.Relay, err = s.readOnce(mod); err != nil {
		return err
	}
	if !isTyped(s.Relay) {
		typed, err := timed(&s.Timings.InferType, func() (*bridge.Object, error) { return relay.InferType(mod) })
		if err != nil {
			return fmt.Errorf("TVM cannot infer the module's types: %w", err)
		}
		defer typed.Release()
		if s.Relay, err = s.readOnce(typed); err != nil {
			return err
		}
	}
	for _, g := range s.Relay.Functions {
		if g.Attrs["Compiler"] == "" && !relay.IsSet(g.Attrs["Primitive"]) {
			s.Functions = append(s.Functions, &Function{Set: &candidate.Set{Graph: g}})
		}
	}
	s.Config.Progress(settings.Event{Stage: settings.StageRead, Done: 1, Total: 1})
	return nil
}

func (s *Module) readOnce(mod *bridge.Object) (*relay.Module, error) {
	defer clock(&s.Timings.Read)()
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

func (s *Module) propose() error {
	defer clock(&s.Timings.Candidates)()
	for i, f := range s.Functions {
		s.Config.Progress(settings.Event{Stage: settings.StageCandidates, Done: i, Total: len(s.Functions),
			Label: f.Set.Graph.Name})
		set, err := candidate.Propose(f.Set.Graph, s.Backends, candidate.Options{OpPattern: candidate.RegisteredPattern})
		if err != nil {
			return err
		}
		s.withoutOpen(set)
		f.Set = set
		s.fitting(set)
		s.holdable(set)
	}
	s.Config.Progress(settings.Event{Stage: settings.StageCandidates, Done: len(s.Functions), Total: len(s.Functions)})
	return nil
}

// Library names a backend's library with its version and what of the machine it uses: "oneDNN 2.6.0 avx512_core". A
// backend is asked once: it looks through folders and through what is mapped, and a network has thousands of
// candidates.
func (s *Module) Library(b byoc.Backend) string {
	if text, known := s.Libraries.Load(b.Name()); known {
		return text.(string)
	}
	text := workers.LibraryOf(b)
	s.Libraries.Store(b.Name(), text)
	return text
}
